//! What a server has promised of its answers, and whether it keeps it.
//!
//! Never: says that a call failed. It was made and answered; only what came back is
//! not what was promised.

use serde_json::Value;

/// So much of what is wrong is told.
const FAULT_CHARS_MAX: usize = 300;

/// What is wrong with an answer's form, if anything is: by the protocol, and by the
/// schema that the server has given itself.
pub(super) fn broken(answer: &Value, promise: Option<&Value>) -> Option<String> {
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
    let judge = jsonschema::validator_for(promise).ok()?;
    let fault = judge.iter_errors(given).next()?;
    let at = fault.instance_path().to_string();
    let at = if at.is_empty() { "/" } else { &at };
    let words: String = format!("at {at}: {fault}")
        .chars()
        .take(FAULT_CHARS_MAX)
        .collect();
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
        let found = broken(&answer, Some(&promise));
        assert_eq!(found.as_deref(), expect, "{answer}");
    }

    #[test]
    fn what_was_promised_is_compared_with_what_came() {
        let text = json!([{ "type": "text", "text": "a" }]);
        check(
            json!({ "content": text, "structuredContent": { "a": "b" } }),
            None,
        );
        check(json!({ "content": text, "isError": true }), None);
        check(
            json!({ "content": text, "structuredContent": { "a": 5 } }),
            Some("it breaks its own schema at /a: 5 is not of type \"string\""),
        );
        check(
            json!({ "content": text }),
            Some("its schema promises `structuredContent`, and there is none"),
        );
        check(
            json!({ "content": "nope" }),
            Some("its `content` is no list"),
        );
        check(
            json!({ "content": ["nope"] }),
            Some("its `content` holds what is no object"),
        );
        assert_eq!(broken(&json!({ "sum": 5 }), None), None);
        assert_eq!(broken(&json!({ "content": [] }), None), None);
    }
}
