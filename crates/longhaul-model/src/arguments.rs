//! What servers spell each in their own way: the calls of a reply, and the small
//! fields around them.
//!
//! Never: fails over a field that a reply can do without.

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::exchange::Fault;

/// So many calls a reply may have.
const CALLS_MAX: usize = 1_024;

/// Whether a turn can hold so many calls.
pub(crate) fn check_count(calls: usize) -> Result<(), Fault> {
    match calls > CALLS_MAX {
        true => Err(Fault::TooMuch(format!(
            "a reply of more than {CALLS_MAX} calls"
        ))),
        false => Ok(()),
    }
}

/// A text; anything else in its place counts as nothing.
pub(crate) fn text<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let raw = <&RawValue>::deserialize(from)?;
    Ok(serde_json::from_str(raw.get()).ok())
}

/// A word out of a list: a text, or a number that some servers count the list by.
pub(crate) fn word<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let raw = <&RawValue>::deserialize(from)?;
    let number = || {
        let number = serde_json::from_str::<serde_json::Number>(raw.get()).ok()?;
        Some(number.to_string())
    };
    Ok(serde_json::from_str(raw.get()).ok().or_else(number))
}

/// A count, or a text that spells one; anything else counts as nothing.
pub(crate) fn count<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    let raw = <&RawValue>::deserialize(from)?;
    Ok(count_in(raw.get()))
}

/// The count that a JSON text holds.
pub(crate) fn count_in(json: &str) -> Option<u64> {
    let spelled = || {
        serde_json::from_str::<String>(json)
            .ok()?
            .trim()
            .parse()
            .ok()
    };
    serde_json::from_str(json).ok().or_else(spelled)
}

/// Whether a value says anything at all.
pub(crate) fn says(raw: &RawValue) -> bool {
    !matches!(raw.get(), "null" | "false" | r#""""# | "{}" | "[]")
}
