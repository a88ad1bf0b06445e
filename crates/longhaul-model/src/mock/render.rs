//! Renders replies of the mock provider as one body or as a stream, with one module per API.

mod chat;
mod messages;
mod responses;

use bytes::Bytes;
use serde_json::json;

use crate::mock::api_kind::ApiKind;
use crate::mock::event;
use crate::mock::mock_reply::MockReply;

/// Error message that simulates an overloaded provider.
pub(crate) const OVERLOADED_MESSAGE: &str = "Overloaded";

/// HTTP status that simulates an overloaded provider.
pub(crate) const OVERLOADED_STATUS: u16 = 529;

/// Renders the reply in the format of an API as one complete response body.
pub(crate) fn render_body(api: ApiKind, mock_reply: &MockReply<'_>) -> String {
    match api {
        ApiKind::Messages => messages::render_body(mock_reply),
        ApiKind::Responses => responses::render_body(mock_reply),
        ApiKind::Chat => chat::render_body(mock_reply),
    }
}

/// Renders the reply in the format of an API as the server-sent events of a stream.
pub(crate) fn render_events(api: ApiKind, mock_reply: &MockReply<'_>) -> Vec<Bytes> {
    match api {
        ApiKind::Messages => messages::render_events(mock_reply),
        ApiKind::Responses => responses::render_events(mock_reply),
        ApiKind::Chat => chat::render_events(mock_reply),
    }
}

/// Returns the event that ends a stream with an error, for the request with this ID.
pub(crate) fn error_event(api: ApiKind, request_id: &str) -> Bytes {
    match api {
        ApiKind::Messages => event::encode_named_sse_event(&json!({
            "type": "error",
            "error": { "type": "overloaded_error", "message": OVERLOADED_MESSAGE },
            "request_id": request_id,
        })),
        ApiKind::Responses => event::encode_named_sse_event(&json!({
            "type": "error",
            "code": "server_error",
            "message": OVERLOADED_MESSAGE,
            "param": null,
            "sequence_number": 0,
        })),
        ApiKind::Chat => event::encode_unnamed_sse_event(&json!({
            "error": { "message": OVERLOADED_MESSAGE, "type": "server_error", "param": null, "code": null },
        })),
    }
}
