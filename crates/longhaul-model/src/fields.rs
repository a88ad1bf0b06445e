//! The fields of a JSON object in their order, each with its own spelling.
//!
//! Never: reads a value that nobody asked for, or reformats one.

use std::fmt;

use longhaul_core::raw::RawJson;
use serde::Deserialize;
use serde::de::{MapAccess, Visitor};

/// An object with more fields is nothing that a provider sends; it is kept
/// whole, because looking for a name in it would take too long.
const FIELDS_MAX: usize = 64;

/// The fields of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Fields(Vec<(String, RawJson)>);

impl Fields {
    /// Reads an object; none: it is no object, or an unreasonable one.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let fields: Self = serde_json::from_str(text).ok()?;
        (fields.0.len() <= FIELDS_MAX).then_some(fields)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&RawJson> {
        let found = self.0.iter().find(|(has, _)| has == name);
        found.map(|(_, value)| value)
    }

    /// Takes a field out.
    pub(crate) fn take(&mut self, name: &str) -> Option<RawJson> {
        let place = self.0.iter().position(|(has, _)| has == name)?;
        Some(self.0.remove(place).1)
    }

    /// Takes a text out; anything else under this name stays.
    pub(crate) fn take_text(&mut self, name: &str) -> Option<String> {
        let text = serde_json::from_str(self.get(name)?.as_str()).ok()?;
        _ = self.take(name);
        Some(text)
    }

    /// Puts a value where the field stands, or at the end.
    pub(crate) fn set(&mut self, name: &str, value: RawJson) {
        match self.0.iter_mut().find(|(has, _)| has == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    /// All of them, in their order.
    pub(crate) fn into_pairs(self) -> Vec<(String, RawJson)> {
        self.0
    }

    /// The object again; none: nothing is in it.
    pub(crate) fn raw(&self) -> Option<RawJson> {
        if self.0.is_empty() {
            return None;
        }
        let fields = self.0.iter().map(|(name, value)| {
            let name = RawJson::of(name);
            format!("{}:{}", name.as_str(), value.as_str())
        });
        let fields: Vec<String> = fields.collect();
        RawJson::parse(format!("{{{}}}", fields.join(","))).ok()
    }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Vec::new();
                while let Some((name, value)) = map.next_entry()? {
                    fields.push((name, value));
                }
                Ok(Fields(fields))
            }
        }

        from.deserialize_map(Object)
    }
}

/// What a stream adds to a field: texts are joined, lists are joined, and of
/// anything else the last word counts.
#[derive(Debug, Default)]
pub(crate) struct Later(Vec<(String, Vec<RawJson>)>);

impl Later {
    /// Adds a piece to a field.
    pub(crate) fn add(&mut self, name: &str, piece: RawJson) {
        let is_full = self.0.len() >= FIELDS_MAX;
        match self.0.iter_mut().find(|(has, _)| has == name) {
            Some((_, pieces)) => pieces.push(piece),
            None if is_full => {}
            None => self.0.push((name.to_owned(), vec![piece])),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The fields with everything that was added.
    pub(crate) fn settle(self, fields: &mut Fields) {
        for (name, pieces) in self.0 {
            let before = fields.get(&name).filter(|value| value.as_str() != "null");
            let all: Vec<&str> = before
                .into_iter()
                .chain(&pieces)
                .map(RawJson::as_str)
                .collect();
            let joined = texts(&all).or_else(|| lists(&all));
            if let Some(value) = joined.or_else(|| pieces.last().cloned()) {
                fields.set(&name, value);
            }
        }
    }
}

fn texts(pieces: &[&str]) -> Option<RawJson> {
    let mut all = String::new();
    for piece in pieces {
        all.push_str(&serde_json::from_str::<String>(piece).ok()?);
    }
    Some(RawJson::of(&all))
}

fn lists(pieces: &[&str]) -> Option<RawJson> {
    let mut all = Vec::new();
    for piece in pieces {
        let inner = piece.trim().strip_prefix('[')?.strip_suffix(']')?.trim();
        all.extend((!inner.is_empty()).then_some(inner));
    }
    RawJson::parse(format!("[{}]", all.join(","))).ok()
}
