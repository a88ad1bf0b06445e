//! Renders replies of the mock provider as one body or as a stream, with one module per API. Fields
//! without a value are included where the provider includes them.

mod chat;
mod messages;
mod responses;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::mock::mock_reply::MockReply;
use crate::mock::response::ApiKind;

/// Error message that simulates an overloaded provider.
pub(crate) const OVERLOADED_MESSAGE: &str = "Overloaded";

/// HTTP status that simulates an overloaded provider.
pub(crate) const OVERLOADED_STATUS: u16 = 529;

/// Renders the reply in the format of an API as one complete response body.
pub(crate) fn render_body(api: ApiKind, mock_reply: &MockReply<'_>) -> String {
    let body = match api {
        ApiKind::Messages => messages::render_body(mock_reply),
        ApiKind::Responses => responses::render_body(mock_reply),
        ApiKind::Chat => chat::render_body(mock_reply),
    };
    body.to_string()
}

/// Renders the reply in the format of an API as the server-sent events of a stream.
pub(crate) fn render_events(api: ApiKind, mock_reply: &MockReply<'_>) -> Vec<Bytes> {
    let events = match api {
        ApiKind::Messages => messages::render_events(mock_reply),
        ApiKind::Responses => responses::render_events(mock_reply),
        ApiKind::Chat => chat::render_events(mock_reply),
    };
    let done = (api == ApiKind::Chat).then_some(Bytes::from_static(b"data: [DONE]\n\n"));
    events.iter().map(|event| encode_event(api, event)).chain(done).collect()
}

/// Returns the event that ends a stream with an error, for the request with this ID.
pub(crate) fn error_event(api: ApiKind, request_id: &str) -> Bytes {
    let event = match api {
        ApiKind::Messages => json!({
            "type": "error",
            "error": { "type": "overloaded_error", "message": OVERLOADED_MESSAGE },
            "request_id": request_id,
        }),
        ApiKind::Responses => json!({
            "type": "error",
            "code": "server_error",
            "message": OVERLOADED_MESSAGE,
            "param": null,
            "sequence_number": 0,
        }),
        ApiKind::Chat => json!({
            "error": { "message": OVERLOADED_MESSAGE, "type": "server_error", "param": null, "code": null },
        }),
    };
    encode_event(api, &event)
}

/// Encodes a server-sent event, whose data is JSON on one line. Its name is the `type` of the JSON,
/// except in the Chat Completions API, whose events have no names.
fn encode_event(api: ApiKind, event: &Value) -> Bytes {
    let name = match (api, event["type"].as_str()) {
        (ApiKind::Messages | ApiKind::Responses, Some(name)) => format!("event: {name}\n"),
        (_, _) => String::new(),
    };
    format!("{name}data: {event}\n\n").into()
}
