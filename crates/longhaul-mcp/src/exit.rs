//! Why a server process or connection is gone, and the tail of its stderr.
//!
//! Invariant: nothing returned from this module contains a secret of the server's spec or a login
//! token.

use std::sync::{Mutex, PoisonError};

use longhaul_core::port::redact::Redact as _;
use longhaul_core::redact::Redactor;

use crate::auth::redaction::redact_tokens;

/// Maximum number of stderr bytes kept per server.
const TAIL_BYTES_MAX: usize = 4 * 1024;

/// Minimum length of a partial secret that is redacted. A shorter part reveals nothing.
const PARTIAL_BYTES_MIN: usize = 3;

/// Maximum length of an exit reason in characters.
const REASON_CHARS_MAX: usize = 600;

/// Records why a server is gone. Only the first recorded reason is kept.
#[derive(Debug, Default)]
pub(super) struct ExitRecord {
    reason: Mutex<Option<ServerExitReason>>,
    stderr: Mutex<StderrTail>,
    redactor: Redactor,
    /// Length of the longest secret to redact, in bytes.
    longest_secret_bytes: usize,
}

/// The last bytes a server wrote to stderr.
#[derive(Debug, Default)]
struct StderrTail {
    bytes: Vec<u8>,
    /// Whether earlier bytes were dropped, so that the kept text may begin in the middle of a
    /// secret.
    is_cut: bool,
}

/// Why a server process or connection is gone.
#[derive(Debug, Clone)]
pub(super) struct ServerExitReason {
    /// Why the process or connection is gone, as text for messages.
    pub(super) reason: String,
    /// Whether the server violated a limit. Then its pending requests are not retried, and the
    /// server is killed without time to exit.
    pub(super) is_violation: bool,
}

impl ExitRecord {
    pub(super) fn new(secrets_to_redact: &[String]) -> Self {
        let placeholders = secrets_to_redact.iter().map(|secret| ("***".to_owned(), &**secret));
        Self {
            redactor: Redactor::with_placeholders(placeholders),
            longest_secret_bytes: secrets_to_redact.iter().map(String::len).max().unwrap_or(0),
            ..Self::default()
        }
    }

    /// Records that the server exited or its connection closed.
    pub(super) fn record_exit(&self, reason: &str) {
        self.record_exit_reason(reason, false);
    }

    /// Records that the server violated a limit and that its connection is abandoned.
    pub(super) fn record_limit_violation(&self, reason: &str) {
        self.record_exit_reason(reason, true);
    }

    fn record_exit_reason(&self, reason: &str, is_violation: bool) {
        let mut end = self.reason.lock().unwrap_or_else(PoisonError::into_inner);
        if end.is_none() {
            let reason = self.sanitize_server_text(reason);
            *end = Some(ServerExitReason { reason, is_violation });
        }
    }

    /// Returns why the server is gone. `None` if the server is still connected.
    pub(super) fn reason(&self) -> Option<ServerExitReason> {
        let end = self.reason.lock().unwrap_or_else(PoisonError::into_inner);
        end.clone()
    }

    /// Appends bytes that the server wrote to stderr.
    pub(super) fn append_stderr(&self, bytes: &[u8]) {
        let mut tail = self.stderr.lock().unwrap_or_else(PoisonError::into_inner);
        tail.bytes.extend_from_slice(bytes);
        let max_bytes = TAIL_BYTES_MAX + self.longest_secret_bytes;
        let excess = tail.bytes.len().saturating_sub(max_bytes);
        tail.bytes.drain(..excess);
        tail.is_cut |= excess > 0;
    }

    /// Returns the last non-empty line that the server wrote to stderr.
    pub(super) fn last_stderr_line(&self) -> Option<String> {
        let tail = self.stderr.lock().unwrap_or_else(PoisonError::into_inner);
        // Redacts before truncating, because a truncated secret would not be recognized.
        let text = self.redact_secrets(&String::from_utf8_lossy(&tail.bytes));
        // An incomplete character is decoded to U+FFFD, which takes more bytes.
        let skipped = self.longest_secret_bytes + '\u{fffd}'.len_utf8() * 3;
        let text = match tail.is_cut {
            true => &text[text.ceil_char_boundary(skipped.min(text.len()))..],
            false => &text,
        };
        // The rest of a secret may not have arrived yet.
        let partial_len = self.redactor.partial_secret_suffix_len(text);
        let text = match partial_len < PARTIAL_BYTES_MIN {
            true => text,
            false => &text[..text.len() - partial_len],
        };
        let mut lines = text.lines().rev().map(str::trim);
        let line = lines.find(|line| !line.is_empty())?;
        Some(self.sanitize_server_text(line))
    }

    /// Returns a reason, followed by the server's last stderr line if there is one.
    pub(super) fn reason_with_last_stderr_line(&self, reason: &str) -> String {
        let reason = self.sanitize_server_text(reason);
        match self.last_stderr_line() {
            Some(line) => format!("{reason}; last stderr line: {line}"),
            None => reason,
        }
    }

    /// Returns the text with the secrets of the server's spec and all login tokens redacted.
    fn redact_secrets(&self, text: &str) -> String {
        let text = redact_tokens(text);
        self.redactor.redact(&text).into_owned()
    }

    /// Returns the text on one line, truncated, and with secrets redacted.
    pub(super) fn sanitize_server_text(&self, text: &str) -> String {
        let text = self.redact_secrets(text);
        let printable = |c: char| if c.is_control() { ' ' } else { c };
        let text = truncated(text.chars().map(printable), REASON_CHARS_MAX);
        text.trim_end_matches('.').to_owned()
    }
}

/// Returns a text of at most this many characters. A longer text ends with `…`.
pub(super) fn truncated(mut text: impl Iterator<Item = char>, chars_max: usize) -> String {
    let mut shown_text: String = text.by_ref().take(chars_max).collect();
    shown_text.extend(text.next().map(|_| '…'));
    shown_text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_exit_reason_is_kept_and_redacted() {
        let exit = ExitRecord::new(&["hunter2hunter".into()]);
        exit.append_stderr(b"starting\nbad key hunter2hunter\n\n");
        exit.record_exit("it said hunter2hunter\nand left.");
        exit.record_limit_violation("later");
        let end = exit.reason().unwrap();
        assert_eq!(end.reason, "it said *** and left");
        assert!(!end.is_violation);
        let text = exit.reason_with_last_stderr_line("gone");
        assert_eq!(text, "gone; last stderr line: bad key ***");
    }

    #[test]
    fn tokens_in_server_output_are_redacted() {
        crate::auth::redaction::register_token("t0ken-that-is-repeated");
        let exit = ExitRecord::default();
        exit.record_exit("bad: t0ken-that-is-repeated dDBrZW4tdGhhdC1pcy1yZXBlYXRlZA");
        let reason = exit.reason().unwrap().reason;
        assert_eq!(reason, "bad: {{secret:mcp-login}} {{secret:mcp-login}}");
    }

    #[test]
    fn partial_secrets_in_server_output_are_redacted() {
        let secret = "hunter2hunter";
        // For every position of the truncation and of the end of a chunk.
        for extra in 0..=2 * secret.len() {
            let exit = ExitRecord::new(&[secret.into(), "abc".into()]);
            exit.append_stderr(secret.as_bytes());
            exit.append_stderr(secret.as_bytes());
            exit.append_stderr(&vec![b' '; TAIL_BYTES_MAX - secret.len() + extra]);
            let text = exit.last_stderr_line().unwrap_or_default();
            assert!(!text.contains("unt"), "{extra}: {text}");
        }
        for end in PARTIAL_BYTES_MIN..=secret.len() {
            let exit = ExitRecord::new(&[secret.into()]);
            exit.append_stderr(b"the key is ");
            exit.append_stderr(&secret.as_bytes()[..end]);
            let text = exit.last_stderr_line().unwrap();
            assert!(text.starts_with("the key is"), "{text}");
            assert!(!text.contains("hun"), "{text}");
        }
    }

    #[test]
    fn only_the_tail_of_stderr_is_kept() {
        let exit = ExitRecord::default();
        for _ in 0..100 {
            exit.append_stderr(&[b'x'; 1_000]);
        }
        assert!(exit.reason_with_last_stderr_line("gone").chars().count() < 700);
    }
}
