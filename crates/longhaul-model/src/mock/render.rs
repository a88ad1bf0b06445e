//! Writes replies: one file for each wire, whole and as a stream.
//!
//! Never: decides what is said.

mod chat;
mod messages;
mod responses;

use bytes::Bytes;
use serde_json::json;

use crate::mock::api_kind::ApiKind;
use crate::mock::event;
use crate::mock::mock_reply::MockReply;

/// What a provider says that can't go on.
pub(crate) const OVERLOADED_MESSAGE: &str = "Overloaded";

/// The status of an answer that says so before it has begun.
pub(crate) const OVERLOADED_STATUS: u16 = 529;

/// The reply as one body.
pub(crate) fn body(dialect: ApiKind, speech: &MockReply<'_>) -> String {
    match dialect {
        ApiKind::Messages => messages::body(speech),
        ApiKind::Responses => responses::body(speech),
        ApiKind::Chat => chat::body(speech),
    }
}

/// The reply as events.
pub(crate) fn events(dialect: ApiKind, speech: &MockReply<'_>) -> Vec<Bytes> {
    match dialect {
        ApiKind::Messages => messages::events(speech),
        ApiKind::Responses => responses::events(speech),
        ApiKind::Chat => chat::events(speech),
    }
}

/// The event with which a stream says that it can't go on.
pub(crate) fn error_event(dialect: ApiKind, request: &str) -> Bytes {
    match dialect {
        ApiKind::Messages => event::named(&json!({
            "type": "error",
            "error": { "type": "overloaded_error", "message": OVERLOADED_MESSAGE },
            "request_id": request,
        })),
        ApiKind::Responses => event::named(&json!({
            "type": "error",
            "code": "server_error",
            "message": OVERLOADED_MESSAGE,
            "param": null,
            "sequence_number": 0,
        })),
        ApiKind::Chat => event::unnamed(&json!({
            "error": { "message": OVERLOADED_MESSAGE, "type": "server_error", "param": null, "code": null },
        })),
    }
}
