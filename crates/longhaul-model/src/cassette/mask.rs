//! Takes secrets out of what is written to a tape.
//!
//! Never: shows them, whoever prints what holds them.

use std::fmt;

use longhaul_core::port::redact;
use longhaul_core::spelling::{HIDDEN_FROM, spellings};
use serde_json::Value;

use crate::cassette::unwrapped::Unwrapped;

/// Secrets by the names that stand in their place.
#[derive(Clone, Default)]
pub struct Mask(Vec<(String, String)>);

impl Mask {
    /// Hides these, given as names and values; each is found as it is, as JSON
    /// spells it, as base64 and in an address. Of one that is JSON, such as the key
    /// of an account, the texts in it are secrets too.
    pub fn new<'a>(secrets: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut found: Vec<(String, String)> = Vec::new();
        for (name, value) in secrets {
            let value = value.trim();
            if value.len() < HIDDEN_FROM {
                continue;
            }
            let stand_in = redact::stand_in(name);
            let mut values = Vec::new();
            match serde_json::from_str(value) {
                Ok(data @ (Value::Object(_) | Value::Array(_))) => {
                    add_leaves(&mut values, "", &data);
                }
                Ok(_) | Err(_) => values.push(value.to_owned()),
            }
            let lines = values.iter().flat_map(|value| telling_lines(value));
            let mut pieces: Vec<&str> = values.iter().map(String::as_str).chain(lines).collect();
            pieces.push(value);
            for spelled in pieces.into_iter().flat_map(spellings) {
                found.push((spelled, stand_in.clone()));
            }
        }
        // A secret that is the beginning of another must not leave its end behind.
        found.sort_by_key(|(spelled, _)| std::cmp::Reverse(spelled.len()));
        found.dedup();
        Self(found)
    }

    /// A line of JSON without them. Only texts are looked into: a secret that is
    /// spelled like the name of a field must not take its place.
    pub(super) fn hide_in_json(&self, line: &str) -> String {
        if !self.finds(line) {
            return line.to_owned();
        }
        let mut hidden = String::with_capacity(line.len());
        let mut rest = line;
        while let Some(start) = rest.find('"') {
            let (before, text) = rest.split_at(start + 1);
            let end = text_end(text);
            let (text, after) = text.split_at(end);
            hidden.push_str(before);
            let is_name = after.trim_start_matches('"').trim_start().starts_with(':');
            match is_name {
                true => hidden.push_str(text),
                false => hidden.push_str(&self.hide(text.to_owned())),
            }
            let closing = after.len().min(1);
            hidden.push_str(&after[..closing]);
            rest = &after[closing..];
        }
        hidden.push_str(rest);
        hidden
    }

    /// Whether one of them is in this text.
    pub fn finds(&self, text: &str) -> bool {
        let plain = self.0.iter().any(|(spelled, _)| text.contains(spelled));
        plain || {
            let lines = Unwrapped::of(text);
            self.long().any(|(spelled, _)| lines.has(spelled))
        }
    }

    /// So many bytes at the end of a text may be the beginning of one.
    pub fn unfinished(&self, text: &str) -> usize {
        let begun = self.0.iter().filter_map(|(spelled, _)| {
            let ends = spelled.char_indices().map(|(end, _)| end);
            let ends = ends.take_while(|end| *end <= text.len());
            ends.filter(|end| text.ends_with(&spelled[..*end])).last()
        });
        begun.max().unwrap_or(0)
    }

    /// The text without them.
    pub fn hide(&self, text: String) -> String {
        let text = self.0.iter().fold(text, |text, (spelled, stand_in)| {
            match text.contains(spelled.as_str()) {
                true => text.replace(spelled.as_str(), stand_in),
                false => text,
            }
        });
        let mut lines = Unwrapped::of(&text);
        self.long().fold(text, |text, (spelled, stand_in)| {
            if !lines.has(spelled) {
                return text;
            }
            let mut hidden = String::with_capacity(text.len());
            let mut from = 0;
            for place in lines.places(spelled) {
                hidden.push_str(&text[from..place.start]);
                hidden.push_str(stand_in);
                from = place.end;
            }
            hidden.push_str(&text[from..]);
            lines = Unwrapped::of(&hidden);
            hidden
        })
    }

    /// Those that are looked for across the ends of lines, as programs wrap base64.
    fn long(&self) -> impl Iterator<Item = &(String, String)> {
        self.0.iter().filter(|(one, _)| one.len() >= WRAPPED_FROM)
    }
}

/// Shorter ones are not looked for across the ends of lines: words would look alike.
const WRAPPED_FROM: usize = 20;

/// A line of a secret that is worth hiding by itself. Frames, as keys have them, say
/// nothing.
fn telling_lines(value: &str) -> impl Iterator<Item = &str> {
    let many = value.contains('\n');
    let lines = value.lines().map(str::trim).filter(move |_| many);
    lines.filter(|line| line.len() >= WRAPPED_FROM && !line.starts_with("-----"))
}

/// From this length on a text in a secret is one itself, whatever it is called.
const LONG: usize = 20;

/// The names of what is secret however short it is.
const TELLING: &[&str] = &["key", "secret", "token", "pass", "credential"];

/// Adds the texts in a secret that are secret by themselves; the whole may be
/// written in many ways.
fn add_leaves(found: &mut Vec<String>, name: &str, data: &Value) {
    match data {
        Value::Object(fields) => {
            for (name, value) in fields {
                add_leaves(found, name, value);
            }
        }
        Value::Array(items) => {
            for value in items {
                add_leaves(found, name, value);
            }
        }
        Value::String(text) => {
            let (text, name) = (text.trim(), name.to_lowercase());
            let is_telling = TELLING.iter().any(|telling| name.contains(telling));
            let from = if is_telling { HIDDEN_FROM } else { LONG };
            // Where one writes to is told to everybody.
            if text.len() >= from && !is_plain_address(text) && !name.contains("mail") {
                found.push(text.to_owned());
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Whether this is an address that opens nothing: all parts of its path are short.
fn is_plain_address(text: &str) -> bool {
    let bare = text.strip_prefix("https://");
    let Some(bare) = bare.or_else(|| text.strip_prefix("http://")) else {
        return false;
    };
    let mut path = bare.split('/').skip(1);
    !bare.contains(['@', '?', '#']) && path.all(|part| part.len() < LONG)
}

/// Where a JSON text ends that has begun.
fn text_end(text: &str) -> usize {
    let mut escaped = false;
    for (place, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return place,
            _ => {}
        }
    }
    text.len()
}

impl fmt::Debug for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mask({} spellings)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: &str) {
        let pem = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQ\nEFAASCBKcwggSjAgEAAoIBAQC7\n-----END KEY-----";
        let mask = Mask::new([("PEM", pem), ("TOKEN", "sk-live-0123456789abcdef")]);
        let hidden = mask.hide(text.to_owned());
        assert_eq!(hidden, expect);
        assert_eq!(mask.finds(text), text != expect, "{text}");
        assert!(!mask.finds(&hidden), "{hidden}");
    }

    #[test]
    fn a_secret_of_many_lines_and_one_in_many_lines_are_found() {
        check(
            "1: MIIEvQIBADANBgkqhkiG9w0BAQ\r\n2: EFAASCBKcwggSjAgEAAoIBAQC7\n",
            "1: {{secret:PEM}}\r\n2: {{secret:PEM}}\n",
        );
        check("-----BEGIN KEY-----\n", "-----BEGIN KEY-----\n");
        check(
            "eyJrIjogInNrLWxpdmUt\nMDEyMzQ1Njc4OWFiY2Rl\r\nZiJ9",
            "eyJrIjogIn{{secret:TOKEN}}iJ9",
        );
        check("x sk-live-01234567\n89abcdef y", "x {{secret:TOKEN}} y");
        check("two\nlines", "two\nlines");
    }

    #[test]
    fn the_texts_of_a_secret_that_is_json_are_secret() {
        let account = r#"{
          "type": "service_account",
          "private_key": "-----BEGIN KEY-----\nMIIEvQ/x\n-----END KEY-----\n",
          "client_email": "robot@project.iam.example.com",
          "token_uri": "https://oauth2.example.com/token",
          "hook": "https://hooks.example.com/T0/abcdefghijklmnopqrstuvwx",
          "deep": [{ "password": "hunter2x", "colour": "turquoise" }]
        }"#;
        let mask = Mask::new([("ACCOUNT", account)]);
        for (text, hidden) in [
            (
                r#""-----BEGIN KEY-----\nMIIEvQ/x\n-----END KEY-----\n""#,
                r#""{{secret:ACCOUNT}}\n""#,
            ),
            ("it is hunter2x", "it is {{secret:ACCOUNT}}"),
            (
                "https://hooks.example.com/T0/abcdefghijklmnopqrstuvwx",
                "{{secret:ACCOUNT}}",
            ),
            (
                "https://oauth2.example.com/token",
                "https://oauth2.example.com/token",
            ),
            (
                "robot@project.iam.example.com",
                "robot@project.iam.example.com",
            ),
            ("service_account, turquoise", "service_account, turquoise"),
        ] {
            assert_eq!(mask.hide(text.to_owned()), hidden);
        }
    }

    #[test]
    fn the_beginning_of_one_is_seen_at_the_end_of_a_text() {
        let mask = Mask::new([("A", "schön-gut"), ("B", "gut-schön")]);
        for (text, bytes) in [
            ("it is", 1),
            ("it is schö", "schö".len()),
            ("it is schön-gut", "gut".len()),
            ("it is schön.", 0),
            ("", 0),
        ] {
            assert_eq!(mask.unfinished(text), bytes, "{text}");
        }
    }
}
