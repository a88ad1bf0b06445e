//! Writes replies: one file for each wire, whole and as a stream.
//!
//! Never: decides what is said.

mod chat;
mod messages;
mod responses;

use bytes::Bytes;
use serde_json::json;

use crate::mock::dialect::Dialect;
use crate::mock::event;
use crate::mock::speech::Speech;

/// What a provider says that can't go on.
pub(crate) const TROUBLE: &str = "Overloaded";

/// The status of an answer that says so before it has begun.
pub(crate) const OVERLOADED: u16 = 529;

/// The reply as one body.
pub(crate) fn whole(dialect: Dialect, speech: &Speech<'_>) -> String {
    match dialect {
        Dialect::Messages => messages::whole(speech),
        Dialect::Responses => responses::whole(speech),
        Dialect::Chat => chat::whole(speech),
    }
}

/// The reply as events.
pub(crate) fn stream(dialect: Dialect, speech: &Speech<'_>) -> Vec<Bytes> {
    match dialect {
        Dialect::Messages => messages::stream(speech),
        Dialect::Responses => responses::stream(speech),
        Dialect::Chat => chat::stream(speech),
    }
}

/// The event with which a stream says that it can't go on.
pub(crate) fn trouble(dialect: Dialect, request: &str) -> Bytes {
    match dialect {
        Dialect::Messages => event::named(&json!({
            "type": "error",
            "error": { "type": "overloaded_error", "message": TROUBLE },
            "request_id": request,
        })),
        Dialect::Responses => event::named(&json!({
            "type": "error",
            "code": "server_error",
            "message": TROUBLE,
            "param": null,
            "sequence_number": 0,
        })),
        Dialect::Chat => event::bare(&json!({
            "error": { "message": TROUBLE, "type": "server_error", "param": null, "code": null },
        })),
    }
}
