//! Reads requests: one file for each wire.
//!
//! Never: refuses a field that it does not know.

mod chat;
mod messages;
mod responses;

use crate::mock::dialect::Dialect;
use crate::mock::heard::Heard;
use crate::mock::refusal::Refusal;

/// Reads a request.
pub(crate) fn hear(dialect: Dialect, body: &[u8]) -> Result<Heard<'_>, Refusal> {
    let text = std::str::from_utf8(body)
        .map_err(|_| Refusal::new(400, "The request body is not text in UTF-8."))?;
    match dialect {
        Dialect::Messages => messages::hear(text),
        Dialect::Responses => responses::hear(text),
        Dialect::Chat => chat::hear(text),
    }
}
