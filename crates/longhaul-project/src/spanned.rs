//! A parsed file as a tree in which every value has its position in the file.
//!
//! TOML, YAML and JSON are converted to this tree, so that one pass can find every problem and
//! report its position. The content is not validated here.

pub mod json;
pub mod toml;
pub mod yaml;

use serde_json::Value;

pub use longhaul_core::position::Position;

/// Size in bytes of the blocks into which a [`PositionIndex`] divides the text.
const BLOCK_BYTES: usize = 256;

/// Converts offsets in a text to lines and columns, without scanning the whole text for each
/// offset.
#[derive(Debug)]
pub struct PositionIndex<'a> {
    text: &'a str,
    /// Offset at which each line starts.
    line_starts: Vec<usize>,
    /// Number of characters before each block of `BLOCK_BYTES` bytes.
    characters: Vec<usize>,
}

impl<'a> PositionIndex<'a> {
    pub fn for_text(text: &'a str) -> Self {
        let mut line_starts = vec![0];
        line_starts.extend(text.match_indices('\n').map(|(at, _)| at + 1));
        let mut characters = vec![0];
        let mut sum = 0;
        for block in text.as_bytes().chunks(BLOCK_BYTES) {
            sum += count_characters(block);
            characters.push(sum);
        }
        Self { text, line_starts, characters }
    }

    /// Returns the line and column of the byte at this offset.
    pub fn position_at_offset(&self, byte_offset: usize) -> Position {
        let byte_offset = byte_offset.min(self.text.len());
        let line = self.line_starts.partition_point(|start| *start <= byte_offset);
        let start = self.line_starts.get(line - 1).copied().unwrap_or(0);
        Position {
            line,
            column: self.characters_before(byte_offset) - self.characters_before(start) + 1,
        }
    }

    /// Returns the position at which `part`, a slice of the indexed text, starts.
    pub fn position_of_slice(&self, part: &str) -> Position {
        let text = self.text.as_ptr().addr();
        self.position_at_offset(part.as_ptr().addr().saturating_sub(text))
    }

    fn characters_before(&self, byte_offset: usize) -> usize {
        let block = byte_offset / BLOCK_BYTES;
        let rest = &self.text.as_bytes()[block * BLOCK_BYTES..byte_offset];
        self.characters.get(block).copied().unwrap_or(0) + count_characters(rest)
    }
}

/// Returns the number of characters that start in these bytes.
fn count_characters(bytes: &[u8]) -> usize {
    let is_char_start = |byte: &&u8| (**byte & 0b1100_0000) != 0b1000_0000;
    bytes.iter().filter(is_char_start).count()
}

/// A parsed value, with its position in the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Position at which the value starts.
    pub position: Position,
    /// Parsed value, by type.
    pub value: NodeValue,
}

/// Escapes control characters other than newline and tab, so that the text is safe to print on a
/// terminal.
pub fn escape_control_characters(text: &str) -> String {
    let escaped = |c: char| match c {
        '\n' | '\t' => c.to_string(),
        _ if c.is_control() => c.escape_default().to_string(),
        _ => c.to_string(),
    };
    text.chars().map(escaped).collect()
}

/// Escapes all control characters including newlines and tabs, so that the text stays on one line.
pub fn escape_to_one_line(text: &str) -> String {
    let escaped = escape_control_characters(text);
    escaped.replace('\n', "\\n").replace('\t', "\\t")
}

/// Parsed value of a TOML, YAML or JSON file, by type.
#[derive(Debug, Clone, PartialEq)]
pub enum NodeValue {
    /// YAML's `null`, or a key without a value.
    Null,
    /// The value `true` or `false`.
    Boolean(bool),
    Integer(i128),
    /// A floating-point number.
    Float(f64),
    /// A single text.
    Text(String),
    List(Vec<Node>),
    /// A table of keys and values, in the parser's order.
    Table(Vec<TableEntry>),
}

/// A key of a table, with its value.
#[derive(Debug, Clone, PartialEq)]
pub struct TableEntry {
    pub key: String,
    /// Position of the key in the file.
    pub position: Position,
    /// Value of the key, with its position.
    pub node: Node,
}

impl Node {
    /// Returns the name of the value's type for messages.
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

    /// Returns the name of the value's type in JSON, for messages.
    pub const fn json_type_name(&self) -> &'static str {
        match self.value {
            NodeValue::Null => "null",
            NodeValue::Integer(_) => "a number",
            NodeValue::Table(_) => "an object",
            NodeValue::Boolean(_)
            | NodeValue::Float(_)
            | NodeValue::Text(_)
            | NodeValue::List(_) => self.type_name(),
        }
    }

    /// Returns the value if it is a text. `None` means that it has another type.
    pub fn as_text(&self) -> Option<&str> {
        let NodeValue::Text(text) = &self.value else {
            return None;
        };
        Some(text)
    }

    /// Returns the value if it is an integer. `None` means that it has another type.
    pub const fn as_integer(&self) -> Option<i128> {
        let NodeValue::Integer(integer) = self.value else {
            return None;
        };
        Some(integer)
    }

    /// Returns the elements if the value is a list. `None` means that it has another type.
    pub fn as_list(&self) -> Option<&[Self]> {
        let NodeValue::List(list) = &self.value else {
            return None;
        };
        Some(list)
    }

    /// Returns the entries if the value is a table. `None` means that it has another type.
    pub fn as_table(&self) -> Option<&[TableEntry]> {
        let NodeValue::Table(entries) = &self.value else {
            return None;
        };
        Some(entries)
    }

    /// Returns the value if it is a number, as a float. `None` means that it has another type.
    pub fn as_number(&self) -> Option<f64> {
        match &self.value {
            NodeValue::Integer(integer) => Some(*integer as f64),
            NodeValue::Float(float) => Some(*float),
            NodeValue::Null | NodeValue::Boolean(_) | NodeValue::Text(_) => None,
            NodeValue::List(_) | NodeValue::Table(_) => None,
        }
    }

    /// Converts the value to JSON, without positions.
    pub fn to_json(&self) -> Value {
        match &self.value {
            NodeValue::Null => Value::Null,
            NodeValue::Boolean(flag) => Value::from(*flag),
            NodeValue::Integer(integer) => i64::try_from(*integer)
                .map_or_else(|_| Value::from(integer.to_string()), Value::from),
            NodeValue::Float(float) => Value::from(*float),
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

/// A syntax error in a TOML, YAML or JSON file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{position}: {message}")]
pub struct ParseError {
    /// Position of the error in the file.
    pub position: Position,
    /// Description of the error.
    pub message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_maps_offsets_to_lines_and_columns() {
        let text = "a\nbb = \"\u{e9}\u{1f600}\"\n\n".repeat(60) + "end";
        let index = PositionIndex::for_text(&text);
        for (offset, _) in text.char_indices() {
            assert_eq!(
                index.position_at_offset(offset),
                Position::from_offset(&text, offset),
                "{offset}"
            );
        }
        assert_eq!(index.position_at_offset(text.len()), Position::from_offset(&text, text.len()));
        assert_eq!(PositionIndex::for_text("").position_at_offset(0), Position::START);
        assert_eq!(index.position_of_slice(&text[2..4]), Position { line: 2, column: 1 });
    }

    /// Ensures that a TOML file is parsed in linear time: computing each position by a scan from
    /// the start of the text would take an hour.
    #[test]
    fn long_toml_files_are_parsed_in_linear_time() {
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
