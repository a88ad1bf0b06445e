//! What servers spell each in their own way: the calls of a reply, and the small
//! fields around them.
//!
//! Never: fails over a field that a reply can do without.

use std::borrow::Cow;

use longhaul_core::raw::RawJson;
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

/// The arguments of a call, byte for byte: those that came as a text of JSON, or
/// else as JSON. What is no JSON becomes a JSON string with the model's text: the
/// appraisal of the call finds that a text does not fit the tool's schema, nothing
/// is run, and the model is told so as the result of its call. What is a JSON
/// string already is wrapped once more, so that the model's text can always be had
/// back. No text at all is no arguments: servers that read them again want JSON.
pub(crate) fn arguments(whole: Option<RawJson>, text: &str) -> RawJson {
    if text.trim().is_empty() {
        return whole
            .filter(|input| input.as_str() != "null")
            .unwrap_or_else(|| RawJson::of(&serde_json::Map::new()));
    }
    RawJson::parse(text)
        .ok()
        .filter(|parsed| !parsed.as_str().starts_with('"'))
        .unwrap_or_else(|| RawJson::of(&text))
}

/// Arguments as the model wrote them. A JSON string stands for a text that was
/// none of the JSON that arguments are.
pub(crate) fn written(input: &RawJson) -> Cow<'_, str> {
    match serde_json::from_str::<String>(input.as_str()) {
        Ok(text) => Cow::Owned(text),
        Err(_) => Cow::Borrowed(input.as_str()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_kept_and_can_be_had_back() {
        let check = |text: &str, kept: &str| {
            let input = arguments(None, text);
            assert_eq!(input.as_str(), kept, "{text}");
            assert_eq!(written(&input), text.trim(), "{text}");
        };
        check(r#"{"a":  1.0}"#, r#"{"a":  1.0}"#);
        check("[1]", "[1]");
        check("oops", r#""oops""#);
        check(r#""a""#, r#""\"a\"""#);
        check(r#""{}""#, r#""\"{}\"""#);
        check("null", "null");
    }

    #[test]
    fn no_text_is_what_came_as_json_or_nothing() {
        let check = |whole: Option<&str>, kept: &str| {
            let whole = whole.and_then(|json| RawJson::parse(json).ok());
            assert_eq!(arguments(whole, " \n").as_str(), kept);
        };
        check(None, "{}");
        check(Some("null"), "{}");
        check(Some(r#"{"a": 1}"#), r#"{"a": 1}"#);
    }
}
