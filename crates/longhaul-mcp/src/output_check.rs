//! Checks a response against a tool's output schema.
//!
//! Invariant: a violation does not mean that the call failed. The call was made and answered; only
//! the response is invalid.

use longhaul_core::schema::{SchemaComplexity, has_backtracking_pattern};
use serde_json::Value;

use crate::schema_check::validation_options;

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
pub(super) fn output_schema_violation(
    answer: &Value,
    output_schema: Option<&Value>,
) -> Option<String> {
    match answer.get("content") {
        Some(Value::Array(blocks)) if blocks.iter().all(Value::is_object) => {}
        Some(Value::Array(_)) => {
            return Some("`content` has an item that is not an object".to_owned());
        }
        Some(_) => return Some("`content` is not a list".to_owned()),
        None => {}
    }
    // A failed call has an error text and needs no structured content.
    let output_schema = output_schema.filter(|_| answer["isError"] != true)?;
    let Some(structured) = answer.get("structuredContent") else {
        return Some("`structuredContent` is missing, which the output schema requires".to_owned());
    };
    if estimated_validation_cost(output_schema, structured)? > WORK_MAX {
        return None;
    }
    let validator = validation_options().build(output_schema).ok()?;
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
    use serde_json::json;

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
