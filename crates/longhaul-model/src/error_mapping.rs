//! Makes a failure out of whatever went wrong between us and a provider.
//!
//! Never: a secret in its words, or more of a stranger's text than people read.

mod classify;
mod error_body;
mod retry_after;

use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::port::redact::Redact as _;
use longhaul_core::redact::Redactor;
use longhaul_core::time::Timestamp;
use reqwest::header::HeaderMap;

use crate::error_mapping::error_body::ErrorBody;
use crate::http::error::HttpError;

/// So many letters of a failure are kept for people.
const MESSAGE_CHARS_MAX: usize = 500;

/// So much of an answer is looked at for words to quote.
const QUOTED_BYTES_MAX: usize = 4 * 1024;

/// The longest name of a request that is believed to be one.
const REQUEST_ID_MAX: usize = 128;

const REQUEST_ID_HEADERS: &[&str] = &["request-id", "x-request-id", "cf-ray"];

/// Who asked whom, and when the answer came.
#[derive(Debug)]
pub(crate) struct ErrorMapper<'a> {
    pub(crate) provider: &'a str,
    pub(crate) secrets: &'a Redactor,
    pub(crate) now: Timestamp,
}

impl ErrorMapper<'_> {
    /// An answer whose status says no, as far as its body came.
    pub(crate) fn http_status(&self, status: u16, headers: &HeaderMap, body: &[u8]) -> Failure {
        let said = self.error_body(body);
        let words = match redirect_hint(status, headers) {
            Some(there) => format!("{there}. {}", said.message),
            None => said.message.clone(),
        };
        let kind = said.name().map_or(String::new(), |name| format!(" ({name})"));
        let message = format!("{} answered {status}{kind}: {words}", self.provider);
        let class = classify::failure_class(&said, status);
        self.failure(class, &message, Some((status, headers)))
    }

    /// An error that came inside an answer that had begun well.
    pub(crate) fn stream_error(&self, headers: &HeaderMap, error: &str) -> Failure {
        let said = ErrorBody::parse(error);
        let kind = said.name().map_or(String::new(), |name| format!(" ({name})"));
        let message = format!("{} broke off{kind}: {}", self.provider, said.message);
        let class = classify::failure_class(&said, said.status.unwrap_or(500));
        self.failure(class, &message, Some((200, headers)))
    }

    /// An answer that makes no sense.
    pub(crate) fn malformed_response(&self, headers: &HeaderMap, what: &str) -> Failure {
        let message = format!("{} makes no sense: {what}", self.provider);
        self.failure(FailureClass::Server, &message, Some((200, headers)))
    }

    /// An answer that is more than anybody can use: asking again brings it again.
    pub(crate) fn oversized_response(&self, headers: &HeaderMap, what: &str) -> Failure {
        let message = format!("{} says too much: {what}", self.provider);
        self.failure(FailureClass::InvalidRequest, &message, Some((200, headers)))
    }

    /// An answer that came whole and is no reply, such as a proxy's page.
    pub(crate) fn unexpected_body(&self, headers: &HeaderMap, what: &str, body: &[u8]) -> Failure {
        let body = &body[..body.len().min(QUOTED_BYTES_MAX)];
        let said = self.error_body(body).message;
        self.malformed_response(headers, &format!("{what}; it says: {said}"))
    }

    /// A question that got lost on the way, or its answer.
    pub(crate) fn transport_error(
        &self,
        trouble: &HttpError,
        headers: Option<&HeaderMap>,
    ) -> Failure {
        let class = match trouble {
            HttpError::InvalidBaseUrl(_) | HttpError::ClientSetup(_) => {
                FailureClass::InvalidRequest
            }
            HttpError::ConnectTimeout(_)
            | HttpError::ResponseTimeout(_)
            | HttpError::IdleTimeout(_)
            | HttpError::StallTimeout(_) => FailureClass::Timeout,
            HttpError::Connect(_)
            | HttpError::ConnectionClosed(_)
            | HttpError::ConnectionLost(_)
            | HttpError::UnexpectedEof => FailureClass::Network,
            HttpError::ResponseTooLarge(_)
            | HttpError::EventTooLarge(_)
            | HttpError::InvalidUtf8 => FailureClass::Server,
        };
        let message = format!("{}: {trouble}", self.provider);
        self.failure(class, &message, headers.map(|headers| (200, headers)))
    }

    /// What a body says that may have been cut off, without the half of a secret at its end.
    fn error_body(&self, body: &[u8]) -> ErrorBody {
        let text = String::from_utf8_lossy(body);
        let text = text.trim_end_matches(char::REPLACEMENT_CHARACTER);
        ErrorBody::parse(self.secrets.without_partial_secret(text))
    }

    fn failure(
        &self,
        class: FailureClass,
        message: &str,
        head: Option<(u16, &HeaderMap)>,
    ) -> Failure {
        let retry_after = head.and_then(|(_, headers)| {
            let waits = matches!(class, FailureClass::RateLimit | FailureClass::Overloaded);
            retry_after::from_headers(headers, self.now, waits).filter(|_| class.is_transient())
        });
        Failure {
            status: head.map(|(status, _)| status),
            retry_after,
            request_id: head.and_then(|(_, headers)| self.request_id(headers)),
            ..Failure::new(class, self.sanitize(message))
        }
    }

    /// What the provider calls the request. A name with a secret in it is none.
    fn request_id(&self, headers: &HeaderMap) -> Option<String> {
        let mut ids = REQUEST_ID_HEADERS.iter().filter_map(|name| headers.get(*name));
        let id = ids.find_map(|value| value.to_str().ok())?;
        let plain =
            !id.is_empty() && id.len() <= REQUEST_ID_MAX && !self.secrets.contains_secret(id);
        plain.then(|| id.to_owned())
    }

    /// A text for people: on one line, short, and without secrets. They go before
    /// the cut: half a key is a secret too.
    fn sanitize(&self, text: &str) -> String {
        let text = self.secrets.redact(text);
        let text: String =
            text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
        let text = text.trim();
        match text.char_indices().nth(MESSAGE_CHARS_MAX) {
            None => text.to_owned(),
            Some(_) => {
                let kept: String = text.chars().take(MESSAGE_CHARS_MAX - 1).collect();
                format!("{kept}…")
            }
        }
    }
}

fn redirect_hint(status: u16, headers: &HeaderMap) -> Option<String> {
    let there = headers.get("location")?.to_str().ok()?;
    (300..400)
        .contains(&status)
        .then(|| format!("it sends us to {there}, which is not followed; set the base URL"))
}
