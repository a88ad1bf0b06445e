//! The JSON Schema of a Rust type, in a simple form that every model provider accepts.
//!
//! Invariant: the schema has no external references. Types are inlined; only a recursive type is
//! defined under `$defs`.

use schemars::generate::SchemaSettings;
use schemars::transform::transform_subschemas;
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

/// Returns the JSON Schema (draft 2020-12) of a tool's input type. The error says what the type is
/// if it is not an object.
pub(super) fn input_schema<T: JsonSchema>() -> Result<Value, &'static str> {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    simplify(&mut schema);
    let Value::Object(mut schema) = schema.to_value() else {
        return Err("anything");
    };
    let choices = ["oneOf", "anyOf", "allOf"];
    if choices.iter().any(|choice| schema.contains_key(*choice)) {
        return Err("a choice between several types");
    }
    if schema.get("type").and_then(Value::as_str) != Some("object") {
        return Err("not an object");
    }
    // The tool has a name and a description of its own.
    schema.remove("title");
    schema.remove("description");
    schema.entry("properties").or_insert_with(|| json!({}));
    Ok(Value::Object(schema))
}

/// Removes schema keywords that some model providers reject and no model needs.
fn simplify(schema: &mut Schema) {
    transform_subschemas(&mut simplify, schema);
    let Some(schema) = schema.as_object_mut() else {
        return;
    };
    // `uint8` and the like are not JSON Schema formats. The limits stay.
    let is_number = |kind: &Value| kind == "integer" || kind == "number";
    if schema.get("type").is_some_and(any_type(is_number)) {
        schema.remove("format");
    }
    // Line breaks of a wrapped comment are removed, paragraphs are kept.
    if let Some(Value::String(text)) = schema.get_mut("description") {
        let paragraphs = text.split("\n\n").map(|lines| lines.replace('\n', " "));
        *text = paragraphs.collect::<Vec<_>>().join("\n\n");
    }
    let required = schema.get("required").cloned().unwrap_or_default();
    let is_required = |name: &str| {
        let names = required.as_array().into_iter().flatten();
        names.into_iter().any(|required| required == name)
    };
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    for (name, property) in properties.into_iter().flatten() {
        if let Value::Object(property) = property
            && !is_required(name)
        {
            remove_null(property);
        }
    }
}

/// Creates a predicate for the value of a `type` keyword: whether that type, or any type in its
/// list, satisfies `predicate`.
fn any_type(predicate: impl Fn(&Value) -> bool) -> impl Fn(&Value) -> bool {
    move |kind| match kind {
        Value::Array(kinds) => kinds.iter().any(&predicate),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            predicate(kind)
        }
    }
}

/// Removes `null` from the schema of an optional property, because a model leaves the property out
/// instead. Providers differ most in how they treat lists of types.
fn remove_null(property: &mut Map<String, Value>) {
    let is_null = |value: &Value| value.is_null() || value == "null" || value["type"] == "null";
    for list in ["type", "enum", "anyOf"] {
        let Some(Value::Array(values)) = property.get_mut(list) else {
            continue;
        };
        values.retain(|value| !is_null(value));
        let mut remaining = std::mem::take(values);
        match (list, remaining.len()) {
            ("type", 1) => {
                property.insert(list.to_owned(), remaining.remove(0));
            }
            ("anyOf", 1) => {
                property.remove(list);
                let Value::Object(object) = remaining.remove(0) else {
                    continue;
                };
                for (key, value) in object {
                    // The field's own description takes precedence over that of its type.
                    property.entry(key).or_insert(value);
                }
            }
            _ => {
                property.insert(list.to_owned(), Value::Array(remaining));
            }
        }
    }
    if property.get("default").is_some_and(Value::is_null) {
        property.remove("default");
    }
}
