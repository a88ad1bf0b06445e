//! Validates requests against the provider's API description.

use std::sync::OnceLock;

use serde_json::json;

use crate::suite::spec::SpecValidator;

fn validator() -> &'static SpecValidator {
    static VALIDATOR: OnceLock<SpecValidator> = OnceLock::new();
    VALIDATOR.get_or_init(|| SpecValidator::new("anthropic.trimmed.json", "CreateMessageParams"))
}

/// Panics if a request is invalid.
pub(crate) fn check(body: &str) {
    validator().check(body);
}

#[test]
fn the_spec_validator_rejects_an_invalid_request() {
    let bad = json!({"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": 5}]});
    assert_ne!(validator().is_valid(&bad), Some(true));
}
