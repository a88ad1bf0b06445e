//! Takes secrets out of a text before anybody reads it or writes it down.
//!
//! Never: knows where a text goes.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::raw::RawJson;

/// How what stands for a secret begins, and how it ends.
const PLACEHOLDER_START: &str = "{{secret:";
const PLACEHOLDER_END: &str = "}}";

/// What stands for the secret of this name.
pub fn placeholder(name: &str) -> String {
    format!("{PLACEHOLDER_START}{name}{PLACEHOLDER_END}")
}

/// Where the first of them stands in a text, from its first letter to its last.
pub fn find_placeholder(text: &str) -> Option<std::ops::Range<usize>> {
    let start = text.find(PLACEHOLDER_START)?;
    let name = start + PLACEHOLDER_START.len();
    let end = name + text[name..].find(PLACEHOLDER_END)? + PLACEHOLDER_END.len();
    Some(start..end)
}

/// The name of the secret that the first of them stands for.
pub fn placeholder_name(text: &str) -> Option<&str> {
    let found = &text[find_placeholder(text)?];
    found.strip_prefix(PLACEHOLDER_START)?.strip_suffix(PLACEHOLDER_END)
}

/// Whoever knows the secrets.
pub trait Redact: Send + Sync + std::fmt::Debug {
    /// The text without them.
    fn redact<'a>(&self, text: &'a str) -> Cow<'a, str>;

    /// The JSON without them: looked for in texts, in names and in numbers. A number
    /// that holds one becomes a text; all else keeps its spelling.
    fn redact_json(&self, json: &RawJson) -> RawJson {
        let text = json.as_str();
        // A letter may be spelled in several ways, but only with a backslash.
        if !text.contains('\\') && matches!(self.redact(text), Cow::Borrowed(_)) {
            return json.clone();
        }
        let clean: String = json_tokens(text).map(|(piece, _)| redact_token(self, piece)).collect();
        // A secret that is JSON itself is in no piece of it.
        if let Cow::Owned(spanned) = self.redact(&without_placeholders(&clean)) {
            return placeholder_json(text, placeholder_name(&spanned));
        }
        // Each piece is JSON by itself, so this never fails; and if it did, the
        // secret would still not be shown.
        RawJson::parse(clean).unwrap_or_else(|_| placeholder_json(text, None))
    }

    /// The JSON without them, looked for in texts alone: a secret that is spelled like the
    /// name of a field does not take its place.
    fn redact_json_strings(&self, json: &str) -> String {
        let clean = json_tokens(json).map(|(piece, after)| {
            let is_name = after.trim_start().starts_with(':');
            match piece.starts_with('"') && !is_name {
                true => redact_token(self, piece),
                false => Cow::Borrowed(piece),
            }
        });
        clean.collect()
    }

    /// So many bytes at the end of a text may be the beginning of a secret that goes
    /// on.
    fn partial_match_len(&self, _text: &str) -> usize {
        0
    }
}

/// What stands for a secret that has no name.
const UNNAMED_PLACEHOLDER: &str = "{{secret}}";

/// What stands for a JSON that could not be cleaned: an object for an object, as the
/// input of a call must be one.
fn placeholder_json(json: &str, name: Option<&str>) -> RawJson {
    let stands = name.map_or_else(|| UNNAMED_PLACEHOLDER.to_owned(), placeholder);
    match json.trim_start().starts_with('{') {
        true => RawJson::from_serialize(&BTreeMap::from([("redacted", stands)])),
        false => RawJson::from_serialize(&stands),
    }
}

/// A text without what stands for secrets, which may be spelled like one.
fn without_placeholders(text: &str) -> Cow<'_, str> {
    let mut bare = String::new();
    let mut rest = text;
    while let Some(found) = find_placeholder(rest) {
        bare.push_str(&rest[..found.start]);
        bare.push(' ');
        rest = &rest[found.end..];
    }
    match bare.is_empty() {
        true => Cow::Borrowed(text),
        false => Cow::Owned(bare + rest),
    }
}

/// The pieces of a JSON, each with what follows it.
fn json_tokens(json: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut rest = json;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let (piece, after) = rest.split_at(token_end(rest, first));
        rest = after;
        Some((piece, after))
    })
}

/// Where the first piece of a JSON ends: a text, a number, or what is between them.
fn token_end(json: &str, first: char) -> usize {
    let is_number = |letter: char| matches!(letter, '0'..='9' | '-' | '+' | '.' | 'e' | 'E');
    let is_plain = |letter: char| !matches!(letter, '"' | '-' | '0'..='9');
    let end = match first {
        '"' => string_end(json),
        '-' | '0'..='9' => json.find(|letter| !is_number(letter)),
        _ => json.find(|letter| !is_plain(letter)),
    };
    end.unwrap_or(json.len())
}

/// Where a text ends that begins here, its quotes included.
fn string_end(json: &str) -> Option<usize> {
    let mut escaped = false;
    for (place, byte) in json.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(place + 1),
            _ => {}
        }
    }
    None
}

/// One piece without secrets.
fn redact_token<'a>(redact: &(impl Redact + ?Sized), piece: &'a str) -> Cow<'a, str> {
    let spelled = |text: &str| Cow::Owned(RawJson::from_serialize(&text).as_str().to_owned());
    if piece.starts_with('"') {
        // A half of a pair of letters is JSON, and no text that could be read.
        let read = serde_json::from_str::<String>(piece);
        return match redact.redact(read.as_deref().unwrap_or(piece)) {
            Cow::Owned(clean) => spelled(&clean),
            Cow::Borrowed(_) => Cow::Borrowed(piece),
        };
    }
    match redact.redact(piece) {
        Cow::Owned(clean)
            if piece.starts_with(|letter: char| letter == '-' || letter.is_ascii_digit()) =>
        {
            spelled(&clean)
        }
        Cow::Owned(_) | Cow::Borrowed(_) => Cow::Borrowed(piece),
    }
}

/// Nobody knows any.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoRedaction;

impl Redact for NoRedaction {
    fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        Cow::Borrowed(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two secrets, one of them a number.
    #[derive(Debug)]
    struct TwoSecrets;

    impl Redact for TwoSecrets {
        fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
            let clean = text.replace("pl\"ugh/1", "{{A}}").replace("48151623", "{{B}}");
            match clean == text {
                true => Cow::Borrowed(text),
                false => Cow::Owned(clean),
            }
        }
    }

    #[test]
    fn a_placeholder_names_its_secret() {
        assert_eq!(placeholder_name(&format!("a {} b", placeholder("TOKEN"))), Some("TOKEN"));
        assert_eq!(placeholder_name("a {{secret: b"), None);
        assert_eq!(find_placeholder("ä {{secret:A}}!"), Some(3..15));
    }

    /// Knows one that is JSON.
    #[derive(Debug)]
    struct JsonSecret;

    impl Redact for JsonSecret {
        fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
            let is = r#"{"user":"ada","pin":1}"#;
            match text.contains(is) || text.contains("secret") {
                true => {
                    Cow::Owned(text.replace("secret", "{{secret:S}}").replace(is, "{{secret:A}}"))
                }
                false => Cow::Borrowed(text),
            }
        }
    }

    #[test]
    fn parts_of_a_json_secret_are_redacted() {
        for (json, clean) in [
            (r#"{"user":"ada","pin":1}"#, r#"{"redacted":"{{secret:A}}"}"#),
            (r#"[{"user":"ada","pin":1}]"#, r#""{{secret:A}}""#),
            (r#"{"user":"ada","pin":2}"#, r#"{"user":"ada","pin":2}"#),
            // What stands for a secret may be spelled like one.
            (r#"["a secret"]"#, r#"["a {{secret:S}}"]"#),
        ] {
            let json = RawJson::parse(json).unwrap();
            assert_eq!(JsonSecret.redact_json(&json).as_str(), clean, "{json:?}");
        }
    }

    #[test]
    fn json_stays_json_without_its_secrets() {
        for (json, clean) in [
            (r#"{ "a" : 1.50 }"#, r#"{ "a" : 1.50 }"#),
            (r#""48151623""#, r#""{{B}}""#),
            ("48151623", r#""{{B}}""#),
            (r#"{"pin": -481516234.5e1, "n": 1.50}"#, r#"{"pin": "-{{B}}4.5e1", "n": 1.50}"#),
            ("[123456789048151623123456789]", r#"["1234567890{{B}}123456789"]"#),
            (r#"[true,"a pl\"ugh/1 b",null]"#, r#"[true,"a {{A}} b",null]"#),
            // However it is spelled.
            (r#""pl\u0022ugh\/1""#, r#""{{A}}""#),
            (r#"{"48151623": "\n"}"#, r#"{"{{B}}": "\n"}"#),
            (r#"["\ud800 48151623"]"#, r#"["\"\\ud800 {{B}}\""]"#),
            (r#"["\\", "48151623"]"#, r#"["\\", "{{B}}"]"#),
        ] {
            let json = RawJson::parse(json).unwrap();
            assert_eq!(TwoSecrets.redact_json(&json).as_str(), clean, "{json:?}");
        }
    }
}
