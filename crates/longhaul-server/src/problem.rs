//! Error responses in the problem format (RFC 9457): a code, a message, and a hint. They never
//! contain a stack trace, a path or a secret.

use std::sync::Arc;

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use longhaul_api::problem;
use longhaul_engine::Error;

/// Maximum number of characters of a message, which may repeat a name of any length from the
/// request.
const DETAIL_CHARS_MAX: usize = 8_000;

/// An error response, before the id of its request is known.
#[derive(Debug, Clone)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    pub(crate) detail: String,
    pub(crate) hint: String,
    /// Known name that is closest to an unknown name in the request. `None` means that there is no
    /// suggestion.
    pub(crate) suggestion: Option<String>,
    /// Number of seconds after which the client may retry. `None` means that the response has no
    /// such number.
    pub(crate) retry_after: Option<u32>,
    /// Error of the engine behind the problem, for callers in this process. `None` means that the
    /// request itself was rejected.
    pub(crate) error: Option<Arc<Error>>,
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
            error: None,
        }
    }

    /// Sets the hint that says what the client can do.
    #[must_use]
    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// Puts the prefix and a colon before the message. The problem is no longer that of an error of
    /// the engine.
    #[must_use]
    pub(crate) fn prefixed(self, prefix: impl std::fmt::Display) -> Self {
        Self { detail: format!("{prefix}: {}", self.detail), error: None, ..self }
    }

    /// Sets the number of seconds after which the client may retry.
    #[must_use]
    pub(crate) const fn with_retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// Creates a 400 error for a request that can't be parsed.
    pub(crate) fn bad_request(code: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, detail)
    }

    /// Creates a 422 error for a request that can be parsed but is not valid.
    pub(crate) fn unprocessable(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", detail)
    }

    pub(crate) fn not_found(code: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, code, detail)
    }

    pub(crate) fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", detail)
    }

    /// Creates a 500 error. The details are only in the log, not in the response.
    pub(crate) fn internal_error() -> Self {
        let message = "internal error in Longhaul; everything acknowledged before is still stored";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
            .with_hint("retry with an Idempotency-Key is safe; the server log has the details")
    }

    /// Returns the problem as the API shows it, for the request with this id.
    pub(crate) fn to_api_problem(&self, request_id: &str) -> problem::Problem {
        problem::Problem {
            kind: format!("urn:longhaul:problem:{}", self.code),
            title: self.status.canonical_reason().unwrap_or("Problem").to_owned(),
            status: self.status.as_u16(),
            detail: match self.detail.char_indices().nth(DETAIL_CHARS_MAX) {
                Some((end, _)) => format!("{}...", &self.detail[..end]),
                None => self.detail.clone(),
            },
            code: self.code.to_owned(),
            hint: match self.hint.as_str() {
                "" => default_hint(self.status).to_owned(),
                other => other.to_owned(),
            },
            suggestion: self.suggestion.clone(),
            request_id: request_id.to_owned(),
            source: None,
        }
    }

    /// Converts the problem to one for a caller in this process, with the error of the engine as its
    /// source.
    pub(crate) fn into_api_problem_with_source(self) -> problem::Problem {
        let problem = self.to_api_problem("");
        problem::Problem { source: self.error.map(|error| error as _), ..problem }
    }

    /// Converts the problem to the HTTP response to the request with this id.
    pub(crate) fn to_response(&self, request_id: &str) -> Response {
        let text = serde_json::to_vec(&self.to_api_problem(request_id)).unwrap_or_default();
        let kind = [(CONTENT_TYPE, "application/problem+json")];
        let mut response = (self.status, kind, text).into_response();
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// Returns the default hint for an HTTP status, used if the problem has no hint.
fn default_hint(status: StatusCode) -> &'static str {
    match status.as_u16() {
        404 => "GET /openapi.json lists all paths",
        408 => "send the whole body at once",
        403 => "ask the administrator of this server",
        500.. => "try again; the server log has the details",
        _ => "GET /openapi.json describes the API",
    }
}

/// Attaches the problem to an empty response. The outermost middleware writes the body, because
/// only it knows the request id.
impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}
