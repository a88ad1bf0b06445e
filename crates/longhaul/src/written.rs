//! What a person wrote in a file, as a tree in which everything knows its place.
//!
//! TOML and YAML both become such a tree, so that one walk over it can find
//! every problem and say where it is.
//!
//! Never: judges what is written.

pub mod toml;
pub mod yaml;

use std::fmt;

use serde_json::Value;

/// A place in a text; both count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Line.
    pub line: usize,
    /// Column, in characters.
    pub column: usize,
}

impl Place {
    /// Where a text begins.
    pub const START: Self = Self { line: 1, column: 1 };

    /// The place of the byte at this offset.
    pub fn of(text: &str, offset: usize) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let start = before.rfind('\n').map_or(0, |end| end + 1);
        Self {
            line: before.matches('\n').count() + 1,
            column: before[start..].chars().count() + 1,
        }
    }
}

/// Distance in bytes between two known places of a [`PlaceIndex`].
const BLOCK_BYTES: usize = 256;

/// Places of one text by their offsets, without reading the text again for each.
#[derive(Debug)]
pub struct PlaceIndex<'a> {
    text: &'a str,
    /// Offsets at which lines begin.
    lines: Vec<usize>,
    /// Number of characters before each block.
    characters: Vec<usize>,
}

impl<'a> PlaceIndex<'a> {
    /// Reads a text once.
    pub fn new(text: &'a str) -> Self {
        let mut lines = vec![0];
        lines.extend(text.match_indices('\n').map(|(at, _)| at + 1));
        let mut characters = vec![0];
        let mut sum = 0;
        for block in text.as_bytes().chunks(BLOCK_BYTES) {
            sum += characters_in(block);
            characters.push(sum);
        }
        Self {
            text,
            lines,
            characters,
        }
    }

    /// The place of the byte at this offset.
    pub fn place(&self, offset: usize) -> Place {
        let offset = offset.min(self.text.len());
        let line = self.lines.partition_point(|start| *start <= offset);
        let start = self.lines.get(line - 1).copied().unwrap_or(0);
        Place {
            line,
            column: self.characters_before(offset) - self.characters_before(start) + 1,
        }
    }

    /// The place of a part of the text.
    pub fn place_of(&self, part: &str) -> Place {
        let text = self.text.as_ptr().addr();
        self.place(part.as_ptr().addr().saturating_sub(text))
    }

    fn characters_before(&self, offset: usize) -> usize {
        let block = offset / BLOCK_BYTES;
        let rest = &self.text.as_bytes()[block * BLOCK_BYTES..offset];
        self.characters.get(block).copied().unwrap_or(0) + characters_in(rest)
    }
}

/// Number of characters that begin in these bytes of a text.
fn characters_in(bytes: &[u8]) -> usize {
    let begins = |byte: &&u8| (**byte & 0b1100_0000) != 0b1000_0000;
    bytes.iter().filter(begins).count()
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A value and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Where it begins.
    pub place: Place,
    /// What it is.
    pub content: Content,
}

/// A person's words as they may stand on a terminal: what would steer it is escaped.
pub fn plain(text: &str) -> String {
    let escaped = |c: char| match c {
        '\n' | '\t' => c.to_string(),
        _ if c.is_control() => c.escape_default().to_string(),
        _ => c.to_string(),
    };
    text.chars().map(escaped).collect()
}

/// The same in one line: what would begin another is escaped too.
pub fn plain_line(text: &str) -> String {
    let letters = plain(text);
    letters.replace('\n', "\\n").replace('\t', "\\t")
}

/// What can be written.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// Nothing.
    Nothing,
    /// `true` or `false`.
    Flag(bool),
    /// A whole number.
    Whole(i128),
    /// A number with a point.
    Real(f64),
    /// Text.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// Keys and values, in the order of the reader.
    Table(Vec<Entry>),
}

/// A key with its value.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Where the key stands.
    pub place: Place,
    /// The value.
    pub node: Node,
}

impl Node {
    /// What it is, in a word for messages.
    pub const fn what(&self) -> &'static str {
        match self.content {
            Content::Nothing => "nothing",
            Content::Flag(_) => "true or false",
            Content::Whole(_) => "a whole number",
            Content::Real(_) => "a number",
            Content::Text(_) => "text",
            Content::List(_) => "a list",
            Content::Table(_) => "a table",
        }
    }

    /// The text, where it is one.
    pub fn text(&self) -> Option<&str> {
        let Content::Text(text) = &self.content else {
            return None;
        };
        Some(text)
    }

    /// The elements, where it is a list.
    pub fn list(&self) -> Option<&[Self]> {
        let Content::List(list) = &self.content else {
            return None;
        };
        Some(list)
    }

    /// The entries, where it is a table.
    pub fn table(&self) -> Option<&[Entry]> {
        let Content::Table(entries) = &self.content else {
            return None;
        };
        Some(entries)
    }

    /// The number, where it is one.
    pub fn real(&self) -> Option<f64> {
        match &self.content {
            Content::Whole(whole) => Some(*whole as f64),
            Content::Real(real) => Some(*real),
            Content::Nothing | Content::Flag(_) | Content::Text(_) => None,
            Content::List(_) | Content::Table(_) => None,
        }
    }

    /// The same without places.
    pub fn to_json(&self) -> Value {
        match &self.content {
            Content::Nothing => Value::Null,
            Content::Flag(flag) => Value::from(*flag),
            Content::Whole(whole) => {
                i64::try_from(*whole).map_or_else(|_| Value::from(whole.to_string()), Value::from)
            }
            Content::Real(real) => Value::from(*real),
            Content::Text(text) => Value::from(text.as_str()),
            Content::List(list) => list.iter().map(Self::to_json).collect(),
            Content::Table(entries) => {
                let pairs = entries.iter();
                let pairs = pairs.map(|entry| (entry.key.clone(), entry.node.to_json()));
                Value::Object(pairs.collect())
            }
        }
    }
}

/// The text is not even of its format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {message}")]
pub struct Malformed {
    /// Where reading ended.
    pub place: Place,
    /// Why.
    pub message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_finds_the_places_of_a_text() {
        let text = "a\nbb = \"\u{e9}\u{1f600}\"\n\n".repeat(60) + "end";
        let index = PlaceIndex::new(&text);
        for (offset, _) in text.char_indices() {
            assert_eq!(index.place(offset), Place::of(&text, offset), "{offset}");
        }
        assert_eq!(index.place(text.len()), Place::of(&text, text.len()));
        assert_eq!(PlaceIndex::new("").place(0), Place::START);
        assert_eq!(index.place_of(&text[2..4]), Place { line: 2, column: 1 });
    }

    /// Where each value is looked for from the start, this takes an hour.
    #[test]
    fn long_files_are_read_in_linear_time() {
        let mut lines: String = (0..90_000).map(|n| format!("k{n} = {n}\n")).collect();
        lines.truncate(1 << 20);
        let lines = lines.trim_end_matches(|c: char| c != '\n');
        let list = format!("a = [{}]", "1,".repeat(500_000));
        for (text, line) in [(lines, lines.lines().count()), (list.as_str(), 1)] {
            let node = toml::read(text).unwrap();
            let Content::Table(entries) = &node.content else {
                panic!("no table");
            };
            assert_eq!(entries.last().unwrap().place.line, line);
        }
    }
}
