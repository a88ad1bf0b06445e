//! Encodes server-sent events.
//!
//! Invariant: the data of an event has no line breaks, because JSON is written on one line.

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;

/// Encodes a server-sent event whose name is the `type` field of its JSON.
pub(crate) fn encode_named_sse_event(event: &Value) -> Bytes {
    let name = event.get("type").and_then(Value::as_str);
    let name = name.unwrap_or("message");
    format!("event: {name}\ndata: {event}\n\n").into()
}

/// Encodes a server-sent event without a name.
pub(crate) fn encode_unnamed_sse_event(event: &impl Serialize) -> Bytes {
    // Serialising our own values can't fail.
    let data = serde_json::to_string(event).unwrap_or_default();
    format!("data: {data}\n\n").into()
}
