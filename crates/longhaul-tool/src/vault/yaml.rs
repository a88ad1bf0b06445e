//! Front matter: the YAML between two `---` lines at the top of a note.
//!
//! Never: trusts it. Its size is bounded, `yes` is a word and not a boolean,
//! and what can't be read is said, not thrown away.

use serde_json::{Map, Value};

use longhaul_core::time::Timestamp;

/// The longest front matter, in bytes.
pub(crate) const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Words that some reader of YAML takes for something else.
const LOADED: &[&str] = &[
    "true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf",
];

/// What stands at the top of a note.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Head {
    /// No front matter.
    Absent,
    /// Front matter that says this.
    Read(Map<String, Value>),
    /// Front matter that can't be read, and why.
    Broken(String),
}

/// Parts a note into its head and its body. A broken head stays in the body.
pub(crate) fn split(text: &str) -> (Head, &str) {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.split_inclusive('\n');
    let opening = lines.next().unwrap_or_default();
    if opening.trim_end() != "---" {
        return (Head::Absent, text);
    }
    let mut end = opening.len();
    for line in lines {
        if line.trim_end() == "---" {
            let body = &text[end + line.len()..];
            return match parse(&text[opening.len()..end]) {
                Ok(fields) => (Head::Read(fields), blank_line_off(body)),
                Err(why) => (Head::Broken(why), text),
            };
        }
        end += line.len();
        if end > HEAD_BYTES_MAX + opening.len() {
            let why = format!("it is longer than {HEAD_BYTES_MAX} bytes or has no closing `---`");
            return (Head::Broken(why), text);
        }
    }
    (Head::Broken("it has no closing `---`".into()), text)
}

/// One line of front matter.
pub(crate) fn line(key: &str, value: &Value) -> String {
    match value {
        Value::String(text) => format!("{}: {}\n", scalar(key), scalar(text)),
        Value::Array(items) if !items.is_empty() && items.iter().all(Value::is_string) => {
            let items = items.iter().filter_map(Value::as_str);
            let items: String = items
                .map(|item| format!("  - {}\n", scalar(item)))
                .collect();
            format!("{}:\n{items}", scalar(key))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            format!("{}: {}\n", scalar(key), flow(value))
        }
    }
}

fn blank_line_off(body: &str) -> &str {
    let rest = body
        .strip_prefix("\r\n")
        .or_else(|| body.strip_prefix('\n'));
    rest.unwrap_or(body)
}

fn parse(text: &str) -> Result<Map<String, Value>, String> {
    if text.len() > HEAD_BYTES_MAX {
        return Err(format!("it is longer than {HEAD_BYTES_MAX} bytes"));
    }
    if text.trim().is_empty() {
        return Ok(Map::new());
    }
    let options = serde_saphyr::options! { strict_booleans: true, with_snippet: false };
    match serde_saphyr::from_str_with_options(text, options) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(Value::Null) => Ok(Map::new()),
        Ok(Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
            Err("it is not a list of `key: value`".into())
        }
        Err(error) => Err(error.to_string().chars().take(200).collect()),
    }
}

fn flow(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(is) => is.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => quoted(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(flow).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(fields) => {
            let fields = fields.iter();
            let fields: Vec<String> = fields
                .map(|(key, value)| format!("{}: {}", quoted(key), flow(value)))
                .collect();
            format!("{{{}}}", fields.join(", "))
        }
    }
}

/// Plain where every reader agrees, quoted otherwise.
fn scalar(text: &str) -> String {
    if is_plain(text) || is_time(text) {
        text.into()
    } else {
        quoted(text)
    }
}

fn is_plain(text: &str) -> bool {
    let safe = |letter: char| letter.is_ascii_alphanumeric() || " _-/".contains(letter);
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && !text.ends_with(' ')
        && text.chars().all(safe)
        && !LOADED.contains(&text.to_ascii_lowercase().as_str())
}

fn is_time(text: &str) -> bool {
    let safe = |letter: char| letter.is_ascii_digit() || "TZ:.-".contains(letter);
    text.ends_with('Z') && text.chars().all(safe) && text.parse::<Timestamp>().is_ok()
}

fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for letter in text.chars() {
        match letter {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            letter if must_escape(letter) => {
                quoted.push_str(&format!("\\U{:08X}", u32::from(letter)));
            }
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

/// What YAML doesn't print, or takes for the end of a line.
fn must_escape(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}'
        )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop, prop_assert_eq, proptest};
    use serde_json::{Map, Value, json};

    use super::{Head, line, split};

    fn check(text: &str, head: &str, body: &str) {
        let (found, rest) = split(text);
        let found = match found {
            Head::Absent => "absent".into(),
            Head::Read(fields) => Value::Object(fields).to_string(),
            Head::Broken(why) => format!("broken: {why}"),
        };
        assert!(found.starts_with(head), "{text:?}: {found}");
        assert_eq!(rest, body, "{text:?}");
    }

    #[test]
    fn heads_of_all_sorts() {
        check("", "absent", "");
        check("# Hi\n---\n", "absent", "# Hi\n---\n");
        check("---\n---\nx", "{}", "x");
        check("---\r\na: yes\r\n---\r\n\r\nx", r#"{"a":"yes"}"#, "x");
        check("\u{feff}---\na: 1\n---\n\n\nx", r#"{"a":1}"#, "\nx");
        check("---\na: 2026-01-02\n---", r#"{"a":"2026-01-02"}"#, "");
        check(
            "---\na: 1\na: 2\n---\nx",
            "broken",
            "---\na: 1\na: 2\n---\nx",
        );
        check("---\n- a\n---\nx", "broken: it is not", "---\n- a\n---\nx");
        check("---\na: [\n---\nx", "broken", "---\na: [\n---\nx");
        check("---\na: 1\n", "broken: it has no closing", "---\na: 1\n");
        let long = format!("---\na: {}\n---\nx", "b".repeat(20_000));
        check(&long, "broken: it is longer", &long);
    }

    #[test]
    fn words_with_another_meaning_are_quoted() {
        let check = |text: &str, expected: &str| {
            assert_eq!(line("k", &json!(text)), format!("k: {expected}\n"));
        };
        check("Buy milk", "Buy milk");
        check("No", "\"No\"");
        check("12", "\"12\"");
        check("a: b", "\"a: b\"");
        check("2026-01-01T00:00:00.000000Z", "2026-01-01T00:00:00.000000Z");
        check("\"\\\u{7f}", r#""\"\\\U0000007F""#);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            fields in prop::collection::btree_map("[^\u{0}]{1,12}", any::<String>(), 0..4),
            list in prop::collection::vec(any::<String>(), 0..4),
            number in any::<i64>(),
        ) {
            let mut expected: Map<String, Value> = fields
                .into_iter()
                .map(|(key, value)| (format!("k{key}"), Value::String(value)))
                .collect();
            expected.insert("list".into(), json!(list));
            expected.insert("deep".into(), json!({ "a": [list, null, true, number] }));
            let head: String = expected.iter().map(|(key, value)| line(key, value)).collect();
            let text = format!("---\n{head}---\n\nbody");
            prop_assert_eq!(split(&text), (Head::Read(expected), "body"));
        }
    }
}
