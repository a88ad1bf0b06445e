//! Takes known secrets out of texts, however they are encoded.
//!
//! Invariant: the time for a text is linear in its length, whoever wrote it.

mod decoded_text;
mod encodings;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use aho_corasick::{AhoCorasick, AhoCorasickKind};

use crate::port::redact::{Redact, placeholder};
use crate::redact::decoded_text::DecodedText;
use crate::redact::encodings::{WRAPPED_BYTES_MIN, search_patterns};

pub use crate::redact::decoded_text::SECRET_BYTES_MIN;
pub use crate::redact::encodings::is_secret_name;

/// Knows secrets, and what stands in their place.
#[derive(Clone, Default)]
pub struct Redactor(SecretPatterns);

#[derive(Clone, Default)]
enum SecretPatterns {
    #[default]
    Empty,
    Patterns(Arc<Patterns>),
    /// There are secrets that can't be looked for, so no text is let through.
    Unsearchable,
}

/// What stands in the place of every text if secrets can't be looked for.
const WITHHELD: &str = "[withheld: the secrets are too long to be looked for in it]";

struct Patterns {
    /// Sorted.
    texts: Vec<String>,
    /// What stands in the place of the text with the same index.
    placeholders: Vec<Arc<str>>,
    longest: usize,
    automaton: AhoCorasick,
}

/// A part of a text that is replaced.
struct SecretMatch<'a> {
    range: Range<usize>,
    /// Length of the longest secret in it, which names the part.
    longest_secret: usize,
    placeholder: &'a str,
}

impl Redactor {
    /// Knows these, given as names and values. The lines of a secret of many lines are secrets
    /// too, and so are texts in one that is JSON: by their names, or by their length.
    pub fn new<'a>(secrets: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let secrets = secrets.into_iter();
        Self::with_placeholders(secrets.map(|(name, value)| (placeholder(name), value)))
    }

    /// Knows these values, given behind what stands in their places.
    pub fn with_placeholders<'a>(secrets: impl IntoIterator<Item = (String, &'a str)>) -> Self {
        let mut patterns: BTreeMap<String, Arc<str>> = BTreeMap::new();
        for (stand_in, value) in secrets {
            let value = value.trim();
            if value.len() < SECRET_BYTES_MIN {
                continue;
            }
            let stand_in: Arc<str> = stand_in.into();
            for pattern in search_patterns(value) {
                let known = patterns.entry(pattern);
                known.or_insert_with(|| Arc::clone(&stand_in));
            }
        }
        // The smallest automaton of those that are fast: it is made at each start.
        let kind = Some(AhoCorasickKind::ContiguousNFA);
        let built = AhoCorasick::builder().kind(kind).build(patterns.keys());
        let (texts, stand_ins): (Vec<String>, Vec<Arc<str>>) = patterns.into_iter().unzip();
        Self(match (texts.is_empty(), built) {
            (true, _) => SecretPatterns::Empty,
            (false, Ok(automaton)) => SecretPatterns::Patterns(Arc::new(Patterns {
                longest: texts.iter().map(String::len).max().unwrap_or(0),
                texts,
                placeholders: stand_ins,
                automaton,
            })),
            (false, Err(_)) => SecretPatterns::Unsearchable,
        })
    }

    fn find_matches(&self, text: &str) -> Vec<SecretMatch<'_>> {
        match &self.0 {
            SecretPatterns::Empty => Vec::new(),
            SecretPatterns::Patterns(patterns) => patterns.find_matches(text),
            SecretPatterns::Unsearchable => vec![SecretMatch {
                range: 0..text.len(),
                longest_secret: text.len(),
                placeholder: WITHHELD,
            }],
        }
    }

    /// Whether one of them is in this text.
    pub fn contains_secret(&self, text: &str) -> bool {
        matches!(self.redact(text), Cow::Owned(_))
    }

    /// A text that was cut off anywhere, without the half of a secret that may be left at its
    /// end: nobody would know it again.
    pub fn without_partial_secret<'a>(&self, cut: &'a str) -> &'a str {
        let begun = self.partial_match_len(cut);
        if begun < SECRET_BYTES_MIN {
            return cut;
        }
        let end = cut.len() - begun;
        // A secret that stands whole may end as it begins: no part of that one is left either.
        let mut found = self.find_matches(cut).into_iter();
        let split = found.find(|one| one.range.start < end && end < one.range.end);
        &cut[..split.map_or(end, |one| one.range.start)]
    }
}

impl Redact for Redactor {
    fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let found = self.find_matches(text);
        if found.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut redacted = String::with_capacity(text.len());
        let mut from = 0;
        for SecretMatch { range: part, placeholder: stand_in, .. } in found {
            redacted.push_str(&text[from..part.start]);
            redacted.push_str(stand_in);
            from = part.end;
        }
        redacted.push_str(&text[from..]);
        Cow::Owned(redacted)
    }

    fn partial_match_len(&self, text: &str) -> usize {
        match &self.0 {
            SecretPatterns::Empty => 0,
            SecretPatterns::Patterns(patterns) => text.len() - patterns.partial_match_start(text),
            SecretPatterns::Unsearchable => text.len(),
        }
    }
}

impl Patterns {
    /// Every part of the text that holds secrets, in order; they do not overlap.
    fn find_matches(&self, text: &str) -> Vec<SecretMatch<'_>> {
        let mut found = Vec::new();
        let mut reading = DecodedText::new(text);
        loop {
            self.find_in_view(&reading, text, &mut found);
            if !reading.decode_layer() {
                break;
            }
        }
        if let Some(line) = DecodedText::joining_lines(text) {
            self.find_in_view(&line, text, &mut found);
        }
        found.sort_by_key(|found| found.range.start);
        let mut merged = Vec::new();
        for one in found {
            merge_match(&mut merged, one);
        }
        merged
    }

    /// Adds what one reading of the text holds.
    fn find_in_view<'a>(
        &'a self,
        reading: &DecodedText<'_>,
        text: &str,
        all: &mut Vec<SecretMatch<'a>>,
    ) {
        let bytes_min = match reading.is_joined {
            true => WRAPPED_BYTES_MIN,
            false => 0,
        };
        let mut found = Vec::new();
        let hits = self.automaton.find_overlapping_iter(&*reading.text);
        for hit in hits.filter(|hit| hit.len() >= bytes_min) {
            let one = SecretMatch {
                range: hit.range(),
                longest_secret: hit.len(),
                placeholder: &self.placeholders[hit.pattern().as_usize()],
            };
            merge_match(&mut found, one);
        }
        all.extend(
            found
                .into_iter()
                .map(|one| SecretMatch { range: reading.source_range(text, one.range), ..one }),
        );
    }

    /// Where at the end of a text a secret may have begun.
    fn partial_match_start(&self, text: &str) -> usize {
        let mut begun = text.len();
        let mut reading = DecodedText::new(text);
        loop {
            let start = self.partial_match_start_in(&reading, 0);
            begun = begun.min(start.unwrap_or(text.len()));
            let cut = reading.truncate_partial_escape();
            begun = begun.min(cut.unwrap_or(text.len()));
            if reading.decode_layer() {
                continue;
            }
            // What precedes an escape that has begun may be a beginning too.
            let start = cut.and_then(|_| self.partial_match_start_in(&reading, 0));
            begun = begun.min(start.unwrap_or(text.len()));
            break;
        }
        let line = DecodedText::joining_lines(text);
        let start = line.and_then(|line| self.partial_match_start_in(&line, WRAPPED_BYTES_MIN));
        begun.min(start.unwrap_or(text.len()))
    }

    /// The same in one reading, for what is at least this long.
    fn partial_match_start_in(&self, reading: &DecodedText<'_>, bytes_min: usize) -> Option<usize> {
        let text = &*reading.text;
        let from = text.floor_char_boundary(text.len().saturating_sub(self.longest));
        let starts = text[from..].char_indices().map(|(at, _)| from + at);
        let mut starts = starts.filter(|start| {
            let begun = &text[*start..];
            let next = self.texts.partition_point(|pattern| &**pattern <= begun);
            let longer = self.texts[next..].iter();
            let mut longer = longer.take_while(|pattern| pattern.starts_with(begun));
            longer.any(|pattern| pattern.len() >= bytes_min)
        });
        starts.next().map(|start| reading.source_offset(start))
    }
}

/// Adds a part behind others. Parts that overlap become one, so that nothing of a secret is
/// left beside another.
fn merge_match<'a>(all: &mut Vec<SecretMatch<'a>>, mut next: SecretMatch<'a>) {
    while let Some(last) = all.pop_if(|last| last.range.end > next.range.start) {
        next.range = last.range.start.min(next.range.start)..last.range.end.max(next.range.end);
        if last.longest_secret > next.longest_secret {
            (next.longest_secret, next.placeholder) = (last.longest_secret, last.placeholder);
        }
    }
    all.push(next);
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

    fn key(secret: &str) -> Redactor {
        Redactor::with_placeholders([("[key]".to_owned(), secret)])
    }

    fn check(redactor: &Redactor, text: &str, expect: &str) {
        let redacted = redactor.redact(text);
        assert_eq!(redacted, expect, "{text}");
        assert_eq!(redactor.contains_secret(text), text != expect, "{text}");
        assert!(!redactor.contains_secret(&redacted), "{redacted}");
    }

    #[test]
    fn a_secret_of_many_lines_and_one_in_many_lines_are_found() {
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
            check(&redactor, text, expect);
        }
    }

    #[test]
    fn a_secret_is_found_when_every_byte_of_it_is_escaped() {
        let each = |spelled: fn(u8) -> String| TOKEN.bytes().map(spelled).collect::<String>();
        for text in [
            each(|byte| format!("%{byte:02x}")),
            each(|byte| format!("%{byte:02X}")),
            each(|byte| format!("&#{byte};")),
            each(|byte| format!("&#x{byte:x};")),
            each(|byte| format!("\\u{byte:04x}")),
            "sk-%6Cive-&#48;123456789\\u0061bcdef".to_owned(),
        ] {
            check(&key(TOKEN), &format!("<b>{text}</b>"), "<b>[key]</b>");
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
                let redacted = key(secret).redact(text).into_owned();
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
        assert_eq!(redactor.partial_match_len("plain"), "plain".len());
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
            check(&redactor, text, expect);
        }
    }

    #[test]
    fn redaction_of_hostile_texts_takes_linear_time() {
        // In a time that is quadratic, each of these would take many minutes.
        let redactor = Redactor::new([("A", "aaaaaa"), ("B", "%25%25%25"), ("PEM", PEM)]);
        for text in ["a", "%25", "&#", "%", "\\", "\\u", "\n", "MIIEvQ\n"] {
            let hostile = text.repeat(100_000);
            _ = redactor.redact(&hostile);
            assert!(redactor.partial_match_len(&hostile) < 10_000, "{text}");
        }
        let many = "%73k-live-4711 ".repeat(100_000);
        let expect = "[key] ".repeat(100_000);
        assert_eq!(key("sk-live-4711").redact(&many), expect);
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
            assert_eq!(redactor.partial_match_len(text), bytes, "{text}");
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
            assert_eq!(redactor.partial_match_len(text), bytes, "{text:?}");
        }
        assert_eq!(Redactor::default().partial_match_len("100%"), 0);
    }

    #[test]
    fn a_partial_secret_at_the_end_is_dropped() {
        let redactor =
            Redactor::new([("A", "sk-a/b+c=very \"secret\""), ("B", "Bearer by-hand-1")]);
        for (cut, kept) in [
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
            assert_eq!(redactor.without_partial_secret(cut), kept);
        }
        let alike = key("test-test-test-test");
        for (cut, kept) in [
            ("bad test-test-test-test", "bad "),
            ("bad test-test-test", "bad "),
            ("test-test-test-test, bad", "test-test-test-test, bad"),
        ] {
            assert_eq!(alike.without_partial_secret(cut), kept);
        }
        assert_eq!(format!("{:?}", Redactor::default()), "Redactor(0 patterns)");
    }
}
