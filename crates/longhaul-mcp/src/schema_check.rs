//! Checks whether the schemas of a server's tools can be used by models and by our input
//! validation, and checks responses against a tool's output schema.
//!
//! Invariant: the parts of a schema are counted before the schema is compiled, because a short
//! schema may need a lot of memory. A response that violates its schema does not mean that the call
//! failed: the call was made and answered.

use jsonschema::{PatternOptions, ValidationOptions};
use longhaul_core::schema::{
    PATTERNS_MAX, SchemaComplexity, SchemaError, count_patterns, find_external_reference,
    has_backtracking_pattern,
};
use serde_json::Value;

/// Maximum length of a tool's schema in bytes of JSON.
const SCHEMA_BYTES_MAX: usize = 64 * 1024;

/// Maximum number of regular expressions in all schemas of one server.
const ALL_PATTERNS_MAX: usize = 512;

/// Maximum memory of one compiled regular expression in bytes.
const PATTERN_BYTES_MAX: usize = 256 * 1024;

/// Maximum number of backtracking steps when matching a regular expression.
const BACKTRACK_MAX: usize = 100_000;

/// Returns the options for compiling the schemas of servers.
fn validation_options() -> ValidationOptions<'static> {
    let patterns =
        PatternOptions::fancy_regex().size_limit(PATTERN_BYTES_MAX).backtrack_limit(BACKTRACK_MAX);
    jsonschema::options().with_pattern_options(patterns)
}

/// Checks the schemas of one server's tools.
#[derive(Debug, Clone, Default)]
pub(super) struct SchemaChecker {
    /// Number of regular expressions in the schemas checked so far.
    pattern_count: usize,
}

impl SchemaChecker {
    /// Checks the schema of a tool's input or results; `part` says which. The error
    /// says what is wrong with the schema.
    pub(super) fn check_schema(&mut self, schema: &Value, part: &str) -> Result<(), String> {
        let problem = |problem: &str| format!("the schema of the {part} {problem}");
        if schema.to_string().len() > SCHEMA_BYTES_MAX {
            return Err(problem(&format!("is longer than {} KB", SCHEMA_BYTES_MAX / 1024)));
        }
        if find_external_reference(schema).is_some() {
            return Err(problem("refers to another document"));
        }
        match SchemaComplexity::measure(schema) {
            Ok(complexity) if !complexity.is_recursive() => {}
            Ok(_) | Err(SchemaError::Cycle(_)) => return Err(problem("refers to itself")),
            Err(error) => return Err(problem(&format!("can't be used: {error}"))),
        }
        let patterns = count_patterns(schema);
        if patterns > PATTERNS_MAX {
            return Err(problem(&format!("holds more than {PATTERNS_MAX} patterns")));
        }
        let all_patterns = self.pattern_count.saturating_add(patterns);
        if patterns > 0 && all_patterns > ALL_PATTERNS_MAX {
            return Err(format!("the tool schemas hold more than {ALL_PATTERNS_MAX} patterns"));
        }
        self.pattern_count = all_patterns;
        validation_options().build(schema).map(drop).map_err(|error| {
            let error: String = error.to_string().chars().take(200).collect();
            problem(&format!("is invalid: {error}"))
        })
    }
}

/// Maximum estimated cost of a schema check that runs on the caller's thread.
const INLINE_WORK_MAX: u64 = 100_000;
/// Maximum estimated cost of any schema check. A more expensive check is skipped.
const WORK_MAX: u64 = 20_000_000;

/// Maximum length of the message about a schema violation, in characters.
const ERROR_CHARS_MAX: usize = 300;

/// Returns whether checking a response against the output schema may take so long that the check
/// needs a thread of its own.
pub(super) fn is_validation_expensive(answer: &Value, output_schema: Option<&Value>) -> bool {
    output_schema.is_some_and(|output_schema| {
        has_backtracking_pattern(output_schema)
            || estimated_validation_cost(output_schema, answer)
                .is_some_and(|cost| cost > INLINE_WORK_MAX)
    })
}

/// Returns the estimated cost of checking a value against the schema. `None` if the schema can't be
/// used.
fn estimated_validation_cost(output_schema: &Value, value: &Value) -> Option<u64> {
    let complexity = SchemaComplexity::measure(output_schema).ok()?;
    Some(complexity.validation_cost(value))
}

/// Returns how a response violates the protocol or its output schema. `None` means the response is
/// valid or too expensive to check.
pub(super) fn output_schema_violation(answer: &Value, schema: Option<&Value>) -> Option<String> {
    match answer.get("content") {
        Some(Value::Array(blocks)) if blocks.iter().all(Value::is_object) => {}
        Some(Value::Array(_)) => {
            return Some("`content` has an item that is not an object".to_owned());
        }
        Some(_) => return Some("`content` is not a list".to_owned()),
        None => {}
    }
    // A failed call has an error text and needs no structured content.
    let schema = schema.filter(|_| answer["isError"] != true)?;
    let Some(structured) = answer.get("structuredContent") else {
        return Some("`structuredContent` is missing, which the output schema requires".to_owned());
    };
    if estimated_validation_cost(schema, structured)? > WORK_MAX {
        return None;
    }
    let validator = validation_options().build(schema).ok()?;
    let error = validator.validate(structured).err()?;
    let path = error.instance_path().to_string();
    let path = if path.is_empty() { "/" } else { &path };
    let path_and_error = format!("at {path}: {error}");
    let path_and_error: String = path_and_error.chars().take(ERROR_CHARS_MAX).collect();
    Some(format!("the response violates the output schema {path_and_error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Map, json};

    #[test]
    fn schemas_that_grow_exponentially_are_refused() {
        let mut defs = Map::new();
        for at in 0..30 {
            let reference = json!({ "$ref": format!("#/$defs/d{}", at + 1) });
            defs.insert(format!("d{at}"), json!({ "allOf": [reference.clone(), reference] }));
        }
        defs.insert("d30".into(), json!({ "type": "object" }));
        let schema = json!({ "$ref": "#/$defs/d0", "$defs": defs });
        let error = SchemaChecker::default().check_schema(&schema, "input").unwrap_err();
        assert!(error.contains("more than 50000 parts"), "{error}");
    }

    fn assert_schema_violation(answer: Value, expected: Option<&str>) {
        let output_schema = json!({
            "type": "object",
            "properties": { "a": { "type": "string" } },
            "required": ["a"]
        });
        let found = output_schema_violation(&answer, Some(&output_schema));
        assert_eq!(found.as_deref(), expected, "{answer}");
    }

    #[test]
    fn structured_content_is_checked_against_the_output_schema() {
        let text = json!([{ "type": "text", "text": "a" }]);
        assert_schema_violation(
            json!({ "content": text, "structuredContent": { "a": "b" } }),
            None,
        );
        assert_schema_violation(json!({ "content": text, "isError": true }), None);
        assert_schema_violation(
            json!({ "content": text, "structuredContent": { "a": 5 } }),
            Some("the response violates the output schema at /a: 5 is not of type \"string\""),
        );
        assert_schema_violation(
            json!({ "content": text }),
            Some("`structuredContent` is missing, which the output schema requires"),
        );
        assert_schema_violation(json!({ "content": "nope" }), Some("`content` is not a list"));
        assert_schema_violation(
            json!({ "content": ["nope"] }),
            Some("`content` has an item that is not an object"),
        );
        let large = json!({ "structuredContent": vec!["a"; 10_000_000 / 3] });
        let output_schema = json!({ "allOf": vec![json!({ "type": "object" }); 10] });
        assert!(is_validation_expensive(&large, Some(&output_schema)));
        assert_eq!(output_schema_violation(&large, Some(&output_schema)), None);
        assert_eq!(output_schema_violation(&json!({ "sum": 5 }), None), None);
        assert_eq!(output_schema_violation(&json!({ "content": [] }), None), None);
    }
}
