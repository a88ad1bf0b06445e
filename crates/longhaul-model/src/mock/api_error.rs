//! A no, in the words of each provider.
//!
//! Never: more of what a stranger sent than a line.

use serde_json::json;

use crate::mock::api_kind::ApiKind;
use crate::mock::response::MockResponse;

/// What is asked of a client before it tries again: long enough to be seen,
/// short enough for a test.
const RETRY_AFTER_MS: u32 = 50;

/// So many names of scripts stand in a message.
const NAMES_MAX: usize = 20;

/// So many letters of a name that is not known stand in a message.
const SHOWN_CHARS_MAX: usize = 80;

/// A no.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: u16,
    message: String,
    /// The field that is wrong, where it is one.
    param: Option<&'static str>,
    /// OpenAI's word for what is wrong, where it has one.
    code: Option<&'static str>,
}

impl ApiError {
    pub(crate) fn new(status: u16, message: impl Into<String>) -> Self {
        let code = match status {
            401 => Some("invalid_api_key"),
            402 => Some("insufficient_quota"),
            429 => Some("rate_limit_exceeded"),
            _ => None,
        };
        Self { status, message: message.into(), param: None, code }
    }

    /// A field that must be there and is not.
    pub(crate) fn missing(dialect: ApiKind, field: &'static str) -> Self {
        let message = match dialect {
            ApiKind::Messages => format!("{field}: Field required"),
            ApiKind::Responses | ApiKind::Chat => {
                format!("Missing required parameter: '{field}'.")
            }
        };
        Self {
            param: Some(field),
            code: Some("missing_required_parameter"),
            ..Self::new(400, message)
        }
    }

    /// A field with something in it that can't be.
    pub(crate) fn invalid(field: &'static str, message: impl Into<String>) -> Self {
        Self { param: Some(field), code: Some("invalid_value"), ..Self::new(400, message) }
    }

    /// A response that goes on from one that never was.
    pub(crate) fn unknown_response(id: &str) -> Self {
        let id = truncated(id);
        Self {
            param: Some("previous_response_id"),
            code: Some("previous_response_not_found"),
            ..Self::new(400, format!("Previous response with id '{id}' not found."))
        }
    }

    /// A model of which there is no script.
    pub(crate) fn unknown_model(model: &str, names: &[String]) -> Self {
        let there = match names {
            [] => "there are no scripts".to_owned(),
            [..] if names.len() <= NAMES_MAX => format!("there are: {}", names.join(", ")),
            [..] => {
                let first = names[..NAMES_MAX].join(", ");
                format!("there are {}, among them: {first}", names.len())
            }
        };
        Self {
            param: Some("model"),
            code: Some("model_not_found"),
            ..Self::new(404, format!("no script for model `{}`; {there}", truncated(model)))
        }
    }

    /// The no on the wire.
    pub(crate) fn to_response(&self, dialect: ApiKind, request: &str) -> MockResponse {
        let mut answer = MockResponse::json(self.status, self.body(dialect, request))
            .with_request_id(dialect, request);
        if matches!(self.status, 408 | 409 | 429 | 500..) {
            let seconds = RETRY_AFTER_MS.div_ceil(1_000);
            answer.headers.push(("retry-after", seconds.to_string()));
            let millis = RETRY_AFTER_MS.to_string();
            answer.headers.push(("retry-after-ms", millis));
        }
        answer
    }

    fn body(&self, dialect: ApiKind, request: &str) -> String {
        let message = &self.message;
        let body = match dialect {
            ApiKind::Messages => json!({
                "type": "error",
                "error": { "type": anthropic_error_type(self.status), "message": message },
                "request_id": request,
            }),
            ApiKind::Responses | ApiKind::Chat => json!({
                "error": {
                    "message": message,
                    "type": openai_error_type(self.status),
                    "param": self.param,
                    "code": self.code,
                },
            }),
        };
        body.to_string()
    }
}

const fn anthropic_error_type(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        504 => "timeout_error",
        529 => "overloaded_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    }
}

const fn openai_error_type(status: u16) -> &'static str {
    match status {
        402 => "insufficient_quota",
        429 => "requests",
        500.. => "server_error",
        _ => "invalid_request_error",
    }
}

fn truncated(name: &str) -> String {
    name.chars().take(SHOWN_CHARS_MAX).collect()
}
