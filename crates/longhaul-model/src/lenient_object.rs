//! A provider's JSON object, of which only the fields that are asked for are read.
//!
//! Never: an error because of a field that nobody asks for.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::decode_error::DecodeError;
use crate::lenient_json::parse_count;

/// The fields of an object by their names. A field that is `null` is none.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct LenientObject<'a>(#[serde(borrow)] BTreeMap<String, &'a RawValue>);

impl<'a> LenientObject<'a> {
    /// Reads an object, of an event for instance.
    pub(crate) fn parse(text: &'a str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// A field as it came.
    pub(crate) fn raw(&self, name: &str) -> Option<&'a RawValue> {
        let raw = self.0.get(name).copied();
        raw.filter(|raw| raw.get() != "null")
    }

    /// A field that is read like this, where it can be.
    fn get<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        serde_json::from_str(self.raw(name)?.get()).ok()
    }

    /// A text, if it is one.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        self.get(name)
    }

    /// A text that must be one where there is any.
    pub(crate) fn strict_text(&self, name: &str) -> Result<Option<String>, DecodeError> {
        let said = self.raw(name).map(|raw| serde_json::from_str(raw.get()));
        said.transpose()
            .map_err(|bad| DecodeError::Malformed(format!("the `{name}` of an event: {bad}")))
    }

    /// A word that decides something: a text, or a number in its place.
    pub(crate) fn text_or_number(&self, name: &str) -> Option<String> {
        let number = || Some(self.get::<serde_json::Number>(name)?.to_string());
        self.text(name).or_else(number)
    }

    /// A count, also where it is spelled as a text.
    pub(crate) fn count(&self, name: &str) -> Option<u64> {
        parse_count(self.raw(name)?.get())
    }

    /// An object inside, if it is one.
    pub(crate) fn object(&self, name: &str) -> Option<Self> {
        Self::parse(self.raw(name)?.get()).ok()
    }

    /// A list inside, if it is one.
    pub(crate) fn list(&self, name: &str) -> Option<Vec<&'a RawValue>> {
        serde_json::from_str(self.raw(name)?.get()).ok()
    }
}
