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
pub enum Trouble {
    /// The address is no address.
    #[error("the base URL can't be used: {0}")]
    Address(String),
    /// No client can be made, mostly because the machine has no certificates.
    #[error("no secure connection can be made here: {0}; {NO_CERTIFICATES}")]
    Client(String),
    /// No connection came about.
    #[error("no connection: {0}")]
    Connect(String),
    /// No connection came about in this time.
    #[error("no connection in {}", span(*.0))]
    NoConnection(Duration),
    /// No answer began in this time.
    #[error("no answer in {}", span(*.0))]
    NoAnswer(Duration),
    /// The answer began and then nothing came for this time.
    #[error("the answer stood still for {}", span(*.0))]
    Silence(Duration),
    /// Signs of life came for this time, and nothing else.
    #[error("nothing but signs of life for {}", span(*.0))]
    Stall(Duration),
    /// The connection was closed before anything came.
    #[error("the connection was closed without an answer: {0}")]
    Closed(String),
    /// The connection broke in the middle.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// The stream ended before the reply did.
    #[error("the stream ended before the reply did")]
    Cut,
    /// More came than is read.
    #[error("the answer is longer than {0} bytes")]
    TooLong(usize),
    /// One event is longer than is read.
    #[error("one event of the stream is longer than {0} bytes")]
    EventTooLong(usize),
    /// What came is no text.
    #[error("the stream is not UTF-8")]
    Garbled,
}

impl Trouble {
    /// What the client says of a question that it could not send.
    pub(super) fn of(error: reqwest::Error, connect: Duration) -> Self {
        // The address is said elsewhere.
        let error = error.without_url();
        match (error.is_connect(), error.is_timeout()) {
            (true, true) => Self::NoConnection(connect),
            (true, false) => Self::Connect(cause(&error)),
            (false, _) if is_closed(&error) => Self::Closed(cause(&error)),
            (false, _) => Self::Broken(cause(&error)),
        }
    }

    /// What the client says of a body that it could not read on.
    pub(super) fn midway(error: reqwest::Error) -> Self {
        Self::Broken(cause(&error.without_url()))
    }
}

fn span(time: Duration) -> String {
    match time.subsec_millis() {
        0 => format!("{} s", time.as_secs()),
        _ => format!("{} ms", time.as_millis()),
    }
}

/// Whether a connection ended before an answer began.
fn is_closed(error: &reqwest::Error) -> bool {
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
pub(super) fn cause(error: &dyn Error) -> String {
    let mut deepest = error;
    while let Some(deeper) = deepest.source() {
        deepest = deeper;
    }
    deepest.to_string()
}
