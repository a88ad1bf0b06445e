//! The tokens that this process has used, so that no text that is kept or told holds
//! one.
//!
//! Never: given out again.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use longhaul_core::port::redact::stand_in;
use longhaul_core::spelling::spellings;

/// So many are remembered; older ones have ended long since. Each is looked for in
/// every text, in all its spellings.
const TOKENS_MAX: usize = 64;

/// A token shorter than this may be a word.
const BYTES_MIN: usize = 8;

/// What a token is called where one stood.
const NAME: &str = "mcp-login";

/// A token, and how others may spell it, the longest first.
struct Token {
    plain: String,
    spelled: Vec<String>,
}

/// Of the whole process: whichever server a token is for, no text may hold it.
static SENT: Mutex<VecDeque<Token>> = Mutex::new(VecDeque::new());

/// Remembers that this is one.
pub(in crate::mcp) fn remember(token: &str) {
    let mut sent = SENT.lock().unwrap_or_else(PoisonError::into_inner);
    if token.len() < BYTES_MIN || sent.iter().any(|known| known.plain == token) {
        return;
    }
    if sent.len() >= TOKENS_MAX {
        sent.pop_front();
    }
    let mut spelled = spellings(token);
    spelled.sort_by_key(|spelled| std::cmp::Reverse(spelled.len()));
    sent.push_back(Token {
        plain: token.to_owned(),
        spelled,
    });
}

/// The text without the tokens of any login that this process has used, as they are,
/// in JSON, in an address, as hex digits or as base64.
pub fn without_tokens(text: &str) -> Cow<'_, str> {
    let sent = SENT.lock().unwrap_or_else(PoisonError::into_inner);
    let all = sent.iter().flat_map(|token| &token.spelled);
    let mut found: Vec<&String> = all.filter(|spelled| text.contains(*spelled)).collect();
    // A token that is the beginning of another must not leave its end behind.
    found.sort_by_key(|spelled| std::cmp::Reverse(spelled.len()));
    let mut text = Cow::Borrowed(text);
    for spelled in found {
        text = Cow::Owned(text.replace(spelled.as_str(), &stand_in(NAME)));
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
        // However it is spelled, and whichever is the beginning of another.
        remember("sp/lled=token");
        remember("sp/lled=token-2");
        for (text, clean) in [
            ("<sp%2Flled%3Dtoken>", "<{{secret:mcp-login}}>"),
            (r"<sp\/lled=token>", "<{{secret:mcp-login}}>"),
            ("<c3AvbGxlZD10b2tlbg>", "<{{secret:mcp-login}}>"),
            ("<73702f6c6c65643d746f6b656e>", "<{{secret:mcp-login}}>"),
            ("<sp/lled=token-2>", "<{{secret:mcp-login}}>"),
        ] {
            assert_eq!(without_tokens(text), clean, "{text}");
        }
    }
}
