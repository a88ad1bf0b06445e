//! The redaction port: removes secrets from texts before they are stored or shown.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::raw::RawJson;

/// Start of the placeholder that replaces a secret. The name of the secret and `}}` follow.
const PLACEHOLDER_START: &str = "{{secret:";
const PLACEHOLDER_END: &str = "}}";

pub fn secret_placeholder(name: &str) -> String {
    format!("{PLACEHOLDER_START}{name}{PLACEHOLDER_END}")
}

/// Returns the byte range of the first placeholder of a secret in a text. `None` if there is none.
pub fn find_secret_placeholder(text: &str) -> Option<std::ops::Range<usize>> {
    let start = text.find(PLACEHOLDER_START)?;
    let name = start + PLACEHOLDER_START.len();
    let end = name + text[name..].find(PLACEHOLDER_END)? + PLACEHOLDER_END.len();
    Some(start..end)
}

/// Returns the name of the secret that the first placeholder in a text stands for. `None` if there
/// is no placeholder.
pub fn secret_name_in_placeholder(text: &str) -> Option<&str> {
    let found = &text[find_secret_placeholder(text)?];
    found.strip_prefix(PLACEHOLDER_START)?.strip_suffix(PLACEHOLDER_END)
}

/// Redactor that replaces known secrets in texts by placeholders.
pub trait Redact: Send + Sync + std::fmt::Debug {
    /// Returns the text with all secrets replaced by placeholders.
    fn redact<'a>(&self, text: &'a str) -> Cow<'a, str>;

    /// Redacts the strings, keys and numbers of a JSON text. A number that contains a secret
    /// becomes a string; everything else keeps its exact spelling.
    fn redact_json(&self, json: &RawJson) -> RawJson {
        let text = json.as_str();
        // Only escapes, which need a backslash, can hide a secret from a search in the raw text.
        if !text.contains('\\') && matches!(self.redact(text), Cow::Borrowed(_)) {
            return json.clone();
        }
        let redacted: String =
            json_tokens_with_rest(text).map(|(token, _)| redact_json_token(self, token)).collect();
        // A secret that is itself JSON spans several tokens.
        if let Cow::Owned(redacted_span) = self.redact(&remove_secret_placeholders(&redacted)) {
            return redacted_json_placeholder(text, secret_name_in_placeholder(&redacted_span));
        }
        // Every token is valid JSON, so parsing can't fail. If it did, the secret would still
        // not be shown.
        RawJson::parse(redacted).unwrap_or_else(|_| redacted_json_placeholder(text, None))
    }

    /// Redacts the strings of a JSON text, but not its keys: a secret that equals a field name
    /// must not rename the field.
    fn redact_json_strings(&self, json: &str) -> String {
        let redacted_tokens = json_tokens_with_rest(json).map(|(token, after)| {
            let is_name = after.trim_start().starts_with(':');
            match token.starts_with('"') && !is_name {
                true => redact_json_token(self, token),
                false => Cow::Borrowed(token),
            }
        });
        redacted_tokens.collect()
    }

    /// Returns how many bytes at the end of a text may be the beginning of a secret that continues
    /// in the next chunk of a streamed text.
    fn partial_secret_suffix_len(&self, _text: &str) -> usize {
        0
    }
}

/// Placeholder of a secret without a name.
const UNNAMED_PLACEHOLDER: &str = "{{secret}}";

/// Returns the replacement of a JSON text that can't be redacted token by token. An object is
/// replaced by an object, because the input of a call must be an object.
fn redacted_json_placeholder(json: &str, name: Option<&str>) -> RawJson {
    let replacement = name.map_or_else(|| UNNAMED_PLACEHOLDER.to_owned(), secret_placeholder);
    match json.trim_start().starts_with('{') {
        true => RawJson::from_serialize(&BTreeMap::from([("redacted", replacement)])),
        false => RawJson::from_serialize(&replacement),
    }
}

/// Returns the text without its placeholders, because a placeholder may itself look like a secret.
fn remove_secret_placeholders(text: &str) -> Cow<'_, str> {
    let mut remaining = String::new();
    let mut rest = text;
    while let Some(placeholder) = find_secret_placeholder(rest) {
        remaining.push_str(&rest[..placeholder.start]);
        remaining.push(' ');
        rest = &rest[placeholder.end..];
    }
    match remaining.is_empty() {
        true => Cow::Borrowed(text),
        false => Cow::Owned(remaining + rest),
    }
}

/// Splits a JSON text into tokens. Each token is paired with the text that follows it.
fn json_tokens_with_rest(json: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut rest = json;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let (token, after) = rest.split_at(json_token_end(rest, first));
        rest = after;
        Some((token, after))
    })
}

/// Returns the byte offset of the end of a JSON text's first token: a string, a number, or the
/// characters between them.
fn json_token_end(json: &str, first_char: char) -> usize {
    let is_number = |c: char| matches!(c, '0'..='9' | '-' | '+' | '.' | 'e' | 'E');
    let is_plain = |c: char| !matches!(c, '"' | '-' | '0'..='9');
    let end = match first_char {
        '"' => json_string_end(json),
        '-' | '0'..='9' => json.find(|c| !is_number(c)),
        _ => json.find(|c| !is_plain(c)),
    };
    end.unwrap_or(json.len())
}

/// Returns the byte offset after the closing quote of the JSON string at the start of the text.
/// `None` if the string is not terminated.
fn json_string_end(json: &str) -> Option<usize> {
    let mut escaped = false;
    for (index, byte) in json.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(index + 1),
            _ => {}
        }
    }
    None
}

fn redact_json_token<'a>(redactor: &(impl Redact + ?Sized), token: &'a str) -> Cow<'a, str> {
    let encode = |text: &str| Cow::Owned(RawJson::from_serialize(&text).as_str().to_owned());
    if token.starts_with('"') {
        // A lone surrogate escape is valid JSON but not a valid string, so it is searched as is.
        let decoded = serde_json::from_str::<String>(token);
        return match redactor.redact(decoded.as_deref().unwrap_or(token)) {
            Cow::Owned(redacted) => encode(&redacted),
            Cow::Borrowed(_) => Cow::Borrowed(token),
        };
    }
    match redactor.redact(token) {
        Cow::Owned(redacted) if token.starts_with(|c: char| c == '-' || c.is_ascii_digit()) => {
            encode(&redacted)
        }
        Cow::Owned(_) | Cow::Borrowed(_) => Cow::Borrowed(token),
    }
}

/// Redactor that leaves every text unchanged.
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

    /// Redactor for tests that knows two secrets, one of which is a number.
    #[derive(Debug)]
    struct TwoSecretRedactor;

    impl Redact for TwoSecretRedactor {
        fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
            let redacted = text.replace("pl\"ugh/1", "{{A}}").replace("48151623", "{{B}}");
            match redacted == text {
                true => Cow::Borrowed(text),
                false => Cow::Owned(redacted),
            }
        }
    }

    #[test]
    fn a_placeholder_names_its_secret() {
        assert_eq!(
            secret_name_in_placeholder(&format!("a {} b", secret_placeholder("TOKEN"))),
            Some("TOKEN")
        );
        assert_eq!(secret_name_in_placeholder("a {{secret: b"), None);
        assert_eq!(find_secret_placeholder("ä {{secret:A}}!"), Some(3..15));
    }

    /// Redactor for tests that knows a secret which is a JSON text.
    #[derive(Debug)]
    struct JsonSecretRedactor;

    impl Redact for JsonSecretRedactor {
        fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
            let json_secret = r#"{"user":"ada","pin":1}"#;
            match text.contains(json_secret) || text.contains("secret") {
                true => Cow::Owned(
                    text.replace("secret", "{{secret:S}}").replace(json_secret, "{{secret:A}}"),
                ),
                false => Cow::Borrowed(text),
            }
        }
    }

    #[test]
    fn parts_of_a_json_secret_are_redacted() {
        for (json, expected) in [
            (r#"{"user":"ada","pin":1}"#, r#"{"redacted":"{{secret:A}}"}"#),
            (r#"[{"user":"ada","pin":1}]"#, r#""{{secret:A}}""#),
            (r#"{"user":"ada","pin":2}"#, r#"{"user":"ada","pin":2}"#),
            // A placeholder may look like a secret.
            (r#"["a secret"]"#, r#"["a {{secret:S}}"]"#),
        ] {
            let json = RawJson::parse(json).unwrap();
            assert_eq!(JsonSecretRedactor.redact_json(&json).as_str(), expected, "{json:?}");
        }
    }

    #[test]
    fn redacted_json_is_still_valid_json() {
        for (json, expected) in [
            (r#"{ "a" : 1.50 }"#, r#"{ "a" : 1.50 }"#),
            (r#""48151623""#, r#""{{B}}""#),
            ("48151623", r#""{{B}}""#),
            (r#"{"pin": -481516234.5e1, "n": 1.50}"#, r#"{"pin": "-{{B}}4.5e1", "n": 1.50}"#),
            ("[123456789048151623123456789]", r#"["1234567890{{B}}123456789"]"#),
            (r#"[true,"a pl\"ugh/1 b",null]"#, r#"[true,"a {{A}} b",null]"#),
            // Any escaping of the secret.
            (r#""pl\u0022ugh\/1""#, r#""{{A}}""#),
            (r#"{"48151623": "\n"}"#, r#"{"{{B}}": "\n"}"#),
            (r#"["\ud800 48151623"]"#, r#"["\"\\ud800 {{B}}\""]"#),
            (r#"["\\", "48151623"]"#, r#"["\\", "{{B}}"]"#),
        ] {
            let json = RawJson::parse(json).unwrap();
            assert_eq!(TwoSecretRedactor.redact_json(&json).as_str(), expected, "{json:?}");
        }
    }
}
