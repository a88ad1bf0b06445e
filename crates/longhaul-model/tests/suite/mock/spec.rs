//! Validates responses of the mock against the providers' API descriptions.
//!
//! The descriptions are read from `LONGHAUL_SPECS` or from a folder beside the repository. Without
//! them the checks are skipped with a notice.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::OnceLock;

use jsonschema::Validator;
use longhaul_model::mock::{ApiKind, MockBody, MockResponse};
use serde_json::{Map, Value, json};

use super::harness;

/// Files, and the schemas used from each.
const SCHEMAS: [(&str, &[&str]); 2] = [
    (
        "anthropic.trimmed.json",
        &["Message", "MessageStreamEvent", "ErrorResponse", "ListResponse_ModelInfo_"],
    ),
    (
        "openai.trimmed.json",
        &[
            "Response",
            "ResponseStreamEvent",
            "CreateChatCompletionResponse",
            "CreateChatCompletionStreamResponse",
            "ErrorResponse",
            "ListModelsResponse",
        ],
    ),
];

type Validators = BTreeMap<(&'static str, &'static str), Validator>;

/// Panics if a response is invalid.
pub(crate) fn check(api: ApiKind, answer: &MockResponse) {
    let (file, response_schema, event_schema) = match api {
        ApiKind::Messages => (SCHEMAS[0].0, "Message", "MessageStreamEvent"),
        ApiKind::Responses => (SCHEMAS[1].0, "Response", "ResponseStreamEvent"),
        ApiKind::Chat => {
            (SCHEMAS[1].0, "CreateChatCompletionResponse", "CreateChatCompletionStreamResponse")
        }
    };
    match &answer.body {
        MockBody::Full(_) if answer.status >= 400 => {
            check_schema(file, "ErrorResponse", &harness::json_of(answer));
        }
        MockBody::Full(_) => check_schema(file, response_schema, &harness::json_of(answer)),
        MockBody::Stream(_) => {
            let events = harness::events(answer).into_iter().filter_map(harness::data);
            events.for_each(|data| check_schema(file, event_schema, &data));
        }
    }
}

/// Panics if a value does not match a schema.
pub(crate) fn check_schema(file: &'static str, schema: &'static str, value: &Value) {
    static ALL: OnceLock<Validators> = OnceLock::new();
    let Some(validator) = ALL.get_or_init(load_validators).get(&(file, schema)) else {
        return;
    };
    let faults: Vec<String> = validator
        .iter_errors(value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(faults.is_empty(), "{schema}: {faults:#?}\n{value:#}");
}

#[expect(clippy::print_stdout, reason = "a test that skips checks must print a notice")]
fn load_validators() -> Validators {
    let default_folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/specs");
    let folder =
        std::env::var_os("LONGHAUL_SPECS").map_or_else(|| default_folder.into(), PathBuf::from);
    let mut validators = Validators::new();
    for (file, schemas) in SCHEMAS {
        let Ok(text) = std::fs::read_to_string(folder.join(file)) else {
            println!("no {file} in {}: its checks are skipped", folder.display());
            continue;
        };
        let mut spec: Value = serde_json::from_str(&text).unwrap();
        nullable(&mut spec);
        let components = spec["components"].take();
        for name in schemas {
            let schema = json!({
                "$ref": format!("#/components/schemas/{name}"),
                "components": components,
            });
            let validator = jsonschema::validator_for(&schema).unwrap();
            validators.insert((file, *name), validator);
        }
    }
    validators
}

/// Converts `nullable` of OpenAPI 3.0, which 3.1 ignores.
fn nullable(schema: &mut Value) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(nullable),
        Value::Object(fields) => {
            fields.values_mut().for_each(nullable);
            if fields.get("nullable") == Some(&Value::Bool(true)) {
                fields.remove("nullable");
                let inner = Value::Object(std::mem::take(fields));
                let variants = json!([inner, { "type": "null" }]);
                *fields = Map::from_iter([("anyOf".to_owned(), variants)]);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn the_spec_validators_reject_invalid_responses() {
    let validators = load_validators();
    for ((file, schema), validator) in &validators {
        assert!(!validator.is_valid(&json!({ "data": 5 })), "{file}: {schema}");
    }
    let chunk = ("openai.trimmed.json", "CreateChatCompletionStreamResponse");
    if let Some(validator) = validators.get(&chunk) {
        let chunk = |finish: Value| {
            let choice = json!({ "index": 0, "delta": {}, "finish_reason": finish });
            json!({ "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice] })
        };
        assert!(validator.is_valid(&chunk(Value::Null)));
        assert!(!validator.is_valid(&chunk(json!("enough"))));
    }
}
