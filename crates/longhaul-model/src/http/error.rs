//! What can happen to a question on its way, told from each other by what it means.
//!
//! Never: an address, a header or a body in its words.

use std::error::Error;
use std::io;
use std::time::Duration;

/// The usual cause of a client that can't be made.
const NO_CERTIFICATES: &str = "mostly the machine's certificates are missing: install \
    ca-certificates, or name a file of them in SSL_CERT_FILE";

/// Why no whole answer came.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    /// The address is no address.
    #[error("the base URL can't be used: {0}")]
    InvalidBaseUrl(String),
    /// No client can be made, mostly because the machine has no certificates.
    #[error("no secure connection can be made here: {0}; {NO_CERTIFICATES}")]
    ClientSetup(String),
    /// No connection came about.
    #[error("no connection: {0}")]
    Connect(String),
    /// No connection came about in this time.
    #[error("no connection in {}", format_duration(*.0))]
    ConnectTimeout(Duration),
    /// No answer began in this time.
    #[error("no answer in {}", format_duration(*.0))]
    ResponseTimeout(Duration),
    /// The answer began and then nothing came for this time.
    #[error("the answer stood still for {}", format_duration(*.0))]
    IdleTimeout(Duration),
    /// Signs of life came for this time, and nothing else.
    #[error("nothing but signs of life for {}", format_duration(*.0))]
    StallTimeout(Duration),
    /// The connection was closed before anything came.
    #[error("the connection was closed without an answer: {0}")]
    ConnectionClosed(String),
    /// The connection broke in the middle.
    #[error("the connection broke: {0}")]
    ConnectionLost(String),
    /// The stream ended before the reply did.
    #[error("the stream ended before the reply did")]
    UnexpectedEof,
    /// More came than is read.
    #[error("the answer is longer than {0} bytes")]
    ResponseTooLarge(usize),
    /// One event is longer than is read.
    #[error("one event of the stream is longer than {0} bytes")]
    EventTooLarge(usize),
    /// What came is no text.
    #[error("the stream is not UTF-8")]
    InvalidUtf8,
}

impl HttpError {
    /// What the client says of a question that it could not send.
    pub(super) fn from_send_error(error: reqwest::Error, connect: Duration) -> Self {
        // The address is said elsewhere.
        let error = error.without_url();
        match (error.is_connect(), error.is_timeout()) {
            (true, true) => Self::ConnectTimeout(connect),
            (true, false) => Self::Connect(root_cause(&error)),
            (false, _) if is_connection_closed(&error) => {
                Self::ConnectionClosed(root_cause(&error))
            }
            (false, _) => Self::ConnectionLost(root_cause(&error)),
        }
    }

    /// What the client says of a body that it could not read on.
    pub(super) fn from_body_error(error: reqwest::Error) -> Self {
        Self::ConnectionLost(root_cause(&error.without_url()))
    }
}

fn format_duration(time: Duration) -> String {
    match time.subsec_millis() {
        0 => format!("{} s", time.as_secs()),
        _ => format!("{} ms", time.as_millis()),
    }
}

/// Whether a connection ended before an answer began.
fn is_connection_closed(error: &reqwest::Error) -> bool {
    let mut deeper = error.source();
    while let Some(found) = deeper {
        if let Some(io) = found.downcast_ref::<io::Error>() {
            return matches!(
                io.kind(),
                io::ErrorKind::ConnectionReset
                    | io::ErrorKind::ConnectionAborted
                    | io::ErrorKind::BrokenPipe
                    | io::ErrorKind::NotConnected
                    | io::ErrorKind::UnexpectedEof
            );
        }
        // The client below keeps this kind to itself; its words are its name.
        if found.to_string() == "connection closed before message completed" {
            return true;
        }
        deeper = found.source();
    }
    false
}

/// What lies behind an error: the rest only says how deep it came from.
pub(super) fn root_cause(error: &dyn Error) -> String {
    let mut deepest = error;
    while let Some(deeper) = deepest.source() {
        deepest = deeper;
    }
    deepest.to_string()
}
