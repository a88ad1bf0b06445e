//! Parses YAML into a tree in which every value has its position. It does not check which keys are
//! valid. `yes` and `on` are texts, not booleans.

use std::fmt;

use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Location, Spanned, UserMessageFormatter};

use crate::spanned::{Node, NodeValue, ParseError, Position, TableEntry};

/// Maximum number of parser events that YAML aliases may repeat. It limits the size of expanded
/// aliases.
const REPLAYED_EVENTS_MAX: usize = 10_000;

/// Maximum nesting depth of lists and tables. In a build without optimization, a hundred levels
/// would fill the 2 MiB stack of a thread.
const DEPTH_MAX: usize = 32;

/// Parses one YAML document. A text without a value gives `Null`.
///
/// # Errors
/// The text is not valid YAML. The error contains the position.
pub fn parse(text: &str) -> Result<Node, ParseError> {
    parse_with(text, NodeSeed { with_positions: true })
}

/// Parses one YAML document into a tree in which every position is the start of the text. Takes
/// less than half the time of [`parse`].
///
/// # Errors
/// The text is not valid YAML. The error contains the position.
pub(crate) fn parse_without_positions(text: &str) -> Result<Node, ParseError> {
    parse_with(text, NodeSeed { with_positions: false })
}

fn parse_with(text: &str, seed: NodeSeed) -> Result<Node, ParseError> {
    let options = serde_saphyr::options! {
        strict_booleans: true,
        with_snippet: false,
        budget: serde_saphyr::budget! { max_depth: DEPTH_MAX },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: REPLAYED_EVENTS_MAX },
    };
    let result = serde_saphyr::with_deserializer_from_str_with_options(text, options, |document| {
        seed.deserialize(document)
    });
    result.or_else(|error| {
        let error = error.without_snippet();
        if matches!(error, serde_saphyr::Error::Eof { .. }) {
            return Ok(Node { position: Position::START, value: NodeValue::Null });
        }
        Err(parse_error(error))
    })
}

fn parse_error(error: &serde_saphyr::Error) -> ParseError {
    let location = error.location().unwrap_or(Location::UNKNOWN);
    let rendered = error.render_with_formatter(&UserMessageFormatter);
    // The position is reported separately, so it is removed from the parser's message.
    let position_text = format!(" at line {}, column {}", location.line(), location.column());
    ParseError {
        position: to_position(location),
        message: format!(
            "the text is not valid YAML: {}",
            rendered.replace(&position_text, "").replace('\n', ", ")
        ),
    }
}

fn to_position(location: Location) -> Position {
    let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX).max(1);
    Position { line: number(location.line()), column: number(location.column()) }
}

/// Deserializes a node. Positions are expensive: each is deserialized like a table.
#[derive(Clone, Copy)]
struct NodeSeed {
    with_positions: bool,
}

impl NodeSeed {
    fn next_key_with_position<'de, A: MapAccess<'de>>(
        self,
        map: &mut A,
    ) -> Result<Option<(String, Position)>, A::Error> {
        if self.with_positions {
            let key = map.next_key::<Spanned<String>>()?;
            return Ok(key.map(|key| (key.value, to_position(key.referenced))));
        }
        Ok(map.next_key()?.map(|key| (key, Position::START)))
    }
}

impl<'de> DeserializeSeed<'de> for NodeSeed {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Node, D::Error> {
        if self.with_positions {
            let spanned = Spanned::<NodeValue>::deserialize(from)?;
            return Ok(Node { position: to_position(spanned.referenced), value: spanned.value });
        }
        let value = from.deserialize_any(NodeValueVisitor { seed: self })?;
        Ok(Node { position: Position::START, value })
    }
}

impl<'de> Deserialize<'de> for NodeValue {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(NodeValueVisitor { seed: NodeSeed { with_positions: true } })
    }
}

struct NodeValueVisitor {
    seed: NodeSeed,
}

impl<'de> Visitor<'de> for NodeValueVisitor {
    type Value = NodeValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<NodeValue, E> {
        Ok(NodeValue::Null)
    }

    fn visit_bool<E: de::Error>(self, flag: bool) -> Result<NodeValue, E> {
        Ok(NodeValue::Boolean(flag))
    }

    fn visit_i64<E: de::Error>(self, integer: i64) -> Result<NodeValue, E> {
        Ok(NodeValue::Integer(integer.into()))
    }

    fn visit_u64<E: de::Error>(self, integer: u64) -> Result<NodeValue, E> {
        Ok(NodeValue::Integer(integer.into()))
    }

    fn visit_f64<E: de::Error>(self, float: f64) -> Result<NodeValue, E> {
        match float.is_finite() {
            true => Ok(NodeValue::Float(float)),
            false => Err(E::custom("a number is too large or not finite")),
        }
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<NodeValue, E> {
        Ok(NodeValue::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<NodeValue, A::Error> {
        let mut nodes = Vec::new();
        while let Some(node) = list.next_element_seed(self.seed)? {
            nodes.push(node);
        }
        Ok(NodeValue::List(nodes))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<NodeValue, A::Error> {
        let mut entries = Vec::new();
        while let Some((key, position)) = self.seed.next_key_with_position(&mut map)? {
            entries.push(TableEntry { position, key, node: map.next_value_seed(self.seed)? });
        }
        Ok(NodeValue::Table(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_parsers_give_the_same_values_and_errors() {
        let texts = [
            "",
            "a: [1, x, {b: ~}]\n1: true\n'2': 1e3",
            "a: &x {b: 2}\nc: *x\nd: !tag e",
            "- yes\n- on\n- .inf",
            "a: 99999999999999999999\nb: 0x10",
            "a: 1\na: 2",
            "? [1]\n: 2",
            "a: 'x",
            "a: |\n  two\n  lines\nb: >\n  one\n  line",
            "a: 1\n---\nb: 2",
        ];
        let values = |parsed: Result<Node, ParseError>| {
            let parsed = parsed.map(|node| node.to_json());
            parsed.map_err(|error| (error.position, error.message))
        };
        for text in texts {
            assert_eq!(values(parse(text)), values(parse_without_positions(text)), "{text}");
        }
    }
}
