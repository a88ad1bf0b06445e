//! JSON objects with ordered fields whose values keep their original bytes.
//!
//! Invariant: values are neither parsed nor reformatted unless a caller asks for it.

use std::fmt;

use longhaul_core::raw::RawJson;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Serialize};

/// Maximum number of fields of an object. Providers send no objects with more fields. Larger
/// objects are not split into fields, because the lookup by name is linear.
const FIELDS_MAX: usize = 64;

/// A JSON object: its fields in order, with unparsed values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct JsonObject(Vec<(String, RawJson)>);

impl JsonObject {
    /// Creates an object with the given value in the field `type`.
    pub(crate) fn with_type_field(kind: &str) -> Self {
        Self::default().with_field("type", kind)
    }

    /// Adds a field whose value is the given value, encoded as JSON.
    pub(crate) fn with_field(mut self, name: &str, value: &(impl Serialize + ?Sized)) -> Self {
        self.0.push((name.to_owned(), RawJson::from_serialize(&value)));
        self
    }

    /// Adds a field, unless the value is `None`.
    pub(crate) fn with_option(self, name: &str, value: Option<&(impl Serialize + ?Sized)>) -> Self {
        match value {
            Some(value) => self.with_field(name, value),
            None => self,
        }
    }

    /// Adds all fields of another object. A value that is not an object is ignored.
    pub(crate) fn with_fields_of_object(mut self, object: Option<&RawJson>) -> Self {
        let fields = object.map(|object| serde_json::from_str(object.as_str()));
        if let Some(Ok(FieldList(fields))) = fields {
            self.0.extend(fields);
        }
        self
    }

    /// Parses an object. `None` means that the text is not an object or has too many fields.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let FieldList(fields) = serde_json::from_str(text).ok()?;
        (fields.len() <= FIELDS_MAX).then_some(Self(fields))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&RawJson> {
        let found = self.0.iter().find(|(field_name, _)| field_name == name);
        found.map(|(_, value)| value)
    }

    /// Removes the field with this name and returns its value. If there are several fields with
    /// the name, all are removed, and the value of the first is returned.
    pub(crate) fn take_field(&mut self, name: &str) -> Option<RawJson> {
        let index = self.0.iter().position(|(field_name, _)| field_name == name)?;
        let (_, value) = self.0.remove(index);
        self.0.retain(|(field_name, _)| field_name != name);
        Some(value)
    }

    /// Removes a string field and returns its text. A field that is not a string stays.
    pub(crate) fn take_string_field(&mut self, name: &str) -> Option<String> {
        let text = serde_json::from_str(self.get(name)?.as_str()).ok()?;
        _ = self.take_field(name);
        Some(text)
    }

    /// Replaces the value of a field, or adds the field at the end.
    pub(crate) fn set_field(&mut self, name: &str, value: RawJson) {
        match self.0.iter_mut().find(|(field_name, _)| field_name == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn fields(&self) -> &[(String, RawJson)] {
        &self.0
    }

    /// Returns the names and values of all fields, in order.
    pub(crate) fn into_fields(self) -> Vec<(String, RawJson)> {
        self.0
    }

    /// Returns the object as JSON. `None` means that the object is empty.
    pub(crate) fn to_json(&self) -> Option<RawJson> {
        (!self.0.is_empty()).then(|| RawJson::from_serialize(self))
    }
}

impl Serialize for JsonObject {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// Names and values of an object's fields, without a maximum number of fields.
struct FieldList(Vec<(String, RawJson)>);

impl<'de> Deserialize<'de> for FieldList {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct ObjectVisitor;

        impl<'de> Visitor<'de> for ObjectVisitor {
            type Value = FieldList;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<FieldList, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(FieldList(fields))
            }
        }

        from.deserialize_map(ObjectVisitor)
    }
}

/// Fields that a stream sends in fragments. String fragments are concatenated, list fragments are
/// concatenated, and of any other type the last value is used.
#[derive(Debug, Default)]
pub(crate) struct StreamedFieldFragments(Vec<(String, Vec<RawJson>)>);

impl StreamedFieldFragments {
    /// Adds the JSON value that one event of the stream has sent for the field `name`: a part of
    /// the field's text or list, or the whole value. Ignored if there are too many other fields.
    pub(crate) fn add_fragment(&mut self, name: &str, fragment: RawJson) {
        let is_full = self.0.len() >= FIELDS_MAX;
        match self.0.iter_mut().find(|(field_name, _)| field_name == name) {
            Some((_, pieces)) => pieces.push(fragment),
            None if is_full => {}
            None => self.0.push((name.to_owned(), vec![fragment])),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Merges all collected fields into `fields`.
    pub(crate) fn merge_into(self, fields: &mut JsonObject) {
        for (name, pieces) in self.0 {
            let existing_value = fields.get(&name).filter(|value| value.as_str() != "null");
            let all: Vec<&RawJson> = existing_value.into_iter().chain(&pieces).collect();
            let texts = parse_fragments::<String>(&all)
                .map(|texts| RawJson::from_serialize(&texts.concat()));
            let lists = || {
                parse_fragments::<Vec<RawJson>>(&all)
                    .map(|lists| RawJson::from_serialize(&lists.concat()))
            };
            let value = texts.or_else(lists).or_else(|| pieces.last().cloned());
            if let Some(value) = value {
                fields.set_field(&name, value);
            }
        }
    }
}

/// Parses all fragments as the same type. `None` means that a fragment has another type.
fn parse_fragments<T: serde::de::DeserializeOwned>(fragments: &[&RawJson]) -> Option<Vec<T>> {
    let fragments = fragments.iter();
    let values = fragments.map(|piece| serde_json::from_str(piece.as_str()).ok());
    values.collect()
}
