//! JSON kept as the bytes it came in, and blobs named by what they hold.
//!
//! Never: reformats. Arguments that a model wrote are replayed byte for byte.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::text_macros::{debug_as_display, serde_as_text};

/// A JSON text, valid by construction, with its original spelling.
#[derive(Clone)]
pub struct RawJson(Arc<RawValue>);

impl RawJson {
    /// Takes a text if it is JSON.
    pub fn parse(text: impl Into<String>) -> Result<Self, serde_json::Error> {
        RawValue::from_string(text.into()).map(|raw| Self(raw.into()))
    }

    /// The text of a value; what can't be written as JSON becomes `null`.
    pub fn from_serialize(value: &impl Serialize) -> Self {
        match serde_json::value::to_raw_value(value) {
            Ok(raw) => Self(raw.into()),
            Err(_) => Self::null(),
        }
    }

    /// The value `null`.
    pub fn null() -> Self {
        Self(RawValue::NULL.to_owned().into())
    }

    /// The text as it came.
    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    /// The text read into a value. A text that is too deep for the reader is `null`.
    pub fn to_value(&self) -> Value {
        serde_json::from_str(self.0.get()).unwrap_or(Value::Null)
    }
}

/// Maximum number of characters of a number in what people and programs send.
pub const NUMBER_CHARS_MAX: usize = 1_000;

/// Reason why a JSON text is refused.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    /// A number has too many digits.
    #[error("a number has more than {NUMBER_CHARS_MAX} characters: send it as a text")]
    Number,
    /// It is no JSON, or has a number that no reader can hold.
    #[error(transparent)]
    Syntax(#[from] serde_json::Error),
}

/// Checks that a JSON text can be read as a value, which a [`RawJson`] need not be.
///
/// # Errors
/// Says what can't be read.
pub fn check_readable(text: &str) -> Result<(), JsonError> {
    let (mut quoted, mut escaped, mut length) = (false, false, 0);
    for byte in text.bytes() {
        length = match byte {
            b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E' if !quoted => length + 1,
            _ => 0,
        };
        if length > NUMBER_CHARS_MAX {
            return Err(JsonError::Number);
        }
        quoted ^= byte == b'"' && !escaped;
        escaped = quoted && byte == b'\\' && !escaped;
    }
    serde_json::from_str::<Value>(text)?;
    Ok(())
}

impl PartialEq for RawJson {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for RawJson {}

impl fmt::Debug for RawJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for RawJson {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(to)
    }
}

impl<'de> Deserialize<'de> for RawJson {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(from).map(|raw| Self(raw.into()))
    }
}

/// The SHA-256 of some bytes, as text in hex.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash([u8; 32]);

impl Hash {
    /// The hash of these bytes.
    pub fn digest(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The hash with these bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The hash's own bytes.
    pub const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::str::FromStr for Hash {
    type Err = ParseHashError;

    fn from_str(text: &str) -> Result<Self, ParseHashError> {
        let digits = text.as_bytes();
        let mut bytes = [0; 32];
        if digits.len() != 64 {
            return Err(ParseHashError);
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let high = hex_digit(pair[0]).ok_or(ParseHashError)?;
            let low = hex_digit(pair[1]).ok_or(ParseHashError)?;
            *byte = high << 4 | low;
        }
        Ok(Self(bytes))
    }
}

fn hex_digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

/// A text that is no hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a hash is 64 digits of lower-case hex")]
pub struct ParseHashError;

debug_as_display!(Hash);
serde_as_text!(Hash);

/// A blob by its content: what it hashes to and how long it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobRef {
    /// The hash of the content.
    pub hash: Hash,
    /// Its length in bytes.
    pub size: u64,
}

impl BlobRef {
    /// The reference to this content.
    pub fn for_content(content: &[u8]) -> Self {
        Self { hash: Hash::digest(content), size: content.len() as u64 }
    }
}

/// A text that stands here, or is kept once for all who say the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoredText {
    /// The text itself.
    Inline(Arc<str>),
    /// Where the text is kept.
    Blob(BlobRef),
}

impl StoredText {
    /// A text that stands here.
    pub fn inline(text: impl Into<Arc<str>>) -> Self {
        Self::Inline(text.into())
    }

    /// How many bytes the text has, wherever it is.
    pub fn size(&self) -> u64 {
        match self {
            Self::Inline(text) => text.len() as u64,
            Self::Blob(blob) => blob.size,
        }
    }
}

/// JSON with sorted keys and no spaces: the form that digests are taken of.
/// Numbers keep the spelling of `serde_json`, which is one per value.
pub fn canonical_json(value: &Value) -> String {
    fn write(value: &Value, out: &mut String) {
        match value {
            Value::Object(map) => {
                let mut keys: Vec<&String> = map.keys().collect();
                keys.sort_unstable();
                out.push('{');
                for (place, key) in keys.iter().enumerate() {
                    if place > 0 {
                        out.push(',');
                    }
                    out.push_str(&Value::String((*key).clone()).to_string());
                    out.push(':');
                    write(&map[key.as_str()], out);
                }
                out.push('}');
            }
            Value::Array(items) => {
                out.push('[');
                for (place, item) in items.iter().enumerate() {
                    if place > 0 {
                        out.push(',');
                    }
                    write(item, out);
                }
                out.push(']');
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                out.push_str(&value.to_string());
            }
        }
    }
    let mut out = String::new();
    write(value, &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_no_reader_can_hold_are_refused() {
        let digits = "9".repeat(5_000);
        for text in [
            format!(r#"{{"a": [{digits}]}}"#),
            format!("-0.{digits}"),
            format!(r#"["\\", {digits}]"#),
        ] {
            let bad = check_readable(&text).unwrap_err().to_string();
            assert_eq!(bad, "a number has more than 1000 characters: send it as a text");
        }
        for text in ["1e999", "[", &"9".repeat(400)] {
            let bad = check_readable(text);
            assert!(matches!(bad, Err(JsonError::Syntax(_))), "{text}");
        }
        for text in [format!(r#"{{"{digits}": "\"{digits}"}}"#), "[1e300, -12.5, true]".into()] {
            assert!(check_readable(&text).is_ok(), "{text}");
        }
    }
}
