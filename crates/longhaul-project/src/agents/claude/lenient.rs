//! Lenient parser for front matter that is not valid YAML, such as a value with a colon or an
//! unclosed quote.
//!
//! Invariant: parsing never fails. A field that is not valid YAML by itself becomes a list if it
//! looks like one, else a text. Lines before the first field are ignored.

use crate::spanned::{Node, NodeValue, Position, TableEntry, yaml};

/// Key of the field that is always parsed as text, even if its value looks like a list or a table.
const TEXT_FIELD: &str = "description";

/// Parses the fields of the front matter. If a key occurs twice, the first field wins.
pub(crate) fn parse_fields_leniently(front_matter: &str) -> Vec<TableEntry> {
    let mut chunks: Vec<(usize, &str, Vec<&str>)> = Vec::new();
    for (index, line) in front_matter.lines().enumerate() {
        if let Some(key) = parse_field_key(line) {
            chunks.push((index + 1, key, vec![line]));
        } else if let Some((_, _, lines)) = chunks.last_mut().filter(|_| !line.starts_with('#')) {
            lines.push(line);
        }
    }
    let mut entries: Vec<TableEntry> = Vec::new();
    for (line, key, lines) in chunks {
        if entries.iter().all(|existing| existing.key != key) {
            entries.push(parse_field_lines(line, key, &lines));
        }
    }
    entries
}

/// Returns the key if this line starts a field (`key: value`).
fn parse_field_key(line: &str) -> Option<&str> {
    let (key, value) = line.split_once(':')?;
    let is_key_char = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let is_key = !key.is_empty() && key.chars().all(is_key_char) && !key.starts_with('-');
    let has_separator = value.is_empty() || value.starts_with([' ', '\t']);
    (is_key && has_separator).then_some(key)
}

/// Parses one field: as YAML, or else as a list or a text.
fn parse_field_lines(first_line_number: usize, key: &str, lines: &[&str]) -> TableEntry {
    // The empty lines make the positions match the file.
    let text = "\n".repeat(first_line_number - 1) + &lines.join("\n");
    if let Ok(Node { value: NodeValue::Table(mut entries), .. }) = yaml::parse(&text)
        && entries.len() == 1
        && let Some(entry) = entries.pop()
        && (key != TEXT_FIELD || entry.node.as_text().is_some())
    {
        return entry;
    }
    let position_at = |column| Position { line: first_line_number, column };
    let value_place = position_at(key.chars().count() + 3);
    let mut content = field_value_as_text(key, lines);
    if let NodeValue::Text(text) = &content
        && key != TEXT_FIELD
        && looks_like_list(text)
    {
        content = parse_list_text(value_place, text);
    }
    TableEntry {
        key: key.to_owned(),
        position: position_at(1),
        node: Node { position: value_place, value: content },
    }
}

/// Returns the text of a field without its key and without a block marker such as `|`.
fn field_value_as_text(key: &str, lines: &[&str]) -> NodeValue {
    let mut lines = lines.iter().map(|line| line.trim());
    let first = lines.next().unwrap_or_default();
    let first = first[key.len() + 1..].trim();
    let first = match ["|", "|-", "|+", ">", ">-", ">+"].contains(&first) {
        true => "",
        false => first,
    };
    let text: Vec<&str> = [first].into_iter().chain(lines).collect();
    match text.join("\n").trim() {
        "" => NodeValue::Null,
        text => NodeValue::Text(text.to_owned()),
    }
}

/// Whether a text looks like a list in brackets or with dashes. Such a text must be parsed as a
/// list: otherwise a tool in `disallowedTools` would not be found because of the brackets.
fn looks_like_list(text: &str) -> bool {
    text.starts_with('[') || text.lines().any(|line| line.starts_with("- "))
}

/// Splits the text of a list into its elements, without list markers and quotes.
fn parse_list_text(position: Position, text: &str) -> NodeValue {
    let strip_list_syntax = |line: &str| {
        let line = line.strip_prefix("- ").unwrap_or(line).trim();
        let line = line.strip_prefix('[').unwrap_or(line);
        line.strip_suffix(']').unwrap_or(line).to_owned()
    };
    let elements = text.lines().flat_map(|line| split_at_outer_commas(&strip_list_syntax(line)));
    let elements = elements.map(|element| element.trim_matches(['"', '\'']).to_owned());
    let nodes = elements
        .filter(|element| !element.is_empty())
        .map(|element| Node { position, value: NodeValue::Text(element) });
    NodeValue::List(nodes.collect())
}

/// Splits a text at the commas that are not inside parentheses.
pub(super) fn split_at_outer_commas(text: &str) -> Vec<String> {
    let mut depth = 0_usize;
    let parts = text.split(|c| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    });
    parts.map(|part| part.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inline_or_indented_table_is_parsed() {
        fn assert_parsed_fields(yaml: &str, expected: &str) {
            let node = parse_fields_leniently(yaml).pop().unwrap().node;
            let entry_position = if let NodeValue::Table(entries) = &node.value {
                entries[0].position.to_string()
            } else {
                "none".to_owned()
            };
            assert_eq!(
                format!("line:column {entry_position}: {}", node.to_json()),
                expected,
                "{yaml}"
            );
        }
        let table_json = r#"{"isolation":"none"}"#;
        assert_parsed_fields(
            "a: b: c\nsandbox: { isolation: none }",
            &format!("line:column 2:12: {table_json}"),
        );
        assert_parsed_fields(
            "sandbox: { isolation: none } # comment",
            &format!("line:column 1:12: {table_json}"),
        );
        assert_parsed_fields(
            "sandbox:\n  isolation: none\n",
            &format!("line:column 2:3: {table_json}"),
        );
        // A field that is not valid YAML by itself, and the description, stay text.
        assert_parsed_fields("tools: a\nmy key: b", "line:column none: \"a\\nmy key: b\"");
        assert_parsed_fields("sandbox: { isolation", "line:column none: \"{ isolation\"");
        assert_parsed_fields("description: { a: b }", "line:column none: \"{ a: b }\"");
        assert_parsed_fields("description:\n  Note: this", "line:column none: \"Note: this\"");
    }

    #[test]
    fn a_list_that_is_not_valid_yaml_is_parsed() {
        for front_matter in [
            "no: [Bash(git push: *), Write]",
            "no: [Bash(git push: *),\n  'Write']",
            "no:\n  - Bash(git push: *)\n- Write",
            "no: Bash(git push: *)\n- \"Write\"",
        ] {
            let found =
                parse_fields_leniently(front_matter).pop().unwrap().node.to_json().to_string();
            assert_eq!(found, r#"["Bash(git push: *)","Write"]"#, "{front_matter}");
        }
        let found = parse_fields_leniently("description: a: b\n- c").pop().unwrap().node;
        assert_eq!(found.to_json().to_string(), r#""a: b\n- c""#);
    }

    #[test]
    fn each_line_with_a_key_starts_a_field() {
        let front_matter = "\nname: judge\ndescription: Use when: a \"thing\" breaks\n  and more: here\n\ntools: Read, Bash(git log:*)\nmodel: 'opus'\n# a word\nskills:\n  - one\n- two\nlist: [a, \"b\"]\ncolor:\nname: other\nblock: >\n  folded: text\nhttp://x.y\n";
        let found: Vec<String> = parse_fields_leniently(front_matter)
            .iter()
            .map(|entry| format!("{} {} {}", entry.node.position, entry.key, entry.node.to_json()))
            .collect();
        assert_eq!(
            found,
            [
                "2:7 name \"judge\"",
                "3:14 description \"Use when: a \\\"thing\\\" breaks\\nand more: here\"",
                "6:8 tools \"Read, Bash(git log:*)\"",
                "7:8 model \"opus\"",
                "9:9 skills [\"one\",\"two\"]",
                "12:7 list [\"a\",\"b\"]",
                "13:6 color null",
                "15:8 block \"folded: text\\nhttp://x.y\"",
            ]
        );
    }
}
