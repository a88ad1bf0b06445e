//! The parser state of one MCP server, and JSON objects whose values have positions in the file.
//! Problems are collected; their messages show no values.

use std::collections::BTreeMap;
use std::fmt;

use longhaul_core::suggest;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::mcp::server::McpFileRemark;
use crate::spanned::{Position, PositionIndex, escape_to_one_line};

/// Values of a JSON object by key. If a key occurs twice, the last value is used.
pub(crate) type Object<'a> = BTreeMap<String, &'a RawValue>;

/// Keys and values of a JSON object in the order of the text, including duplicate keys.
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

/// Returns the type of a JSON value as text for messages.
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

/// Creates a remark that stays on one line: a name with a line break could be mistaken for another
/// remark.
pub(crate) fn remark(position: Option<Position>, message: &str) -> McpFileRemark {
    let message = escape_to_one_line(message);
    McpFileRemark { position, message }
}

/// Parser state of one MCP server: its name, and the problems and notes so far.
pub(crate) struct McpServerParser<'a> {
    pub(crate) index: &'a PositionIndex<'a>,
    pub(crate) name: &'a str,
    pub(crate) problems: Vec<McpFileRemark>,
    pub(crate) notes: Vec<McpFileRemark>,
}

impl<'a> McpServerParser<'a> {
    pub(crate) fn position_of(&self, value: &RawValue) -> Position {
        self.index.position_of_slice(value.get())
    }

    pub(crate) fn add_problem(&mut self, position: Position, message: &str) {
        let message = format!("server `{}`: {message}", self.name);
        self.problems.push(remark(Some(position), &message));
    }

    /// Reports a problem. Always returns `None`.
    pub(crate) fn reject<T>(&mut self, position: Position, message: &str) -> Option<T> {
        self.add_problem(position, message);
        None
    }

    pub(crate) fn add_note(&mut self, position: Position, message: &str) {
        let message = format!("server `{}`: {message}", self.name);
        self.notes.push(remark(Some(position), &message));
    }

    /// Parses a JSON object: the value of the server's key `parent_key`, or the whole server if
    /// `parent_key` is `None`.
    pub(crate) fn parse_object(
        &mut self,
        parent_key: Option<&str>,
        value: &'a RawValue,
        allowed: &[&str],
    ) -> Option<Object<'a>> {
        let (key_and_space, parent_key_prefix) = match parent_key {
            Some(key) => (format!("`{key}` "), format!("`{key}`: ")),
            None => (String::new(), String::new()),
        };
        let Ok(fields) = serde_json::from_str::<OrderedFields<'a>>(value.get()) else {
            let message =
                format!("{key_and_space}must be an object, but is {}", json_type_name(value));
            self.add_problem(self.position_of(value), &message);
            return None;
        };
        let mut object = Object::new();
        for (key, value) in fields.0 {
            let at = self.position_of(value);
            if !allowed.contains(&key.as_str()) {
                let message = suggest::unknown_name_message("key", &key, allowed);
                self.add_note(at, &format!("{parent_key_prefix}{message}; the key is ignored"));
            } else if object.insert(key.clone(), value).is_some() {
                let message =
                    format!("{parent_key_prefix}`{key}` is a duplicate; the last one is used");
                self.add_note(at, &message);
            }
        }
        Some(object)
    }

    /// Deserializes the value of a key. If the value has the wrong type, reports the expected type.
    pub(crate) fn parse_field_value<T: for<'de> Deserialize<'de>>(
        &mut self,
        key: &str,
        value: &RawValue,
        expected: &str,
    ) -> Option<T> {
        let parsed = serde_json::from_str(value.get()).ok();
        if parsed.is_none() {
            self.report_type_mismatch(key, value, expected);
        }
        parsed
    }

    /// Deserializes the value of a key that may be missing. The outer `None` means that the value
    /// has the wrong type, which is reported.
    pub(crate) fn parse_optional<T: for<'de> Deserialize<'de>>(
        &mut self,
        fields: &Object<'a>,
        key: &str,
        expected: &str,
    ) -> Option<Option<T>> {
        let value = fields.get(key).map(|value| self.parse_field_value(key, value, expected));
        value.map_or(Some(None), |value| value.map(Some))
    }

    /// Reports that the value of a key has the wrong type. The value is not shown, since it may be
    /// a secret.
    pub(crate) fn report_type_mismatch(&mut self, key: &str, value: &RawValue, expected: &str) {
        let message = format!("`{key}` is {}: write {expected}", json_type_name(value));
        self.add_problem(self.position_of(value), &message);
    }
}
