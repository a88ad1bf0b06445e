//! Parses JSON into a tree in which every value has its position. It does not check which keys are
//! valid. Of a key that occurs twice, both entries are in the tree.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::spanned::{Node, NodeValue, ParseError, Position, PositionIndex, TableEntry};

/// Maximum nesting depth of lists and objects. The text of a value is scanned once for each level.
const DEPTH_MAX: usize = 32;

/// Parses the text of a JSON file. The position of a key is that of its value.
///
/// # Errors
/// The text is not valid JSON. The error contains the position.
pub fn parse(text: &str) -> Result<Node, ParseError> {
    let value = serde_json::from_str(text).map_err(|error| {
        let position = Position { line: error.line().max(1), column: error.column().max(1) };
        let message = error.to_string();
        // The parser's message ends with the position, which is reported separately.
        let message = message.split(" at line ").next().unwrap_or_default().to_owned();
        ParseError { position, message }
    })?;
    Ok(to_node(&PositionIndex::for_text(text), value, 0))
}

/// A value that can't be represented, because it is nested too deeply or has half of a surrogate
/// pair, is null: the problem concerns only the field that has it.
fn to_node(index: &PositionIndex<'_>, value: &RawValue, depth: usize) -> Node {
    let text = value.get();
    let nodes_below = |value| to_node(index, value, depth + 1);
    let value = match text.as_bytes().first() {
        Some(b'{' | b'[') if depth > DEPTH_MAX => NodeValue::Null,
        Some(b'{') => {
            let fields = serde_json::from_str(text).map_or(Vec::new(), |OrderedFields(list)| list);
            let entries = fields.into_iter().map(|(key, value)| {
                let node = nodes_below(value);
                TableEntry { key, position: node.position, node }
            });
            NodeValue::Table(entries.collect())
        }
        Some(b'[') => {
            let list: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
            NodeValue::List(list.into_iter().map(nodes_below).collect())
        }
        Some(b'"') => serde_json::from_str(text).map_or(NodeValue::Null, NodeValue::Text),
        Some(b't' | b'f') => NodeValue::Boolean(text == "true"),
        Some(b'n') | None => NodeValue::Null,
        // Numbers that are no integers keep their text: in `env`, `3.10` must not become `3.1`.
        Some(_) => {
            text.parse().map_or_else(|_| NodeValue::Text(text.to_owned()), NodeValue::Integer)
        }
    };
    Node { position: index.position_of_slice(text), value }
}

/// Keys and values of a JSON object in the order of the text, including duplicate keys.
struct OrderedFields<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for OrderedFields<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(OrderedFieldsVisitor)
    }
}

struct OrderedFieldsVisitor;

impl<'de> Visitor<'de> for OrderedFieldsVisitor {
    type Value = OrderedFields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(OrderedFields(fields))
    }
}
