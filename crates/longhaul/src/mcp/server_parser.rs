//! Objects of JSON whose values know their place, and one server while it is read: what
//! is wrong with it is collected, and none of its values is quoted.

use std::collections::BTreeMap;
use std::fmt;

use longhaul_core::suggest;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::mcp::server::Remark;
use crate::spanned::{Position, PositionIndex, escape_line};

/// The values of an object by their keys; of one that stands twice, the last.
pub(crate) type Object<'a> = BTreeMap<String, &'a RawValue>;

/// The fields of an object in order, twice where they stand twice.
#[derive(Debug)]
pub(crate) struct OrderedFields<'a>(pub(crate) Vec<(String, &'a RawValue)>);

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

/// What a value is, in a word for messages.
pub(crate) fn json_type_name(value: &RawValue) -> &'static str {
    match value.get().as_bytes().first() {
        Some(b'{') => "an object",
        Some(b'[') => "a list",
        Some(b'"') => "text",
        Some(b't' | b'f') => "true or false",
        Some(b'n') => "null",
        Some(_) | None => "a number",
    }
}

/// A remark in one line, whatever the file holds: a name with a line break would look
/// like a remark of its own.
pub(crate) fn single_line_remark(place: Option<Position>, message: &str) -> Remark {
    let message = escape_line(message);
    Remark { position: place, message }
}

/// One server while it is read.
pub(crate) struct ServerParser<'a> {
    pub(crate) index: &'a PositionIndex<'a>,
    pub(crate) name: &'a str,
    pub(crate) problems: Vec<Remark>,
    pub(crate) notes: Vec<Remark>,
}

impl<'a> ServerParser<'a> {
    pub(crate) fn position_of(&self, value: &RawValue) -> Position {
        self.index.position_of(value.get())
    }

    pub(crate) fn problem(&mut self, at: Position, said: &str) {
        let said = format!("server `{}`: {said}", self.name);
        self.problems.push(single_line_remark(Some(at), &said));
    }

    pub(crate) fn note(&mut self, at: Position, said: &str) {
        let said = format!("server `{}`: {said}", self.name);
        self.notes.push(single_line_remark(Some(at), &said));
    }

    /// The object that stands under a key of the server, or the server itself where no
    /// key is named.
    pub(crate) fn parse_object(
        &mut self,
        under: Option<&str>,
        value: &'a RawValue,
        known: &[&str],
    ) -> Option<Object<'a>> {
        let (whole, lead) = match under {
            Some(key) => (format!("`{key}` "), format!("`{key}`: ")),
            None => (String::new(), String::new()),
        };
        let Ok(fields) = serde_json::from_str::<OrderedFields<'a>>(value.get()) else {
            let said = format!("{whole}is {}, write an object", json_type_name(value));
            self.problem(self.position_of(value), &said);
            return None;
        };
        let mut object = Object::new();
        for (key, value) in fields.0 {
            let at = self.position_of(value);
            if !known.contains(&key.as_str()) {
                let said = suggest::unknown_message("key", &key, known);
                self.note(at, &format!("{lead}{said}; it is passed over"));
            } else if object.insert(key.clone(), value).is_some() {
                let said = format!("{lead}`{key}` stands here again, and the last one counts");
                self.note(at, &said);
            }
        }
        Some(object)
    }

    /// A value as its type; where it is none, what would be right is told.
    pub(crate) fn parse_value<T: for<'de> Deserialize<'de>>(
        &mut self,
        key: &str,
        value: &RawValue,
        right: &str,
    ) -> Option<T> {
        let read = serde_json::from_str(value.get()).ok();
        if read.is_none() {
            self.type_mismatch(key, value, right);
        }
        read
    }

    /// What stands there is not quoted: it may be a secret.
    pub(crate) fn type_mismatch(&mut self, key: &str, value: &RawValue, right: &str) {
        let said = format!("`{key}` is {}, write {right}", json_type_name(value));
        self.problem(self.position_of(value), &said);
    }
}
