//! Reads TOML into a tree with places.
//!
//! Never: knows which keys there are.

use toml::de::{DeTable, DeValue};

use crate::written::{Content, Entry, Malformed, Node, Place, PlaceIndex};

/// Reads a whole file.
///
/// # Errors
/// What is no TOML, and where.
pub fn read(text: &str) -> Result<Node, Malformed> {
    let table = DeTable::parse(text).map_err(|error| malformed(text, &error))?;
    table_node(&PlaceIndex::new(text), Place::START, table.get_ref())
}

/// Reads one value, such as `"15s"` or `[1, 2]`.
///
/// # Errors
/// What is no value, and where.
pub fn read_value(text: &str) -> Result<Node, Malformed> {
    let value = DeValue::parse(text).map_err(|error| malformed(text, &error))?;
    node(&PlaceIndex::new(text), &value)
}

fn malformed(text: &str, error: &toml::de::Error) -> Malformed {
    let offset = error.span().map_or(0, |span| span.start);
    Malformed {
        place: Place::of(text, offset),
        message: format!("not TOML: {}", error.message().replace('\n', ", ")),
    }
}

fn node(index: &PlaceIndex<'_>, value: &toml::Spanned<DeValue<'_>>) -> Result<Node, Malformed> {
    let place = index.place(value.span().start);
    let fault = |message: String| Malformed { place, message };
    let content = match value.get_ref() {
        DeValue::String(text) => Content::Text(text.to_string()),
        DeValue::Integer(whole) => i128::from_str_radix(whole.as_str(), whole.radix())
            .map(Content::Whole)
            .map_err(|_| fault(format!("`{whole}` is too big a number")))?,
        DeValue::Float(real) => match real.as_str().parse::<f64>() {
            Ok(real) if real.is_finite() => Content::Real(real),
            Ok(_) | Err(_) => {
                return Err(fault(format!("`{}` is no finite number", real.as_str())));
            }
        },
        DeValue::Boolean(flag) => Content::Flag(*flag),
        // No key of ours takes a date; as text it is refused with what would be right.
        DeValue::Datetime(at) => Content::Text(at.to_string()),
        DeValue::Array(list) => {
            let nodes = list.iter().map(|value| node(index, value));
            Content::List(nodes.collect::<Result<_, _>>()?)
        }
        DeValue::Table(table) => return table_node(index, place, table),
    };
    Ok(Node { place, content })
}

fn table_node(
    index: &PlaceIndex<'_>,
    place: Place,
    table: &DeTable<'_>,
) -> Result<Node, Malformed> {
    let entries = table.iter().map(|(key, value)| {
        Ok(Entry {
            key: key.get_ref().to_string(),
            place: index.place(key.span().start),
            node: node(index, value)?,
        })
    });
    let mut entries = entries.collect::<Result<Vec<Entry>, Malformed>>()?;
    // The parser sorts by name; people read from the top.
    entries.sort_by_key(|entry| entry.place);
    Ok(Node {
        place,
        content: Content::Table(entries),
    })
}
