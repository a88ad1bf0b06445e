//! Writes JSON into a request, byte by byte.
//!
//! Never: touches the bytes of what is already JSON.

use longhaul_core::raw::RawJson;

/// A JSON string.
pub(crate) fn text(out: &mut Vec<u8>, text: &str) {
    // Writing to memory can't fail.
    _ = serde_json::to_writer(out, text);
}

/// Ends an object, with the fields of another one.
pub(crate) fn close(out: &mut Vec<u8>, extra: Option<&RawJson>) {
    let inner = extra.and_then(inside).unwrap_or_default();
    if !inner.is_empty() {
        out.push(b',');
        out.extend_from_slice(inner.as_bytes());
    }
    out.push(b'}');
}

/// What stands between the braces of an object.
pub(crate) fn inside(object: &RawJson) -> Option<&str> {
    let text = object.as_str().trim();
    Some(text.strip_prefix('{')?.strip_suffix('}')?.trim())
}
