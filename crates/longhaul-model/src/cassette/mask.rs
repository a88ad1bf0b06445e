//! Takes secrets out of what is written to a tape.
//!
//! Never: shows them, whoever prints what holds them.

use std::fmt;

use longhaul_core::port::redact;

use crate::cassette::unwrapped::Unwrapped;
use crate::secrets::{HIDDEN_FROM, spellings};

/// Secrets by the names that stand in their place.
#[derive(Clone, Default)]
pub struct Mask(Vec<(String, String)>);

impl Mask {
    /// Hides these, given as names and values; each is found as it is, as JSON
    /// spells it, as base64 and in an address.
    pub fn new<'a>(secrets: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut found: Vec<(String, String)> = Vec::new();
        for (name, value) in secrets {
            let value = value.trim();
            if value.len() < HIDDEN_FROM {
                continue;
            }
            let stand_in = redact::stand_in(name);
            let lines = telling_lines(value).flat_map(spellings);
            for spelled in spellings(value).into_iter().chain(lines) {
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
}
