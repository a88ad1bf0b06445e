//! The fields of a JSON object in their order, each with its own spelling.
//!
//! Never: reads a value that nobody asked for, or reformats one.

use std::fmt;

use longhaul_core::raw::RawJson;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Serialize};

/// An object with more fields is nothing that a provider sends; it is kept
/// whole, because looking for a name in it would take too long.
const FIELDS_MAX: usize = 64;

/// The fields of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct JsonObject(Vec<(String, RawJson)>);

impl JsonObject {
    /// An object of this type.
    pub(crate) fn of_type(kind: &str) -> Self {
        Self::default().with("type", kind)
    }

    /// The object with one more field.
    pub(crate) fn with(mut self, name: &str, value: &(impl Serialize + ?Sized)) -> Self {
        self.0.push((name.to_owned(), RawJson::from_serialize(&value)));
        self
    }

    /// The same with a field that there may be.
    pub(crate) fn with_some(self, name: &str, value: Option<&(impl Serialize + ?Sized)>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// The object with all fields of another, if that is an object.
    pub(crate) fn with_fields(mut self, object: Option<&RawJson>) -> Self {
        let fields = object.map(|object| serde_json::from_str(object.as_str()));
        if let Some(Ok(Pairs(fields))) = fields {
            self.0.extend(fields);
        }
        self
    }

    /// Reads an object; none: it is no object, or an unreasonable one.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let Pairs(fields) = serde_json::from_str(text).ok()?;
        (fields.len() <= FIELDS_MAX).then_some(Self(fields))
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

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn pairs(&self) -> &[(String, RawJson)] {
        &self.0
    }

    /// All of them, in their order.
    pub(crate) fn into_pairs(self) -> Vec<(String, RawJson)> {
        self.0
    }

    /// The object again; none: nothing is in it.
    pub(crate) fn to_raw(&self) -> Option<RawJson> {
        (!self.0.is_empty()).then(|| RawJson::from_serialize(self))
    }
}

impl Serialize for JsonObject {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// The fields of an object, as many as there are.
struct Pairs(Vec<(String, RawJson)>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct ObjectVisitor;

        impl<'de> Visitor<'de> for ObjectVisitor {
            type Value = Pairs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Pairs(fields))
            }
        }

        from.deserialize_map(ObjectVisitor)
    }
}

/// What a stream adds to a field: texts are joined, lists are joined, and of
/// anything else the last word counts.
#[derive(Debug, Default)]
pub(crate) struct DeferredFields(Vec<(String, Vec<RawJson>)>);

impl DeferredFields {
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
    pub(crate) fn apply_to(self, fields: &mut JsonObject) {
        for (name, pieces) in self.0 {
            let before = fields.get(&name).filter(|value| value.as_str() != "null");
            let all: Vec<&RawJson> = before.into_iter().chain(&pieces).collect();
            let texts =
                parse_all::<String>(&all).map(|texts| RawJson::from_serialize(&texts.concat()));
            let lists = || {
                parse_all::<Vec<RawJson>>(&all)
                    .map(|lists| RawJson::from_serialize(&lists.concat()))
            };
            let value = texts.or_else(lists).or_else(|| pieces.last().cloned());
            if let Some(value) = value {
                fields.set(&name, value);
            }
        }
    }
}

/// The pieces, if each of them is of this type.
fn parse_all<T: serde::de::DeserializeOwned>(pieces: &[&RawJson]) -> Option<Vec<T>> {
    let pieces = pieces.iter();
    let read = pieces.map(|piece| serde_json::from_str(piece.as_str()).ok());
    read.collect()
}
