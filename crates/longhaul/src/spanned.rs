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
pub struct Position {
    /// Line.
    pub line: usize,
    /// Column, in characters.
    pub column: usize,
}

impl Position {
    /// Where a text begins.
    pub const START: Self = Self { line: 1, column: 1 };

    /// The place of the byte at this offset.
    pub fn from_offset(text: &str, offset: usize) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let start = before.rfind('\n').map_or(0, |end| end + 1);
        Self { line: before.matches('\n').count() + 1, column: before[start..].chars().count() + 1 }
    }
}

/// Distance in bytes between two known places of a [`PlaceIndex`].
const BLOCK_BYTES: usize = 256;

/// Places of one text by their offsets, without reading the text again for each.
#[derive(Debug)]
pub struct PositionIndex<'a> {
    text: &'a str,
    /// Offsets at which lines begin.
    lines: Vec<usize>,
    /// Number of characters before each block.
    characters: Vec<usize>,
}

impl<'a> PositionIndex<'a> {
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
        Self { text, lines, characters }
    }

    /// The place of the byte at this offset.
    pub fn position(&self, offset: usize) -> Position {
        let offset = offset.min(self.text.len());
        let line = self.lines.partition_point(|start| *start <= offset);
        let start = self.lines.get(line - 1).copied().unwrap_or(0);
        Position {
            line,
            column: self.characters_before(offset) - self.characters_before(start) + 1,
        }
    }

    /// The place of a part of the text.
    pub fn position_of(&self, part: &str) -> Position {
        let text = self.text.as_ptr().addr();
        self.position(part.as_ptr().addr().saturating_sub(text))
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

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A value and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Where it begins.
    pub position: Position,
    /// What it is.
    pub value: NodeValue,
}

/// A person's words as they may stand on a terminal: what would steer it is escaped.
pub fn escape_controls(text: &str) -> String {
    let escaped = |c: char| match c {
        '\n' | '\t' => c.to_string(),
        _ if c.is_control() => c.escape_default().to_string(),
        _ => c.to_string(),
    };
    text.chars().map(escaped).collect()
}

/// The same in one line: what would begin another is escaped too.
pub fn escape_line(text: &str) -> String {
    let letters = escape_controls(text);
    letters.replace('\n', "\\n").replace('\t', "\\t")
}

/// What can be written.
#[derive(Debug, Clone, PartialEq)]
pub enum NodeValue {
    /// Nothing.
    Null,
    /// `true` or `false`.
    Boolean(bool),
    /// A whole number.
    Integer(i128),
    /// A number with a point.
    Float(f64),
    /// Text.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// Keys and values, in the order of the reader.
    Table(Vec<TableEntry>),
}

/// A key with its value.
#[derive(Debug, Clone, PartialEq)]
pub struct TableEntry {
    /// The key.
    pub key: String,
    /// Where the key stands.
    pub position: Position,
    /// The value.
    pub node: Node,
}

impl Node {
    /// What it is, in a word for messages.
    pub const fn type_name(&self) -> &'static str {
        match self.value {
            NodeValue::Null => "nothing",
            NodeValue::Boolean(_) => "true or false",
            NodeValue::Integer(_) => "a whole number",
            NodeValue::Float(_) => "a number",
            NodeValue::Text(_) => "text",
            NodeValue::List(_) => "a list",
            NodeValue::Table(_) => "a table",
        }
    }

    /// The text, where it is one.
    pub fn text(&self) -> Option<&str> {
        let NodeValue::Text(text) = &self.value else {
            return None;
        };
        Some(text)
    }

    /// The elements, where it is a list.
    pub fn list(&self) -> Option<&[Self]> {
        let NodeValue::List(list) = &self.value else {
            return None;
        };
        Some(list)
    }

    /// The entries, where it is a table.
    pub fn table(&self) -> Option<&[TableEntry]> {
        let NodeValue::Table(entries) = &self.value else {
            return None;
        };
        Some(entries)
    }

    /// The number, where it is one.
    pub fn number(&self) -> Option<f64> {
        match &self.value {
            NodeValue::Integer(whole) => Some(*whole as f64),
            NodeValue::Float(real) => Some(*real),
            NodeValue::Null | NodeValue::Boolean(_) | NodeValue::Text(_) => None,
            NodeValue::List(_) | NodeValue::Table(_) => None,
        }
    }

    /// The same without places.
    pub fn to_json(&self) -> Value {
        match &self.value {
            NodeValue::Null => Value::Null,
            NodeValue::Boolean(flag) => Value::from(*flag),
            NodeValue::Integer(whole) => {
                i64::try_from(*whole).map_or_else(|_| Value::from(whole.to_string()), Value::from)
            }
            NodeValue::Float(real) => Value::from(*real),
            NodeValue::Text(text) => Value::from(text.as_str()),
            NodeValue::List(list) => list.iter().map(Self::to_json).collect(),
            NodeValue::Table(entries) => {
                let pairs = entries.iter();
                let pairs = pairs.map(|entry| (entry.key.clone(), entry.node.to_json()));
                Value::Object(pairs.collect())
            }
        }
    }
}

/// The text is not even of its format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{position}: {message}")]
pub struct ParseError {
    /// Where reading ended.
    pub position: Position,
    /// Why.
    pub message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_finds_the_positions_of_a_text() {
        let text = "a\nbb = \"\u{e9}\u{1f600}\"\n\n".repeat(60) + "end";
        let index = PositionIndex::new(&text);
        for (offset, _) in text.char_indices() {
            assert_eq!(index.position(offset), Position::from_offset(&text, offset), "{offset}");
        }
        assert_eq!(index.position(text.len()), Position::from_offset(&text, text.len()));
        assert_eq!(PositionIndex::new("").position(0), Position::START);
        assert_eq!(index.position_of(&text[2..4]), Position { line: 2, column: 1 });
    }

    /// Where each value is looked for from the start, this takes an hour.
    #[test]
    fn long_files_are_read_in_linear_time() {
        let mut lines: String = (0..90_000).map(|n| format!("k{n} = {n}\n")).collect();
        lines.truncate(1 << 20);
        let lines = lines.trim_end_matches(|c: char| c != '\n');
        let list = format!("a = [{}]", "1,".repeat(500_000));
        for (text, line) in [(lines, lines.lines().count()), (list.as_str(), 1)] {
            let node = toml::parse(text).unwrap();
            let NodeValue::Table(entries) = &node.value else {
                panic!("no table");
            };
            assert_eq!(entries.last().unwrap().position.line, line);
        }
    }
}
