//! Answers as JSON: one thing, or a list with a way on.
//!
//! Never: a list without an end.

use axum::body::Bytes;
use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use longhaul_api::list::List;
use serde::Serialize;
use tokio::sync::OwnedSemaphorePermit;

use crate::problem::Problem;

/// A thing as JSON.
pub(crate) fn json(status: StatusCode, thing: &impl Serialize) -> Result<Response, Problem> {
    Ok(with_body(status, to_bytes(thing)?.into()))
}

fn to_bytes(thing: &impl Serialize) -> Result<Vec<u8>, Problem> {
    serde_json::to_vec(thing).map_err(|error| {
        tracing::error!(%error, "an answer can't be written");
        Problem::internal()
    })
}

fn with_body(status: StatusCode, body: Bytes) -> Response {
    let mut response = (status, body).into_response();
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// A thing as JSON, with nothing special about it.
pub(crate) fn ok(thing: &impl Serialize) -> Result<Response, Problem> {
    json(StatusCode::OK, thing)
}

/// The bytes of a body, and the permit to hold them in memory.
struct PermittedBytes {
    bytes: Vec<u8>,
    _permit: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for PermittedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A thing as JSON, with a permit that is released when its last byte is sent: the
/// body itself is dropped as soon as its bytes wait to be written.
pub(crate) fn ok_with_permit(
    thing: &impl Serialize,
    permit: OwnedSemaphorePermit,
) -> Result<Response, Problem> {
    let bytes = PermittedBytes { bytes: to_bytes(thing)?, _permit: permit };
    Ok(with_body(StatusCode::OK, Bytes::from_owner(bytes)))
}

/// A thing that was made just now, and where it stands.
pub(crate) fn created(at: &str, thing: &impl Serialize) -> Result<Response, Problem> {
    let mut response = json(StatusCode::CREATED, thing)?;
    if let Ok(at) = HeaderValue::from_str(at) {
        response.headers_mut().insert(LOCATION, at);
    }
    Ok(response)
}

/// What is said once: an answer with a secret in it is kept nowhere.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OneTimeSecret;

/// A thing that was made just now, with a secret that is shown this once.
pub(crate) fn created_secret(at: &str, thing: &impl Serialize) -> Result<Response, Problem> {
    let mut response = created(at, thing)?;
    response.extensions_mut().insert(OneTimeSecret);
    Ok(response)
}

/// Cuts a list that was read one longer than asked; the way on is named by its
/// last thing.
pub(crate) fn paginate<T>(mut data: Vec<T>, limit: usize, name: impl Fn(&T) -> String) -> List<T> {
    let more = data.len() > limit;
    data.truncate(limit);
    let next = data.last().filter(|_| more).map(name);
    List { data, next }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http_body_util::BodyExt as _;
    use tokio::sync::Semaphore;

    use super::*;

    #[tokio::test]
    async fn a_permit_is_held_as_long_as_the_bytes_are() {
        let permits = Arc::new(Semaphore::new(1));
        let permit = Arc::clone(&permits).acquire_owned().await.unwrap();
        let response = ok_with_permit(&"text", permit).unwrap();
        // As hyper does it: the body is dropped at its end, the bytes wait to be written.
        let mut body = response.into_body();
        let frame = body.frame().await.unwrap().unwrap();
        drop(body);
        let mut bytes = frame.into_data().unwrap();
        assert_eq!((&*bytes, permits.available_permits()), (&b"\"text\""[..], 0));
        let sent = bytes.split_to(3);
        drop(sent);
        assert_eq!(permits.available_permits(), 0);
        drop(bytes);
        assert_eq!(permits.available_permits(), 1);
    }
}
