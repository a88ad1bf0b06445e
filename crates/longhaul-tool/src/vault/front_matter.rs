//! Front matter: the YAML between two `---` lines at the top of a note.
//!
//! Invariant: front matter is untrusted. Its size is limited, `yes` is a string and not a boolean,
//! and invalid front matter is reported instead of dropped.

use serde_json::{Map, Value};

/// Maximum length of front matter in bytes.
pub(crate) const FRONT_MATTER_BYTES_MAX: usize = 16 * 1024;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum FrontMatter {
    Absent,
    /// Valid front matter with these fields.
    Parsed(Map<String, Value>),
    /// Front matter that can't be parsed, and the reason.
    Invalid(String),
}

/// Splits a text at the two `---` lines around its front matter, and returns the front matter and
/// what follows it. `None` means that the text has no such lines.
pub(crate) fn split_at_fences(text: &str) -> Option<(&str, &str)> {
    let mut position = 0;
    let mut fences = text.split_inclusive('\n').filter_map(|line| {
        let start = position;
        position += line.len();
        (line.trim_end() == "---").then_some((start, position))
    });
    let (_, start) = fences.next().filter(|(start, _)| *start == 0)?;
    let (end, body) = fences.next()?;
    Some((&text[start..end], &text[body..]))
}

/// Splits a note into its front matter and its body. If the front matter is absent or invalid, the
/// body is the whole text.
pub(crate) fn split_front_matter(text: &str) -> (FrontMatter, &str) {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let Some((yaml, body)) = split_at_fences(text) else {
        let is_open = text.lines().next().is_some_and(|line| line.trim_end() == "---");
        return match is_open {
            true => {
                let max = FRONT_MATTER_BYTES_MAX;
                let reason = format!("there is no closing `---` in the first {max} bytes");
                (FrontMatter::Invalid(reason), text)
            }
            false => (FrontMatter::Absent, text),
        };
    };
    match parse_yaml_fields(yaml) {
        Ok(fields) => {
            // The empty line that rendering adds is not part of the body.
            let rest = body.strip_prefix("\r\n").or_else(|| body.strip_prefix('\n'));
            (FrontMatter::Parsed(fields), rest.unwrap_or(body))
        }
        Err(reason) => (FrontMatter::Invalid(reason), text),
    }
}

/// Renders front matter without the `---` lines. A text that some YAML parser would read as another
/// type is quoted.
pub(crate) fn render_yaml_fields(fields: &Map<String, Value>) -> String {
    let options = serde_saphyr::ser_options! {
        compact_list_indent: false,
        prefer_block_scalars: false,
    };
    // Fields from JSON can always be serialized. If they could not, the note would be rejected
    // because it does not parse back.
    serde_saphyr::to_string_with_options(fields, options).unwrap_or_default()
}

fn parse_yaml_fields(text: &str) -> Result<Map<String, Value>, String> {
    if text.len() > FRONT_MATTER_BYTES_MAX {
        return Err(format!("the front matter exceeds {FRONT_MATTER_BYTES_MAX} bytes"));
    }
    if text.trim().is_empty() {
        return Ok(Map::new());
    }
    let options = serde_saphyr::options! { strict_booleans: true, with_snippet: false };
    match serde_saphyr::from_str_with_options(text, options) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(Value::Null) => Ok(Map::new()),
        Ok(Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
            Err("the text is not a list of `key: value` pairs".into())
        }
        Err(error) => Err(error.to_string().chars().take(200).collect()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop, prop_assert_eq, proptest};
    use serde_json::{Map, Value, json};

    use super::{FrontMatter, render_yaml_fields, split_front_matter};

    fn check_front_matter_split(text: &str, head: &str, body: &str) {
        let (found, rest) = split_front_matter(text);
        let found = match found {
            FrontMatter::Absent => "absent".into(),
            FrontMatter::Parsed(fields) => Value::Object(fields).to_string(),
            FrontMatter::Invalid(reason) => format!("invalid: {reason}"),
        };
        assert!(found.starts_with(head), "{text:?}: {found}");
        assert_eq!(rest, body, "{text:?}");
    }

    #[test]
    fn front_matter_is_split_from_the_body() {
        check_front_matter_split("", "absent", "");
        check_front_matter_split("# Hi\n---\n", "absent", "# Hi\n---\n");
        check_front_matter_split("---\n---\nx", "{}", "x");
        check_front_matter_split("---\r\na: yes\r\n---\r\n\r\nx", r#"{"a":"yes"}"#, "x");
        check_front_matter_split("\u{feff}---\na: 1\n---\n\n\nx", r#"{"a":1}"#, "\nx");
        check_front_matter_split("---\na: 2026-01-02\n---", r#"{"a":"2026-01-02"}"#, "");
        check_front_matter_split("---\na: 1\na: 2\n---\nx", "invalid", "---\na: 1\na: 2\n---\nx");
        check_front_matter_split(
            "---\n- a\n---\nx",
            "invalid: the text is not",
            "---\n- a\n---\nx",
        );
        check_front_matter_split("---\na: [\n---\nx", "invalid", "---\na: [\n---\nx");
        check_front_matter_split("---\na: 1\n", "invalid: there is no closing", "---\na: 1\n");
        let long = format!("---\na: {}\n---\nx", "b".repeat(20_000));
        check_front_matter_split(&long, "invalid: the front matter exceeds", &long);
    }

    #[test]
    fn ambiguous_yaml_strings_are_quoted() {
        let check = |text: &str, expected: &str| {
            let fields = Map::from_iter([("k".to_owned(), json!(text))]);
            assert_eq!(render_yaml_fields(&fields), format!("k: {expected}\n"));
        };
        check("Buy milk", "Buy milk");
        check("No", "\"No\"");
        check("12", "\"12\"");
        check("a: b", "\"a: b\"");
        check("2026-01-01", "\"2026-01-01\"");
        check("a\n---\nb", r#""a\n---\nb""#);
        check("\"\\\u{7f}", r#""\"\\\x7F""#);
    }

    proptest! {
        #[test]
        fn yaml_values_round_trip(
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
            let text = format!("---\n{}---\n\nbody", render_yaml_fields(&expected));
            prop_assert_eq!(split_front_matter(&text), (FrontMatter::Parsed(expected), "body"));
        }
    }
}
