//! Front matter that people wrote as if it were lines of `key: value`: a colon
//! in a sentence, a quote that is never closed.
//!
//! Never: fails. Every line belongs to some field, or to none.

use crate::written::{Content, Entry, Node, Place, yaml};

/// The fields that are sentences, whatever those look like.
const PROSE: &[&str] = &["description"];

/// Reads the fields; of two with one name the first counts.
pub(crate) fn read(front: &str) -> Vec<Entry> {
    let mut raw: Vec<Raw<'_>> = Vec::new();
    for (index, line) in front.lines().enumerate() {
        match field(line) {
            Some((key, value)) => raw.push(Raw {
                key,
                line: index + 1,
                value,
                more: Vec::new(),
            }),
            None if line.starts_with('#') => {}
            None => {
                if let Some(last) = raw.last_mut() {
                    last.more.push(line);
                }
            }
        }
    }
    let mut entries: Vec<Entry> = Vec::new();
    for raw in raw {
        if entries.iter().all(|entry| entry.key != raw.key) {
            entries.push(raw.entry());
        }
    }
    entries
}

struct Raw<'a> {
    key: &'a str,
    line: usize,
    value: &'a str,
    /// The lines below that are no fields.
    more: Vec<&'a str>,
}

impl Raw<'_> {
    fn entry(self) -> Entry {
        let place = |column| Place {
            line: self.line,
            column,
        };
        Entry {
            key: self.key.to_owned(),
            place: place(1),
            node: Node {
                place: place(self.column()),
                content: self.content(),
            },
        }
    }

    fn content(&self) -> Content {
        let item = |line: &&str| line.trim().strip_prefix("- ").map(str::to_owned);
        let items: Option<Vec<String>> = self
            .more
            .iter()
            .filter(|line| !line.trim().is_empty())
            .map(item)
            .collect();
        let listed = items.filter(|items| self.value.is_empty() && !items.is_empty());
        let inline = self.value.strip_prefix('[');
        let inline = inline.and_then(|inner| inner.strip_suffix(']'));
        let inline = || inline.map(|inner| inner.split(',').map(str::to_owned).collect());
        if let Some(table) = self.table() {
            return table;
        }
        if let Some(items) = listed.or_else(inline) {
            let texts = items.iter().map(|item| Node {
                place: Place {
                    line: self.line,
                    column: 1,
                },
                content: Content::Text(unquoted(item.trim()).to_owned()),
            });
            return Content::List(texts.collect());
        }
        let block = ["|", "|-", "|+", ">", ">-", ">+"].contains(&self.value);
        let mut lines: Vec<&str> = self.more.iter().map(|line| line.trim()).collect();
        if !block {
            lines.insert(0, self.value);
        }
        let text = lines.join("\n");
        let text = unquoted(text.trim());
        match text.is_empty() {
            true => Content::Nothing,
            false => Content::Text(text.to_owned()),
        }
    }

    /// The value where it is a table, which only YAML knows how to read: between
    /// braces, or in the lines below.
    fn table(&self) -> Option<Content> {
        let may_be = self.value.is_empty() || self.value.starts_with('{');
        if !may_be || PROSE.contains(&self.key) {
            return None;
        }
        let lines = [&[self.value], &self.more[..]].concat();
        let mut node = yaml::read(&lines.join("\n")).ok()?;
        self.put(&mut node);
        match node.content {
            table @ Content::Table(_) => Some(table),
            Content::Nothing
            | Content::Flag(_)
            | Content::Whole(_)
            | Content::Real(_)
            | Content::Text(_)
            | Content::List(_) => None,
        }
    }

    /// Moves what was read by itself to where it stands in the file.
    fn put(&self, node: &mut Node) {
        node.place = self.moved(node.place);
        match &mut node.content {
            Content::List(list) => list.iter_mut().for_each(|node| self.put(node)),
            Content::Table(entries) => {
                for entry in entries {
                    entry.place = self.moved(entry.place);
                    self.put(&mut entry.node);
                }
            }
            Content::Nothing
            | Content::Flag(_)
            | Content::Whole(_)
            | Content::Real(_)
            | Content::Text(_) => {}
        }
    }

    fn moved(&self, place: Place) -> Place {
        let before = match place.line {
            1 => self.column() - 1,
            _ => 0,
        };
        Place {
            line: self.line + place.line - 1,
            column: before + place.column,
        }
    }

    /// Where the value begins.
    fn column(&self) -> usize {
        self.key.chars().count() + 3
    }
}

/// The key and the rest of a line that begins a field.
fn field(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.split_once(':')?;
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let right = !key.is_empty() && key.chars().all(fits) && !key.starts_with('-');
    let apart = value.is_empty() || value.starts_with([' ', '\t']);
    (right && apart).then_some((key, value.trim()))
}

fn unquoted(text: &str) -> &str {
    let inner = |quote: char| {
        let inner = text.strip_prefix(quote)?.strip_suffix(quote)?;
        (!inner.contains(quote)).then_some(inner)
    };
    inner('"').or_else(|| inner('\'')).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read_as_one() {
        fn check(front: &str, expected: &str) {
            let found = read(front).pop().unwrap().node;
            let first = if let Content::Table(entries) = &found.content {
                entries[0].place.to_string()
            } else {
                "none".to_owned()
            };
            assert_eq!(format!("{first} {}", found.to_json()), expected, "{front}");
        }
        let table = r#"{"isolation":"none"}"#;
        check(
            "a: b: c\nsandbox: { isolation: none }",
            &format!("2:12 {table}"),
        );
        check(
            "sandbox: { isolation: none } # so",
            &format!("1:12 {table}"),
        );
        check("sandbox:\n  isolation: none\n", &format!("2:3 {table}"));
        // What is no YAML by itself either, and what is a sentence, stays text.
        check("sandbox: { isolation", "none \"{ isolation\"");
        check("description: { a: b }", "none \"{ a: b }\"");
        check("description:\n  Note: this", "none \"Note: this\"");
    }

    #[test]
    fn lines_are_fields() {
        let front = "\nname: judge\ndescription: Use when: a \"thing\" breaks\n  and more: here\n\ntools: Read, Bash(git log:*)\nmodel: 'opus'\n# a word\nskills:\n  - one\n- two\nlist: [a, \"b\"]\ncolor:\nname: other\nblock: >\n  folded: text\nhttp://x.y\n";
        let found: Vec<String> = read(front)
            .iter()
            .map(|entry| {
                format!(
                    "{} {} {}",
                    entry.node.place,
                    entry.key,
                    entry.node.to_json()
                )
            })
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
                "13:8 color null",
                "15:8 block \"folded: text\\nhttp://x.y\"",
            ]
        );
    }
}
