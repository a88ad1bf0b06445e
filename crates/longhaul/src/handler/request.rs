//! The request that the function of a handler receives, and the error that the function returns: its
//! message with the causes, and whether a retry may fix it.

use std::error::Error as StdError;
use std::fmt;
use std::io;

use longhaul_core::id::{ResourceKey, RunId, ThreadKey};
use longhaul_core::raw::RawJson;
use serde::de::DeserializeOwned;

/// Maximum number of causes that are considered. A chain of causes may be endless.
const CAUSES_MAX: usize = 32;

/// Maximum length of a message in characters.
const MESSAGE_CHARS_MAX: usize = 4_000;

/// Parts of messages about timeouts and the network, for errors of HTTP clients whose types are
/// unknown here, such as those of another version of `reqwest`.
const TRANSIENT_MESSAGES: &[&str] = &[
    "operation timed out",
    "client error (connect)",
    "error trying to connect",
    "dns error",
    "failed to lookup address information",
    "connection closed before message completed",
];

/// Maximum number of bytes between the word "status" and the end of an HTTP status.
const STATUS_DISTANCE_MAX: usize = 24;

/// A call of a handler: the argument of the handler's function.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use longhaul::tools::Progress;
/// use longhaul::{HandlerError, HandlerRequest, Runtime};
///
/// /// Sends a letter. The post office recognizes a repeated request by the key.
/// async fn send(request: HandlerRequest, _: Arc<dyn Progress>) -> Result<String, HandlerError> {
///     let address: String = request.input()?;
///     Ok(format!("sent letter {} to {address}, attempt {}", request.key, request.attempt))
/// }
///
/// let builder = Runtime::builder().store("sqlite:agents.db").handler("send", send);
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct HandlerRequest {
    /// Id of the run that calls the handler.
    pub run: RunId,
    /// Input of the task, as JSON.
    pub input: RawJson,
    /// Number of this call of the function for the task, starting at 1. Greater than 1 if a crash or a
    /// timeout interrupted earlier calls, if they failed transiently, or if a failed run is retried: the
    /// attempts of the failed run count, too.
    pub attempt: u32,
    /// Idempotency key: unique per task, and the same at every attempt and in every retry of a failed
    /// run. An external system can use it to recognize a repeated request.
    pub key: String,
    /// Type of the task, by which workers select tasks. `None` means that the task has no type.
    pub kind: Option<String>,
    /// Person or system on whose behalf the run acts.
    pub actor: Option<RawJson>,
    /// References to related objects in other systems.
    pub links: Option<RawJson>,
    /// Arbitrary data that the submitter of the task has added.
    pub metadata: Option<RawJson>,
    /// Thread (conversation) that the run belongs to.
    pub thread: Option<ThreadKey>,
    /// Resource: the person or thing that the thread is about.
    pub resource: Option<ResourceKey>,
}

impl HandlerRequest {
    /// Deserializes the input of the task.
    ///
    /// # Errors
    /// The input does not have this type, or is nested too deeply.
    pub fn input<T: DeserializeOwned>(&self) -> Result<T, HandlerError> {
        serde_json::from_str(self.input.as_str()).map_err(|error| {
            HandlerError::permanent(format!("the input does not have the expected type: {error}"))
        })
    }
}

/// Reason why a handler failed. Converts from every `std::error::Error`, so `?` works.
///
/// After a transient failure the run is retried, as the retry settings say. After a permanent failure
/// the run fails. An error that is converted is transient if it or one of its causes is a timeout, a
/// network or DNS failure, or the HTTP status 408, 429 or 5xx, and permanent otherwise. Its message
/// includes the causes.
///
/// ```
/// use longhaul::HandlerError;
///
/// let busy = HandlerError::transient("the printer is busy");
/// assert!(busy.is_transient());
/// let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
/// assert!(HandlerError::from(reset).is_transient());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandlerError {
    message: String,
    is_transient: bool,
}

impl HandlerError {
    /// Creates a permanent error with this message.
    pub fn new(error_message: impl Into<String>) -> Self {
        Self::permanent(error_message)
    }

    /// Creates an error that a retry can't fix, such as invalid input or a missing permission.
    pub fn permanent(error_message: impl Into<String>) -> Self {
        Self { message: error_message.into(), is_transient: false }
    }

    /// Creates an error that a retry may fix: a network error, a rate limit, a timeout, or a failure of
    /// a server.
    pub fn transient(error_message: impl Into<String>) -> Self {
        Self { message: error_message.into(), is_transient: true }
    }

    /// Returns whether a retry may fix the error.
    pub const fn is_transient(&self) -> bool {
        self.is_transient
    }

    pub(crate) fn into_message(self) -> String {
        self.message
    }
}

impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

// `HandlerError` does not implement `std::error::Error`: that would conflict with `impl From<T> for
// T`.
impl<E: StdError + 'static> From<E> for HandlerError {
    fn from(error: E) -> Self {
        let (message, is_transient) = message_and_is_transient(&error);
        Self { message, is_transient }
    }
}

/// Returns the message of an error with its causes, and whether a retry may fix the error.
fn message_and_is_transient(error: &(dyn StdError + 'static)) -> (String, bool) {
    let causes = std::iter::successors(Some(error), |cause| (*cause).source()).take(CAUSES_MAX);
    let (mut message, mut is_transient) = (String::new(), false);
    for cause in causes {
        let text = cause.to_string();
        is_transient |= is_transient_type(cause) || is_transient_text(&text);
        if message.is_empty() {
            message = text;
        } else if !message.contains(&text) {
            message = format!("{message}: {text}");
        }
    }
    if let Some((end, _)) = message.char_indices().nth(MESSAGE_CHARS_MAX) {
        message.truncate(end);
        message.push('…');
    }
    (message, is_transient)
}

/// Returns whether the type of an error, without its causes, says that a retry may help.
fn is_transient_type(error: &(dyn StdError + 'static)) -> bool {
    let is_transient_request = |error: &reqwest::Error| {
        let status = error.status().map(|status| status.as_u16());
        error.is_timeout() || error.is_connect() || status.is_some_and(is_transient_status)
    };
    error.is::<tokio::time::error::Elapsed>()
        || error.downcast_ref::<reqwest::Error>().is_some_and(is_transient_request)
        || error.downcast_ref::<io::Error>().is_some_and(is_transient_io_error)
}

/// Returns whether an I/O error is about the network or a timeout.
fn is_transient_io_error(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::NotConnected
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::NetworkDown
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::TimedOut
    )
}

/// Returns whether a retry may lead to another HTTP status than this one: a timeout, a rate limit,
/// or a server error.
const fn is_transient_status(status: u16) -> bool {
    matches!(status, 408 | 429 | 500..=599)
}

/// Returns whether the message of an error says that a retry may help.
fn is_transient_text(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let mut after_status = text.split("status").skip(1);
    TRANSIENT_MESSAGES.iter().any(|part| text.contains(part))
        || after_status.any(|rest| status_at_start(rest).is_some_and(is_transient_status))
}

/// Returns the first number of three digits near the start of the text.
fn status_at_start(text: &str) -> Option<u16> {
    let start = &text[..text.floor_char_boundary(STATUS_DISTANCE_MAX)];
    let mut numbers = start.split(|c: char| !c.is_ascii_digit());
    numbers.find(|number| number.len() == 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An error with a text and a cause.
    #[derive(Debug)]
    struct FakeError(String, Option<Box<dyn StdError>>);

    impl FakeError {
        fn new(text: &str, cause: impl StdError + 'static) -> Self {
            Self(text.to_owned(), Some(Box::new(cause)))
        }
    }

    impl fmt::Display for FakeError {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(&self.0)
        }
    }

    impl StdError for FakeError {
        fn source(&self) -> Option<&(dyn StdError + 'static)> {
            self.1.as_deref()
        }
    }

    #[test]
    fn a_message_includes_each_cause_once_and_is_bounded() {
        let refused = FakeError("connection refused".to_owned(), None);
        let connect = FakeError::new("tcp connect error", refused);
        let repeating = FakeError::new("sending: tcp connect error", connect);
        let (message, _) = message_and_is_transient(&repeating);
        assert_eq!(message, "sending: tcp connect error: connection refused");
        let mut long = FakeError("end".to_owned(), None);
        for number in 0..40 {
            long = FakeError::new(&format!("{number} ").repeat(500), long);
        }
        let (message, _) = message_and_is_transient(&long);
        assert!(message.starts_with("39 39") && !message.contains("end"), "{message}");
        assert_eq!(message.chars().count(), MESSAGE_CHARS_MAX + 1);
    }

    #[test]
    fn errors_are_transient_as_their_causes_say() {
        for (text, expected) in [
            ("HTTP status client error (429 Too Many Requests) for url (http://x/)", true),
            ("HTTP status server error (500 Internal Server Error) for url (http://x/)", true),
            ("http status: 503", true),
            ("http://x/: status code 502", true),
            ("HTTP status client error (404 Not Found) for url (http://x/404)", false),
            ("status: 400", false),
            ("exit status: 1", false),
            ("the status of order 5000 is unknown", false),
            ("operation timed out", true),
            ("dns error: no such host", true),
            ("client error (Connect)", true),
            ("no permission", false),
        ] {
            let error = FakeError::new("outer", FakeError(text.to_owned(), None));
            assert_eq!(message_and_is_transient(&error).1, expected, "{text}");
        }
        for (kind, expected) in
            [(io::ErrorKind::ConnectionReset, true), (io::ErrorKind::NotFound, false)]
        {
            let error = FakeError::new("outer", io::Error::from(kind));
            assert_eq!(message_and_is_transient(&error).1, expected, "{kind}");
        }
    }
}
