//! Error responses of the mock provider, in the format of each API.
//!
//! Invariant: names from a request are truncated.

use serde_json::json;

use crate::mock::response::{ApiKind, MockResponse};

/// Delay in milliseconds that a client is asked to wait before a retry: long enough to be noticed,
/// short enough for tests.
const RETRY_AFTER_MS: u32 = 50;

/// Maximum number of script names listed in an error message.
const NAMES_MAX: usize = 20;

/// Maximum number of characters shown of an unknown script name in an error message.
const SHOWN_CHARS_MAX: usize = 80;

/// An error of the mock provider, before it is rendered in the format of an API.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: u16,
    message: String,
    /// Request field that the error is about. `None` means that the error is not about a field.
    param: Option<&'static str>,
    /// Error code of OpenAI. `None` means that OpenAI has no code for this error.
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

    /// Returns the error for a required request field that is missing.
    pub(crate) fn missing_field(api: ApiKind, field: &'static str) -> Self {
        let message = match api {
            ApiKind::Messages => format!("{field}: Field required"),
            ApiKind::Responses | ApiKind::Chat => {
                format!("Missing required parameter: '{field}'.")
            }
        };
        Self::new(400, message).with_param(field, "missing_required_parameter")
    }

    fn with_param(self, param: &'static str, code: &'static str) -> Self {
        Self { param: Some(param), code: Some(code), ..self }
    }

    /// Returns the error for a request field with an invalid value.
    pub(crate) fn invalid_field(field: &'static str, message: impl Into<String>) -> Self {
        Self::new(400, message).with_param(field, "invalid_value")
    }

    /// Returns the error for an unknown `previous_response_id`.
    pub(crate) fn unknown_response_id(response_id: &str) -> Self {
        let response_id = truncate_name_for_message(response_id);
        let message = format!("Previous response with id '{response_id}' not found.");
        Self::new(400, message).with_param("previous_response_id", "previous_response_not_found")
    }

    /// Returns the error for a model name without a script. The message lists the available names.
    pub(crate) fn unknown_model(model: &str, script_names: &[String]) -> Self {
        let available = match script_names {
            [] => "there are no scripts".to_owned(),
            [..] if script_names.len() <= NAMES_MAX => {
                format!("available scripts: {}", script_names.join(", "))
            }
            [..] => {
                let names = script_names[..NAMES_MAX].join(", ");
                format!("{} scripts are available, among them: {names}", script_names.len())
            }
        };
        let model = truncate_name_for_message(model);
        let message = format!("there is no script for the model `{model}`; {available}");
        Self::new(404, message).with_param("model", "model_not_found")
    }

    /// Renders the error as a response with the given request ID, in the format of an API.
    pub(crate) fn to_response(&self, api: ApiKind, request_id: &str) -> MockResponse {
        let body = self.render_body(api, request_id);
        let mut response = MockResponse::json(self.status, body, (api, request_id));
        if matches!(self.status, 408 | 409 | 429 | 500..) {
            let seconds = RETRY_AFTER_MS.div_ceil(1_000);
            response.headers.push(("retry-after", seconds.to_string()));
            let millis = RETRY_AFTER_MS.to_string();
            response.headers.push(("retry-after-ms", millis));
        }
        response
    }

    fn render_body(&self, api: ApiKind, request_id: &str) -> String {
        let message = &self.message;
        let body = match api {
            ApiKind::Messages => json!({
                "type": "error",
                "error": { "type": anthropic_error_type(self.status), "message": message },
                "request_id": request_id,
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

fn truncate_name_for_message(name: &str) -> String {
    name.chars().take(SHOWN_CHARS_MAX).collect()
}
