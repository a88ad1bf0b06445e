//! Front matter that people wrote as if it were lines of `key: value`: a colon
//! in a sentence, a quote that is never closed.
//!
//! Never: fails. A field that is no YAML by itself is a list if it is marked as one, else text,
//! and every line belongs to some field, or to none.

use crate::spanned::{Node, NodeValue, Position, TableEntry, yaml};

/// The field that is a sentence, whatever that looks like.
const TEXT_FIELD: &str = "description";

/// Reads the fields; of two with one name the first counts.
pub(crate) fn parse(front: &str) -> Vec<TableEntry> {
    let mut chunks: Vec<(usize, &str, Vec<&str>)> = Vec::new();
    for (index, line) in front.lines().enumerate() {
        if let Some(key) = field_key(line) {
            chunks.push((index + 1, key, vec![line]));
        } else if let Some((_, _, lines)) = chunks.last_mut().filter(|_| !line.starts_with('#')) {
            lines.push(line);
        }
    }
    let mut entries: Vec<TableEntry> = Vec::new();
    for (line, key, lines) in chunks {
        if entries.iter().all(|known| known.key != key) {
            entries.push(parse_field(line, key, &lines));
        }
    }
    entries
}

/// The key of a line that begins a field.
fn field_key(line: &str) -> Option<&str> {
    let (key, value) = line.split_once(':')?;
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let right = !key.is_empty() && key.chars().all(fits) && !key.starts_with('-');
    let apart = value.is_empty() || value.starts_with([' ', '\t']);
    (right && apart).then_some(key)
}

/// One field: as YAML, or else its lines as a list or as text.
fn parse_field(line: usize, key: &str, lines: &[&str]) -> TableEntry {
    // Empty lines before it put everything to its place in the file.
    let text = "\n".repeat(line - 1) + &lines.join("\n");
    if let Ok(Node { value: NodeValue::Table(mut entries), .. }) = yaml::parse(&text)
        && entries.len() == 1
        && let Some(entry) = entries.pop()
        && (key != TEXT_FIELD || entry.node.text().is_some())
    {
        return entry;
    }
    let place = |column| Position { line, column };
    let value_place = place(key.chars().count() + 3);
    let mut content = field_text(key, lines);
    if let NodeValue::Text(text) = &content
        && key != TEXT_FIELD
        && looks_like_list(text)
    {
        content = parse_list(value_place, text);
    }
    TableEntry {
        key: key.to_owned(),
        position: place(1),
        node: Node { position: value_place, value: content },
    }
}

/// The lines of a field without its key, and without the mark of a block.
fn field_text(key: &str, lines: &[&str]) -> NodeValue {
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

/// Whether people would take a text for a list: what is forbidden in one must not pass because
/// of a mark.
fn looks_like_list(text: &str) -> bool {
    text.starts_with('[') || text.lines().any(|line| line.starts_with("- "))
}

/// The elements of a list, without its marks.
fn parse_list(place: Position, text: &str) -> NodeValue {
    let bare = |line: &str| {
        let line = line.strip_prefix("- ").unwrap_or(line).trim();
        let line = line.strip_prefix('[').unwrap_or(line);
        line.strip_suffix(']').unwrap_or(line).to_owned()
    };
    let elements = text.lines().flat_map(|line| split_commas(&bare(line)));
    let elements = elements.map(|element| element.trim_matches(['"', '\'']).to_owned());
    let nodes = elements
        .filter(|element| !element.is_empty())
        .map(|element| Node { position: place, value: NodeValue::Text(element) });
    NodeValue::List(nodes.collect())
}

/// What commas part, but not those between parentheses.
pub(super) fn split_commas(text: &str) -> Vec<String> {
    let mut depth = 0_usize;
    let parts = text.split(|letter| {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        letter == ',' && depth == 0
    });
    parts.map(|part| part.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inline_or_indented_table_is_parsed() {
        fn check(front: &str, expected: &str) {
            let found = parse(front).pop().unwrap().node;
            let first = if let NodeValue::Table(entries) = &found.value {
                entries[0].position.to_string()
            } else {
                "none".to_owned()
            };
            assert_eq!(format!("{first} {}", found.to_json()), expected, "{front}");
        }
        let table = r#"{"isolation":"none"}"#;
        check("a: b: c\nsandbox: { isolation: none }", &format!("2:12 {table}"));
        check("sandbox: { isolation: none } # so", &format!("1:12 {table}"));
        check("sandbox:\n  isolation: none\n", &format!("2:3 {table}"));
        // What is no YAML by itself either, and what is a sentence, stays text.
        check("tools: a\nmy key: b", "none \"a\\nmy key: b\"");
        check("sandbox: { isolation", "none \"{ isolation\"");
        check("description: { a: b }", "none \"{ a: b }\"");
        check("description:\n  Note: this", "none \"Note: this\"");
    }

    #[test]
    fn a_list_that_is_not_valid_yaml_is_parsed() {
        for front in [
            "no: [Bash(git push: *), Write]",
            "no: [Bash(git push: *),\n  'Write']",
            "no:\n  - Bash(git push: *)\n- Write",
            "no: Bash(git push: *)\n- \"Write\"",
        ] {
            let found = parse(front).pop().unwrap().node.to_json().to_string();
            assert_eq!(found, r#"["Bash(git push: *)","Write"]"#, "{front}");
        }
        let found = parse("description: a: b\n- c").pop().unwrap().node;
        assert_eq!(found.to_json().to_string(), r#""a: b\n- c""#);
    }

    #[test]
    fn each_key_line_is_a_field() {
        let front = "\nname: judge\ndescription: Use when: a \"thing\" breaks\n  and more: here\n\ntools: Read, Bash(git log:*)\nmodel: 'opus'\n# a word\nskills:\n  - one\n- two\nlist: [a, \"b\"]\ncolor:\nname: other\nblock: >\n  folded: text\nhttp://x.y\n";
        let found: Vec<String> = parse(front)
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
