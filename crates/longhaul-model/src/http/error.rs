//! Transport errors.
//!
//! Invariant: messages contain no URL, header or body.

use std::error::Error;
use std::io;
use std::time::Duration;

use longhaul_core::failure::FailureClass;

/// Hint shown when the HTTP client can't be created: the usual reason, and what helps.
const NO_CERTIFICATES: &str = "usually the system's CA certificates are missing: install \
    ca-certificates, or set SSL_CERT_FILE to a certificate file";

/// Transport error: why no complete response was received.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct HttpError {
    pub(crate) class: FailureClass,
    message: String,
    /// Whether the server closed the connection before it sent a response.
    pub(super) is_connection_closed: bool,
}

impl HttpError {
    pub(crate) fn new(class: FailureClass, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), is_connection_closed: false }
    }

    /// Creates the error of something that did not happen within a timeout, which completes the
    /// given message.
    pub(crate) fn timeout(message: &str, timeout: Duration) -> Self {
        Self::new(FailureClass::Timeout, format!("{message} {}", format_duration(timeout)))
    }

    pub(crate) fn response_timeout(timeout: Duration) -> Self {
        Self::timeout("received no response within", timeout)
    }

    pub(crate) fn stall_timeout(timeout: Duration) -> Self {
        Self::timeout("received only keep-alive events for", timeout)
    }

    pub(crate) fn too_long(what: &str, max_bytes: usize) -> Self {
        Self::new(FailureClass::Server, format!("{what} is longer than {max_bytes} bytes"))
    }

    /// Creates the error of an event stream that ended before the reply was complete.
    pub(crate) fn unexpected_eof() -> Self {
        Self::new(FailureClass::Network, "the stream ended before the reply was complete")
    }

    pub(super) fn client_setup(error: &dyn Error) -> Self {
        let cause = root_cause_message(error);
        let message = format!("can't create a TLS client: {cause}; {NO_CERTIFICATES}");
        Self::new(FailureClass::InvalidRequest, message)
    }

    /// Maps an error that occurred while sending a request. The duration is the timeout for
    /// connecting, which the error names if connecting took too long.
    pub(super) fn from_send_error(error: reqwest::Error, connect_timeout: Duration) -> Self {
        // Messages don't contain the URL.
        let error = error.without_url();
        let cause = root_cause_message(&error);
        if error.is_connect() {
            return match error.is_timeout() {
                true => Self::timeout("connecting timed out after", connect_timeout),
                false => Self::new(FailureClass::Network, format!("can't connect: {cause}")),
            };
        }
        let is_connection_closed = is_connection_closed(&error);
        let message = match is_connection_closed {
            true => format!("the connection was closed without a response: {cause}"),
            false => format!("the connection was lost: {cause}"),
        };
        Self { is_connection_closed, ..Self::new(FailureClass::Network, message) }
    }

    /// Maps an error that occurred while reading a response body.
    pub(super) fn from_body_error(error: reqwest::Error) -> Self {
        let cause = root_cause_message(&error.without_url());
        Self::new(FailureClass::Network, format!("the connection was lost: {cause}"))
    }
}

fn format_duration(duration: Duration) -> String {
    match duration.subsec_millis() {
        0 => format!("{} s", duration.as_secs()),
        _ => format!("{} ms", duration.as_millis()),
    }
}

/// Whether the error means that the connection was closed before a response started.
fn is_connection_closed(error: &reqwest::Error) -> bool {
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(io) = cause.downcast_ref::<io::Error>() {
            return matches!(
                io.kind(),
                io::ErrorKind::ConnectionReset
                    | io::ErrorKind::ConnectionAborted
                    | io::ErrorKind::BrokenPipe
                    | io::ErrorKind::NotConnected
                    | io::ErrorKind::UnexpectedEof
            );
        }
        // hyper doesn't expose this error kind, so its message is compared.
        if cause.to_string() == "connection closed before message completed" {
            return true;
        }
        source = cause.source();
    }
    false
}

/// Returns the message of the innermost error. The errors around it only add context.
fn root_cause_message(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
