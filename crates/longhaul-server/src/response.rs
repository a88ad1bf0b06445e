//! JSON responses: single objects and pages of lists.

use axum::body::Bytes;
use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use longhaul_api::list::List;
use serde::Serialize;
use tokio::sync::OwnedSemaphorePermit;

use crate::problem::Problem;

/// Builds a JSON response with this HTTP status.
pub(crate) fn json_response(
    status: StatusCode,
    value: &impl Serialize,
) -> Result<Response, Problem> {
    Ok(json_response_with_body(status, to_json_bytes(value)?.into()))
}

fn to_json_bytes(value: &impl Serialize) -> Result<Vec<u8>, Problem> {
    serde_json::to_vec(value).map_err(|error| {
        tracing::error!(%error, "could not serialize a response");
        Problem::internal_error()
    })
}

fn json_response_with_body(status: StatusCode, body: Bytes) -> Response {
    let mut response = (status, body).into_response();
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// Builds a JSON response with status 200.
pub(crate) fn ok_response(value: &impl Serialize) -> Result<Response, Problem> {
    json_response(StatusCode::OK, value)
}

/// Bytes of a response body, with the permit to hold them in memory.
struct BodyBytesWithPermit {
    bytes: Vec<u8>,
    _permit: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for BodyBytesWithPermit {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Builds a JSON response that holds a memory permit until its last byte is sent. The body alone
/// could not hold the permit: hyper drops the body while its bytes still wait to be written.
pub(crate) fn ok_response_with_memory_permit(
    value: &impl Serialize,
    permit: OwnedSemaphorePermit,
) -> Result<Response, Problem> {
    let bytes = BodyBytesWithPermit { bytes: to_json_bytes(value)?, _permit: permit };
    Ok(json_response_with_body(StatusCode::OK, Bytes::from_owner(bytes)))
}

/// Builds a 201 response with the new object and its location.
pub(crate) fn created_response(
    location: &str,
    value: &impl Serialize,
) -> Result<Response, Problem> {
    let mut response = json_response(StatusCode::CREATED, value)?;
    if let Ok(location) = HeaderValue::from_str(location) {
        response.headers_mut().insert(LOCATION, location);
    }
    Ok(response)
}

/// Response extension that marks a body with a secret. Such a body is not stored for retries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OneTimeSecretMarker;

/// Turns a list that was read with one item more than `limit` into a page. If there was an extra
/// item, `next` of the page is the name of its last item, after which the next page starts.
pub(crate) fn paginate<T>(
    mut data: Vec<T>,
    limit: usize,
    item_name: impl Fn(&T) -> String,
) -> List<T> {
    let has_more = data.len() > limit;
    data.truncate(limit);
    let next = data.last().filter(|_| has_more).map(item_name);
    List { data, next }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http_body_util::BodyExt as _;
    use tokio::sync::Semaphore;

    use super::*;

    #[tokio::test]
    async fn a_permit_is_held_until_the_response_bytes_are_dropped() {
        let permits = Arc::new(Semaphore::new(1));
        let permit = Arc::clone(&permits).acquire_owned().await.unwrap();
        let response = ok_response_with_memory_permit(&"text", permit).unwrap();
        // Like hyper: the body is dropped at its end, while its bytes wait to be written.
        let mut body = response.into_body();
        let frame = body.frame().await.unwrap().unwrap();
        drop(body);
        let mut bytes = frame.into_data().unwrap();
        assert_eq!((&*bytes, permits.available_permits()), (&b"\"text\""[..], 0));
        let chunk = bytes.split_to(3);
        drop(chunk);
        assert_eq!(permits.available_permits(), 0);
        drop(bytes);
        assert_eq!(permits.available_permits(), 1);
    }
}
