//! JSON that keeps its original spelling, and blobs addressed by their content.
//!
//! Invariant: a [`RawJson`] has no line breaks, so it can be part of a line of an event stream, a
//! journal export or a cassette. Text without line breaks is never reformatted: arguments that a
//! model wrote are replayed byte for byte.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::openapi;
use crate::text_macros::{debug_as_display, inline_schema, serde_as_text};

/// A JSON text in its original spelling, on one line. Always valid JSON.
///
/// A text of several lines loses all whitespace outside its strings; numbers, strings and the order
/// of keys are kept as written.
#[derive(Clone)]
pub struct RawJson(Arc<RawValue>);

/// The JSON value `null`.
impl Default for RawJson {
    fn default() -> Self {
        Self::null()
    }
}

impl RawJson {
    /// Parses a JSON text, keeping its original spelling.
    pub fn parse(text: impl Into<String>) -> Result<Self, serde_json::Error> {
        RawValue::from_string(text.into()).map(Self::from_raw_value)
    }

    /// Serializes a value to JSON. A value that can't be serialized becomes `null`.
    pub fn from_serialize(value: &impl Serialize) -> Self {
        match serde_json::value::to_raw_value(value) {
            Ok(raw) => Self::from_raw_value(raw),
            Err(_) => Self::null(),
        }
    }

    fn from_raw_value(raw: Box<RawValue>) -> Self {
        if !raw.get().contains('\n') && !raw.get().contains('\r') {
            return Self(raw.into());
        }
        // Removing whitespace outside strings keeps the text valid, so parsing can't fail.
        Self(RawValue::from_string(remove_whitespace(raw.get())).unwrap_or(raw).into())
    }

    /// Creates the JSON value `null`.
    pub fn null() -> Self {
        Self(RawValue::NULL.to_owned().into())
    }

    /// Returns the JSON text in its original spelling.
    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    /// Deserializes a field that is present as `Some`, even if its value is `null`.
    pub(crate) fn deserialize_null_as_some<'de, D: serde::Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Self>, D::Error> {
        Self::deserialize(deserializer).map(Some)
    }

    /// Parses the JSON text into a value. A text that is nested too deeply becomes `null`.
    pub fn to_value(&self) -> Value {
        serde_json::from_str(self.0.get()).unwrap_or(Value::Null)
    }
}

/// Removes the whitespace outside the strings of a valid JSON text.
fn remove_whitespace(json: &str) -> String {
    let (mut quoted, mut escaped) = (false, false);
    let is_kept = |character: &char| {
        quoted ^= *character == '"' && !escaped;
        escaped = quoted && *character == '\\' && !escaped;
        quoted || !matches!(character, ' ' | '\t' | '\n' | '\r')
    };
    json.chars().filter(is_kept).collect()
}

/// Maximum number of characters of a number in the JSON of requests.
pub const NUMBER_CHARS_MAX: usize = 1_000;

/// Reason why a JSON text is refused.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    /// A number has too many characters.
    #[error("a number has more than {NUMBER_CHARS_MAX} characters: send it as a string")]
    Number,
    /// The text is not valid JSON, or contains a number out of range.
    #[error(transparent)]
    Syntax(#[from] serde_json::Error),
}

/// Checks that a JSON text can be parsed into a value, which is not guaranteed for a [`RawJson`].
///
/// # Errors
/// Returns the reason why the text can't be parsed.
pub fn check_json_parses(text: &str) -> Result<(), JsonError> {
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
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RawJson {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(Self::from_raw_value)
    }
}

/// SHA-256 hash. Its text form is lower-case hex.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash([u8; 32]);

impl Hash {
    pub fn digest(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

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
        let is_hex = text.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
        if text.len() != 64 || !is_hex {
            return Err(ParseHashError);
        }
        let mut bytes = [0; 32];
        for (at, byte) in bytes.iter_mut().enumerate() {
            let pair = u8::from_str_radix(&text[at * 2..at * 2 + 2], 16);
            *byte = pair.map_err(|_| ParseHashError)?;
        }
        Ok(Self(bytes))
    }
}

/// Error for a text that is not a valid hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a hash must have 64 lower-case hex digits")]
pub struct ParseHashError;

debug_as_display!(Hash);
serde_as_text!(Hash);
inline_schema!(Hash, openapi::hash());
inline_schema!(RawJson, openapi::any_json());

/// Reference to a blob by its hash and length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobRef {
    /// Hash of the blob's content.
    pub hash: Hash,
    /// Length of the blob's content in bytes.
    pub size: u64,
}

impl BlobRef {
    /// Creates the reference to the given content.
    pub fn for_content(blob_content: &[u8]) -> Self {
        Self { hash: Hash::digest(blob_content), size: blob_content.len() as u64 }
    }
}

/// A text that is stored inline or as a blob. Several events can share one blob.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoredText {
    Inline(Arc<str>),
    Blob(BlobRef),
}

impl Default for StoredText {
    fn default() -> Self {
        Self::new_inline("")
    }
}

impl StoredText {
    pub fn new_inline(text: impl Into<Arc<str>>) -> Self {
        Self::Inline(text.into())
    }

    /// Returns the length of the text in bytes.
    pub fn text_size_bytes(&self) -> u64 {
        match self {
            Self::Inline(text) => text.len() as u64,
            Self::Blob(blob) => blob.size,
        }
    }
}

/// Serializes JSON with sorted keys and without spaces, as input for digests.
/// `serde_json` has exactly one spelling for each number.
pub fn canonical_json(value: &Value) -> String {
    let mut sorted = value.clone();
    sorted.sort_all_objects();
    sorted.to_string()
}

/// Returns whether a value is the default of its type. Such values are left out of many JSON
/// objects.
pub fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Generates JSON with whitespace anywhere, paired with the same JSON without whitespace.
    pub(crate) fn json_with_whitespace() -> impl Strategy<Value = (String, String)> {
        let scalars = prop::sample::select(vec![
            "null",
            "-1.50",
            "1E+400",
            "12345678901234567890123",
            r#""""#,
            r#"" a  b ""#,
            r#""\\""#,
            r#"" \" : [ \n\r\\\" ""#,
            "\"\u{2028} é\"",
        ]);
        let space = "[ \t\r\n]{0,3}";
        let leaf = scalars.prop_map(|text| (text.to_owned(), text.to_owned()));
        leaf.prop_recursive(4, 32, 4, move |inner| {
            let padded = (space, inner, space)
                .prop_map(|(before, (text, compact), after)| (before + &text + &after, compact));
            let items = prop::collection::vec((space, padded), 0..4);
            (items, space, any::<bool>()).prop_map(|(items, empty, is_object)| {
                let key = if is_object { r#""k \" k""# } else { "" };
                let colon = if is_object { ":" } else { "" };
                let (texts, compact_texts): (Vec<_>, Vec<_>) = (items.iter())
                    .map(|(space, (text, compact))| {
                        let text = format!("{space}{key}{space}{colon}{text}");
                        (text, format!("{key}{colon}{compact}"))
                    })
                    .unzip();
                let (text, compact) = (texts.join(","), compact_texts.join(","));
                let text = if items.is_empty() { empty } else { text };
                match is_object {
                    true => (format!("{{{text}}}"), format!("{{{compact}}}")),
                    false => (format!("[{text}]"), format!("[{compact}]")),
                }
            })
        })
    }

    proptest! {
        /// Nothing but whitespace outside strings is removed, and only if there is a line break.
        #[test]
        fn raw_json_is_one_line((text, compact) in json_with_whitespace()) {
            let expected = if text.contains(['\n', '\r']) { &compact } else { &text };
            let parsed = RawJson::parse(format!("\r\n {text}\n")).unwrap();
            prop_assert_eq!(parsed.as_str(), expected);
            let fields = format!(r#"{{"a":{text},"b":1}}"#);
            let fields: std::collections::BTreeMap<String, RawJson> =
                serde_json::from_str(&fields).unwrap();
            prop_assert_eq!(fields["a"].as_str(), expected);
            let raw_value = RawValue::from_string(text.clone()).unwrap();
            let serialized = RawJson::from_serialize(&raw_value);
            prop_assert_eq!(serialized.as_str(), expected);
        }
    }

    #[test]
    fn numbers_that_cannot_be_parsed_are_refused() {
        let digits = "9".repeat(5_000);
        for text in [
            format!(r#"{{"a": [{digits}]}}"#),
            format!("-0.{digits}"),
            format!(r#"["\\", {digits}]"#),
        ] {
            let error = check_json_parses(&text).unwrap_err().to_string();
            assert_eq!(error, "a number has more than 1000 characters: send it as a string");
        }
        for text in ["1e999", "[", &"9".repeat(400)] {
            let result = check_json_parses(text);
            assert!(matches!(result, Err(JsonError::Syntax(_))), "{text}");
        }
        for text in [format!(r#"{{"{digits}": "\"{digits}"}}"#), "[1e300, -12.5, true]".into()] {
            assert!(check_json_parses(&text).is_ok(), "{text}");
        }
    }
}
