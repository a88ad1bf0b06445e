//! A JSON object of a provider whose fields are parsed on access.
//!
//! Invariant: an invalid field is an error only if the field is accessed.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::decode_error::{DecodeError, Decoded};
use crate::lenient_json::parse_lenient_u64;

/// A JSON object with its fields by name. A field that is `null` counts as missing.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct LenientObject<'a>(#[serde(borrow)] BTreeMap<String, &'a RawValue>);

impl<'a> LenientObject<'a> {
    /// Parses JSON text that must be an object.
    pub(crate) fn parse(text: &'a str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// Returns the raw JSON of a field.
    pub(crate) fn raw_field(&self, name: &str) -> Option<&'a RawValue> {
        let raw = self.0.get(name).copied();
        raw.filter(|raw| raw.get() != "null")
    }

    /// Parses a field. `None` means that the field is missing or has another type.
    fn parse_field<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        serde_json::from_str(self.raw_field(name)?.get()).ok()
    }

    /// Returns the text of a string field. `None` means that the field is missing or not a string.
    pub(crate) fn string_field(&self, name: &str) -> Option<String> {
        self.parse_field(name)
    }

    /// Returns the text of a string field. A field of another type is an error.
    pub(crate) fn try_string_field(&self, name: &str) -> Decoded<Option<String>> {
        let value = self.raw_field(name).map(|raw| serde_json::from_str(raw.get())).transpose();
        value.map_err(DecodeError::invalid_json(&format!("an event has an invalid `{name}`")))
    }

    /// Returns the text of a string field such as a status or a reason. A number is converted to
    /// text.
    pub(crate) fn string_or_number_field(&self, name: &str) -> Option<String> {
        let number = || Some(self.parse_field::<serde_json::Number>(name)?.to_string());
        self.string_field(name).or_else(number)
    }

    /// Returns a number field. A string that contains a number is accepted too.
    pub(crate) fn number_field(&self, name: &str) -> Option<u64> {
        parse_lenient_u64(self.raw_field(name)?.get())
    }

    /// Returns an object field. `None` means that the field is missing or not an object.
    pub(crate) fn object_field(&self, name: &str) -> Option<Self> {
        Self::parse(self.raw_field(name)?.get()).ok()
    }

    /// Returns the values of a list field. `None` means that the field is missing or not a list.
    pub(crate) fn list_field(&self, name: &str) -> Option<Vec<&'a RawValue>> {
        serde_json::from_str(self.raw_field(name)?.get()).ok()
    }
}
