//! What a JSON Schema asks of whoever makes a judge of it: each of its patterns is
//! compiled, whether it is needed or not, and a few letters may stand for megabytes.
//!
//! Never: reads a pattern, or says whether a schema is one.

mod shape;

use serde_json::{Map, Value};
pub use shape::{EXPANSION_MAX, SchemaError, SchemaShape};

/// The first reference of a schema that does not begin at its own root.
pub fn outward_reference(schema: &Value) -> Option<&str> {
    match schema {
        Value::Object(fields) => fields.iter().find_map(|(key, value)| match value.as_str() {
            Some(to) if shape::REFERENCES.contains(&&**key) && !to.starts_with('#') => Some(to),
            Some(_) | None => outward_reference(value),
        }),
        Value::Array(list) => list.iter().find_map(outward_reference),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// So many patterns one schema may hold.
pub const PATTERNS_MAX: usize = 64;

/// How many patterns a schema holds. What only looks like one is counted too, so that
/// none is left out.
pub fn patterns(schema: &Value) -> usize {
    match schema {
        Value::Object(fields) => {
            let own = fields.get("pattern").is_some_and(Value::is_string);
            let keys = fields.get("patternProperties").and_then(Value::as_object);
            let inner: usize = fields.values().map(patterns).sum();
            usize::from(own) + keys.map_or(0, Map::len) + inner
        }
        Value::Array(items) => items.iter().map(patterns).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_pattern_is_counted_wherever_it_stands() {
        for (schema, expect) in [
            (json!({ "pattern": "a" }), 1),
            (
                json!({ "properties": { "pattern": { "type": "string" } } }),
                0,
            ),
            (
                json!({ "patternProperties": { "a": { "pattern": "b" }, "c": {} } }),
                3,
            ),
            (
                json!({ "allOf": [{ "propertyNames": { "pattern": "a" } }, true] }),
                1,
            ),
            (
                json!({ "$defs": { "a": { "items": { "pattern": "a" } } } }),
                1,
            ),
        ] {
            assert_eq!(patterns(&schema), expect, "{schema}");
        }
    }
}
