//! Limits for JSON Schemas from untrusted sources. A validator compiles all regular expressions of
//! a schema, and a short schema may expand to megabytes.
//!
//! Nothing here validates that a document is a JSON Schema.

mod complexity;
mod references;

use serde_json::Value;

pub use complexity::SchemaComplexity;
pub use references::find_external_reference;

/// Maximum number of subschemas of a schema after its references were replaced by their targets.
pub const EXPANSION_MAX: u64 = 50_000;

/// Reason why a schema is rejected before it is compiled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// A part of the schema refers to itself for the same value, so validation would never end.
    #[error(
        "the reference `{0}` leads back to itself by references alone, so that any data would match: \
         specify what the data is there, such as {{\"type\": \"object\"}}"
    )]
    Cycle(String),
    /// The schema has too many subschemas after its references were replaced by their targets.
    #[error(
        "the schema has more than {EXPANSION_MAX} parts if its references are replaced by their \
         targets, too many to validate an answer: refer to each definition from fewer places"
    )]
    Expansion,
    /// A reference does not lead to a part of the schema document.
    #[error(
        "the schema refers to `{0}`, but only its own parts, such as `#/$defs/item`, can be \
         referred to: put that part under `$defs`"
    )]
    Reference(String),
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
    if let Some(Value::String(pattern)) = schema.get("pattern") {
        visit(pattern);
    }
    if let Some(Value::Object(keys)) = schema.get("patternProperties") {
        keys.keys().for_each(|key| visit(key));
    }
    inner_values(schema).into_iter().for_each(|inner| for_each_pattern(inner, visit));
}

/// Returns the values directly in a list or an object. Any other value contains none.
fn inner_values(value: &Value) -> Vec<&Value> {
    match value {
        Value::Object(fields) => fields.values().collect(),
        Value::Array(list) => list.iter().collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
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
