//! Finds the identifiers in a text that a summary must not lose: paths, URLs, ids, amounts and
//! quoted names.
//!
//! Identifiers are recognized by their characters alone.

use std::collections::HashSet;

/// Maximum number of bytes of a text that are searched for identifiers.
const TEXT_BYTES_MAX: usize = 64 * 1_024;
/// Maximum length of an identifier in bytes.
const IDENTIFIER_BYTES_MAX: usize = 200;
/// Maximum length of a quoted name in characters.
const QUOTED_CHARS_MAX: usize = 80;

/// Units of amounts. A number followed by one of them, such as `15 ms`, is an identifier.
const UNITS: &[&str] = &[
    "%", "ms", "s", "sec", "secs", "second", "seconds", "min", "mins", "minute", "minutes", "h",
    "hour", "hours", "day", "days", "week", "weeks", "month", "months", "year", "years", "B", "KB",
    "MB", "GB", "TB", "KiB", "MiB", "GiB", "bytes", "tokens", "USD", "EUR", "GBP", "dollars",
    "euros", "px", "m", "km", "kg", "g", "Hz", "kHz", "MHz", "GHz", "rows", "lines", "items",
    "users", "requests",
];

/// Kind of text that is searched. Quoted names count as identifiers only in prose, because in data
/// everything is quoted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SearchedTextKind {
    /// Text written by people or models.
    Prose,
    /// Inputs and outputs of tools.
    Data,
}

/// Returns the identifiers of a text in order, without duplicates.
pub(crate) fn find_identifiers(text: &str, kind: SearchedTextKind) -> Vec<String> {
    let text = truncate_str(text, TEXT_BYTES_MAX);
    let mut found = FoundIdentifiers::default();
    if kind == SearchedTextKind::Prose {
        for line in text.lines() {
            add_quoted_names(line, &mut found);
        }
    }
    let mut number: Option<&str> = None;
    let separators = "\"'`,;()[]{}<>|“”‘’«»「」";
    for raw in text.split(|c: char| c.is_whitespace() || separators.contains(c)) {
        let word = raw.trim_matches(|c| ".:!?…=*".contains(c));
        if let Some(number) = number.take()
            && UNITS.contains(&word)
        {
            let unit = word;
            found.add_unique_identifier(format!("{number} {unit}"));
        } else if is_identifier(word) {
            found.add_unique_identifier(word.to_owned());
        }
        // Only a number directly before its unit counts.
        number = (is_number(word) && raw == word).then_some(word);
    }
    found.list
}

#[derive(Debug, Default)]
struct FoundIdentifiers {
    list: Vec<String>,
    seen: HashSet<String>,
}

impl FoundIdentifiers {
    fn add_unique_identifier(&mut self, identifier: String) {
        if identifier.len() <= IDENTIFIER_BYTES_MAX && self.seen.insert(identifier.clone()) {
            self.list.push(identifier);
        }
    }
}

/// Returns the beginning of a text up to a maximum number of bytes, cut at a character boundary.
pub(crate) fn truncate_str(text: &str, max_bytes: usize) -> &str {
    &text[..text.floor_char_boundary(max_bytes)]
}

/// Adds the quoted names in a line to the identifiers found so far.
fn add_quoted_names(line: &str, found: &mut FoundIdentifiers) {
    for (open, close) in [('`', '`'), ('"', '"'), ('“', '”'), ('「', '」')] {
        let mut rest = line;
        while let Some((_, after)) = rest.split_once(open) {
            let Some((name, remaining)) = after.split_once(close) else { break };
            let char_count = name.chars().count();
            if (2..=QUOTED_CHARS_MAX).contains(&char_count) && has_alphanumeric(name) {
                found.add_unique_identifier(name.trim().to_owned());
            }
            rest = remaining;
        }
    }
}

fn has_alphanumeric(text: &str) -> bool {
    text.chars().any(char::is_alphanumeric)
}

fn is_number(word: &str) -> bool {
    let is_digit_or_dot = |c: char| c.is_ascii_digit() || c == '.';
    !word.is_empty()
        && word.chars().all(is_digit_or_dot)
        && word.starts_with(|c: char| c.is_ascii_digit())
}

fn is_identifier(word: &str) -> bool {
    if word.len() < 2 || !has_alphanumeric(word) {
        return false;
    }
    word.contains("://")
        || is_path(word)
        || is_dotted_name(word)
        || has_identifier_symbol(word)
        || is_numbered_word(word)
        || is_camel_case(word)
}

/// Whether a word looks like `/etc/hosts`, `~/notes` or `src/main.rs`, but not like `and/or`.
fn is_path(word: &str) -> bool {
    let roots = ["/", "./", "../", "~/", "\\\\"];
    let slashes = word.matches(['/', '\\']).count();
    let has_file_char = word.contains(|c: char| c.is_ascii_digit() || "._-".contains(c));
    roots.iter().any(|root| word.starts_with(root))
        || slashes > 1
        || (slashes == 1 && has_file_char)
}

/// Whether a word looks like `main.rs`, `example.com` or `v1.2`, but not like `e.g` or `end.Next
/// one`.
fn is_dotted_name(word: &str) -> bool {
    let pieces: Vec<&str> = word.split('.').collect();
    let is_dotted = pieces.len() > 1 && pieces.iter().all(|piece| has_alphanumeric(piece));
    let has_long_piece = pieces.iter().any(|piece| piece.chars().count() > 1);
    let last = pieces.last().copied().unwrap_or_default();
    let is_last_lowercase = !last.starts_with(char::is_uppercase);
    is_dotted
        && (word.contains(|c: char| c.is_ascii_digit()) || (has_long_piece && is_last_lowercase))
}

/// Whether a word looks like `run_01k3`, `std::fs`, `anna@example` or `#general`.
fn has_identifier_symbol(word: &str) -> bool {
    let has_name_after = |symbol: char| {
        let rest = word.strip_prefix(symbol);
        rest.is_some_and(|rest| rest.starts_with(char::is_alphanumeric))
    };
    word.contains('_')
        || word.contains("::")
        || word.contains('@')
        || has_name_after('#')
        || has_name_after('$')
}

/// Whether a word contains a digit, such as `PR-12`, `15ms`, `85%` or `4180`. A number of one or two
/// digits is too frequent to identify anything.
fn is_numbered_word(word: &str) -> bool {
    let has_digit = word.contains(|c: char| c.is_ascii_digit());
    has_digit && (word.len() > 2 || !word.chars().all(|c| c.is_ascii_digit()))
}

/// Whether a word looks like `TurnStarted` or `nextSeq`.
fn is_camel_case(word: &str) -> bool {
    let mut before = ' ';
    word.chars().any(|c| {
        let is_camel_boundary = before.is_lowercase() && c.is_uppercase();
        before = c;
        is_camel_boundary
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_recognized_by_their_characters() {
        let check = |text: &str, expect: &[&str]| {
            assert_eq!(find_identifiers(text, SearchedTextKind::Prose), expect, "{text}");
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
        assert_eq!(find_identifiers(data, SearchedTextKind::Data), ["src/main.rs", "1200"]);
    }

    #[test]
    fn identifier_search_in_long_texts_is_limited() {
        let long = format!("{} x_y", "é".repeat(TEXT_BYTES_MAX));
        assert_eq!(find_identifiers(&long, SearchedTextKind::Data), [""; 0]);
        assert_eq!(
            find_identifiers(&format!("a_{}", "b".repeat(300)), SearchedTextKind::Data),
            [""; 0]
        );
        assert_eq!(truncate_str("aé", 2), "a");
    }
}
