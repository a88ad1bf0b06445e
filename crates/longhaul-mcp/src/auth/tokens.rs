//! The tokens that this process has used, so that no text that is kept or told holds
//! one.
//!
//! Never: given out again.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longhaul_core::decoded::{self, DecodedText};
use longhaul_core::port::redact::stand_in;
use longhaul_core::spelling::spellings;

/// So many are remembered; older ones have ended long since. Each is looked for in
/// every text, in all its spellings.
const TOKENS_MAX: usize = 64;

/// A token shorter than this may be a word.
const BYTES_MIN: usize = 8;

/// What a token is called where one stood.
const NAME: &str = "mcp-login";

/// A token, and how others may spell it.
struct Token {
    plain: String,
    spelled: Vec<String>,
}

/// Those that were used, the last of them at the end.
#[derive(Clone)]
struct Sent(VecDeque<Arc<Token>>);

/// Of the whole process: whichever server a token is for, no text may hold it.
static SENT: Mutex<Sent> = Mutex::new(Sent(VecDeque::new()));

fn sent() -> MutexGuard<'static, Sent> {
    SENT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Remembers that this is one; whoever uses it again remembers it again.
pub(crate) fn remember(token: &str) {
    sent().remember(token);
}

/// The text without the tokens of any login that this process has used, as they are,
/// in JSON, in an address, as hex digits or as base64.
pub fn without_tokens(text: &str) -> Cow<'_, str> {
    // No text is searched under the lock.
    let sent = sent().clone();
    sent.hide(text)
}

/// So many bytes at the end of a text may be the beginning of a token.
pub fn unfinished(text: &str) -> usize {
    let sent = sent().clone();
    sent.unfinished(text)
}

impl Sent {
    fn remember(&mut self, token: &str) {
        if token.len() < BYTES_MIN {
            return;
        }
        let known = self.0.iter().position(|known| known.plain == token);
        // What is still used is not the first to be forgotten.
        if let Some(known) = known.and_then(|at| self.0.remove(at)) {
            self.0.push_back(known);
            return;
        }
        if self.0.len() >= TOKENS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(Arc::new(Token {
            plain: token.to_owned(),
            spelled: spellings(token),
        }));
    }

    fn spelled(&self) -> impl Iterator<Item = &String> {
        self.0.iter().flat_map(|token| &token.spelled)
    }

    fn hide<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if self.0.is_empty() {
            return Cow::Borrowed(text);
        }
        let found = self.spelled().filter(|spelled| text.contains(*spelled));
        let mut found: Vec<&String> = found.collect();
        // A token that is the beginning of another must not leave its end behind.
        found.sort_by_key(|spelled| std::cmp::Reverse(spelled.len()));
        let mut text = Cow::Borrowed(text);
        for spelled in found {
            text = Cow::Owned(text.replace(spelled.as_str(), &stand_in(NAME)));
        }
        if let Some(decoded) = DecodedText::new(&text) {
            let mut all: Vec<&String> = self.spelled().collect();
            all.sort_by_key(|spelled| std::cmp::Reverse(spelled.len()));
            let stand_in = stand_in(NAME);
            let parts = all.iter().map(|spelled| (spelled.as_str(), &*stand_in));
            text = match decoded.replace(&text, parts) {
                Some(replaced) => Cow::Owned(replaced),
                None => text,
            };
        }
        text
    }

    fn unfinished(&self, text: &str) -> usize {
        let begun = self.spelled().filter_map(|spelled| {
            let ends = spelled.char_indices().map(|(end, _)| end);
            let ends = ends.take_while(|end| *end <= text.len());
            ends.filter(|end| text.ends_with(&spelled[..*end])).last()
        });
        let escaped = decoded::unfinished(text, self.spelled().map(String::as_str));
        begun.max().unwrap_or(0).max(escaped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(tokens: &[&str]) -> Sent {
        let mut sent = Sent(VecDeque::new());
        tokens.iter().for_each(|token| sent.remember(token));
        sent
    }

    #[test]
    fn what_was_sent_is_taken_out_of_texts() {
        let plain = of(&["t0ken-of-a-test", "t0ken-of-a-test", "short"]);
        assert_eq!(
            plain.hide("a t0ken-of-a-test, short"),
            "a {{secret:mcp-login}}, short"
        );
        assert!(matches!(plain.hide("nothing"), Cow::Borrowed(_)));
        // However it is spelled, and whichever is the beginning of another.
        let spelled = of(&["sp/lled=token", "sp/lled=token-2"]);
        for (text, clean) in [
            ("<sp%2Flled%3Dtoken>", "<{{secret:mcp-login}}>"),
            ("<%73&#112;/lled\\u003dtoken>", "<{{secret:mcp-login}}>"),
            (r"<sp\/lled=token>", "<{{secret:mcp-login}}>"),
            ("<c3AvbGxlZD10b2tlbg>", "<{{secret:mcp-login}}>"),
            ("<73702f6c6c65643d746f6b656e>", "<{{secret:mcp-login}}>"),
            ("<sp/lled=token-2>", "<{{secret:mcp-login}}>"),
        ] {
            assert_eq!(spelled.hide(text), clean, "{text}");
        }
    }

    #[test]
    fn what_is_used_again_is_not_the_first_to_be_forgotten() {
        let mut sent = of(&["used-all-along", "used-just-once"]);
        for next in 2..TOKENS_MAX {
            sent.remember(&format!("t0ken-{next:04}"));
        }
        // It is full: one more, and the first goes.
        sent.remember("used-all-along");
        sent.remember("t0ken-of-another");
        assert_eq!(sent.0.len(), TOKENS_MAX);
        assert_eq!(sent.hide("used-all-along"), "{{secret:mcp-login}}");
        assert_eq!(sent.hide("used-just-once"), "used-just-once");
    }

    #[test]
    fn a_token_that_has_begun_is_known_by_its_beginning() {
        let sent = of(&["sp/lled=tökén"]);
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
            assert_eq!(sent.unfinished(text), begun.len(), "{text}");
        }
        assert_eq!(of(&[]).unfinished("100%"), 0);
    }
}
