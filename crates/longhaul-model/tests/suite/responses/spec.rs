//! Validates requests against the provider's API description.

use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::suite::spec::SpecValidator;

fn validator() -> &'static SpecValidator {
    static VALIDATOR: OnceLock<SpecValidator> = OnceLock::new();
    VALIDATOR.get_or_init(|| SpecValidator::new("openai.trimmed.json", "CreateResponse"))
}

/// Panics if a request is invalid. Items of unknown types are skipped, because they are not in the
/// description.
pub(crate) fn check(body: &str) {
    let mut body: Value = serde_json::from_str(body).unwrap();
    let items = body["input"].as_array_mut().unwrap();
    items.retain(|item| item["type"] != "poem");
    validator().check(&body.to_string());
}

/// Panics if a call and its result don't match, or if reasoning is not followed by another item.
pub(crate) fn check_pairs(body: &str) {
    let body: Value = serde_json::from_str(body).unwrap();
    let items = body["input"].as_array().unwrap();
    let ids = |kind: &str| {
        let matching = items.iter().filter(|item| item["type"] == kind);
        let mut ids: Vec<&str> = matching.map(|item| item["call_id"].as_str().unwrap()).collect();
        ids.sort_unstable();
        ids
    };
    let calls = ids("function_call");
    assert_eq!(calls, ids("function_call_output"), "{body:#}");
    assert!(calls.windows(2).all(|pair| pair[0] != pair[1]), "{calls:?}");
    assert!(calls.iter().all(|id| (1..=64).contains(&id.len())));
    for (index, item) in items.iter().enumerate() {
        if item["type"] == "reasoning" {
            let next = &items[index + 1..];
            let next = next.iter().find(|next| next["type"] != "reasoning");
            let next = next.unwrap();
            assert_ne!(next["role"], "user", "{body:#}");
            assert_ne!(next["type"], "function_call_output", "{body:#}");
        }
    }
}

#[test]
fn the_spec_validator_rejects_an_invalid_request() {
    let valid_request = json!({"model": "m", "input": [{"role": "user", "content": "Hi"}]});
    assert_ne!(validator().is_valid(&valid_request), Some(false));
    for invalid_request in [
        json!({"model": "m", "input": 5}),
        json!({"model": "m", "max_output_tokens": 15, "input": []}),
        json!({"model": "m", "input": [{"role": "user", "content": 5}]}),
        json!({"model": "m", "input": [{"type": "function_call", "call_id": "c", "name": "n", "arguments": {}}]}),
    ] {
        assert_ne!(validator().is_valid(&invalid_request), Some(true), "{invalid_request}");
    }
}
