//! Parses the response of a context provider.
//!
//! Invariant: a response is JSON of limited size.

use std::collections::BTreeMap;

use serde::Deserialize;

use longhaul_core::port::context::Perception;
use longhaul_core::raw::RawJson;

/// Maximum length of a context provider's response in bytes.
pub(super) const RESPONSE_BYTES_MAX: usize = 256 * 1024;
/// Maximum number of names in the `context` object of a response.
const CONTEXT_NAMES_MAX: usize = 64;

/// A context provider's response with separate values for the model (`world`) and for tools
/// (`context`).
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ContextProviderResponse {
    world: RawJson,
    #[serde(default)]
    context: Option<RawJson>,
}

/// Parses a context provider's response: `{"world": ..., "context": {...}}`, or any other JSON as
/// the world.
pub(super) fn parse_response(bytes: &[u8]) -> Result<Perception, String> {
    if bytes.len() > RESPONSE_BYTES_MAX {
        return Err(too_long_message());
    }
    let text = std::str::from_utf8(bytes);
    let text = text.map_err(|_| "the response is not UTF-8".to_owned())?.trim();
    if text.is_empty() {
        return Err("the response is empty; send at least `{}`".into());
    }
    let response = RawJson::parse(text)
        .map_err(|error| format!("the response is not valid JSON ({error})"))?;
    // Serde would accept a list as the fields in order, which is never intended.
    let parts =
        text.starts_with('{').then(|| serde_json::from_str::<ContextProviderResponse>(text));
    let Some(Ok(parts)) = parts else {
        return Ok(Perception { world: response, context: BTreeMap::new() });
    };
    let context = match parts.context {
        None => BTreeMap::new(),
        Some(context) => serde_json::from_str(context.as_str()).map_err(|_| {
            "`context` is not an object; it must map names to values for tools".to_owned()
        })?,
    };
    if context.len() > CONTEXT_NAMES_MAX {
        return Err(format!("`context` has more than {CONTEXT_NAMES_MAX} names"));
    }
    Ok(Perception { world: parts.world, context })
}

/// Returns the error message for a response that is too long.
pub(super) fn too_long_message() -> String {
    format!(
        "the response is longer than {RESPONSE_BYTES_MAX} bytes; send only what the agent needs"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_parsed_context_response(answer: &str, expected: Result<(&str, &str), &str>) {
        match (parse_response(answer.as_bytes()), expected) {
            (Ok(perception), Ok((world, context))) => {
                assert_eq!(perception.world.as_str(), world, "{answer}");
                assert_eq!(
                    RawJson::from_serialize(&perception.context).as_str(),
                    context,
                    "{answer}"
                );
            }
            (Err(error), Err(expected)) => assert!(error.contains(expected), "{answer}: {error}"),
            (perception, _) => panic!("{answer}: {perception:?}"),
        }
    }

    #[test]
    fn a_context_response_is_split_into_model_and_tool_values() {
        check_parsed_context_response(
            r#" {"world": {"a" : 1.10}} "#,
            Ok((r#"{"a" : 1.10}"#, "{}")),
        );
        check_parsed_context_response(
            r#"{"world":null,"context":{"recipient":"me"}}"#,
            Ok(("null", r#"{"recipient":"me"}"#)),
        );
        check_parsed_context_response(
            r#"{"context":{"a":1}}"#,
            Ok((r#"{"context":{"a":1}}"#, "{}")),
        );
        check_parsed_context_response(
            r#"{"world":1,"town":2}"#,
            Ok((r#"{"world":1,"town":2}"#, "{}")),
        );
        check_parsed_context_response("[1, 2]", Ok(("[1, 2]", "{}")));
        check_parsed_context_response("\"sunny\"", Ok(("\"sunny\"", "{}")));
        check_parsed_context_response(
            r#"{"world":1,"context":[2]}"#,
            Err("`context` is not an object"),
        );
        check_parsed_context_response(r#"{"world":1,"context":null}"#, Ok(("1", "{}")));
        check_parsed_context_response("", Err("is empty"));
        check_parsed_context_response(" \n", Err("is empty"));
        check_parsed_context_response("sunny", Err("not valid JSON"));
        check_parsed_context_response("{} {}", Err("not valid JSON"));
        check_parsed_context_response(&"1".repeat(RESPONSE_BYTES_MAX + 1), Err("longer than"));
        check_parsed_context_response(&"[".repeat(10_000), Err("not valid JSON"));
        assert!(parse_response(b"\"\xff\"").is_err());
        let many: BTreeMap<String, u32> = (0..65).map(|n| (n.to_string(), n)).collect();
        let many = serde_json::json!({ "world": 1, "context": many });
        check_parsed_context_response(&many.to_string(), Err("more than 64 names"));
    }
}
