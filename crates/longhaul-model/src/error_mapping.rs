//! Maps errors of a provider or of the connection to `Failure`.
//!
//! Invariant: secrets are redacted from messages, and messages are truncated.

mod classify;
mod error_body;
mod retry_after;

use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::port::redact::Redact as _;
use longhaul_core::redact::Redactor;
use longhaul_core::time::Timestamp;
use reqwest::header::HeaderMap;

use crate::decode_error::DecodeError;
use crate::error_mapping::error_body::ErrorBody;
use crate::http::error::HttpError;

/// Maximum length of a failure message, in characters.
const MESSAGE_CHARS_MAX: usize = 500;

/// Maximum number of bytes of an unexpected response body that are searched for an error message.
const QUOTED_BYTES_MAX: usize = 4 * 1024;

/// Maximum length of a request ID. Longer IDs are ignored.
const REQUEST_ID_MAX: usize = 128;

const REQUEST_ID_HEADERS: &[&str] = &["request-id", "x-request-id", "cf-ray"];

/// Maps errors to failures, for one provider. Knows the provider, the secrets to redact and the
/// current time.
#[derive(Debug)]
pub(crate) struct ErrorMapper<'a> {
    pub(crate) provider: &'a str,
    pub(crate) secrets: &'a Redactor,
    pub(crate) now: Timestamp,
}

impl ErrorMapper<'_> {
    /// Maps a response with an error status to a failure. The body may be truncated.
    pub(crate) fn error_status(&self, status: u16, headers: &HeaderMap, body: &[u8]) -> Failure {
        let error_body = self.parse_error_body(body);
        let location = headers.get("location").and_then(|location| location.to_str().ok());
        let detail = match location.filter(|_| (300..400).contains(&status)) {
            Some(location) => format!(
                "the redirect to {location} is not followed; change the base URL. {}",
                error_body.message
            ),
            None => error_body.message.clone(),
        };
        let name = error_body.name_suffix();
        let message = format!("{} answered {status}{name}: {detail}", self.provider);
        let class = classify::failure_class(&error_body, status);
        self.failure(class, &message, Some((status, headers)))
    }

    /// Maps an error in a response with status 200 to a failure. A response that exceeds a limit is
    /// a permanent failure, because a retry would exceed the limit again.
    pub(crate) fn decode_error(&self, headers: &HeaderMap, error: &DecodeError) -> Failure {
        let provider = self.provider;
        let (class, message) = match error {
            DecodeError::ProviderError(json) => {
                let error = ErrorBody::parse(json);
                let class = classify::failure_class(&error, error.status.unwrap_or(500));
                let (name, message) = (error.name_suffix(), &error.message);
                (class, format!("{provider} failed mid-stream{name}: {message}"))
            }
            DecodeError::Malformed(problem) => {
                (FailureClass::Server, format!("{provider} sent an invalid response: {problem}"))
            }
            DecodeError::TooLarge(problem) => (
                FailureClass::InvalidRequest,
                format!("{provider} sent a response that is too large: {problem}"),
            ),
        };
        self.failure(class, &message, Some((200, headers)))
    }

    /// Maps a complete response body that is not a reply, such as an error page of a proxy, to a
    /// failure.
    pub(crate) fn not_a_reply(&self, headers: &HeaderMap, problem: &str, body: &[u8]) -> Failure {
        let body = &body[..body.len().min(QUOTED_BYTES_MAX)];
        let text = self.parse_error_body(body).message;
        let problem = format!("{problem}; body: {text}");
        self.decode_error(headers, &DecodeError::Malformed(problem))
    }

    /// Maps an error of the connection or of the HTTP transport to a failure.
    pub(crate) fn http_error(&self, error: &HttpError, headers: Option<&HeaderMap>) -> Failure {
        let message = format!("{}: {error}", self.provider);
        self.failure(error.class, &message, headers.map(|headers| (200, headers)))
    }

    /// Parses an error body that may be truncated. A partial secret at the end of the body is
    /// removed first.
    fn parse_error_body(&self, body: &[u8]) -> ErrorBody {
        let text = String::from_utf8_lossy(body);
        let text = text.trim_end_matches(char::REPLACEMENT_CHARACTER);
        ErrorBody::parse(self.secrets.without_partial_secret(text))
    }

    fn failure(&self, class: FailureClass, text: &str, head: Option<(u16, &HeaderMap)>) -> Failure {
        let retry_after = head.and_then(|(_, headers)| {
            let is_limited = matches!(class, FailureClass::RateLimit | FailureClass::Overloaded);
            retry_after::retry_delay(headers, self.now, is_limited).filter(|_| class.is_transient())
        });
        Failure {
            status: head.map(|(status, _)| status),
            retry_after,
            request_id: head.and_then(|(_, headers)| self.request_id(headers)),
            ..Failure::new(class, self.sanitize_message(text))
        }
    }

    /// Returns the ID that the provider gave the request. An ID that contains a secret is ignored.
    fn request_id(&self, headers: &HeaderMap) -> Option<String> {
        let mut ids = REQUEST_ID_HEADERS.iter().filter_map(|name| headers.get(*name));
        let id = ids.find_map(|value| value.to_str().ok())?;
        let is_valid =
            !id.is_empty() && id.len() <= REQUEST_ID_MAX && !self.secrets.contains_secret(id);
        is_valid.then(|| id.to_owned())
    }

    /// Turns a text into a message for people: on one line, truncated, with secrets redacted.
    /// Redaction comes first, because a truncated key would not be recognised as a secret.
    fn sanitize_message(&self, text: &str) -> String {
        let text = self.secrets.redact(text);
        let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let text = text.trim();
        match text.char_indices().nth(MESSAGE_CHARS_MAX) {
            None => text.to_owned(),
            Some(_) => {
                let truncated: String = text.chars().take(MESSAGE_CHARS_MAX - 1).collect();
                format!("{truncated}…")
            }
        }
    }
}
