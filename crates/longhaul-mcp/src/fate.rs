//! What became of a server: why it is gone, and its last words.
//!
//! Never: says a secret of the server's spec or the token of a login, or keeps more
//! than the last words.

use std::sync::{Mutex, PoisonError};

use longhaul_core::port::redact::Redact as _;
use longhaul_core::redact::Redactor;

use crate::auth::tokens::without_tokens;

/// So much of what a server writes to its error output is kept.
const TAIL_BYTES_MAX: usize = 4 * 1024;

/// What is shorter gives nothing of a secret away.
const HALF_BYTES_MIN: usize = 3;

/// The longest why.
const WHY_CHARS_MAX: usize = 600;

/// What became of a server. The first word counts.
#[derive(Debug, Default)]
pub(super) struct Fate {
    end: Mutex<Option<End>>,
    tail: Mutex<Tail>,
    redactor: Redactor,
    /// Length of the longest secret in bytes.
    longest: usize,
}

/// The end of what a server wrote to its error output.
#[derive(Debug, Default)]
struct Tail {
    bytes: Vec<u8>,
    /// Its beginning is missing, and with it perhaps that of a secret.
    is_cut: bool,
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
    pub(super) fn new(secrets: &[String]) -> Self {
        let hidden = secrets.iter().map(|secret| ("***".to_owned(), &**secret));
        Self {
            redactor: Redactor::with_stand_ins(hidden),
            longest: secrets.iter().map(String::len).max().unwrap_or(0),
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
        tail.bytes.extend_from_slice(bytes);
        let most = TAIL_BYTES_MAX + self.longest;
        let over = tail.bytes.len().saturating_sub(most);
        tail.bytes.drain(..over);
        tail.is_cut |= over > 0;
    }

    /// The last line of its error output that says something.
    pub(super) fn last_words(&self) -> Option<String> {
        let tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        // Before it is cut anywhere: half a secret is not known for one.
        let text = self.masked(&String::from_utf8_lossy(&tail.bytes));
        // Half a letter is shown as a whole one, which is longer.
        let skipped = self.longest + '\u{fffd}'.len_utf8() * 3;
        let text = match tail.is_cut {
            true => &text[text.ceil_char_boundary(skipped.min(text.len()))..],
            false => &text,
        };
        // The second half of a secret may not have come yet.
        let begun = self.redactor.unfinished(text);
        let text = match begun < HALF_BYTES_MIN {
            true => text,
            false => &text[..text.len() - begun],
        };
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

    /// Words without secrets.
    fn masked(&self, words: &str) -> String {
        let words = without_tokens(words);
        self.redactor.redact(&words).into_owned()
    }

    /// Words without secrets, on one line and not too many.
    pub(super) fn clean(&self, words: &str) -> String {
        let words = self.masked(words);
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
        let fate = Fate::new(&["hunter2hunter".into()]);
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
    fn a_token_that_a_server_repeats_is_not_said() {
        crate::auth::tokens::remember("t0ken-that-is-repeated");
        let fate = Fate::default();
        fate.ends("bad: t0ken-that-is-repeated dDBrZW4tdGhhdC1pcy1yZXBlYXRlZA");
        let why = fate.end().unwrap().why;
        assert_eq!(why, "bad: {{secret:mcp-login}} {{secret:mcp-login}}");
    }

    #[test]
    fn no_half_of_a_secret_stays() {
        let secret = "hunter2hunter";
        // Wherever the cut falls, and wherever a piece ends.
        for over in 0..=2 * secret.len() {
            let fate = Fate::new(&[secret.into(), "abc".into()]);
            fate.mutters(secret.as_bytes());
            fate.mutters(secret.as_bytes());
            fate.mutters(&vec![b' '; TAIL_BYTES_MAX - secret.len() + over]);
            let words = fate.last_words().unwrap_or_default();
            assert!(!words.contains("unt"), "{over}: {words}");
        }
        for end in HALF_BYTES_MIN..=secret.len() {
            let fate = Fate::new(&[secret.into()]);
            fate.mutters(b"the key is ");
            fate.mutters(&secret.as_bytes()[..end]);
            let words = fate.last_words().unwrap();
            assert!(words.starts_with("the key is"), "{words}");
            assert!(!words.contains("hun"), "{words}");
        }
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
