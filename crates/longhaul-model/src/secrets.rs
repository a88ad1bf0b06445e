//! Secrets, and how they are kept out of a text, however they are spelled.
//!
//! Never: shows them, whoever prints what holds them.

use std::fmt;

use longhaul_core::decoded::DecodedText;
use longhaul_core::spelling::{HIDDEN_FROM, spellings};

use crate::key::ApiKey;

/// What stands where a key stood.
const KEY: &str = "[key]";

/// What stands where the value of a header stood.
const HEADER: &str = "[header]";

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
        let text = self.0.iter().fold(text, |text, (spelled, stand_in)| {
            match text.contains(spelled.as_str()) {
                true => text.replace(spelled.as_str(), stand_in),
                false => text,
            }
        });
        let decoded = DecodedText::new(&text);
        let parts = || self.0.iter().map(|(one, stand_in)| (&**one, *stand_in));
        let replaced = decoded.and_then(|decoded| decoded.replace(&text, parts()));
        replaced.unwrap_or(text)
    }

    pub(crate) fn are_in(&self, text: &str) -> bool {
        let decoded = DecodedText::new(text);
        self.0.iter().any(|(spelled, _)| {
            let is_escaped = |decoded: &DecodedText| decoded.contains(spelled);
            text.contains(spelled) || decoded.as_ref().is_some_and(is_escaped)
        })
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

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

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
            ("%73%6b-a/b+&#99;=very &quot;secret&#x22;", "[key]"),
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
    fn a_secret_is_found_as_others_write_it() {
        fn check(secret: &str, texts: &[&str]) {
            let secrets = Secrets::new(Some(&ApiKey::new(secret)), &[]);
            for text in texts {
                let text = format!("<{text}>");
                assert!(secrets.are_in(&text), "{text}");
                assert_eq!(secrets.hide(text), "<[key]>");
            }
        }
        check(
            "wJalrXUtnFEMI/K7MDENG+bPxRfiCY=",
            &[
                "wJalrXUtnFEMI/K7MDENG%2BbPxRfiCY%3D",
                "wJalrXUtnFEMI/K7MDENG%2bbPxRfiCY%3d",
                "wJalrXUtnFEMI%2FK7MDENG%2BbPxRfiCY%3D",
                "wJalrXUtnFEMI%2fK7MDENG%2bbPxRfiCY%3d",
                r"wJalrXUtnFEMI\/K7MDENG+bPxRfiCY=",
                r"wJalrXUtnFEMI\u002fK7MDENG+bPxRfiCY=",
                r"wJalrXUtnFEMI\u002FK7MDENG+bPxRfiCY=",
                r"wJalrXUtnFEMI\\u002fK7MDENG+bPxRfiCY=",
                r"wJalrXUtnFEMI/K7MDENG\u002BbPxRfiCY=",
                "774a616c725855746e46454d492f4b374d44454e472b62507852666943593d",
                "774A616C725855746E46454D492F4B374D44454E472B62507852666943593D",
            ],
        );
        check(
            "schön & gut 𝄞/~*",
            &[
                r"sch\u00f6n & gut \ud834\udd1e/~*",
                r"sch\u00F6n & gut \uD834\uDD1E/~*",
                r"sch\u00f6n & gut \ud834\udd1e\/~*",
                r"sch\u00f6n & gut \ud834\udd1e\u002f~*",
                r"sch\\u00f6n & gut \\ud834\\udd1e/~*",
                r"schön \u0026 gut 𝄞/~*",
                r"sch\u00F6n \u0026 gut \uD834\uDD1E/~*",
                "sch%C3%B6n%20%26%20gut%20%F0%9D%84%9E/~%2A",
                "sch%c3%b6n%20%26%20gut%20%f0%9d%84%9e%2f~%2a",
                "sch%C3%B6n+%26+gut+%F0%9D%84%9E%2F~%2A",
                "sch%C3%B6n+%26+gut+%F0%9D%84%9E/~%2A",
                "sch%C3%B6n+%26+gut+%F0%9D%84%9E%2F%7E*",
                "sch%C3%B6n%20%26%20gut%20%F0%9D%84%9E%2F~*",
                "sch%C3%B6n%20&%20gut%20%F0%9D%84%9E/~*",
            ],
        );
        check(
            "two\nlines\u{1}",
            &[r"two\nlines\u0001", r"two\\nlines\\u0001"],
        );
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
            ("bad sk-a/b%2Bc%3", "bad "),
            (r"bad sk-a\u002fb+c=ve", "bad "),
            ("bad 736b2d612f622b63", "bad "),
            ("", ""),
        ] {
            let mended = secrets().mend(cut.as_bytes()).to_vec();
            assert_eq!(String::from_utf8(mended).unwrap(), kept);
        }
    }
}
