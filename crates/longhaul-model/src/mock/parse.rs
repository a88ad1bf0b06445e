//! Reads requests: one file for each wire.
//!
//! Never: refuses a field that it does not know.

mod chat;
mod messages;
mod responses;

use crate::mock::api_error::ApiError;
use crate::mock::api_kind::ApiKind;
use crate::mock::request::ParsedRequest;

/// Reads a request.
pub(crate) fn parse(dialect: ApiKind, body: &[u8]) -> Result<ParsedRequest<'_>, ApiError> {
    let text = std::str::from_utf8(body)
        .map_err(|_| ApiError::new(400, "The request body is not text in UTF-8."))?;
    match dialect {
        ApiKind::Messages => messages::parse(text),
        ApiKind::Responses => responses::parse(text),
        ApiKind::Chat => chat::parse(text),
    }
}
