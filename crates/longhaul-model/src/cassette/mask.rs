//! Takes secrets out of what is written to a tape.
//!
//! Never: shows them, whoever prints what holds them.

use std::fmt;

use longhaul_core::port::redact;

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
            for spelled in spellings(value) {
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
        self.0.iter().any(|(spelled, _)| text.contains(spelled))
    }

    /// The text without them.
    pub fn hide(&self, text: String) -> String {
        self.0.iter().fold(text, |text, (spelled, stand_in)| {
            match text.contains(spelled.as_str()) {
                true => text.replace(spelled.as_str(), stand_in),
                false => text,
            }
        })
    }
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
