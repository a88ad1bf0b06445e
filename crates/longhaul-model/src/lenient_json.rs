//! What servers spell each in their own way: the calls of a reply, and the small
//! fields around them.
//!
//! Never: fails over a field that a reply can do without.

use std::borrow::Cow;

use longhaul_core::message::{Block, TextBlock, ThinkingBlock, ToolCall};
use longhaul_core::raw::RawJson;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::decode_error::DecodeError;

/// So many calls a reply may have.
const CALLS_MAX: usize = 1_024;

/// Whether a turn can hold so many calls.
pub(crate) fn check_call_count(calls: usize) -> Result<(), DecodeError> {
    match calls > CALLS_MAX {
        true => Err(DecodeError::TooLarge(format!("a reply of more than {CALLS_MAX} calls"))),
        false => Ok(()),
    }
}

/// JSON that is nested deeper is not sent back: readers give up at 128 levels or
/// not far behind, and what goes back stands some levels down in a request.
const DEPTH_MAX: usize = 100;

/// The arguments of a call, byte for byte: those that came as a text of JSON, or
/// else as JSON. What is no JSON, or too deep, becomes a JSON string with the model's text: the
/// appraisal of the call finds that a text does not fit the tool's schema, nothing
/// is run, and the model is told so as the result of its call. What is a JSON
/// string already is wrapped once more, so that the model's text can always be had
/// back. No text at all is no arguments: servers that read them again want JSON.
pub(crate) fn parse_arguments(whole: Option<RawJson>, text: &str) -> RawJson {
    if text.trim().is_empty() {
        return match whole {
            Some(input) if is_too_deep(input.as_str()) => RawJson::from_serialize(&input.as_str()),
            Some(input) if input.as_str() != "null" => input,
            Some(_) | None => RawJson::from_serialize(&serde_json::Map::new()),
        };
    }
    RawJson::parse(text)
        .ok()
        .filter(|parsed| !parsed.as_str().starts_with('"') && !is_too_deep(parsed.as_str()))
        .unwrap_or_else(|| RawJson::from_serialize(&text))
}

/// Arguments as the model wrote them. A JSON string stands for a text that was
/// none of the JSON that arguments are; one that was too deep stays a string, for
/// servers read arguments again.
pub(crate) fn arguments_text(input: &RawJson) -> Cow<'_, str> {
    match serde_json::from_str::<String>(input.as_str()) {
        Ok(text) if !is_too_deep(&text) => Cow::Owned(text),
        Ok(_) | Err(_) => Cow::Borrowed(input.as_str()),
    }
}

/// Where arguments stand that are no object: the model recognises its own slip by this
/// name.
#[derive(Serialize)]
struct InvalidArguments<'a> {
    #[serde(rename = "INVALID_JSON")]
    input: &'a RawJson,
}

/// Arguments as an object, for those that take nothing else.
pub(crate) fn object_arguments(input: &RawJson) -> RawJson {
    match input.as_str().starts_with('{') {
        true => input.clone(),
        false => RawJson::from_serialize(&InvalidArguments { input }),
    }
}

/// Whether a text of JSON is nested too deep, or would be if it were JSON.
pub(crate) fn is_too_deep(json: &str) -> bool {
    let (mut depth, mut in_text, mut escaped) = (0_usize, false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_text,
            b'"' => in_text = !in_text,
            _ if in_text => {}
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEPTH_MAX {
            return true;
        }
    }
    false
}

/// A block as it can go back to its provider. What the provider added to it and
/// is too deep is left out, and so is a block that is nothing else.
pub(crate) fn without_deep_extras(block: Block) -> Option<Block> {
    let fits = |raw: &RawJson| !is_too_deep(raw.as_str());
    Some(match block {
        Block::Text(words) => Block::Text(TextBlock { extra: words.extra.filter(fits), ..words }),
        Block::Thinking(thought) => {
            Block::Thinking(ThinkingBlock { extra: thought.extra.filter(fits), ..thought })
        }
        Block::ToolCall(call) => {
            Block::ToolCall(ToolCall { extra: call.extra.filter(fits), ..call })
        }
        Block::Other(raw) => Block::Other(Some(raw).filter(fits)?),
    })
}

/// The count that a JSON text holds.
pub(crate) fn parse_count(json: &str) -> Option<u64> {
    let spelled = || serde_json::from_str::<String>(json).ok()?.trim().parse().ok();
    serde_json::from_str(json).ok().or_else(spelled)
}

/// Whether a value says anything at all.
pub(crate) fn is_present(raw: &RawValue) -> bool {
    !matches!(raw.get(), "null" | "false" | r#""""# | "{}" | "[]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_round_trip() {
        let check = |text: &str, kept: &str| {
            let input = parse_arguments(None, text);
            assert_eq!(input.as_str(), kept, "{text}");
            assert_eq!(arguments_text(&input), text.trim(), "{text}");
        };
        check(r#"{"a":  1.0}"#, r#"{"a":  1.0}"#);
        check("[1]", "[1]");
        check("oops", r#""oops""#);
        check(r#""a""#, r#""\"a\"""#);
        check(r#""{}""#, r#""\"{}\"""#);
        check("null", "null");
    }

    #[test]
    fn too_deep_arguments_are_kept_as_text() {
        let check = |json: String, deep: bool| {
            assert_eq!(is_too_deep(&json), deep, "{json}");
            let input = parse_arguments(RawJson::parse(json.clone()).ok(), "");
            let said = parse_arguments(None, &json);
            assert_eq!(input, said);
            assert_eq!(arguments_text(&input), input.as_str());
            assert_eq!(input.as_str().starts_with('"'), deep, "{json}");
        };
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        check(nested(100), false);
        check(nested(101), true);
        check(nested(100_000), true);
        check(r#"{"a":"#.repeat(101) + "1" + &"}".repeat(101), true);
        check(format!("[{}]", ["[]"; 200].join(",")), false);
        check(format!(r#"{{"a\\\"[":"{}"}}"#, "[{".repeat(200)), false);
        assert!(is_too_deep(&"[".repeat(101)), "it is no JSON");
    }

    #[test]
    fn blank_arguments_are_the_json_value_or_empty() {
        let check = |whole: Option<&str>, kept: &str| {
            let whole = whole.and_then(|json| RawJson::parse(json).ok());
            assert_eq!(parse_arguments(whole, " \n").as_str(), kept);
        };
        check(None, "{}");
        check(Some("null"), "{}");
        check(Some(r#"{"a": 1}"#), r#"{"a": 1}"#);
    }
}
