//! Validates requests against the descriptions of the Engine API.
//!
//! The descriptions are read from `LONGHAUL_SPECS` or from a folder beside the repository. Without
//! them the checks are skipped with a notice.

use std::path::PathBuf;

use serde_json::{Map, Value, json};

use super::fake_engine::Request;

/// The description of one version of the Engine API.
#[derive(Debug)]
pub(super) struct EngineSpec(Value);

impl EngineSpec {
    /// Returns the description in a file. `None` means that it is not available.
    #[expect(clippy::print_stdout, reason = "a test that skips checks must print a notice")]
    pub(super) fn load(file: &str) -> Option<Self> {
        let default_folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/specs");
        let folder =
            std::env::var_os("LONGHAUL_SPECS").map_or_else(|| default_folder.into(), PathBuf::from);
        let Ok(text) = std::fs::read_to_string(folder.join(file)) else {
            println!("no {file} in {}: its checks are skipped", folder.display());
            return None;
        };
        let mut spec: Value = serde_json::from_str(&text).unwrap();
        forbid_unknown_fields(&mut spec["definitions"]);
        Some(Self(spec))
    }

    /// Panics if the API has no such operation, query parameter or body.
    pub(super) fn check(&self, request: &Request) {
        let Request { method, path, .. } = request;
        let paths = self.0["paths"].as_object().unwrap();
        let found = paths.iter().find(|(template, _)| matches(template, path));
        let (_, operations) = found.unwrap_or_else(|| panic!("no path {path}"));
        let operation = &operations[method.to_ascii_lowercase()];
        assert!(operation.is_object(), "no {method} {path}");
        let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
        for (name, value) in &request.query {
            // The client sends some parameters empty instead of leaving them out.
            let is_known = parameters.iter().any(|known| known["name"] == name.as_str());
            assert!(is_known || value.is_empty(), "{method} {path}: no parameter {name}={value}");
        }
        let schema = parameters.iter().find(|parameter| parameter["in"] == "body");
        let schema = schema.map(|parameter| &parameter["schema"]);
        let Some(schema) = schema.filter(|schema| schema["type"] != "string") else { return };
        let body = request.json().unwrap_or_else(|| panic!("{method} {path}: no JSON"));
        let mut schema = schema.clone();
        schema["unevaluatedProperties"] = json!(false);
        schema["definitions"] = self.0["definitions"].clone();
        let validator = jsonschema::validator_for(&schema).unwrap();
        let faults: Vec<String> = validator
            .iter_errors(&body)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(faults.is_empty(), "{method} {path}: {faults:#?}\n{body:#}");
    }
}

/// Returns whether a path has the form of a template such as `/exec/{id}/json`.
fn matches(template: &str, path: &str) -> bool {
    let parts = |text: &str| text.split('/').map(str::to_owned).collect::<Vec<_>>();
    let (template, path) = (parts(template), parts(path));
    let mut pairs = template.iter().zip(&path);
    template.len() == path.len()
        && pairs.all(|(expected, part)| expected.starts_with('{') || expected == part)
}

/// Makes every object with known fields refuse others, so that a misspelled field is found. The
/// definitions that are parts of others can't do that on their own.
fn forbid_unknown_fields(definitions: &mut Value) {
    const PARTS: [&str; 2] = ["ContainerConfig", "Resources"];
    for (name, schema) in definitions.as_object_mut().unwrap() {
        let schema = schema.as_object_mut().unwrap();
        let has_fields = schema.contains_key("properties") || schema.contains_key("allOf");
        if has_fields && !PARTS.contains(&name.as_str()) {
            schema.insert("unevaluatedProperties".to_owned(), json!(false));
        }
        allow_null(schema);
    }
}

/// Converts `x-nullable`, which JSON Schema does not have.
fn allow_null(schema: &mut Map<String, Value>) {
    let inner = schema.values_mut().filter_map(Value::as_object_mut);
    inner.for_each(allow_null);
    if schema.remove("x-nullable") == Some(Value::Bool(true)) {
        let inner = Value::Object(std::mem::take(schema));
        schema.insert("anyOf".to_owned(), json!([inner, { "type": "null" }]));
    }
}
