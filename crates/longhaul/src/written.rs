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
