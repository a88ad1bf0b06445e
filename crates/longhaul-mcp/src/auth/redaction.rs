//! The tokens that this process has used, so that no text that is kept or told holds
//! one.
//!
//! Never: given out again.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use longhaul_core::port::redact::Redact as _;
use longhaul_core::redact::Redactor;

/// So many are remembered; older ones have ended long since.
const TOKENS_MAX: usize = 64;

/// A token shorter than this may be a word.
const TOKEN_BYTES_MIN: usize = 8;

/// What a token is called where one stood.
const PLACEHOLDER_NAME: &str = "mcp-login";

/// Those that were used, the last of them at the end.
#[derive(Default)]
struct KnownTokens {
    tokens: VecDeque<String>,
    redactor: Redactor,
}

/// Of the whole process: whichever server a token is for, no text may hold it.
static KNOWN_TOKENS: Mutex<Option<KnownTokens>> = Mutex::new(None);

fn known_tokens() -> MutexGuard<'static, Option<KnownTokens>> {
    KNOWN_TOKENS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Knows all of them. No text is searched under the lock.
fn redactor() -> Redactor {
    let sent = known_tokens();
    sent.as_ref().map(|sent| sent.redactor.clone()).unwrap_or_default()
}

/// Remembers that this is one; whoever uses it again remembers it again.
pub(crate) fn register(token: &str) {
    known_tokens().get_or_insert_default().register(token);
}

/// The text without the tokens of any login that this process has used, however they are
/// encoded.
pub fn redact_tokens(text: &str) -> Cow<'_, str> {
    redactor().redact(text)
}

/// So many bytes at the end of a text may be the beginning of a token.
pub fn partial_token_len(text: &str) -> usize {
    redactor().partial_match_len(text)
}

impl KnownTokens {
    fn register(&mut self, token: &str) {
        if token.len() < TOKEN_BYTES_MIN {
            return;
        }
        let known = self.tokens.iter().position(|known| known == token);
        // What is still used is not the first to be forgotten.
        if let Some(known) = known.and_then(|at| self.tokens.remove(at)) {
            self.tokens.push_back(known);
            return;
        }
        if self.tokens.len() >= TOKENS_MAX {
            self.tokens.pop_front();
        }
        self.tokens.push_back(token.to_owned());
        self.redactor = Redactor::new(self.tokens.iter().map(|token| (PLACEHOLDER_NAME, &**token)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(tokens: &[&str]) -> KnownTokens {
        let mut sent = KnownTokens::default();
        tokens.iter().for_each(|token| sent.register(token));
        sent
    }

    #[test]
    fn sent_tokens_are_redacted() {
        let plain = known(&["t0ken-of-a-test", "t0ken-of-a-test", "short"]);
        assert_eq!(
            plain.redactor.redact("a t0ken-of-a-test, short"),
            "a {{secret:mcp-login}}, short"
        );
        assert!(matches!(plain.redactor.redact("nothing"), Cow::Borrowed(_)));
        // However it is spelled, and whichever is the beginning of another.
        let spelled = known(&["sp/lled=token", "sp/lled=token-2"]);
        for (text, clean) in [
            ("<sp%2Flled%3Dtoken>", "<{{secret:mcp-login}}>"),
            ("<%73&#112;/lled\\u003dtoken>", "<{{secret:mcp-login}}>"),
            (r"<sp\/lled=token>", "<{{secret:mcp-login}}>"),
            ("<c3AvbGxlZD10b2tlbg>", "<{{secret:mcp-login}}>"),
            ("<73702f6c6c65643d746f6b656e>", "<{{secret:mcp-login}}>"),
            ("<sp/lled=token-2>", "<{{secret:mcp-login}}>"),
        ] {
            assert_eq!(spelled.redactor.redact(text), clean, "{text}");
        }
    }

    #[test]
    fn recently_used_tokens_are_evicted_last() {
        let mut sent = known(&["used-all-along", "used-just-once"]);
        for next in 2..TOKENS_MAX {
            sent.register(&format!("t0ken-{next:04}"));
        }
        // It is full: one more, and the first goes.
        sent.register("used-all-along");
        sent.register("t0ken-of-another");
        assert_eq!(sent.tokens.len(), TOKENS_MAX);
        assert_eq!(sent.redactor.redact("used-all-along"), "{{secret:mcp-login}}");
        assert_eq!(sent.redactor.redact("used-just-once"), "used-just-once");
    }

    #[test]
    fn a_partial_token_at_the_end_is_detected() {
        let sent = known(&["sp/lled=tökén"]);
        for (text, begun) in [
            ("", ""),
            ("nothing of it", ""),
            ("see sp/l", "sp/l"),
            ("see sp/lled=t", "sp/lled=t"),
            ("see sp/lled=tö", "sp/lled=tö"),
            ("see sp%2Flled%3", "sp%2Flled%3"),
            (r"see sp\/lle", r"sp\/lle"),
            ("see c3AvbGxlZD1", "c3AvbGxlZD1"),
            ("ö", ""),
        ] {
            assert_eq!(sent.redactor.partial_match_len(text), begun.len(), "{text}");
        }
        assert_eq!(known(&[]).redactor.partial_match_len("100%"), 0);
    }
}
