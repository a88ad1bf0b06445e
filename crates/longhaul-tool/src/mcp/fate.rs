//! What became of a server: why it is gone, and its last words.
//!
//! Never: says a secret of the server's spec, or keeps more than the last words.

use std::sync::{Mutex, PoisonError};

/// So much of what a server writes to its error output is kept.
const TAIL_BYTES_MAX: usize = 4 * 1024;

/// The longest why.
const WHY_CHARS_MAX: usize = 600;

/// What became of a server. The first word counts.
#[derive(Debug, Default)]
pub(super) struct Fate {
    end: Mutex<Option<End>>,
    tail: Mutex<Vec<u8>>,
    secrets: Vec<String>,
}

/// Why a server is gone.
#[derive(Debug, Clone)]
pub(super) struct End {
    /// In words.
    pub(super) why: String,
    /// It broke a bound: what it was asked is not asked again, and it has no
    /// time to end by itself.
    pub(super) broke: bool,
}

impl Fate {
    pub(super) fn new(secrets: Vec<String>) -> Self {
        Self {
            secrets,
            ..Self::default()
        }
    }

    /// It is gone, by itself or by its connection.
    pub(super) fn ends(&self, why: &str) {
        self.settle(why, false);
    }

    /// It broke a bound and is let go of.
    pub(super) fn breaks(&self, why: &str) {
        self.settle(why, true);
    }

    fn settle(&self, why: &str, broke: bool) {
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        if end.is_none() {
            let why = self.clean(why);
            *end = Some(End { why, broke });
        }
    }

    /// Why it is gone, if it is.
    pub(super) fn end(&self) -> Option<End> {
        let end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        end.clone()
    }

    /// It wrote this to its error output.
    pub(super) fn mutters(&self, bytes: &[u8]) {
        let mut tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        tail.extend_from_slice(bytes);
        let over = tail.len().saturating_sub(TAIL_BYTES_MAX);
        tail.drain(..over);
    }

    /// The last line of its error output that says something.
    fn last_words(&self) -> Option<String> {
        let tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&tail);
        let mut lines = text.lines().rev().map(str::trim);
        let line = lines.find(|line| !line.is_empty())?;
        Some(self.clean(line))
    }

    /// A why with the last words of the server, where it had some.
    pub(super) fn with_last_words(&self, why: &str) -> String {
        let why = self.clean(why);
        match self.last_words() {
            Some(words) => format!("{why}; its last words were: {words}"),
            None => why,
        }
    }

    /// Words without secrets, on one line and not too many.
    pub(super) fn clean(&self, words: &str) -> String {
        let mut words = words.to_owned();
        for secret in &self.secrets {
            if words.contains(secret.as_str()) {
                words = words.replace(secret.as_str(), "***");
            }
        }
        let seen = |letter: char| if letter.is_control() { ' ' } else { letter };
        let mut short: String = words.chars().take(WHY_CHARS_MAX).map(seen).collect();
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
    fn the_first_end_counts_and_secrets_are_never_said() {
        let fate = Fate::new(vec!["hunter2hunter".into()]);
        fate.mutters(b"starting\nbad key hunter2hunter\n\n");
        fate.ends("it said hunter2hunter\nand left.");
        fate.breaks("later");
        let end = fate.end().unwrap();
        assert_eq!(end.why, "it said *** and left");
        assert!(!end.broke);
        let words = fate.with_last_words("gone");
        assert_eq!(words, "gone; its last words were: bad key ***");
    }

    #[test]
    fn only_the_last_words_are_kept() {
        let fate = Fate::default();
        for _ in 0..100 {
            fate.mutters(&[b'x'; 1_000]);
        }
        assert!(fate.with_last_words("gone").chars().count() < 700);
    }
}
