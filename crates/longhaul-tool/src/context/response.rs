//! What a provider says, read as a perception.
//!
//! Never: something else than JSON, and never more than its bound.

use std::collections::BTreeMap;

use serde::Deserialize;

use longhaul_core::port::context::Perception;
use longhaul_core::raw::RawJson;

/// The longest answer, in bytes.
pub(super) const RESPONSE_BYTES_MAX: usize = 256 * 1024;
/// The most names that tools are given.
const CONTEXT_NAMES_MAX: usize = 64;

/// An answer that parts the world from what tools are given.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SplitResponse {
    world: RawJson,
    #[serde(default)]
    context: Option<RawJson>,
}

/// Reads an answer: `{"world": ..., "context": {...}}`, or any other JSON as the world.
pub(super) fn parse_perception(bytes: &[u8]) -> Result<Perception, String> {
    if bytes.len() > RESPONSE_BYTES_MAX {
        return Err(too_long_message());
    }
    let text = std::str::from_utf8(bytes);
    let text = text.map_err(|_| "its answer is not UTF-8".to_owned())?.trim();
    if text.is_empty() {
        return Err("it answered nothing; the least is `{}`".into());
    }
    let whole = RawJson::parse(text).map_err(|why| format!("its answer is no JSON ({why})"))?;
    // A list could be read as the fields in their order, which nobody means.
    let parted = text.starts_with('{').then(|| serde_json::from_str::<SplitResponse>(text));
    let Some(Ok(parted)) = parted else {
        return Ok(Perception { world: whole, context: BTreeMap::new() });
    };
    let context = match parted.context {
        None => BTreeMap::new(),
        Some(context) => serde_json::from_str(context.as_str())
            .map_err(|_| "its `context` is no object; tools are given values by name".to_owned())?,
    };
    if context.len() > CONTEXT_NAMES_MAX {
        return Err(format!("its `context` has more than {CONTEXT_NAMES_MAX} names"));
    }
    Ok(Perception { world: parted.world, context })
}

/// What is said of an answer that is too long.
pub(super) fn too_long_message() -> String {
    format!("its answer is longer than {RESPONSE_BYTES_MAX} bytes; answer what the agent needs")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(answer: &str, expected: Result<(&str, &str), &str>) {
        match (parse_perception(answer.as_bytes()), expected) {
            (Ok(seen), Ok((world, context))) => {
                assert_eq!(seen.world.as_str(), world, "{answer}");
                assert_eq!(RawJson::from_serialize(&seen.context).as_str(), context, "{answer}");
            }
            (Err(no), Err(why)) => assert!(no.contains(why), "{answer}: {no}"),
            (seen, _) => panic!("{answer}: {seen:?}"),
        }
    }

    #[test]
    fn a_response_is_split_into_world_and_context() {
        check(r#" {"world": {"a" : 1.10}} "#, Ok((r#"{"a" : 1.10}"#, "{}")));
        check(
            r#"{"world":null,"context":{"recipient":"me"}}"#,
            Ok(("null", r#"{"recipient":"me"}"#)),
        );
        check(r#"{"context":{"a":1}}"#, Ok((r#"{"context":{"a":1}}"#, "{}")));
        check(r#"{"world":1,"town":2}"#, Ok((r#"{"world":1,"town":2}"#, "{}")));
        check("[1, 2]", Ok(("[1, 2]", "{}")));
        check("\"sunny\"", Ok(("\"sunny\"", "{}")));
        check(r#"{"world":1,"context":[2]}"#, Err("`context` is no object"));
        check(r#"{"world":1,"context":null}"#, Ok(("1", "{}")));
        check("", Err("nothing"));
        check(" \n", Err("nothing"));
        check("sunny", Err("no JSON"));
        check("{} {}", Err("no JSON"));
        check(&"1".repeat(RESPONSE_BYTES_MAX + 1), Err("longer than"));
        check(&"[".repeat(10_000), Err("no JSON"));
        assert!(parse_perception(b"\"\xff\"").is_err());
        let many: BTreeMap<String, u32> = (0..65).map(|n| (n.to_string(), n)).collect();
        let many = serde_json::json!({ "world": 1, "context": many });
        check(&many.to_string(), Err("more than 64 names"));
    }
}
