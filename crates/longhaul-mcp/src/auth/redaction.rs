//! Redacts the tokens that this process has used from texts that are stored or shown.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use longhaul_core::port::redact::Redact as _;
use longhaul_core::redact::Redactor;

/// Maximum number of remembered tokens. The tokens dropped first have expired long ago.
const TOKENS_MAX: usize = 64;

/// Minimum length of a token that is redacted. A shorter one may be an ordinary word.
const TOKEN_BYTES_MIN: usize = 8;

/// Name of a token in the placeholder that replaces it in a redacted text.
const PLACEHOLDER_NAME: &str = "mcp-login";

/// The tokens that this process has used, the most recent one last.
#[derive(Default)]
struct KnownTokens {
    tokens: VecDeque<String>,
    redactor: Redactor,
}

/// The tokens of the whole process: no text may contain a token of any server.
static KNOWN_TOKENS: LazyLock<Mutex<KnownTokens>> = LazyLock::new(Mutex::default);

fn known_tokens() -> MutexGuard<'static, KnownTokens> {
    KNOWN_TOKENS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers a token for redaction. A token that is used again counts as the most recent.
pub(crate) fn register_token(token: &str) {
    known_tokens().register_token(token);
}

/// Redacts the tokens of all logins that this process has used, in all known encodings.
pub fn redact_tokens(text: &str) -> Cow<'_, str> {
    // A clone, so that no text is searched under the lock.
    let redactor = known_tokens().redactor.clone();
    redactor.redact(text)
}

/// Returns how many bytes at the end of a text may be the beginning of a known token.
pub fn partial_token_suffix_len(text: &str) -> usize {
    let redactor = known_tokens().redactor.clone();
    redactor.partial_secret_suffix_len(text)
}

impl KnownTokens {
    fn register_token(&mut self, token: &str) {
        if token.len() < TOKEN_BYTES_MIN {
            return;
        }
        // A token that is still used is evicted last.
        if let Some(existing) = self.tokens.iter().position(|existing| existing == token) {
            self.tokens.make_contiguous()[existing..].rotate_left(1);
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

    fn known_tokens_from(tokens: &[&str]) -> KnownTokens {
        let mut known = KnownTokens::default();
        tokens.iter().for_each(|token| known.register_token(token));
        known
    }

    #[test]
    fn sent_tokens_are_redacted() {
        let known = known_tokens_from(&["t0ken-of-a-test", "t0ken-of-a-test", "short"]);
        assert_eq!(
            known.redactor.redact("a t0ken-of-a-test, short"),
            "a {{secret:mcp-login}}, short"
        );
        assert!(matches!(known.redactor.redact("nothing"), Cow::Borrowed(_)));
        // In all encodings, and if one token is a prefix of another.
        let overlapping = known_tokens_from(&["sp/lled=token", "sp/lled=token-2"]);
        for (text, expected) in [
            ("<sp%2Flled%3Dtoken>", "<{{secret:mcp-login}}>"),
            ("<%73&#112;/lled\\u003dtoken>", "<{{secret:mcp-login}}>"),
            (r"<sp\/lled=token>", "<{{secret:mcp-login}}>"),
            ("<c3AvbGxlZD10b2tlbg>", "<{{secret:mcp-login}}>"),
            ("<73702f6c6c65643d746f6b656e>", "<{{secret:mcp-login}}>"),
            ("<sp/lled=token-2>", "<{{secret:mcp-login}}>"),
        ] {
            assert_eq!(overlapping.redactor.redact(text), expected, "{text}");
        }
    }

    #[test]
    fn recently_used_tokens_are_evicted_last() {
        let mut known = known_tokens_from(&["used-all-along", "used-just-once"]);
        for next in 2..TOKENS_MAX {
            known.register_token(&format!("t0ken-{next:04}"));
        }
        // The list is full: one more evicts the oldest.
        known.register_token("used-all-along");
        known.register_token("t0ken-of-another");
        assert_eq!(known.tokens.len(), TOKENS_MAX);
        assert_eq!(known.redactor.redact("used-all-along"), "{{secret:mcp-login}}");
        assert_eq!(known.redactor.redact("used-just-once"), "used-just-once");
    }

    #[test]
    fn a_partial_token_at_the_end_is_detected() {
        let known = known_tokens_from(&["sp/lled=tökén"]);
        for (text, partial) in [
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
            assert_eq!(known.redactor.partial_secret_suffix_len(text), partial.len(), "{text}");
        }
        assert_eq!(known_tokens_from(&[]).redactor.partial_secret_suffix_len("100%"), 0);
    }
}
