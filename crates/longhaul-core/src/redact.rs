//! Replaces known secrets in texts, in all common encodings.
//!
//! Invariant: the time is linear in the length of the text, even if the text is hostile.

mod decoded_text;
mod encodings;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use aho_corasick::{AhoCorasick, AhoCorasickKind};

use crate::port::redact::{Redact, secret_placeholder};
use crate::redact::decoded_text::DecodedText;
use crate::redact::encodings::{WRAPPED_BYTES_MIN, search_patterns};

pub use crate::redact::decoded_text::SECRET_BYTES_MIN;
pub use crate::redact::encodings::is_secret_name;

/// Redactor that replaces known secrets in texts by placeholders.
#[derive(Clone, Default)]
pub struct Redactor(SecretPatterns);

#[derive(Clone, Default)]
enum SecretPatterns {
    #[default]
    Empty,
    Patterns(Arc<SearchPatterns>),
    /// Some secrets are too long to be searched for, so every text is replaced as a whole.
    Unsearchable,
}

/// Replacement of every text if the secrets are too long to be searched for.
const WITHHELD: &str = "[redacted: the secrets are too long to search for]";

struct SearchPatterns {
    /// Texts to search for, sorted.
    texts: Vec<String>,
    /// Placeholders that replace the texts, in the same order as `texts`.
    placeholders: Vec<Arc<str>>,
    longest: usize,
    automaton: AhoCorasick,
}

/// A part of a text that contains secrets and is replaced.
struct SecretMatch<'a> {
    range: Range<usize>,
    /// Length of the longest secret in the part. The placeholder of this secret is used.
    longest_secret: usize,
    placeholder: &'a str,
}

impl Redactor {
    /// Creates a redactor for secrets given as pairs of name and value. Long lines of a multi-line
    /// secret are secrets too, and so are strings in a JSON secret whose name or length suggests
    /// it.
    pub fn new<'a>(named_secrets: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let named_secrets = named_secrets.into_iter();
        Self::with_placeholders(
            named_secrets.map(|(name, value)| (secret_placeholder(name), value)),
        )
    }

    /// Creates a redactor for secrets given as pairs of placeholder and value.
    pub fn with_placeholders<'a>(secrets: impl IntoIterator<Item = (String, &'a str)>) -> Self {
        let mut patterns: BTreeMap<String, Arc<str>> = BTreeMap::new();
        for (placeholder, value) in secrets {
            let value = value.trim();
            if value.len() < SECRET_BYTES_MIN {
                continue;
            }
            let placeholder: Arc<str> = placeholder.into();
            for pattern in search_patterns(value) {
                let entry = patterns.entry(pattern);
                entry.or_insert_with(|| Arc::clone(&placeholder));
            }
        }
        // The smallest of the fast automatons, because it is built at each start.
        let kind = Some(AhoCorasickKind::ContiguousNFA);
        let built = AhoCorasick::builder().kind(kind).build(patterns.keys());
        let (texts, placeholders): (Vec<String>, Vec<Arc<str>>) = patterns.into_iter().unzip();
        Self(match (texts.is_empty(), built) {
            (true, _) => SecretPatterns::Empty,
            (false, Ok(automaton)) => SecretPatterns::Patterns(Arc::new(SearchPatterns {
                longest: texts.iter().map(String::len).max().unwrap_or(0),
                texts,
                placeholders,
                automaton,
            })),
            (false, Err(_)) => SecretPatterns::Unsearchable,
        })
    }

    fn find_secret_matches(&self, text: &str) -> Vec<SecretMatch<'_>> {
        match &self.0 {
            SecretPatterns::Empty => Vec::new(),
            SecretPatterns::Patterns(patterns) => patterns.find_secret_matches(text),
            SecretPatterns::Unsearchable => vec![SecretMatch {
                range: 0..text.len(),
                longest_secret: text.len(),
                placeholder: WITHHELD,
            }],
        }
    }

    pub fn contains_secret(&self, text: &str) -> bool {
        matches!(self.redact(text), Cow::Owned(_))
    }

    /// Returns a truncated text without the beginning of a secret that may be left at its end,
    /// where it would not be recognized as a secret.
    pub fn without_partial_secret<'a>(&self, text: &'a str) -> &'a str {
        let partial = self.partial_secret_suffix_len(text);
        if partial < SECRET_BYTES_MIN {
            return text;
        }
        let end = text.len() - partial;
        // A complete secret may end like it begins. In that case it is removed as a whole.
        let mut matches = self.find_secret_matches(text).into_iter();
        let overlapping = matches
            .find(|secret_match| secret_match.range.start < end && end < secret_match.range.end);
        &text[..overlapping.map_or(end, |secret_match| secret_match.range.start)]
    }
}

impl Redact for Redactor {
    fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let matches = self.find_secret_matches(text);
        if matches.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut redacted = String::with_capacity(text.len());
        let mut from = 0;
        for SecretMatch { range: part, placeholder, .. } in matches {
            redacted.push_str(&text[from..part.start]);
            redacted.push_str(placeholder);
            from = part.end;
        }
        redacted.push_str(&text[from..]);
        Cow::Owned(redacted)
    }

    fn partial_secret_suffix_len(&self, text: &str) -> usize {
        match &self.0 {
            SecretPatterns::Empty => 0,
            SecretPatterns::Patterns(patterns) => text.len() - patterns.partial_secret_start(text),
            SecretPatterns::Unsearchable => text.len(),
        }
    }
}

impl SearchPatterns {
    /// Returns all parts of the text that contain secrets, in order and without overlaps.
    fn find_secret_matches(&self, text: &str) -> Vec<SecretMatch<'_>> {
        let mut matches = Vec::new();
        let mut decoded = DecodedText::new(text);
        loop {
            self.find_matches_in_decoded(&decoded, text, &mut matches);
            if !decoded.try_decode_escape_layer() {
                break;
            }
        }
        if let Some(line) = DecodedText::try_join_lines(text) {
            self.find_matches_in_decoded(&line, text, &mut matches);
        }
        matches.sort_by_key(|secret_match| secret_match.range.start);
        let mut merged = Vec::new();
        for secret_match in matches {
            push_or_merge_match(&mut merged, secret_match);
        }
        merged
    }

    /// Adds the secrets found in one decoded form of the text to the matches.
    fn find_matches_in_decoded<'a>(
        &'a self,
        decoded: &DecodedText<'_>,
        text: &str,
        matches: &mut Vec<SecretMatch<'a>>,
    ) {
        let bytes_min = match decoded.is_joined {
            true => WRAPPED_BYTES_MIN,
            false => 0,
        };
        let mut decoded_matches = Vec::new();
        let hits = self.automaton.find_overlapping_iter(&*decoded.text);
        for hit in hits.filter(|hit| hit.len() >= bytes_min) {
            let secret_match = SecretMatch {
                range: hit.range(),
                longest_secret: hit.len(),
                placeholder: &self.placeholders[hit.pattern().as_usize()],
            };
            push_or_merge_match(&mut decoded_matches, secret_match);
        }
        matches.extend(decoded_matches.into_iter().map(|secret_match| SecretMatch {
            range: decoded.source_range(text, secret_match.range),
            ..secret_match
        }));
    }

    /// Returns the position from which the rest of a text may be the beginning of a secret.
    fn partial_secret_start(&self, text: &str) -> usize {
        let mut first = text.len();
        let mut decoded = DecodedText::new(text);
        loop {
            let start = self.partial_secret_start_in_decoded_text(&decoded, 0);
            first = first.min(start.unwrap_or(text.len()));
            let escape_start = decoded.truncate_partial_escape_and_get_offset();
            first = first.min(escape_start.unwrap_or(text.len()));
            if decoded.try_decode_escape_layer() {
                continue;
            }
            // The text before a partial escape may be the beginning of a secret too.
            let start =
                escape_start.and_then(|_| self.partial_secret_start_in_decoded_text(&decoded, 0));
            first = first.min(start.unwrap_or(text.len()));
            break;
        }
        let line = DecodedText::try_join_lines(text);
        let start = line
            .and_then(|line| self.partial_secret_start_in_decoded_text(&line, WRAPPED_BYTES_MIN));
        first.min(start.unwrap_or(text.len()))
    }

    /// Returns the position in the source from which the rest of one decoded form may be the
    /// beginning of a secret with at least `bytes_min` bytes.
    fn partial_secret_start_in_decoded_text(
        &self,
        decoded: &DecodedText<'_>,
        bytes_min: usize,
    ) -> Option<usize> {
        let text = &*decoded.text;
        let from = text.floor_char_boundary(text.len().saturating_sub(self.longest));
        let starts = text[from..].char_indices().map(|(at, _)| from + at);
        let mut starts = starts.filter(|start| {
            let tail = &text[*start..];
            let next = self.texts.partition_point(|pattern| &**pattern <= tail);
            let candidates = self.texts[next..].iter();
            let mut candidates = candidates.take_while(|pattern| pattern.starts_with(tail));
            candidates.any(|pattern| pattern.len() >= bytes_min)
        });
        starts.next().map(|start| decoded.source_offset(start))
    }
}

/// Appends a match to sorted matches. Overlapping matches are merged, so that no remainder of a
/// secret is left beside another secret.
fn push_or_merge_match<'a>(matches: &mut Vec<SecretMatch<'a>>, mut new_match: SecretMatch<'a>) {
    while let Some(last) = matches.pop_if(|last| last.range.end > new_match.range.start) {
        new_match.range =
            last.range.start.min(new_match.range.start)..last.range.end.max(new_match.range.end);
        if last.longest_secret > new_match.longest_secret {
            (new_match.longest_secret, new_match.placeholder) =
                (last.longest_secret, last.placeholder);
        }
    }
    matches.push(new_match);
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            SecretPatterns::Empty => f.write_str("Redactor(0 patterns)"),
            SecretPatterns::Patterns(patterns) => {
                write!(f, "Redactor({} patterns)", patterns.texts.len())
            }
            SecretPatterns::Unsearchable => f.write_str("Redactor(unsearchable)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "sk-live-0123456789abcdef";
    const PEM: &str = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQ\n\
                       EFAASCBKcwggSjAgEAAoIBAQC7\n-----END KEY-----";

    fn redactor_for(secret: &str) -> Redactor {
        Redactor::with_placeholders([("[key]".to_owned(), secret)])
    }

    fn assert_redacted(redactor: &Redactor, text: &str, expect: &str) {
        let redacted = redactor.redact(text);
        assert_eq!(redacted, expect, "{text}");
        assert_eq!(redactor.contains_secret(text), text != expect, "{text}");
        assert!(!redactor.contains_secret(&redacted), "{redacted}");
    }

    #[test]
    fn multiline_and_line_wrapped_secrets_are_found() {
        let redactor = Redactor::new([("PEM", PEM), ("TOKEN", TOKEN)]);
        for (text, expect) in [
            (
                "1: MIIEvQIBADANBgkqhkiG9w0BAQ\r\n2: EFAASCBKcwggSjAgEAAoIBAQC7\n",
                "1: {{secret:PEM}}\r\n2: {{secret:PEM}}\n",
            ),
            ("-----BEGIN KEY-----\n", "-----BEGIN KEY-----\n"),
            ("eyJrIjogInNrLWxpdmUt\nMDEyMzQ1Njc4OWFiY2Rl\r\nZiJ9", "eyJrIjogIn{{secret:TOKEN}}iJ9"),
            ("x sk-live-01234567\n89abcdef\n\ny", "x {{secret:TOKEN}}\n\ny"),
            ("two\nlines", "two\nlines"),
        ] {
            assert_redacted(&redactor, text, expect);
        }
    }

    #[test]
    fn a_secret_is_found_when_every_byte_of_it_is_escaped() {
        let escape_each_byte =
            |encode: fn(u8) -> String| TOKEN.bytes().map(encode).collect::<String>();
        for text in [
            escape_each_byte(|byte| format!("%{byte:02x}")),
            escape_each_byte(|byte| format!("%{byte:02X}")),
            escape_each_byte(|byte| format!("&#{byte};")),
            escape_each_byte(|byte| format!("&#x{byte:x};")),
            escape_each_byte(|byte| format!("\\u{byte:04x}")),
            "sk-%6Cive-&#48;123456789\\u0061bcdef".to_owned(),
        ] {
            assert_redacted(&redactor_for(TOKEN), &format!("<b>{text}</b>"), "<b>[key]</b>");
        }
    }

    #[test]
    fn a_secret_is_found_in_other_encodings() {
        for (secret, texts) in [
            (
                "wJalrXUtnFEMI/K7MDENG+bPxRfiCY=",
                &[
                    "wJalrXUtnFEMI/K7MDENG%2BbPxRfiCY%3D",
                    "wJalrXUtnFEMI/K7MDENG%2bbPxRfiCY%3d",
                    "wJalrXUtnFEMI%2FK7MDENG%2BbPxRfiCY%3D",
                    "wJalrXUtnFEMI%2fK7MDENG%2bbPxRfiCY%3d",
                    r"wJalrXUtnFEMI\/K7MDENG+bPxRfiCY=",
                    r"wJalrXUtnFEMI\u002fK7MDENG+bPxRfiCY=",
                    r"wJalrXUtnFEMI\u002FK7MDENG+bPxRfiCY=",
                    r"wJalrXUtnFEMI\\u002fK7MDENG+bPxRfiCY=",
                    r"wJalrXUtnFEMI/K7MDENG\u002BbPxRfiCY=",
                    "774a616c725855746e46454d492f4b374d44454e472b62507852666943593d",
                    "774A616C725855746E46454D492F4B374D44454E472B62507852666943593D",
                ][..],
            ),
            (
                "schön & gut 𝄞/~*",
                &[
                    r"sch\u00f6n & gut \ud834\udd1e/~*",
                    r"sch\u00F6n & gut \uD834\uDD1E/~*",
                    r"sch\u00f6n & gut \ud834\udd1e\/~*",
                    r"sch\u00f6n & gut \ud834\udd1e\u002f~*",
                    r"sch\\u00f6n & gut \\ud834\\udd1e/~*",
                    r"schön \u0026 gut 𝄞/~*",
                    r"sch\u00F6n \u0026 gut \uD834\uDD1E/~*",
                    "sch%C3%B6n%20%26%20gut%20%F0%9D%84%9E/~%2A",
                    "sch%c3%b6n%20%26%20gut%20%f0%9d%84%9e%2f~%2a",
                    "sch%C3%B6n+%26+gut+%F0%9D%84%9E%2F~%2A",
                    "sch%C3%B6n+%26+gut+%F0%9D%84%9E/~%2A",
                    "sch%C3%B6n+%26+gut+%F0%9D%84%9E%2F%7E*",
                    "sch%C3%B6n%20%26%20gut%20%F0%9D%84%9E%2F~*",
                    "sch%C3%B6n%20&%20gut%20%F0%9D%84%9E/~*",
                ],
            ),
            ("two\nlines\u{1}", &[r"two\nlines\u0001", r"two\\nlines\\u0001"]),
            (r"ends-with\", &[r#"ends-with\\""#, r#"ends-with\\\\\""#]),
        ] {
            for text in texts {
                let redacted = redactor_for(secret).redact(text).into_owned();
                let rest = redacted.trim_end_matches(['\\', '"']);
                assert_eq!(rest, "[key]", "{text}");
            }
        }
    }

    #[test]
    fn texts_are_withheld_if_secrets_are_too_long_to_search_for() {
        let redactor = Redactor(SecretPatterns::Unsearchable);
        assert_eq!(redactor.redact("plain"), WITHHELD);
        assert!(redactor.contains_secret("plain"));
        assert_eq!(redactor.partial_secret_suffix_len("plain"), "plain".len());
        assert_eq!(redactor.without_partial_secret("plain text"), "");
    }

    #[test]
    fn overlapping_secrets_are_redacted_whole() {
        let redactor = Redactor::new([
            ("A", "hunter2-and"),
            ("B", "hunter2-and-more"),
            ("C", "and-more-of-it"),
            ("SHORT", "abc"),
        ]);
        for (text, expect) in [
            ("part hunter2-and!", "part {{secret:A}}!"),
            ("hunter2-andhunter2-and", "{{secret:A}}{{secret:A}}"),
            ("key hunter2-and-more!", "key {{secret:B}}!"),
            ("key hunter2-and-more-of-it!", "key {{secret:B}}!"),
            ("key hunter2-%61nd-more-of-it!", "key {{secret:B}}!"),
            ("nothing here, abc", "nothing here, abc"),
        ] {
            assert_redacted(&redactor, text, expect);
        }
    }

    #[test]
    fn redaction_of_hostile_texts_takes_linear_time() {
        // In quadratic time, each of these would take many minutes.
        let redactor = Redactor::new([("A", "aaaaaa"), ("B", "%25%25%25"), ("PEM", PEM)]);
        for text in ["a", "%25", "&#", "%", "\\", "\\u", "\n", "MIIEvQ\n"] {
            let hostile_text = text.repeat(100_000);
            _ = redactor.redact(&hostile_text);
            assert!(redactor.partial_secret_suffix_len(&hostile_text) < 10_000, "{text}");
        }
        let many = "%73k-live-4711 ".repeat(100_000);
        let expect = "[key] ".repeat(100_000);
        assert_eq!(redactor_for("sk-live-4711").redact(&many), expect);
    }

    #[test]
    fn a_partial_secret_at_the_end_of_a_text_is_detected() {
        let redactor = Redactor::new([("A", "schön-gut"), ("B", "gut-schön")]);
        for (text, bytes) in [
            ("it is", 1),
            ("it is schö", "schö".len()),
            ("it is schön-gut", "gut".len()),
            ("it is schön.", 0),
            ("", 0),
        ] {
            assert_eq!(redactor.partial_secret_suffix_len(text), bytes, "{text}");
        }
        let redactor = Redactor::new([("A", TOKEN), ("B", "short-one")]);
        for (text, bytes) in [
            ("it is sk-live-01234567\n", "sk-live-01234567\n".len()),
            ("sk-live-01234567\n89ab", "sk-live-01234567\n89ab".len()),
            ("a\nb\r\nsk-li\r\nve-\n\n01", "sk-li\r\nve-\n\n01".len()),
            ("a\nsk-live-01234567\n89abcdef", 0),
            ("sk-live\nx", 0),
            ("a\n", 0),
            ("it is short\n", 0),
            ("a\nit is short", "short".len()),
        ] {
            assert_eq!(redactor.partial_secret_suffix_len(text), bytes, "{text:?}");
        }
        assert_eq!(Redactor::default().partial_secret_suffix_len("100%"), 0);
    }

    #[test]
    fn a_partial_secret_at_the_end_is_dropped() {
        let redactor =
            Redactor::new([("A", "sk-a/b+c=very \"secret\""), ("B", "Bearer by-hand-1")]);
        for (text, expected) in [
            ("bad sk-a/b", "bad "),
            ("bad sk-a/b+c=very \"secret", "bad "),
            ("bad sk-a/b+c=very \"secret\"", "bad sk-a/b+c=very \"secret\""),
            ("bad sk-a/", "bad sk-a/"),
            ("sk-a/b or not", "sk-a/b or not"),
            ("bad Bearer by-hand-", "bad "),
            ("bad sk-a/b%2Bc%3", "bad "),
            (r"bad sk-a\u002fb+c=ve", "bad "),
            ("bad 736b2d612f622b63", "bad "),
            ("", ""),
        ] {
            assert_eq!(redactor.without_partial_secret(text), expected);
        }
        let repetitive = redactor_for("test-test-test-test");
        for (text, expected) in [
            ("bad test-test-test-test", "bad "),
            ("bad test-test-test", "bad "),
            ("test-test-test-test, bad", "test-test-test-test, bad"),
        ] {
            assert_eq!(repetitive.without_partial_secret(text), expected);
        }
        assert_eq!(format!("{:?}", Redactor::default()), "Redactor(0 patterns)");
    }
}
