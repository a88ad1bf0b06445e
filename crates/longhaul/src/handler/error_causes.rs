//! The message of an error with its causes, and whether a retry may fix the error.

use std::error::Error as StdError;
use std::io;

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

/// Returns the message of an error with its causes, and whether a retry may fix the error.
pub(crate) fn message_and_is_transient(error: &(dyn StdError + 'static)) -> (String, bool) {
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
    use std::fmt;

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
