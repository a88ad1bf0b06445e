//! Limits for JSON Schemas from untrusted sources. A validator compiles all regular expressions of
//! a schema, and a short schema may expand to megabytes.
//!
//! Nothing here validates that a document is a JSON Schema.

mod complexity;
mod error;
mod references;
mod totals;

use serde_json::Value;

pub use complexity::SchemaComplexity;
pub use error::{EXPANSION_MAX, SchemaError};

/// Returns the first reference in a schema that does not start with `#`, i.e. is not relative to
/// the schema itself.
pub fn find_external_reference(schema: &Value) -> Option<&str> {
    match schema {
        Value::Object(fields) => fields.iter().find_map(|(key, value)| match value.as_str() {
            Some(to) if references::REFERENCES.contains(&&**key) && !to.starts_with('#') => {
                Some(to)
            }
            Some(_) | None => find_external_reference(value),
        }),
        Value::Array(list) => list.iter().find_map(find_external_reference),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// Maximum number of regular expressions in a schema.
pub const PATTERNS_MAX: usize = 64;

/// Counts the regular expressions in a schema. Anything that may be one is counted, so that none is
/// missed.
pub fn count_patterns(schema: &Value) -> usize {
    let mut count = 0;
    for_each_pattern(schema, &mut |_| count += 1);
    count
}

/// Returns whether matching a regular expression of a schema may take more than linear time,
/// because it has lookaround or backreferences.
pub fn has_backtracking_pattern(schema: &Value) -> bool {
    let mut has_backtracking = false;
    for_each_pattern(schema, &mut |pattern| {
        let is_backreference = |(at, _): (usize, _)| {
            let next = pattern.as_bytes().get(at + 1);
            next.is_some_and(|next| next.is_ascii_digit() || b"kg".contains(next))
        };
        has_backtracking |=
            pattern.contains("(?") || pattern.match_indices('\\').any(is_backreference);
    });
    has_backtracking
}

fn for_each_pattern(schema: &Value, visit: &mut dyn FnMut(&str)) {
    match schema {
        Value::Object(fields) => {
            if let Some(Value::String(pattern)) = fields.get("pattern") {
                visit(pattern);
            }
            if let Some(Value::Object(keys)) = fields.get("patternProperties") {
                keys.keys().for_each(|key| visit(key));
            }
            fields.values().for_each(|inner| for_each_pattern(inner, visit));
        }
        Value::Array(items) => items.iter().for_each(|inner| for_each_pattern(inner, visit)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_pattern_of_a_schema_is_counted() {
        for (schema, expect) in [
            (json!({ "pattern": "a" }), 1),
            (json!({ "properties": { "pattern": { "type": "string" } } }), 0),
            (json!({ "patternProperties": { "a": { "pattern": "b" }, "c": {} } }), 3),
            (json!({ "allOf": [{ "propertyNames": { "pattern": "a" } }, true] }), 1),
            (json!({ "$defs": { "a": { "items": { "pattern": "a" } } } }), 1),
        ] {
            assert_eq!(count_patterns(&schema), expect, "{schema}");
        }
    }

    #[test]
    fn backtracking_patterns_are_distinguished_from_linear_ones() {
        for (pattern, expect) in [
            (r"^t[0-9]{1,9}\.[0-9]{1,5}$", false),
            (r"^(\w+\s?)*$", false),
            (r"^(?=.*[0-9]).{8,}$", true),
            (r"^(a+)\1$", true),
        ] {
            let schema = json!({ "items": { "pattern": pattern } });
            assert_eq!(has_backtracking_pattern(&schema), expect, "{pattern}");
        }
    }
}
