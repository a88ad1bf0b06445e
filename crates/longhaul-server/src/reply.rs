//! Answers as JSON: one thing, or a list with a way on.
//!
//! Never: a list without an end.

use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::problem::Problem;

/// A part of a list.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct List<T> {
    /// The things, in order.
    pub(crate) data: Vec<T>,
    /// What to give as `after` for the next part; none: this was the last.
    pub(crate) next: Option<String>,
}

/// A thing as JSON.
pub(crate) fn json(status: StatusCode, thing: &impl Serialize) -> Result<Response, Problem> {
    let text = serde_json::to_vec(thing).map_err(|error| {
        tracing::error!(%error, "an answer can't be written");
        Problem::internal()
    })?;
    let mut response = (status, text).into_response();
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    Ok(response)
}

/// A thing as JSON, with nothing special about it.
pub(crate) fn ok(thing: &impl Serialize) -> Result<Response, Problem> {
    json(StatusCode::OK, thing)
}

/// A thing that was made just now, and where it stands.
pub(crate) fn made(at: &str, thing: &impl Serialize) -> Result<Response, Problem> {
    let mut response = json(StatusCode::CREATED, thing)?;
    if let Ok(at) = HeaderValue::from_str(at) {
        response.headers_mut().insert(LOCATION, at);
    }
    Ok(response)
}

/// What is said once: an answer with a secret in it is kept nowhere.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShownOnce;

/// A thing that was made just now, with a secret that is shown this once.
pub(crate) fn made_secret(at: &str, thing: &impl Serialize) -> Result<Response, Problem> {
    let mut response = made(at, thing)?;
    response.extensions_mut().insert(ShownOnce);
    Ok(response)
}

/// Cuts a list that was read one longer than asked; the way on is named by its
/// last thing.
pub(crate) fn cut<T>(mut data: Vec<T>, limit: usize, name: impl Fn(&T) -> String) -> List<T> {
    let more = data.len() > limit;
    data.truncate(limit);
    let next = data.last().filter(|_| more).map(name);
    List { data, next }
}
