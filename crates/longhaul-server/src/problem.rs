//! A no, or a fault, as programs and people read it: what, why, what helps.
//!
//! Never: an answer without a code, and never a stack, a path or a secret in one.

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use longhaul_api::problem;

/// A problem, before it is known which request it answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    pub(crate) detail: String,
    pub(crate) hint: String,
    /// A name that may have been meant.
    pub(crate) suggestion: Option<String>,
    /// It may be tried again after so many seconds.
    pub(crate) retry_after: Option<u32>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self {
            status,
            code,
            detail: detail.into(),
            hint: String::new(),
            suggestion: None,
            retry_after: None,
        }
    }

    /// The same, with what helps.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// The same, with when it may be tried again.
    #[must_use]
    pub(crate) const fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// What was sent can't be read at all.
    pub(crate) fn bad_request(code: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, detail)
    }

    /// What was sent can be read and makes no sense.
    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", detail)
    }

    pub(crate) fn not_found(code: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, code, detail)
    }

    pub(crate) fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", detail)
    }

    /// A fault of ours; what it was stands in the log.
    pub(crate) fn internal() -> Self {
        let words = "something went wrong inside Longhaul; what was acknowledged before stands";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", words)
            .hint("it is safe to try again with an Idempotency-Key; the server's log says more")
    }

    /// The problem as a response to this request.
    pub(crate) fn to_response(&self, request_id: &str) -> Response {
        let body = problem::Problem {
            kind: format!("urn:longhaul:problem:{}", self.code),
            title: self.status.canonical_reason().unwrap_or("Problem").to_owned(),
            status: self.status.as_u16(),
            detail: self.detail.clone(),
            code: self.code.to_owned(),
            hint: match self.hint.as_str() {
                "" => default_hint(self.status).to_owned(),
                said => said.to_owned(),
            },
            suggestion: self.suggestion.clone(),
            request_id: request_id.to_owned(),
        };
        let text = serde_json::to_vec(&body).unwrap_or_default();
        let mut response = (self.status, text).into_response();
        let headers = response.headers_mut();
        let kind = HeaderValue::from_static("application/problem+json");
        headers.insert(CONTENT_TYPE, kind);
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// What helps with most problems of a status, where nobody knows better.
fn default_hint(status: StatusCode) -> &'static str {
    match status.as_u16() {
        404 => "GET /openapi.json lists what there is",
        408 => "send the whole body at once",
        403 => "ask whoever runs this server",
        500.. => "try again; the server's log says more",
        _ => "GET /openapi.json says what it takes",
    }
}

/// Carries the problem outward to where the request's id is known.
impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}
