//! Parses requests to the mock provider, with one module per API. Unknown fields are ignored.

mod chat;
mod messages;
mod responses;

use crate::mock::api_error::ApiError;
use crate::mock::api_kind::ApiKind;
use crate::mock::request::ParsedRequest;

/// Parses a request body in the format of the given API.
pub(crate) fn parse_request(api: ApiKind, body: &[u8]) -> Result<ParsedRequest<'_>, ApiError> {
    let text = std::str::from_utf8(body)
        .map_err(|_| ApiError::new(400, "The request body is not UTF-8."))?;
    match api {
        ApiKind::Messages => messages::parse_request(text),
        ApiKind::Responses => responses::parse_request(text),
        ApiKind::Chat => chat::parse_request(text),
    }
}
