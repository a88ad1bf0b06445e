//! Describes tool calls and their results in one line.

use serde_json::Value;

use crate::format::json_text;
use crate::sanitize::sanitize_line;

/// Describes the arguments of a call: `name=value` for each field of an object.
pub(crate) fn arguments_text(input: &Value) -> String {
    let Value::Object(fields) = input else { return sanitize_line(&json_text(input)) };
    let fields = fields.iter().map(|(name, value)| {
        let text = json_text(value);
        match value.is_string() && (text.is_empty() || text.contains(char::is_whitespace)) {
            true => format!("{name}={text:?}"),
            false => format!("{name}={text}"),
        }
    });
    sanitize_line(&fields.collect::<Vec<_>>().join(" "))
}

/// Describes a text that may have several lines, or be JSON, in one readable line, with the number of
/// further lines.
pub(crate) fn summary_line(text: &str) -> String {
    let text = text.trim();
    if text.starts_with(['{', '['])
        && let Ok(value) = serde_json::from_str::<Value>(text)
    {
        return json_summary(&value);
    }
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let first = lines.next().unwrap_or_default().trim().replace('\t', " ");
    match lines.count() {
        0 => sanitize_line(&first),
        1 => sanitize_line(&format!("{first}  (+1 line)")),
        more => sanitize_line(&format!("{first}  (+{more} lines)")),
    }
}

fn json_summary(value: &Value) -> String {
    let line = match value {
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| format!("{name}: {}", json_text(value)));
            fields.collect::<Vec<_>>().join(", ")
        }
        Value::Array(items) => {
            let first = items.first().map(json_text).unwrap_or_default();
            match items.len() {
                0 | 1 => first,
                count => format!("{first}  (+{} more)", count - 1),
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => json_text(value),
    };
    sanitize_line(&line)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_are_one_line() {
        for (input, expected) in [
            (json!({ "path": "a.txt", "limit": 3 }), "path=a.txt limit=3"),
            (json!({ "command": "cargo test\nls", "x": "" }), r#"command="cargo test\nls" x="""#),
            (json!({ "a": { "b": [1] } }), r#"a={"b":[1]}"#),
            (json!({ "a": "\u{1b}[2J" }), "a=·[2J"),
            (json!({}), ""),
            (json!("go"), "go"),
        ] {
            assert_eq!(arguments_text(&input), expected);
        }
    }

    #[test]
    fn results_are_one_readable_line() {
        for (text, expected) in [
            ("longhaul.toml\na\n\nb\n", "longhaul.toml  (+2 lines)"),
            ("1\t---\n2\tname", "1 ---  (+1 line)"),
            ("{\n \"id\": 7,\n \"name\": \"Ada\"\n}", "id: 7, name: Ada"),
            ("[{\"a\":1},{\"a\":2}]", "{\"a\":1}  (+1 more)"),
            ("{ broken", "{ broken"),
            ("", ""),
        ] {
            assert_eq!(summary_line(text), expected);
        }
    }
}
