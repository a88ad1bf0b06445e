//! Validates requests and responses against Daytona's API descriptions.
//!
//! The descriptions are read from `LONGHAUL_SPECS` or from a folder beside the repository. Without
//! them the checks are skipped with a notice.

use std::collections::HashMap;
use std::path::PathBuf;

use jsonschema::Validator;
use longhaul_testkit::daytona::Exchange;
use serde_json::{Value, json};

const CONTROL_PLANE: &str = "daytona-api.trimmed.json";
const TOOLBOX: &str = "daytona-toolbox.trimmed.json";

/// Panics if an exchange is invalid.
pub(crate) fn check(exchanges: &[Exchange]) {
    let (Some(mut control_plane), Some(mut toolbox)) =
        (Description::load(CONTROL_PLANE), Description::load(TOOLBOX))
    else {
        return;
    };
    for exchange in exchanges.iter().filter(|exchange| !exchange.is_fault) {
        match exchange.is_toolbox {
            true => toolbox.check(exchange),
            false => control_plane.check(exchange),
        }
    }
}

/// An API description, with the validators that were used.
struct Description {
    document: Value,
    validators: HashMap<String, Validator>,
}

impl Description {
    #[expect(clippy::print_stdout, reason = "a test that skips checks must print a notice")]
    fn load(file: &str) -> Option<Self> {
        let default_folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/specs");
        let folder =
            std::env::var_os("LONGHAUL_SPECS").map_or_else(|| default_folder.into(), PathBuf::from);
        let Ok(text) = std::fs::read_to_string(folder.join(file)) else {
            println!("no {file} in {}: its checks are skipped", folder.display());
            return None;
        };
        let mut document: Value = serde_json::from_str(&text).unwrap();
        allow_null(&mut document);
        Some(Self { document, validators: HashMap::new() })
    }

    fn check(&mut self, exchange: &Exchange) {
        let operation = self.operation(exchange);
        check_query(&operation, exchange);
        let body = operation["requestBody"]["content"]["application/json"].clone();
        let parameters = operation["parameters"].as_array().into_iter().flatten();
        let body_parameter = parameters.clone().find(|parameter| parameter["in"] == "body");
        let request_schema = body_parameter.unwrap_or(&body)["schema"].clone();
        if !exchange.request.is_null() {
            self.check_value(&request_schema, &exchange.request, exchange);
            self.check_field_names(&request_schema, exchange);
        }
        let response = &operation["responses"][exchange.status.to_string()];
        // The control plane's description lists no errors.
        let is_listed = response.is_object() || !exchange.is_toolbox && exchange.status >= 400;
        // The proxy of the toolboxes has errors of its own.
        let is_proxy_error = exchange.is_toolbox && matches!(exchange.status, 400 | 404);
        assert!(is_listed || is_proxy_error, "unlisted status: {exchange:#?}");
        let content = &response["content"]["application/json"]["schema"];
        let schema = if content.is_object() { content } else { &response["schema"] };
        if schema.is_object() && schema["type"] != "file" {
            self.check_value(&schema.clone(), &exchange.response, exchange);
        }
    }

    /// Returns the operation with the method and path of an exchange.
    fn operation(&self, exchange: &Exchange) -> Value {
        let segments: Vec<&str> = exchange.path.split('/').collect();
        let is_match = |template: &str| {
            let template: Vec<&str> = template.split('/').collect();
            let mut pairs = template.iter().zip(&segments);
            template.len() == segments.len()
                && pairs.all(|(part, segment)| part == segment || part.starts_with('{'))
        };
        let paths = self.document["paths"].as_object().unwrap();
        // A path without parameters wins.
        let mut found: Vec<_> = paths.iter().filter(|(template, _)| is_match(template)).collect();
        found.sort_by_key(|(template, _)| template.matches('{').count());
        let method = exchange.method.to_lowercase();
        let mut operations = found.iter().map(|(_, path)| &path[&method]);
        operations
            .find(|operation| operation.is_object())
            .unwrap_or_else(|| panic!("no such operation: {} {}", exchange.method, exchange.path))
            .clone()
    }

    fn check_value(&mut self, schema: &Value, value: &Value, exchange: &Exchange) {
        let validator = self.validators.entry(schema.to_string()).or_insert_with(|| {
            let mut root = json!({
                "components": self.document["components"],
                "definitions": self.document["definitions"],
            });
            for part in ["components", "definitions"] {
                if root[part].is_null() {
                    root[part] = json!({});
                }
            }
            root["allOf"] = json!([schema]);
            jsonschema::validator_for(&root).unwrap()
        });
        let faults: Vec<String> = validator
            .iter_errors(value)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(faults.is_empty(), "{faults:#?}\n{exchange:#?}");
    }

    /// Checks that all fields of a request are described: the schemas allow others.
    fn check_field_names(&self, schema: &Value, exchange: &Exchange) {
        let pointer = schema["$ref"].as_str().unwrap().trim_start_matches('#');
        let described = &self.document.pointer(pointer).unwrap()["properties"];
        for name in exchange.request.as_object().unwrap().keys() {
            assert!(described[name].is_object(), "unknown field {name}: {exchange:#?}");
        }
    }
}

/// Checks that the parameters in the query are described, and none is missing.
fn check_query(operation: &Value, exchange: &Exchange) {
    let parameters = operation["parameters"].as_array().into_iter().flatten();
    let in_query: Vec<_> = parameters.filter(|parameter| parameter["in"] == "query").collect();
    for (name, _) in &exchange.query {
        let is_described = in_query.iter().any(|parameter| parameter["name"] == **name);
        assert!(is_described, "unknown parameter {name}: {exchange:#?}");
    }
    for parameter in in_query.iter().filter(|parameter| parameter["required"] == true) {
        let is_given = exchange.query.iter().any(|(name, _)| parameter["name"] == **name);
        assert!(is_given, "{} is missing: {exchange:#?}", parameter["name"]);
    }
}

/// Converts `nullable` of OpenAPI 3.0, which JSON Schema does not have.
fn allow_null(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.values_mut().for_each(allow_null);
            if fields.get("nullable") == Some(&Value::Bool(true)) {
                fields.remove("nullable");
                let schema = std::mem::take(fields);
                fields.insert("anyOf".to_owned(), json!([schema, { "type": "null" }]));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(allow_null),
        _ => {}
    }
}

fn exchange(method: &str, path: &str, request: Value, response: Value) -> Exchange {
    Exchange {
        method: method.to_owned(),
        path: path.to_owned(),
        is_toolbox: true,
        query: Vec::new(),
        request,
        status: 200,
        response,
        is_fault: false,
    }
}

#[test]
fn invalid_exchanges_are_found() {
    let valid =
        || exchange("POST", "/process/execute", json!({"command": "ls"}), json!({"result": ""}));
    check(&[valid()]);
    if Description::load(TOOLBOX).is_none() {
        return;
    }
    for invalid in [
        Exchange { request: json!({"command": 1}), ..valid() },
        Exchange { request: json!({"command": "ls", "comand": ""}), ..valid() },
        Exchange { response: json!({}), ..valid() },
        Exchange { status: 204, ..valid() },
        Exchange { path: "/process/unknown".to_owned(), ..valid() },
        Exchange { query: vec![("unknown".to_owned(), String::new())], ..valid() },
        exchange("GET", "/files/download", Value::Null, Value::Null),
    ] {
        let result = std::panic::catch_unwind(|| check(std::slice::from_ref(&invalid)));
        assert!(result.is_err(), "{invalid:?}");
    }
}
