//! Reads TOML into a tree with places.
//!
//! Never: knows which keys there are.

use toml::de::{DeTable, DeValue};

use crate::spanned::{Node, NodeValue, ParseError, Position, PositionIndex, TableEntry};

/// Reads a whole file.
///
/// # Errors
/// What is no TOML, and where.
pub fn parse(text: &str) -> Result<Node, ParseError> {
    let table = DeTable::parse(text).map_err(|error| parse_error(text, &error))?;
    table_node(&PositionIndex::new(text), Position::START, table.get_ref())
}

/// Reads one value, such as `"15s"` or `[1, 2]`.
///
/// # Errors
/// What is no value, and where.
pub fn parse_value(text: &str) -> Result<Node, ParseError> {
    let value = DeValue::parse(text).map_err(|error| parse_error(text, &error))?;
    to_node(&PositionIndex::new(text), &value)
}

fn parse_error(text: &str, error: &toml::de::Error) -> ParseError {
    let offset = error.span().map_or(0, |span| span.start);
    ParseError {
        position: Position::from_offset(text, offset),
        message: format!("not TOML: {}", error.message().replace('\n', ", ")),
    }
}

fn to_node(
    index: &PositionIndex<'_>,
    value: &toml::Spanned<DeValue<'_>>,
) -> Result<Node, ParseError> {
    let place = index.position(value.span().start);
    let fault = |message: String| ParseError { position: place, message };
    let content = match value.get_ref() {
        DeValue::String(text) => NodeValue::Text(text.to_string()),
        DeValue::Integer(whole) => i128::from_str_radix(whole.as_str(), whole.radix())
            .map(NodeValue::Integer)
            .map_err(|_| fault(format!("`{whole}` is too big a number")))?,
        DeValue::Float(real) => match real.as_str().parse::<f64>() {
            Ok(real) if real.is_finite() => NodeValue::Float(real),
            Ok(_) | Err(_) => {
                return Err(fault(format!("`{}` is no finite number", real.as_str())));
            }
        },
        DeValue::Boolean(flag) => NodeValue::Boolean(*flag),
        // No key of ours takes a date; as text it is refused with what would be right.
        DeValue::Datetime(at) => NodeValue::Text(at.to_string()),
        DeValue::Array(list) => {
            let nodes = list.iter().map(|value| to_node(index, value));
            NodeValue::List(nodes.collect::<Result<_, _>>()?)
        }
        DeValue::Table(table) => return table_node(index, place, table),
    };
    Ok(Node { position: place, value: content })
}

fn table_node(
    index: &PositionIndex<'_>,
    place: Position,
    table: &DeTable<'_>,
) -> Result<Node, ParseError> {
    let entries = table.iter().map(|(key, value)| {
        Ok(TableEntry {
            key: key.get_ref().to_string(),
            position: index.position(key.span().start),
            node: to_node(index, value)?,
        })
    });
    let mut entries = entries.collect::<Result<Vec<TableEntry>, ParseError>>()?;
    // The parser sorts by name; people read from the top.
    entries.sort_by_key(|entry| entry.position);
    Ok(Node { position: place, value: NodeValue::Table(entries) })
}
