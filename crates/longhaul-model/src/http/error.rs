//! Transport errors.
//!
//! Invariant: messages contain no URL, header or body.

use std::error::Error;
use std::io;
use std::time::Duration;

/// Hint shown when the HTTP client can't be created: the usual reason, and what helps.
const NO_CERTIFICATES: &str = "usually the system's CA certificates are missing: install \
    ca-certificates, or set SSL_CERT_FILE to a certificate file";

/// Transport error: why no complete response was received.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    /// The base URL is invalid, for the given reason.
    #[error("the base URL can't be used: {0}")]
    InvalidBaseUrl(String),
    /// The HTTP client can't be created, usually because the machine has no certificates.
    #[error("can't create a TLS client: {0}; {NO_CERTIFICATES}")]
    ClientSetup(String),
    /// No connection could be opened.
    #[error("can't connect: {0}")]
    Connect(String),
    /// Opening the connection took longer than this timeout.
    #[error("connecting timed out after {}", format_duration(*.0))]
    ConnectTimeout(Duration),
    /// The server did not start a response within this timeout.
    #[error("received no response within {}", format_duration(*.0))]
    ResponseTimeout(Duration),
    /// No data was received for this duration after the response had started.
    #[error("received no data for {}", format_duration(*.0))]
    IdleTimeout(Duration),
    /// Only keep-alive events were received for this duration.
    #[error("received only keep-alive events for {}", format_duration(*.0))]
    StallTimeout(Duration),
    /// The server closed the connection before it sent a response.
    #[error("the connection was closed without a response: {0}")]
    ConnectionClosed(String),
    /// The connection was lost while the response was being received.
    #[error("the connection was lost: {0}")]
    ConnectionLost(String),
    /// The event stream ended before the reply was complete.
    #[error("the stream ended before the reply was complete")]
    UnexpectedEof,
    /// The response body is longer than this number of bytes.
    #[error("the response is longer than {0} bytes")]
    ResponseTooLarge(usize),
    /// A single event of the stream is longer than this number of bytes.
    #[error("one event of the stream is longer than {0} bytes")]
    EventTooLarge(usize),
    /// The response is not valid UTF-8.
    #[error("the stream is not UTF-8")]
    InvalidUtf8,
}

impl HttpError {
    /// Maps an error that occurred while sending a request. The duration is the timeout for
    /// connecting, which the error names if connecting took too long.
    pub(super) fn from_send_error(error: reqwest::Error, connect_timeout: Duration) -> Self {
        // Messages don't contain the URL.
        let error = error.without_url();
        match (error.is_connect(), error.is_timeout()) {
            (true, true) => Self::ConnectTimeout(connect_timeout),
            (true, false) => Self::Connect(root_cause_message(&error)),
            (false, _) if is_connection_closed(&error) => {
                Self::ConnectionClosed(root_cause_message(&error))
            }
            (false, _) => Self::ConnectionLost(root_cause_message(&error)),
        }
    }

    /// Maps an error that occurred while reading a response body.
    pub(super) fn from_body_error(error: reqwest::Error) -> Self {
        Self::ConnectionLost(root_cause_message(&error.without_url()))
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
pub(super) fn root_cause_message(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
