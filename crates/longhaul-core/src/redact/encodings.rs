//! Encodings in which a secret is searched for. Escapes are not among them, because texts are
//! searched in their decoded form as well.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

use serde_json::Value;

use crate::redact::decoded_text::{SECRET_BYTES_MIN, unescaped_forms};

/// Minimum length in bytes of a pattern that is searched for across line breaks, as in wrapped
/// Base64. Shorter patterns would match by chance.
pub(super) const WRAPPED_BYTES_MIN: usize = 20;

/// Minimum length in bytes of a string in a JSON secret that counts as a secret on its own,
/// whatever the name of its field.
const JSON_TEXT_BYTES_MIN: usize = 20;

/// Endings of names that denote secrets.
const SECRET_NAME_SUFFIXES: &[&str] = &[
    "key",
    "secret",
    "secretid",
    "token",
    "pass",
    "password",
    "passwd",
    "passphrase",
    "credential",
];

/// Returns whether a name denotes a secret. Only the end of the name matters: a `token_type` is not
/// a token.
pub fn is_secret_name(name: &str) -> bool {
    let chars = name.chars().filter(char::is_ascii_alphabetic);
    let name: String = chars.map(|c| c.to_ascii_lowercase()).collect();
    let singular = name.strip_suffix('s').unwrap_or(&name);
    let mut suffixes = SECRET_NAME_SUFFIXES.iter();
    suffixes.any(|suffix| name.ends_with(suffix) || singular.ends_with(suffix))
}

/// Maximum length in bytes of a secret that is also searched for in other encodings. The encodings
/// take more than ten times the memory of the secret.
const ENCODED_BYTES_MAX: usize = 64 << 10;

/// Returns all patterns that are searched for in order to find one secret.
pub(super) fn search_patterns(secret: &str) -> Vec<String> {
    let parts = split_secret_into_parts(secret);
    if secret.len() > ENCODED_BYTES_MAX {
        return parts;
    }
    parts.iter().flat_map(|part| secret_encodings(part)).collect()
}

/// Returns a secret and those of its parts that are secrets on their own.
fn split_secret_into_parts(secret: &str) -> Vec<String> {
    let mut texts = Vec::new();
    match serde_json::from_str(secret) {
        Ok(data @ (Value::Object(_) | Value::Array(_))) => {
            add_secret_json_strings(&mut texts, "", data)
        }
        Ok(_) | Err(_) => texts.push(secret.to_owned()),
    }
    let lines = texts.iter().filter(|text| text.contains('\n'));
    let lines = lines.flat_map(|text| text.lines()).map(str::trim);
    // Header and footer lines, as in PEM files, are not secret.
    let is_secret_line =
        |line: &&str| line.len() >= WRAPPED_BYTES_MIN && !line.starts_with("-----");
    let mut parts: Vec<String> = lines.filter(is_secret_line).map(str::to_owned).collect();
    parts.extend(texts);
    parts.push(secret.to_owned());
    parts
}

/// Adds those strings of a JSON secret, such as a service account key, that are secrets on their
/// own. A string in a list has the name of the list.
fn add_secret_json_strings(secrets: &mut Vec<String>, name: &str, json: Value) {
    match json {
        Value::Object(fields) => {
            let fields = fields.into_iter();
            fields.for_each(|(name, value)| add_secret_json_strings(secrets, &name, value));
        }
        Value::Array(values) => {
            let values = values.into_iter();
            values.for_each(|value| add_secret_json_strings(secrets, name, value));
        }
        Value::String(text) if is_secret_json_string(name, text.trim()) => {
            secrets.push(text.trim().to_owned());
        }
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns whether a string with this name in a JSON secret is a secret on its own.
fn is_secret_json_string(json_key: &str, text: &str) -> bool {
    match is_secret_name(json_key) {
        true => text.len() >= SECRET_BYTES_MIN,
        false => text.len() >= JSON_TEXT_BYTES_MIN && !is_public_url_or_email(text),
    }
}

/// Returns whether a text is a URL or an email address without anything secret in it.
fn is_public_url_or_email(text: &str) -> bool {
    match text.split_once("://") {
        Some((_, address)) => {
            let mut path = address.split('/').skip(1);
            let has_key = address.contains(['@', '?', '#', ';', '=']);
            !has_key && path.all(|part| part.len() < WRAPPED_BYTES_MIN)
        }
        None => is_mail_address(text),
    }
}

fn is_mail_address(text: &str) -> bool {
    let Some((local_part, domain)) = text.split_once('@') else {
        return false;
    };
    let has_only = |part: &str, extra_chars: &str| {
        let mut chars = part.chars();
        !part.is_empty() && chars.all(|c| c.is_ascii_alphanumeric() || extra_chars.contains(c))
    };
    has_only(local_part, "._+-") && has_only(domain, ".-") && domain.contains('.')
}

/// Returns the encodings of a secret: unchanged, with decoded escape sequences, form-encoded, hex
/// and Base64, the latter also as a part of longer encoded data.
fn secret_encodings(secret: &str) -> Vec<String> {
    let mut encodings = vec![
        secret.to_owned(),
        STANDARD_NO_PAD.encode(secret),
        URL_SAFE_NO_PAD.encode(secret),
        secret.bytes().map(|byte| format!("{byte:02x}")).collect(),
        secret.bytes().map(|byte| format!("{byte:02X}")).collect(),
    ];
    // Forms encode a space as a plus sign.
    for form in [secret.to_owned(), secret.replace(' ', "+")] {
        encodings.extend(unescaped_forms(&form));
        encodings.push(form);
    }
    for padding in 0..3 {
        let padded = [&[0; 3][..padding], secret.as_bytes()].concat();
        // Only those characters whose encoding depends on nothing but the secret.
        let (from, to) = ((padding * 8).div_ceil(6), padded.len() * 8 / 6);
        for text in [STANDARD_NO_PAD.encode(&padded), URL_SAFE_NO_PAD.encode(&padded)] {
            encodings.extend(text.get(from..to).map(str::to_owned));
        }
    }
    encodings.retain(|encoded| encoded.len() >= SECRET_BYTES_MIN);
    // Most secrets are alphanumeric, so many of their encodings are identical.
    encodings.sort_unstable();
    encodings.dedup();
    encodings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::redact::Redact as _;
    use crate::redact::Redactor;

    #[test]
    fn a_secret_has_few_encodings() {
        for (secret, max) in [("AKIAIOSFODNN7EXAMPLE", 9), ("wJalr/K7MDENG+bP=", 12)] {
            let count = secret_encodings(secret).len();
            assert!(count <= max, "{secret}: {count}");
        }
    }

    #[test]
    fn the_string_values_of_a_json_secret_are_secret() {
        let account = r#"{
          "type": "service_account",
          "private_key": "-----BEGIN KEY-----\nMIIEvQ/x\n-----END KEY-----\n",
          "client_email": "robot-of-many@project.iam.example.com",
          "token_uri": "https://oauth2.example.com/v1/token",
          "hook": "https://hooks.example.com/T0/abcdefghijklmnopqrstuvwx",
          "deep": [{ "id": "0123456789abcdef0123456789abcdef01234567", "colour": "turquoise",
            "password": "hunter2x", "passphrase": "correct@horse.battery-staple" }],
          "access_token": "at-4711", "token_type": "Bearer", "key_ops": ["verify"],
          "apiKey": "ak-4711", "clientSecret": "cs-4711", "api_keys": ["k1-4711"],
          "secret_id": "5f0e6d9c-4711",
          "public_name": "https://ada:pw@site.example.com/",
          "login": "correct@horse@battery.staple", "code": "0123456789-123456789",
          "database_url": "postgres://ada:pw@db.example.com/main",
          "replica_url": "postgres://db.example.com/replica",
          "main_url": "ada:hunter2pw@tcp(db.example.com:3306)/main",
          "jdbc_url": "jdbc:sqlserver://db.example.com;user=sa;password=pw"
        }"#;
        let redactor = Redactor::new([("ACCOUNT", account)]);
        let check = |text: &str, expect: &str| assert_eq!(redactor.redact(text), expect);
        let key = r#""-----BEGIN KEY-----\nMIIEvQ/x\n-----END KEY-----\n""#;
        check(key, r#""{{secret:ACCOUNT}}\n""#);
        check(account, "{{secret:ACCOUNT}}");
        for secret in [
            "https://hooks.example.com/T0/abcdefghijklmnopqrstuvwx",
            "0123456789abcdef0123456789abcdef01234567",
            "postgres://ada:pw@db.example.com/main",
            "ada:hunter2pw@tcp(db.example.com:3306)/main",
            "jdbc:sqlserver://db.example.com;user=sa;password=pw",
            "https://ada:pw@site.example.com/",
            "hunter2x",
            "at-4711",
            "ak-4711",
            "cs-4711",
            "k1-4711",
            "5f0e6d9c-4711",
            "correct@horse.battery-staple",
            "correct@horse@battery.staple",
            "0123456789-123456789",
        ] {
            check(secret, "{{secret:ACCOUNT}}");
        }
        for public in [
            "service_account, turquoise",
            "Authorization: Bearer, verify",
            "https://oauth2.example.com/v1/token",
            "robot-of-many@project.iam.example.com",
            "postgres://db.example.com/replica",
            r#""type": "service_account","#,
        ] {
            check(public, public);
        }
    }

    #[test]
    fn a_very_long_secret_is_searched_for_only_verbatim() {
        for (bytes, is_encoded) in [(ENCODED_BYTES_MAX, true), (ENCODED_BYTES_MAX + 1, false)] {
            let secret = "k".repeat(bytes);
            let patterns = search_patterns(&secret);
            assert!(patterns.contains(&secret));
            let mut patterns = patterns.iter();
            let has_other = patterns.any(|pattern| *pattern != secret);
            assert_eq!(has_other, is_encoded, "{bytes}");
        }
    }

    #[test]
    fn only_valid_mail_addresses_are_public() {
        for (text, public) in [
            ("robot+1_a@project.iam.example.com", true),
            ("correct@horse@battery.staple", false),
            ("correct-horse@battery-staple", false),
            ("correct horse@battery.staple", false),
            ("correct!horse@battery.staple", false),
            ("correct-horse@battery.staple!", false),
            ("@correct-horse.battery.staple", false),
            ("correct-horse-battery-staple", false),
        ] {
            assert_eq!(is_public_url_or_email(text), public, "{text}");
        }
    }

    #[test]
    fn secret_names_are_recognized_by_their_suffix() {
        for (name, secret) in [
            ("apiKey", true),
            ("API_KEY_2", true),
            ("credentials", true),
            ("DB_PASS", true),
            ("token_type", false),
            ("KEY_DIR", false),
            ("", false),
        ] {
            assert_eq!(is_secret_name(name), secret, "{name}");
        }
    }
}
