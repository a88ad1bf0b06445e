//! The identifiers in a text: what must not be lost when it is put in fewer words.
//!
//! Never: understands them. A path, an address, an id, an amount or a name in
//! quotes is known by its letters.

use std::collections::HashSet;

/// So much of one text is looked at.
const TEXT_BYTES_MAX: usize = 64 * 1_024;
/// The longest identifier.
const IDENTIFIER_BYTES_MAX: usize = 200;
/// The longest name in quotes, in letters.
const QUOTED_CHARS_MAX: usize = 80;

/// Words that make a number before them an amount.
const UNITS: &[&str] = &[
    "%", "ms", "s", "sec", "secs", "second", "seconds", "min", "mins", "minute", "minutes", "h",
    "hour", "hours", "day", "days", "week", "weeks", "month", "months", "year", "years", "B", "KB",
    "MB", "GB", "TB", "KiB", "MiB", "GiB", "bytes", "tokens", "USD", "EUR", "GBP", "dollars",
    "euros", "px", "m", "km", "kg", "g", "Hz", "kHz", "MHz", "GHz", "rows", "lines", "items",
    "users", "requests",
];

/// What a text is: names in quotes count in prose only, in data everything has quotes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextKind {
    /// What people and models say.
    Prose,
    /// What goes into tools and comes out of them.
    Data,
}

/// The identifiers of a text, in its order, each once.
pub(crate) fn find_identifiers(text: &str, kind: TextKind) -> Vec<String> {
    let text = truncate_str(text, TEXT_BYTES_MAX);
    let mut found = IdentifierList::default();
    if kind == TextKind::Prose {
        for line in text.lines() {
            add_quoted_names(line, &mut found);
        }
    }
    let mut number: Option<&str> = None;
    for raw in text.split(|letter: char| letter.is_whitespace() || is_separator(letter)) {
        let word = raw.trim_matches(|letter| ".:!?…=*".contains(letter));
        if let Some(number) = number.take()
            && UNITS.contains(&word)
        {
            found.add(format!("{number} {word}"));
        } else if is_identifier(word) {
            found.add(word.to_owned());
        }
        // Only what stands right before its unit.
        number = (is_number(word) && raw == word).then_some(word);
    }
    found.list
}

#[derive(Debug, Default)]
struct IdentifierList {
    list: Vec<String>,
    seen: HashSet<String>,
}

impl IdentifierList {
    fn add(&mut self, mention: String) {
        if mention.len() <= IDENTIFIER_BYTES_MAX && self.seen.insert(mention.clone()) {
            self.list.push(mention);
        }
    }
}

/// The beginning of a text, cut between letters.
pub(crate) fn truncate_str(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

/// Whether a letter stands between words.
fn is_separator(letter: char) -> bool {
    "\"'`,;()[]{}<>|“”‘’«»「」".contains(letter)
}

/// Names in quotes.
fn add_quoted_names(line: &str, found: &mut IdentifierList) {
    for (open, close) in [('`', '`'), ('"', '"'), ('“', '”'), ('「', '」')] {
        let mut rest = line;
        while let Some((_, after)) = rest.split_once(open) {
            let Some((name, then)) = after.split_once(close) else {
                break;
            };
            let letters = name.chars().count();
            if (2..=QUOTED_CHARS_MAX).contains(&letters) && has_alphanumeric(name) {
                found.add(name.trim().to_owned());
            }
            rest = then;
        }
    }
}

fn has_alphanumeric(text: &str) -> bool {
    text.chars().any(char::is_alphanumeric)
}

fn is_number(word: &str) -> bool {
    let digits = |letter: char| letter.is_ascii_digit() || letter == '.';
    !word.is_empty() && word.chars().all(digits) && word.starts_with(|l: char| l.is_ascii_digit())
}

fn is_identifier(word: &str) -> bool {
    if word.len() < 2 || !has_alphanumeric(word) {
        return false;
    }
    word.contains("://")
        || is_path(word)
        || is_dotted(word)
        || has_joining_char(word)
        || is_numbered(word)
        || is_camel_case(word)
}

/// Such as `/etc/hosts`, `~/notes` or `src/main.rs`, but not `and/or`.
fn is_path(word: &str) -> bool {
    let rooted = ["/", "./", "../", "~/", "\\\\"];
    let slashes = word.matches(['/', '\\']).count();
    let marked = word.contains(|letter: char| letter.is_ascii_digit() || "._-".contains(letter));
    rooted.iter().any(|root| word.starts_with(root)) || slashes > 1 || (slashes == 1 && marked)
}

/// Such as `main.rs`, `example.com` or `v1.2`, but not `e.g` or `end.Next one`.
fn is_dotted(word: &str) -> bool {
    let pieces: Vec<&str> = word.split('.').collect();
    let whole = pieces.len() > 1 && pieces.iter().all(|piece| has_alphanumeric(piece));
    let long = pieces.iter().any(|piece| piece.chars().count() > 1);
    let last = pieces.last().copied().unwrap_or_default();
    let ends = !last.starts_with(char::is_uppercase);
    whole && (word.contains(|letter: char| letter.is_ascii_digit()) || (long && ends))
}

/// Such as `run_01k3`, `std::fs`, `anna@example` or `#general`.
fn has_joining_char(word: &str) -> bool {
    let named = |mark: char| {
        let rest = word.strip_prefix(mark);
        rest.is_some_and(|rest| rest.starts_with(char::is_alphanumeric))
    };
    word.contains('_') || word.contains("::") || word.contains('@') || named('#') || named('$')
}

/// Such as `PR-12`, `15ms`, `85%` or `4180`, but not `7` or `42`.
fn is_numbered(word: &str) -> bool {
    let digits = word.contains(|letter: char| letter.is_ascii_digit());
    digits && (word.len() > 2 || !word.chars().all(|letter| letter.is_ascii_digit()))
}

/// Such as `TurnStarted` or `nextSeq`.
fn is_camel_case(word: &str) -> bool {
    let mut before = ' ';
    word.chars().any(|letter| {
        let hump = before.is_lowercase() && letter.is_uppercase();
        before = letter;
        hump
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_recognized_by_their_characters() {
        let check = |text: &str, expect: &[&str]| {
            assert_eq!(find_identifiers(text, TextKind::Prose), expect, "{text}");
        };
        check("", &[]);
        check("Plain words and nothing else, he said. And/or so.", &[]);
        check("It took 3 of 42 tries, e.g. the first.", &[]);
        check(
            "See src/main.rs, /etc/hosts and ~/notes.",
            &["src/main.rs", "/etc/hosts", "~/notes"],
        );
        check("Open https://example.com/a?b=1&c=2#d.", &["https://example.com/a?b=1&c=2#d"]);
        check("(anna@example.com) in #general", &["anna@example.com", "#general"]);
        check("run_01k3rzc and PR-12 at 4180", &["run_01k3rzc", "PR-12", "4180"]);
        check("within 20 MB or 15ms or 85% for $5", &["20 MB", "15ms", "85%", "$5"]);
        check("20, MB", &[]);
        check("call std::fs::read in TurnStarted", &["std::fs::read", "TurnStarted"]);
        check("the team \"Blue Whale\" and `cargo test`", &["cargo test", "Blue Whale"]);
        check("due 2026-01-31, v1.2.3.", &["2026-01-31", "v1.2.3"]);
        check("src/a.rs src/a.rs src/a.rs", &["src/a.rs"]);
        check("料金は「東京タワー」で 1200 です", &["東京タワー", "1200"]);
        check("an open \" quote", &[]);
    }

    #[test]
    fn quoted_names_in_data_are_not_identifiers() {
        let data = r#"{"path": "src/main.rs", "mode": "fast", "size": 1200}"#;
        assert_eq!(find_identifiers(data, TextKind::Data), ["src/main.rs", "1200"]);
    }

    #[test]
    fn identifier_search_in_long_texts_is_limited() {
        let long = format!("{} x_y", "é".repeat(TEXT_BYTES_MAX));
        assert_eq!(find_identifiers(&long, TextKind::Data), [""; 0]);
        assert_eq!(find_identifiers(&format!("a_{}", "b".repeat(300)), TextKind::Data), [""; 0]);
        assert_eq!(truncate_str("aé", 2), "a");
    }
}
