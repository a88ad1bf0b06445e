//! What became of a server: why it is gone, and its last words.
//!
//! Never: says a secret of the server's spec or the token of a login, or keeps more
//! than the last words.

use std::sync::{Mutex, PoisonError};

use longhaul_core::port::redact::Redact as _;
use longhaul_core::redact::Redactor;

use crate::auth::redaction::redact_tokens;

/// So much of what a server writes to its error output is kept.
const TAIL_BYTES_MAX: usize = 4 * 1024;

/// What is shorter gives nothing of a secret away.
const PARTIAL_BYTES_MIN: usize = 3;

/// The longest why.
const REASON_CHARS_MAX: usize = 600;

/// What became of a server. The first word counts.
#[derive(Debug, Default)]
pub(super) struct ServerExit {
    reason: Mutex<Option<ExitReason>>,
    stderr: Mutex<StderrTail>,
    redactor: Redactor,
    /// Length of the longest secret in bytes.
    longest: usize,
}

/// The end of what a server wrote to its error output.
#[derive(Debug, Default)]
struct StderrTail {
    bytes: Vec<u8>,
    /// Its beginning is missing, and with it perhaps that of a secret.
    is_cut: bool,
}

/// Why a server is gone.
#[derive(Debug, Clone)]
pub(super) struct ExitReason {
    /// In words.
    pub(super) reason: String,
    /// It broke a bound: what it was asked is not asked again, and it has no
    /// time to end by itself.
    pub(super) is_violation: bool,
}

impl ServerExit {
    pub(super) fn new(secrets: &[String]) -> Self {
        let hidden = secrets.iter().map(|secret| ("***".to_owned(), &**secret));
        Self {
            redactor: Redactor::with_placeholders(hidden),
            longest: secrets.iter().map(String::len).max().unwrap_or(0),
            ..Self::default()
        }
    }

    /// It is gone, by itself or by its connection.
    pub(super) fn record_exit(&self, why: &str) {
        self.record(why, false);
    }

    /// It broke a bound and is let go of.
    pub(super) fn record_violation(&self, why: &str) {
        self.record(why, true);
    }

    fn record(&self, why: &str, broke: bool) {
        let mut end = self.reason.lock().unwrap_or_else(PoisonError::into_inner);
        if end.is_none() {
            let why = self.sanitize(why);
            *end = Some(ExitReason { reason: why, is_violation: broke });
        }
    }

    /// Why it is gone, if it is.
    pub(super) fn reason(&self) -> Option<ExitReason> {
        let end = self.reason.lock().unwrap_or_else(PoisonError::into_inner);
        end.clone()
    }

    /// It wrote this to its error output.
    pub(super) fn append_stderr(&self, bytes: &[u8]) {
        let mut tail = self.stderr.lock().unwrap_or_else(PoisonError::into_inner);
        tail.bytes.extend_from_slice(bytes);
        let most = TAIL_BYTES_MAX + self.longest;
        let over = tail.bytes.len().saturating_sub(most);
        tail.bytes.drain(..over);
        tail.is_cut |= over > 0;
    }

    /// The last line of its error output that says something.
    pub(super) fn last_stderr_line(&self) -> Option<String> {
        let tail = self.stderr.lock().unwrap_or_else(PoisonError::into_inner);
        // Before it is cut anywhere: half a secret is not known for one.
        let text = self.redacted(&String::from_utf8_lossy(&tail.bytes));
        // Half a letter is shown as a whole one, which is longer.
        let skipped = self.longest + '\u{fffd}'.len_utf8() * 3;
        let text = match tail.is_cut {
            true => &text[text.ceil_char_boundary(skipped.min(text.len()))..],
            false => &text,
        };
        // The second half of a secret may not have come yet.
        let begun = self.redactor.partial_match_len(text);
        let text = match begun < PARTIAL_BYTES_MIN {
            true => text,
            false => &text[..text.len() - begun],
        };
        let mut lines = text.lines().rev().map(str::trim);
        let line = lines.find(|line| !line.is_empty())?;
        Some(self.sanitize(line))
    }

    /// A why with the last words of the server, where it had some.
    pub(super) fn with_stderr(&self, why: &str) -> String {
        let why = self.sanitize(why);
        match self.last_stderr_line() {
            Some(words) => format!("{why}; its last words were: {words}"),
            None => why,
        }
    }

    /// Words without secrets.
    fn redacted(&self, words: &str) -> String {
        let words = redact_tokens(words);
        self.redactor.redact(&words).into_owned()
    }

    /// Words without secrets, on one line and not too many.
    pub(super) fn sanitize(&self, words: &str) -> String {
        let words = self.redacted(words);
        let seen = |letter: char| if letter.is_control() { ' ' } else { letter };
        let mut short: String = words.chars().take(REASON_CHARS_MAX).map(seen).collect();
        if short.len() < words.len() {
            short.push('…');
        }
        short.trim_end_matches('.').to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_exit_reason_is_kept_and_redacted() {
        let fate = ServerExit::new(&["hunter2hunter".into()]);
        fate.append_stderr(b"starting\nbad key hunter2hunter\n\n");
        fate.record_exit("it said hunter2hunter\nand left.");
        fate.record_violation("later");
        let end = fate.reason().unwrap();
        assert_eq!(end.reason, "it said *** and left");
        assert!(!end.is_violation);
        let words = fate.with_stderr("gone");
        assert_eq!(words, "gone; its last words were: bad key ***");
    }

    #[test]
    fn tokens_in_server_output_are_redacted() {
        crate::auth::redaction::register("t0ken-that-is-repeated");
        let fate = ServerExit::default();
        fate.record_exit("bad: t0ken-that-is-repeated dDBrZW4tdGhhdC1pcy1yZXBlYXRlZA");
        let why = fate.reason().unwrap().reason;
        assert_eq!(why, "bad: {{secret:mcp-login}} {{secret:mcp-login}}");
    }

    #[test]
    fn partial_secrets_in_server_output_are_redacted() {
        let secret = "hunter2hunter";
        // Wherever the cut falls, and wherever a piece ends.
        for over in 0..=2 * secret.len() {
            let fate = ServerExit::new(&[secret.into(), "abc".into()]);
            fate.append_stderr(secret.as_bytes());
            fate.append_stderr(secret.as_bytes());
            fate.append_stderr(&vec![b' '; TAIL_BYTES_MAX - secret.len() + over]);
            let words = fate.last_stderr_line().unwrap_or_default();
            assert!(!words.contains("unt"), "{over}: {words}");
        }
        for end in PARTIAL_BYTES_MIN..=secret.len() {
            let fate = ServerExit::new(&[secret.into()]);
            fate.append_stderr(b"the key is ");
            fate.append_stderr(&secret.as_bytes()[..end]);
            let words = fate.last_stderr_line().unwrap();
            assert!(words.starts_with("the key is"), "{words}");
            assert!(!words.contains("hun"), "{words}");
        }
    }

    #[test]
    fn only_the_tail_of_stderr_is_kept() {
        let fate = ServerExit::default();
        for _ in 0..100 {
            fate.append_stderr(&[b'x'; 1_000]);
        }
        assert!(fate.with_stderr("gone").chars().count() < 700);
    }
}
