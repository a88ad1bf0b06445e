//! Takes secrets out of what is written to a tape.
//!
//! Never: shows them, whoever prints what holds them.

use std::fmt;

use longhaul_core::decoded::{self, DecodedText};
use longhaul_core::port::redact;
use longhaul_core::spelling::{HIDDEN_FROM, spellings};
use serde_json::Value;

use crate::cassette::unwrapped::{Unwrapped, begun};

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
        if self.0.is_empty() {
            return false;
        }
        let plain = self.0.iter().any(|(spelled, _)| text.contains(spelled));
        plain
            || {
                let lines = Unwrapped::of(text);
                self.long().any(|(spelled, _)| lines.has(spelled))
            }
            || DecodedText::new(text).is_some_and(|decoded| {
                let mut all = self.0.iter();
                all.any(|(spelled, _)| decoded.contains(spelled))
            })
    }

    /// So many bytes at the end of a text may be the beginning of one.
    pub fn unfinished(&self, text: &str) -> usize {
        if self.0.is_empty() {
            return 0;
        }
        let plain = self.0.iter().filter_map(|(one, _)| begun(text, one));
        let lines = Unwrapped::of(text);
        let wrapped = self.long().filter_map(|(one, _)| lines.begun(one));
        let escaped = decoded::unfinished(text, self.0.iter().map(|(one, _)| one.as_str()));
        plain.chain(wrapped).max().unwrap_or(0).max(escaped)
    }

    /// The text without them.
    pub fn hide(&self, text: String) -> String {
        if self.0.is_empty() {
            return text;
        }
        let text = self.0.iter().fold(text, |text, (spelled, stand_in)| {
            match text.contains(spelled.as_str()) {
                true => text.replace(spelled.as_str(), stand_in),
                false => text,
            }
        });
        let decoded = DecodedText::new(&text);
        let parts = || self.0.iter().map(|(one, stand_in)| (&**one, &**stand_in));
        let replaced = decoded.and_then(|decoded| decoded.replace(&text, parts()));
        let text = replaced.unwrap_or(text);
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

/// How the names of what is secret end, however short it is.
const TELLING: &[&str] = &[
    "key",
    "secret",
    "secretid",
    "token",
    "password",
    "passwd",
    "pass",
    "passphrase",
    "credential",
];

/// How the names of what is told to everybody end, however long it is.
const TOLD: &[&str] = &[
    "type",
    "ops",
    "id",
    "name",
    "alg",
    "scope",
    "region",
    "domain",
    "host",
    "arn",
    "expiration",
    "mail",
    "mailaddress",
];

/// How the names of addresses end.
const ADDRESSES: &[&str] = &["url", "uri", "endpoint"];

/// What stands in an address beside a password or a key.
const OPENING: [char; 5] = ['@', '?', '#', ';', '='];

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
        Value::String(text) if is_leaf(name, text.trim()) => found.push(text.trim().to_owned()),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Whether the text of this name in a secret is one by itself. A name says so by its
/// end: a `token_type` is no token, and an `AccessKeyId` no key.
fn is_leaf(name: &str, text: &str) -> bool {
    let letters = name.chars().filter(char::is_ascii_alphabetic);
    let name: String = letters.map(|letter| letter.to_ascii_lowercase()).collect();
    let one = name.strip_suffix('s').unwrap_or(&name);
    let ends = |known: &[&str]| {
        let mut known = known.iter();
        known.any(|known| name.ends_with(known) || one.ends_with(known))
    };
    let from = if ends(TELLING) { HIDDEN_FROM } else { LONG };
    if text.len() < from {
        return false;
    }
    match text.split_once("://") {
        Some((scheme, bare)) => {
            let is_told = ends(TOLD) && !bare.contains(OPENING);
            let is_address = ends(ADDRESSES) || ["http", "https"].contains(&scheme);
            !(is_told || is_address && is_plain_address(bare))
        }
        None => ends(TELLING) || !ends(TOLD) && (!ends(ADDRESSES) || text.contains(OPENING)),
    }
}

/// Whether an address, without its scheme, opens nothing: all parts of its path are
/// short.
fn is_plain_address(bare: &str) -> bool {
    let mut path = bare.split('/').skip(1);
    !bare.contains(OPENING) && path.all(|part| part.len() < LONG)
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
    fn a_secret_is_found_when_every_byte_of_it_is_escaped() {
        let token = "sk-live-0123456789abcdef";
        let each = |spelled: fn(u8) -> String| token.bytes().map(spelled).collect::<String>();
        for text in [
            each(|byte| format!("%{byte:02x}")),
            each(|byte| format!("%{byte:02X}")),
            each(|byte| format!("&#{byte};")),
            each(|byte| format!("&#x{byte:x};")),
            each(|byte| format!("\\u{byte:04x}")),
            "sk-%6Cive-&#48;123456789\\u0061bcdef".to_owned(),
        ] {
            check(&format!("<b>{text}</b>"), "<b>{{secret:TOKEN}}</b>");
        }
    }

    #[test]
    fn the_texts_of_a_secret_that_is_json_are_secret() {
        let account = r#"{
          "type": "service_account",
          "private_key": "-----BEGIN KEY-----\nMIIEvQ/x\n-----END KEY-----\n",
          "client_email": "robot@project.iam.example.com",
          "token_uri": "https://oauth2.example.com/token",
          "hook": "https://hooks.example.com/T0/abcdefghijklmnopqrstuvwx",
          "deep": [{ "password": "hunter2x", "colour": "turquoise" }],
          "project_id": "a-project-with-a-long-name-4711",
          "private_key_id": "0123456789abcdef0123456789abcdef01234567",
          "access_token": "at-4711", "token_type": "Bearer", "key_ops": ["verify"],
          "apiKey": "ak-4711", "clientSecret": "cs-4711", "api_keys": ["k1-4711"],
          "AccessKeyId": "AKIAIOSFODNN7EXAMPLE4711",
          "secret_id": "5f0e6d9c-4711",
          "redirect_uris": ["urn:ietf:wg:oauth:2.0:oob"],
          "database_url": "postgres://ada:pw@db.example.com/main",
          "replica_url": "postgres://db.example.com/replica",
          "main_url": "ada:hunter2pw@tcp(db.example.com:3306)/main",
          "jdbc_url": "jdbc:sqlserver://db.example.com;user=sa;password=pw",
          "public_name": "https://ada:pw@site.example.com/"
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
            (
                "at-4711 ak-4711 cs-4711 k1-4711",
                "{{secret:ACCOUNT}} {{secret:ACCOUNT}} {{secret:ACCOUNT}} {{secret:ACCOUNT}}",
            ),
            ("5f0e6d9c-4711", "{{secret:ACCOUNT}}"),
            ("https://ada:pw@site.example.com/", "{{secret:ACCOUNT}}"),
        ] {
            assert_eq!(mask.hide(text.to_owned()), hidden);
        }
        for address in [
            "postgres://ada:pw@db.example.com/main",
            "ada:hunter2pw@tcp(db.example.com:3306)/main",
            "jdbc:sqlserver://db.example.com;user=sa;password=pw",
        ] {
            assert_eq!(mask.hide(address.to_owned()), "{{secret:ACCOUNT}}");
        }
        for told in [
            "Authorization: Bearer, verify",
            "gcloud --project a-project-with-a-long-name-4711",
            "0123456789abcdef0123456789abcdef01234567",
            "AKIAIOSFODNN7EXAMPLE4711",
            "urn:ietf:wg:oauth:2.0:oob",
            "postgres://db.example.com/replica",
        ] {
            assert!(!mask.finds(told), "{told}");
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
        let mask = Mask::new([("A", "sk-live-0123456789abcdef"), ("B", "short-one")]);
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
            assert_eq!(mask.unfinished(text), bytes, "{text:?}");
        }
        assert_eq!(Mask::default().unfinished("100%"), 0);
    }
}
