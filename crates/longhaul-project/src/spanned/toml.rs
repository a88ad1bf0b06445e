//! Parses TOML into a tree in which every value has its position. It does not check which keys are
//! valid.

use toml::de::{DeTable, DeValue};

use crate::spanned::{Node, NodeValue, ParseError, Position, PositionIndex, TableEntry};

/// Parses the text of a TOML file.
///
/// # Errors
/// The text is not valid TOML. The error contains the position.
pub fn parse(text: &str) -> Result<Node, ParseError> {
    let table = DeTable::parse(text).map_err(|error| parse_error(text, &error))?;
    table_to_node(&PositionIndex::for_text(text), Position::START, table.get_ref())
}

/// Parses one TOML value, such as `"15s"` or `[1, 2]`.
///
/// # Errors
/// The text is not a valid TOML value. The error contains the position.
pub fn parse_toml_value(text: &str) -> Result<Node, ParseError> {
    let value = DeValue::parse(text).map_err(|error| parse_error(text, &error))?;
    value_to_node(&PositionIndex::for_text(text), &value)
}

fn parse_error(text: &str, error: &toml::de::Error) -> ParseError {
    let offset = error.span().map_or(0, |span| span.start);
    ParseError {
        position: Position::from_offset(text, offset),
        message: format!("the text is not valid TOML: {}", error.message().replace('\n', ", ")),
    }
}

fn value_to_node(
    index: &PositionIndex<'_>,
    value: &toml::Spanned<DeValue<'_>>,
) -> Result<Node, ParseError> {
    let position = index.position_at_offset(value.span().start);
    let error_at = |message: String| ParseError { position, message };
    let content = match value.get_ref() {
        DeValue::String(text) => NodeValue::Text(text.to_string()),
        DeValue::Integer(integer) => i128::from_str_radix(integer.as_str(), integer.radix())
            .map(NodeValue::Integer)
            .map_err(|_| error_at(format!("the number `{integer}` is too large")))?,
        DeValue::Float(float) => match float.as_str().parse::<f64>() {
            Ok(float) if float.is_finite() => NodeValue::Float(float),
            Ok(_) | Err(_) => {
                return Err(error_at(format!("`{}` is not a finite number", float.as_str())));
            }
        },
        DeValue::Boolean(flag) => NodeValue::Boolean(*flag),
        // No setting has a date. As a text it is rejected with a description of the expected value.
        DeValue::Datetime(datetime) => NodeValue::Text(datetime.to_string()),
        DeValue::Array(list) => {
            let nodes = list.iter().map(|value| value_to_node(index, value));
            NodeValue::List(nodes.collect::<Result<_, _>>()?)
        }
        DeValue::Table(table) => return table_to_node(index, position, table),
    };
    Ok(Node { position, value: content })
}

fn table_to_node(
    index: &PositionIndex<'_>,
    position: Position,
    table: &DeTable<'_>,
) -> Result<Node, ParseError> {
    let entries = table.iter().map(|(key, value)| {
        Ok(TableEntry {
            key: key.get_ref().to_string(),
            position: index.position_at_offset(key.span().start),
            node: value_to_node(index, value)?,
        })
    });
    let mut entries = entries.collect::<Result<Vec<TableEntry>, ParseError>>()?;
    // The parser sorts by key; problems are reported in the order of the file.
    entries.sort_by_key(|entry| entry.position);
    Ok(Node { position, value: NodeValue::Table(entries) })
}
