//! The encodings of a secret that a search must know by heart. Escapes are not among them:
//! texts are searched without their escapes as well.
//!
//! Never: keeps a secret, or shows it.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

use serde_json::Value;

use crate::redact::reading::{SECRET_BYTES_MIN, decoded_forms};

/// Minimum length of what is looked for across the ends of lines, as programs wrap base64:
/// shorter words would look alike.
pub(super) const WRAPPED_BYTES_MIN: usize = 20;

/// Minimum length of a text in a secret that is JSON to be a secret by itself.
const JSON_TEXT_BYTES_MIN: usize = 32;

/// All that is looked for because of one secret.
pub(super) fn patterns_of(secret: &str) -> Vec<String> {
    let parts = telling_parts(secret);
    parts.iter().flat_map(|part| encodings(part)).collect()
}

/// A secret, and what of it is secret by itself.
fn telling_parts(value: &str) -> Vec<String> {
    let mut texts = Vec::new();
    match serde_json::from_str(value) {
        Ok(data @ (Value::Object(_) | Value::Array(_))) => add_long_texts(&mut texts, data),
        Ok(_) | Err(_) => texts.push(value.to_owned()),
    }
    let lines = texts.iter().filter(|text| text.contains('\n'));
    let lines = lines.flat_map(|text| text.lines()).map(str::trim);
    // Frames, as keys have them, say nothing.
    let is_telling = |line: &&str| line.len() >= WRAPPED_BYTES_MIN && !line.starts_with("-----");
    let mut parts: Vec<String> = lines.filter(is_telling).map(str::to_owned).collect();
    parts.extend(texts);
    parts.push(value.to_owned());
    parts
}

/// Adds the long texts in a secret that is JSON, such as the key of an account.
fn add_long_texts(texts: &mut Vec<String>, data: Value) {
    match data {
        Value::Object(fields) => {
            let values = fields.into_iter().map(|(_, value)| value);
            values.for_each(|value| add_long_texts(texts, value));
        }
        Value::Array(values) => {
            let values = values.into_iter();
            values.for_each(|value| add_long_texts(texts, value));
        }
        Value::String(text) if text.len() >= JSON_TEXT_BYTES_MIN && !is_public(&text) => {
            texts.push(text.trim().to_owned());
        }
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Whether a text is the address of a server or of a person, with nothing secret in it.
fn is_public(text: &str) -> bool {
    match text.split_once("://") {
        Some((_, address)) => {
            let mut path = address.split('/').skip(1);
            let has_key = address.contains(['@', '?', '#', ';', '=']);
            !has_key && path.all(|part| part.len() < WRAPPED_BYTES_MIN)
        }
        None => text.contains('@') && !text.contains(':'),
    }
}

/// A secret as it is, without its own escapes, as forms write it, as hex digits and as
/// base64, alone or in the midst of something.
fn encodings(secret: &str) -> Vec<String> {
    let mut all = vec![
        secret.to_owned(),
        STANDARD_NO_PAD.encode(secret),
        URL_SAFE_NO_PAD.encode(secret),
        secret.bytes().map(|byte| format!("{byte:02x}")).collect(),
        secret.bytes().map(|byte| format!("{byte:02X}")).collect(),
    ];
    // Forms have a plus where addresses have a blank.
    for plain in [secret.to_owned(), secret.replace(' ', "+")] {
        all.extend(decoded_forms(&plain));
        all.push(plain);
    }
    for before in 0..3 {
        let padded = [&[0; 3][..before], secret.as_bytes()].concat();
        // Only the letters that depend on nothing but the secret.
        let (from, to) = ((before * 8).div_ceil(6), padded.len() * 8 / 6);
        for text in [
            STANDARD_NO_PAD.encode(&padded),
            URL_SAFE_NO_PAD.encode(&padded),
        ] {
            all.extend(text.get(from..to).map(str::to_owned));
        }
    }
    all.retain(|encoded| encoded.len() >= SECRET_BYTES_MIN);
    // Most secrets are letters and digits, whose encodings are often the same.
    all.sort_unstable();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_has_few_encodings() {
        for (secret, most) in [("AKIAIOSFODNN7EXAMPLE", 9), ("wJalr/K7MDENG+bP=", 12)] {
            let count = encodings(secret).len();
            assert!(count <= most, "{secret}: {count}");
        }
    }
}
