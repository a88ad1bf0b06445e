//! Validates requests against the providers' API descriptions.
//!
//! The descriptions are read from `LONGHAUL_SPECS` or from a folder beside the repository. Without
//! them the checks are skipped with a notice.

use std::path::PathBuf;

use jsonschema::Validator;
use serde_json::{Value, json};

/// A validator for one schema of an API description.
#[derive(Debug)]
pub(crate) struct SpecValidator(Option<Validator>);

impl SpecValidator {
    #[expect(clippy::print_stdout, reason = "a test that skips checks must print a notice")]
    pub(crate) fn new(file: &str, schema: &str) -> Self {
        let default_folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/specs");
        let folder =
            std::env::var_os("LONGHAUL_SPECS").map_or_else(|| default_folder.into(), PathBuf::from);
        let Ok(text) = std::fs::read_to_string(folder.join(file)) else {
            println!("no {file} in {}: its checks are skipped", folder.display());
            return Self(None);
        };
        let mut spec: Value = serde_json::from_str(&text).unwrap();
        let mut components = spec["components"].take();
        allow_null(&mut components);
        let schema = json!({
            "$ref": format!("#/components/schemas/{schema}"),
            "components": components,
        });
        Self(Some(jsonschema::validator_for(&schema).unwrap()))
    }

    /// Panics if a text is invalid.
    pub(crate) fn check(&self, text: &str) {
        let value: Value = serde_json::from_str(text).unwrap();
        let Some(validator) = &self.0 else { return };
        let faults: Vec<String> = validator
            .iter_errors(&value)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(faults.is_empty(), "{faults:#?}\n{text}");
    }

    /// Whether a value is valid. `None` means that the description is not available.
    pub(crate) fn is_valid(&self, value: &Value) -> Option<bool> {
        self.0.as_ref().map(|validator| validator.is_valid(value))
    }
}

/// Converts `nullable` of OpenAPI 3.0, which JSON Schema does not have. Also replaces `oneOf` by
/// `anyOf`, because some values match several shapes: a user message of OpenAI matches two.
fn allow_null(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.values_mut().for_each(allow_null);
            if let Some(variants @ Value::Array(_)) = fields.remove("oneOf") {
                fields.insert("anyOf".into(), variants);
            }
            if fields.remove("nullable") == Some(Value::Bool(true)) {
                let inner = Value::Object(std::mem::take(fields));
                fields.insert("anyOf".into(), json!([inner, { "type": "null" }]));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(allow_null),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
