//! Reads YAML into a tree with places.
//!
//! Never: knows which keys there are, and never takes `yes` or `on` for a boolean.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Location, Spanned, UserMessageFormatter};

use crate::written::{Content, Entry, Malformed, Node, Place};

/// Aliases may repeat so much of a text, which is plenty for people.
const REPLAYED_MAX: usize = 10_000;

/// So deep may lists and tables stand in each other. Measured: without
/// optimisation a hundred levels fill the 2 MiB stack of a thread.
const DEPTH_MAX: usize = 32;

/// Reads one document. A text without any value is `Nothing`.
///
/// # Errors
/// What is no YAML, and where.
pub fn read(text: &str) -> Result<Node, Malformed> {
    let options = serde_saphyr::options! {
        strict_booleans: true,
        with_snippet: false,
        budget: serde_saphyr::budget! { max_depth: DEPTH_MAX },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: REPLAYED_MAX },
    };
    let read = serde_saphyr::from_str_with_options::<Node>(text, options);
    read.or_else(|error| {
        let error = error.without_snippet();
        if matches!(error, serde_saphyr::Error::Eof { .. }) {
            return Ok(Node {
                place: Place::START,
                content: Content::Nothing,
            });
        }
        Err(malformed(error))
    })
}

fn malformed(error: &serde_saphyr::Error) -> Malformed {
    let location = error.location().unwrap_or(Location::UNKNOWN);
    let said = error.render_with_formatter(&UserMessageFormatter);
    // The parser's own note of the place would stand twice.
    let note = format!(" at line {}, column {}", location.line(), location.column());
    Malformed {
        place: place(location),
        message: format!("not YAML: {}", said.replace(&note, "").replace('\n', ", ")),
    }
}

fn place(location: Location) -> Place {
    let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX).max(1);
    Place {
        line: number(location.line()),
        column: number(location.column()),
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Content>::deserialize(from)?;
        Ok(Self {
            place: place(spanned.referenced),
            content: spanned.value,
        })
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Content;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Content, E> {
        Ok(Content::Nothing)
    }

    fn visit_bool<E: de::Error>(self, flag: bool) -> Result<Content, E> {
        Ok(Content::Flag(flag))
    }

    fn visit_i64<E: de::Error>(self, whole: i64) -> Result<Content, E> {
        Ok(Content::Whole(whole.into()))
    }

    fn visit_u64<E: de::Error>(self, whole: u64) -> Result<Content, E> {
        Ok(Content::Whole(whole.into()))
    }

    fn visit_f64<E: de::Error>(self, real: f64) -> Result<Content, E> {
        match real.is_finite() {
            true => Ok(Content::Real(real)),
            false => Err(E::custom("a number is too big, or no finite one")),
        }
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Content, E> {
        Ok(Content::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Content, A::Error> {
        let mut nodes = Vec::new();
        while let Some(node) = list.next_element()? {
            nodes.push(node);
        }
        Ok(Content::List(nodes))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Content, A::Error> {
        let mut entries = Vec::new();
        while let Some((key, node)) = map.next_entry::<Spanned<String>, Node>()? {
            entries.push(Entry {
                place: place(key.referenced),
                key: key.value,
                node,
            });
        }
        Ok(Content::Table(entries))
    }
}
