//! What a server has promised of its answers, and whether it keeps it.
//!
//! Never: says that a call failed. It was made and answered; only what came back is
//! not what was promised.

use longhaul_core::schema::{SchemaComplexity, has_backtracking_pattern};
use serde_json::Value;

use crate::schema_check::options;

/// Maximum work of a check on the caller's thread, and of one that is made at all.
const INLINE_WORK_MAX: u64 = 100_000;
const WORK_MAX: u64 = 20_000_000;

/// So much of what is wrong is told.
const ERROR_CHARS_MAX: usize = 300;

/// Whether checking an answer may take so long that it needs a thread of its own.
pub(super) fn is_expensive(answer: &Value, promise: Option<&Value>) -> bool {
    promise.is_some_and(|promise| {
        has_backtracking_pattern(promise)
            || validation_cost(promise, answer).is_some_and(|work| work > INLINE_WORK_MAX)
    })
}

/// The work of checking a value; none: it can't be checked.
fn validation_cost(promise: &Value, value: &Value) -> Option<u64> {
    let shape = SchemaComplexity::measure(promise).ok()?;
    Some(shape.check_cost(value))
}

/// What is wrong with an answer's form, if anything is: by the protocol, and by the
/// schema that the server has given itself. An answer that is too large for its schema
/// is taken as it is.
pub(super) fn output_error(answer: &Value, promise: Option<&Value>) -> Option<String> {
    match answer.get("content") {
        Some(Value::Array(blocks)) if blocks.iter().all(Value::is_object) => {}
        Some(Value::Array(_)) => return Some("its `content` holds what is no object".to_owned()),
        Some(_) => return Some("its `content` is no list".to_owned()),
        None => {}
    }
    // A call that failed has its words, and owes nothing else.
    let promise = promise.filter(|_| answer["isError"] != true)?;
    let Some(given) = answer.get("structuredContent") else {
        return Some("its schema promises `structuredContent`, and there is none".to_owned());
    };
    if validation_cost(promise, given)? > WORK_MAX {
        return None;
    }
    let judge = options().build(promise).ok()?;
    let fault = judge.validate(given).err()?;
    let at = fault.instance_path().to_string();
    let at = if at.is_empty() { "/" } else { &at };
    let words: String = format!("at {at}: {fault}").chars().take(ERROR_CHARS_MAX).collect();
    Some(format!("it breaks its own schema {words}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(answer: Value, expect: Option<&str>) {
        let promise = json!({
            "type": "object",
            "properties": { "a": { "type": "string" } },
            "required": ["a"]
        });
        let found = output_error(&answer, Some(&promise));
        assert_eq!(found.as_deref(), expect, "{answer}");
    }

    #[test]
    fn structured_content_is_checked_against_the_output_schema() {
        let text = json!([{ "type": "text", "text": "a" }]);
        check(json!({ "content": text, "structuredContent": { "a": "b" } }), None);
        check(json!({ "content": text, "isError": true }), None);
        check(
            json!({ "content": text, "structuredContent": { "a": 5 } }),
            Some("it breaks its own schema at /a: 5 is not of type \"string\""),
        );
        check(
            json!({ "content": text }),
            Some("its schema promises `structuredContent`, and there is none"),
        );
        check(json!({ "content": "nope" }), Some("its `content` is no list"));
        check(json!({ "content": ["nope"] }), Some("its `content` holds what is no object"));
        let large = json!({ "structuredContent": vec!["a"; 10_000_000 / 3] });
        let promise = json!({ "allOf": vec![json!({ "type": "object" }); 10] });
        assert!(is_expensive(&large, Some(&promise)));
        assert_eq!(output_error(&large, Some(&promise)), None);
        assert_eq!(output_error(&json!({ "sum": 5 }), None), None);
        assert_eq!(output_error(&json!({ "content": [] }), None), None);
    }
}
