//! The providers' own descriptions of their APIs as the judges of ours.
//!
//! They are read from `LONGHAUL_SPECS`, or from where they lie beside the house;
//! where they are not, the test says so and goes on.

use std::path::PathBuf;

use jsonschema::Validator;
use serde_json::{Value, json};

/// Somebody who knows one schema of a description.
#[derive(Debug)]
pub(crate) struct SpecValidator(Option<Validator>);

impl SpecValidator {
    /// The judge by this schema of this description.
    #[expect(clippy::print_stdout, reason = "a test that does less must say so")]
    pub(crate) fn new(file: &str, schema: &str) -> Self {
        let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/specs");
        let folder =
            std::env::var_os("LONGHAUL_SPECS").map_or_else(|| beside.into(), PathBuf::from);
        let Ok(text) = std::fs::read_to_string(folder.join(file)) else {
            println!("no {file} in {}: nothing is judged by it", folder.display());
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

    /// Panics with what is wrong with a text.
    pub(crate) fn check(&self, text: &str) {
        let value: Value = serde_json::from_str(text).unwrap();
        let Some(judge) = &self.0 else { return };
        let faults: Vec<String> = judge
            .iter_errors(&value)
            .map(|fault| format!("{}: {fault}", fault.instance_path()))
            .collect();
        assert!(faults.is_empty(), "{faults:#?}\n{text}");
    }

    /// Whether it finds nothing wrong; none: there is no description.
    pub(crate) fn is_valid(&self, value: &Value) -> Option<bool> {
        self.0.as_ref().map(|judge| judge.is_valid(value))
    }
}

/// `nullable` is of an older OpenAPI than the one that the descriptions name, and
/// no JSON Schema knows it: it is written as the newer one does. And where exactly
/// one of several shapes is asked for, more may fit in the descriptions as they
/// are: what OpenAI says of a user's message fits two. One is enough.
fn allow_null(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.values_mut().for_each(allow_null);
            if let Some(shapes @ Value::Array(_)) = fields.remove("oneOf") {
                fields.insert("anyOf".into(), shapes);
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
