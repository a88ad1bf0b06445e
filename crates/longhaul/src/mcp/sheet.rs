//! Objects of JSON whose values know their place, and one server while it is read: what
//! is wrong with it is collected, and none of its values is quoted.

use std::collections::BTreeMap;
use std::fmt;

use longhaul_core::suggest;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::mcp::server::Remark;
use crate::written::{Place, PlaceIndex, plain_line};

/// The values of an object by their keys; of one that stands twice, the last.
pub(crate) type Object<'a> = BTreeMap<String, &'a RawValue>;

/// The fields of an object in order, twice where they stand twice.
#[derive(Debug)]
pub(crate) struct Fields<'a>(pub(crate) Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Walk)
    }
}

struct Walk;

impl<'de> Visitor<'de> for Walk {
    type Value = Fields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(Fields(fields))
    }
}

/// What a value is, in a word for messages.
pub(crate) fn what(value: &RawValue) -> &'static str {
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
pub(crate) fn remark(place: Option<Place>, message: &str) -> Remark {
    let message = plain_line(message);
    Remark { place, message }
}

/// One server while it is read.
pub(crate) struct Sheet<'a> {
    pub(crate) index: &'a PlaceIndex<'a>,
    pub(crate) name: &'a str,
    pub(crate) problems: Vec<Remark>,
    pub(crate) notes: Vec<Remark>,
}

impl<'a> Sheet<'a> {
    pub(crate) fn place_of(&self, value: &RawValue) -> Place {
        self.index.place_of(value.get())
    }

    pub(crate) fn problem(&mut self, at: Place, said: &str) {
        let said = format!("server `{}`: {said}", self.name);
        self.problems.push(remark(Some(at), &said));
    }

    pub(crate) fn note(&mut self, at: Place, said: &str) {
        let said = format!("server `{}`: {said}", self.name);
        self.notes.push(remark(Some(at), &said));
    }

    /// The object that stands under a key of the server, or the server itself where no
    /// key is named.
    pub(crate) fn object(
        &mut self,
        under: Option<&str>,
        value: &'a RawValue,
        known: &[&str],
    ) -> Option<Object<'a>> {
        let (whole, lead) = match under {
            Some(key) => (format!("`{key}` "), format!("`{key}`: ")),
            None => (String::new(), String::new()),
        };
        let Ok(fields) = serde_json::from_str::<Fields<'a>>(value.get()) else {
            let said = format!("{whole}is {}, write an object", what(value));
            self.problem(self.place_of(value), &said);
            return None;
        };
        let mut object = Object::new();
        for (key, value) in fields.0 {
            let at = self.place_of(value);
            if !known.contains(&key.as_str()) {
                let said = suggest::unknown("key", &key, known);
                self.note(at, &format!("{lead}{said}; it is passed over"));
            } else if object.insert(key.clone(), value).is_some() {
                let said = format!("{lead}`{key}` stands here again, and the last one counts");
                self.note(at, &said);
            }
        }
        Some(object)
    }

    /// A value as its type; where it is none, what would be right is told.
    pub(crate) fn read<T: for<'de> Deserialize<'de>>(
        &mut self,
        key: &str,
        value: &RawValue,
        right: &str,
    ) -> Option<T> {
        let read = serde_json::from_str(value.get()).ok();
        if read.is_none() {
            self.misfit(key, value, right);
        }
        read
    }

    /// What stands there is not quoted: it may be a secret.
    pub(crate) fn misfit(&mut self, key: &str, value: &RawValue, right: &str) {
        let said = format!("`{key}` is {}, write {right}", what(value));
        self.problem(self.place_of(value), &said);
    }
}
