//! Server-sent events as bytes.
//!
//! Never: a line end inside the data. JSON has none when it is written in one line.

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;

/// An event whose name is its `type`.
pub(crate) fn named(event: &Value) -> Bytes {
    let name = event.get("type").and_then(Value::as_str);
    let name = name.unwrap_or("message");
    format!("event: {name}\ndata: {event}\n\n").into()
}

/// An event without a name.
pub(crate) fn unnamed(event: &impl Serialize) -> Bytes {
    // What is written here is JSON of our own, which can always be written.
    let data = serde_json::to_string(event).unwrap_or_default();
    format!("data: {data}\n\n").into()
}
