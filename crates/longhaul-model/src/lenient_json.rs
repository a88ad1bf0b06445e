//! Lenient parsing of values that providers send in different forms: the arguments of tool calls
//! and small optional fields.
//!
//! Invariant: an invalid optional field is never an error.

use longhaul_core::message::{Block, TextBlock, ThinkingBlock, ToolCall};
use longhaul_core::raw::RawJson;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::decode_error::{DecodeError, Decoded};

/// Maximum number of tool calls per reply.
const CALLS_MAX: usize = 1_024;

/// Returns an error if a reply has more tool calls than the maximum.
pub(crate) fn check_tool_call_count(call_count: usize) -> Decoded {
    if call_count <= CALLS_MAX {
        return Ok(());
    }
    Err(DecodeError::TooLarge(format!("the reply has more than {CALLS_MAX} tool calls")))
}

/// Maximum nesting depth of JSON that is sent back to a provider. Parsers give up at about 128
/// levels, and the JSON is itself nested a few levels deep in the request.
const DEPTH_MAX: usize = 100;

/// Returns the arguments of a tool call as JSON, with their bytes unchanged. Servers send them as
/// JSON text or, if the text is empty, as a JSON value.
///
/// A code fence and trailing commas are removed from an object that is no valid JSON otherwise.
/// Other text that is not valid JSON, or is nested too deep, becomes a JSON string. A string does
/// not match the tool's schema, so the call is not run and the model gets the error as the result
/// of its call. Empty text without a value becomes `{}`, because some servers parse the arguments
/// again.
pub(crate) fn parse_tool_arguments(json_value: Option<RawJson>, text: &str) -> RawJson {
    if text.trim().is_empty() {
        return match json_value {
            Some(input) if is_nested_too_deep(input.as_str()) => {
                RawJson::from_serialize(&input.as_str())
            }
            Some(input) if input.as_str() != "null" => input,
            Some(_) | None => RawJson::from_serialize(&serde_json::Map::new()),
        };
    }
    if is_nested_too_deep(text) {
        return RawJson::from_serialize(&text);
    }
    RawJson::parse(text)
        .ok()
        .or_else(|| repair_and_parse_json_object(text))
        .filter(|parsed| !parsed.as_str().starts_with('"'))
        .unwrap_or_else(|| RawJson::from_serialize(&text))
}

/// Returns the JSON object that a text contains, without a code fence and trailing commas. `None`
/// means that the rest is not a valid object; other repairs could change its meaning.
fn repair_and_parse_json_object(text: &str) -> Option<RawJson> {
    let text = text.trim();
    let fenced = text.strip_prefix("```").and_then(|text| text.strip_suffix("```"));
    let text = fenced.map_or(text, |text| text.strip_prefix("json").unwrap_or(text)).trim();
    text.starts_with('{').then(|| RawJson::parse(remove_trailing_commas(text)).ok()).flatten()
}

/// Removes each comma that is followed by a closing bracket, except in strings.
fn remove_trailing_commas(json: &str) -> String {
    let (mut result, mut in_text, mut escaped) = (String::with_capacity(json.len()), false, false);
    for (index, character) in json.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = in_text,
            '"' => in_text = !in_text,
            ',' if !in_text && json[index + 1..].trim_start().starts_with(['}', ']']) => continue,
            _ => {}
        }
        result.push(character);
    }
    result
}

/// Object that wraps the arguments of a tool call that are not a JSON object. The name of its field
/// lets the model recognise the mistake.
#[derive(Serialize)]
struct InvalidArgumentsWrapper<'a> {
    #[serde(rename = "INVALID_JSON")]
    input: &'a RawJson,
}

/// Returns the arguments of a tool call as a JSON object, for APIs that accept only objects.
/// Arguments that are not an object are wrapped in one.
pub(crate) fn tool_arguments_as_object(input: &RawJson) -> RawJson {
    match input.as_str().starts_with('{') {
        true => input.clone(),
        false => RawJson::from_serialize(&InvalidArgumentsWrapper { input }),
    }
}

/// Whether JSON text is nested too deep to be sent to a provider. Also works for text that is not
/// valid JSON.
pub(crate) fn is_nested_too_deep(json: &str) -> bool {
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

/// Removes the extra fields of a reply's block (fields that are kept as raw JSON) if they are
/// nested too deep. `None` means that the whole block is raw JSON that is nested too deep.
pub(crate) fn remove_too_deep_extras(block: Block) -> Option<Block> {
    let fits = |raw: &RawJson| !is_nested_too_deep(raw.as_str());
    Some(match block {
        Block::Text(text_block) => {
            Block::Text(TextBlock { extra: text_block.extra.filter(fits), ..text_block })
        }
        Block::Thinking(thought) => {
            Block::Thinking(ThinkingBlock { extra: thought.extra.filter(fits), ..thought })
        }
        Block::ToolCall(call) => {
            Block::ToolCall(ToolCall { extra: call.extra.filter(fits), ..call })
        }
        Block::Other(raw) => Block::Other(Some(raw).filter(fits)?),
    })
}

/// Parses a count from a JSON number or from a JSON string that contains a number.
pub(crate) fn parse_lenient_u64(json: &str) -> Option<u64> {
    let parse_quoted = || serde_json::from_str::<String>(json).ok()?.trim().parse().ok();
    serde_json::from_str(json).ok().or_else(parse_quoted)
}

/// Whether a JSON value is neither null, false nor empty.
pub(crate) fn is_non_empty_json_value(value: &RawValue) -> bool {
    !matches!(value.get(), "null" | "false" | r#""""# | "{}" | "[]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_kept_repaired_or_become_a_string() {
        let check = |text: &str, expected: &str| {
            assert_eq!(parse_tool_arguments(None, text).as_str(), expected, "{text}");
        };
        check(r#"{"a":  1.0}"#, r#"{"a":  1.0}"#);
        check("[1]", "[1]");
        check("oops", r#""oops""#);
        check(r#""a""#, r#""\"a\"""#);
        check(r#""{}""#, r#""\"{}\"""#);
        check("null", "null");
        check("```json\n{\"a\": 1}\n```", r#"{"a": 1}"#);
        check("```\n{}\n```", "{}");
        check(r#"{"a": [1, 2,], "b": ",}", }"#, r#"{"a": [1, 2], "b": ",}" }"#);
        check(r#"{"a": 1"#, r#""{\"a\": 1""#);
        check(r#"{"a": "x,"#, r#""{\"a\": \"x,""#);
        check("{,}", "{}");
        check("{,,}", r#""{,,}""#);
        check("[1,]", r#""[1,]""#);
    }

    #[test]
    fn too_deep_arguments_are_kept_as_text() {
        let check = |json: String, is_too_deep: bool| {
            assert_eq!(is_nested_too_deep(&json), is_too_deep, "{json}");
            let input = parse_tool_arguments(RawJson::parse(json.clone()).ok(), "");
            let parsed = parse_tool_arguments(None, &json);
            assert_eq!(input, parsed);
            assert_eq!(input.as_str().starts_with('"'), is_too_deep, "{json}");
        };
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        check(nested(100), false);
        check(nested(101), true);
        check(nested(100_000), true);
        check(r#"{"a":"#.repeat(101) + "1" + &"}".repeat(101), true);
        check(format!("[{}]", ["[]"; 200].join(",")), false);
        check(format!(r#"{{"a\\\"[":"{}"}}"#, "[{".repeat(200)), false);
        assert!(is_nested_too_deep(&"[".repeat(101)), "text that is not valid JSON");
    }

    #[test]
    fn blank_argument_text_becomes_the_json_value_or_an_empty_object() {
        let check = |value: Option<&str>, expected: &str| {
            let value = value.and_then(|json| RawJson::parse(json).ok());
            assert_eq!(parse_tool_arguments(value, " \n").as_str(), expected);
        };
        check(None, "{}");
        check(Some("null"), "{}");
        check(Some(r#"{"a": 1}"#), r#"{"a": 1}"#);
    }
}
