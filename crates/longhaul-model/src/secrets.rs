//! Secrets, in the ways they are spelled, and how they are kept out of a text.
//!
//! Never: shows them, whoever prints what holds them.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

use crate::key::ApiKey;

/// What stands where a key stood.
const KEY: &str = "[key]";

/// What stands where the value of a header stood.
const HEADER: &str = "[header]";

/// So short a text is in every other text by chance, and is not looked for.
pub(crate) const HIDDEN_FROM: usize = 6;

/// What must not be shown of one account: its key, and the values of the headers
/// that the user set, which may hold another.
#[derive(Clone, Default)]
pub(crate) struct Secrets(Vec<(String, &'static str)>);

impl Secrets {
    pub(crate) fn new(key: Option<&ApiKey>, headers: &[(String, String)]) -> Self {
        let mut found = Vec::new();
        let mut add = |value: &str, stand_in| {
            if value.len() >= HIDDEN_FROM {
                found.extend(spellings(value).into_iter().map(|it| (it, stand_in)));
            }
        };
        if let Some(key) = key {
            add(key.reveal(), KEY);
        }
        for (_, value) in headers {
            let value = value.trim();
            add(value, HEADER);
            // As in `Bearer` and a key: the key alone is a secret too.
            if let Some((_, rest)) = value.split_once(' ') {
                add(rest.trim(), HEADER);
            }
        }
        // A secret that is a part of another must not leave the rest behind.
        found.sort_by(|(a, _), (b, _)| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        found.dedup_by(|(a, _), (b, _)| a == b);
        Self(found)
    }

    /// The text without them.
    pub(crate) fn hide(&self, text: String) -> String {
        self.0.iter().fold(text, |text, (spelled, stand_in)| {
            match text.contains(spelled.as_str()) {
                true => text.replace(spelled.as_str(), stand_in),
                false => text,
            }
        })
    }

    pub(crate) fn are_in(&self, text: &str) -> bool {
        self.0.iter().any(|(spelled, _)| text.contains(spelled))
    }

    /// What was cut off anywhere, without the half of a secret that may be left at
    /// its end: nobody would know it again.
    pub(crate) fn mend<'a>(&self, cut: &'a [u8]) -> &'a [u8] {
        let torn = self.0.iter().filter_map(|(spelled, _)| {
            let longest = spelled.len().min(cut.len());
            let mut halves = (HIDDEN_FROM..=longest).rev();
            let half = halves.find(|half| cut.ends_with(&spelled.as_bytes()[..*half]))?;
            Some((half, half == spelled.len()))
        });
        match torn.max() {
            Some((half, false)) => &cut[..cut.len() - half],
            // A whole one is found like any other.
            Some((_, true)) | None => cut,
        }
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({} spellings)", self.0.len())
    }
}

/// A secret as it is, as JSON spells it, in an address, and as base64, alone or in
/// the midst of something.
pub(crate) fn spellings(value: &str) -> Vec<String> {
    let json = in_json(value);
    let slashed = json.replace('/', r"\/");
    let mut all = vec![
        // Inside a text of JSON that is itself a text of JSON, as arguments are.
        in_json(&json),
        in_json(&slashed),
        slashed,
        json,
        encoded(value, |byte| format!("%{byte:02X}")),
        encoded(value, |byte| format!("%{byte:02x}")),
        STANDARD_NO_PAD.encode(value),
        URL_SAFE_NO_PAD.encode(value),
        value.to_owned(),
    ];
    for before in 0..3 {
        let padded = [&[0; 3][..before], value.as_bytes()].concat();
        // Only the letters that depend on nothing but the secret.
        let (from, to) = ((before * 8).div_ceil(6), padded.len() * 8 / 6);
        for text in [
            STANDARD_NO_PAD.encode(&padded),
            URL_SAFE_NO_PAD.encode(&padded),
        ] {
            all.extend(text.get(from..to).map(str::to_owned));
        }
    }
    all.retain(|spelled| spelled.len() >= HIDDEN_FROM);
    all
}

fn in_json(text: &str) -> String {
    let json = serde_json::Value::from(text).to_string();
    let inside = json.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
    inside.unwrap_or(&json).to_owned()
}

fn encoded(text: &str, spell: impl Fn(u8) -> String) -> String {
    let letter = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
            char::from(byte).to_string()
        }
        _ => spell(byte),
    };
    text.bytes().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "sk-a/b+c=very \"secret\"";

    fn secrets() -> Secrets {
        let headers = [
            ("authorization".to_owned(), "Bearer by-hand-1".to_owned()),
            ("x-short".to_owned(), "blue".to_owned()),
        ];
        Secrets::new(Some(&ApiKey::new(SECRET)), &headers)
    }

    #[test]
    fn a_secret_is_found_in_each_of_its_spellings() {
        let base64 = STANDARD_NO_PAD.encode(SECRET);
        for (text, shown) in [
            (SECRET, "[key]"),
            (r#"sk-a/b+c=very \"secret\""#, "[key]"),
            (r#"sk-a\/b+c=very \"secret\""#, "[key]"),
            ("sk-a%2Fb%2Bc%3Dvery%20%22secret%22", "[key]"),
            ("sk-a%2fb%2bc%3dvery%20%22secret%22", "[key]"),
            (&base64, "[key]"),
            ("Bearer by-hand-1 by-hand-1", "[header] [header]"),
            ("blue", "blue"),
        ] {
            let text = format!("<{text}>");
            assert_eq!(secrets().are_in(&text), shown != "blue");
            assert_eq!(secrets().hide(text), format!("<{shown}>"));
        }
        assert_eq!(format!("{:?}", Secrets::default()), "Secrets(0 spellings)");
    }

    #[test]
    fn a_secret_inside_of_base64() {
        for before in ["", "a", "ab", "abc", "user:"] {
            for after in ["", "\n", "::"] {
                let text = format!("{before}{SECRET}{after}");
                for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
                    let hidden = secrets().hide(engine.encode(&text));
                    assert!(hidden.contains("[key]"), "{text}: {hidden}");
                    assert!(hidden.len() < 20, "{text}: {hidden}");
                }
            }
        }
    }

    #[test]
    fn half_a_secret_at_the_end_is_dropped() {
        for (cut, kept) in [
            ("bad sk-a/b", "bad "),
            ("bad sk-a/b+c=very \"secret", "bad "),
            (
                "bad sk-a/b+c=very \"secret\"",
                "bad sk-a/b+c=very \"secret\"",
            ),
            ("bad sk-a/", "bad sk-a/"),
            ("sk-a/b or not", "sk-a/b or not"),
            ("bad by-hand-", "bad "),
            ("bad Bearer by-hand-", "bad "),
            ("", ""),
        ] {
            let mended = secrets().mend(cut.as_bytes()).to_vec();
            assert_eq!(String::from_utf8(mended).unwrap(), kept);
        }
    }
}
