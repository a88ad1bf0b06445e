//! The tokens that this process has sent, so that no text that is kept holds one.
//!
//! Never: given out again.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// So many are remembered; older ones have ended long since.
const TOKENS_MAX: usize = 256;

/// A token shorter than this may be a word.
const BYTES_MIN: usize = 8;

/// What stands where one stood.
const STAND_IN: &str = "{{secret:mcp-login}}";

/// Of the whole process: whichever server a token is for, no text may hold it.
static SENT: Mutex<VecDeque<String>> = Mutex::new(VecDeque::new());

/// Remembers that this is one.
pub(super) fn remember(token: &str) {
    let mut sent = SENT.lock().unwrap_or_else(PoisonError::into_inner);
    if token.len() < BYTES_MIN || sent.iter().any(|known| known == token) {
        return;
    }
    if sent.len() >= TOKENS_MAX {
        sent.pop_front();
    }
    sent.push_back(token.to_owned());
}

/// The text without the tokens of any login that this process has used.
pub fn without_tokens(text: &str) -> Cow<'_, str> {
    let sent = SENT.lock().unwrap_or_else(PoisonError::into_inner);
    let mut text = Cow::Borrowed(text);
    for token in sent.iter() {
        if text.contains(token.as_str()) {
            text = Cow::Owned(text.replace(token.as_str(), STAND_IN));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_is_taken_out_of_texts() {
        remember("t0ken-of-a-test");
        remember("t0ken-of-a-test");
        remember("short");
        assert_eq!(
            without_tokens("a t0ken-of-a-test, short"),
            "a {{secret:mcp-login}}, short"
        );
        assert!(matches!(without_tokens("nothing"), Cow::Borrowed(_)));
    }
}
