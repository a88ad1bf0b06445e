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

/// A secret as it is, as JSON spells it, in an address, as hex digits and as base64,
/// alone or in the midst of something; each once.
pub(crate) fn spellings(value: &str) -> Vec<String> {
    let mut all = vec![
        value.to_owned(),
        STANDARD_NO_PAD.encode(value),
        URL_SAFE_NO_PAD.encode(value),
        value.bytes().map(|byte| format!("{byte:02x}")).collect(),
        value.bytes().map(|byte| format!("{byte:02X}")).collect(),
    ];
    for digits in [Digits::Lower, Digits::Upper] {
        all.extend(KEPT.iter().flat_map(|kept| {
            let spelled = in_address(value, kept, digits);
            // Forms have a plus where addresses have a blank.
            [spelled.replace("%20", "+"), spelled]
        }));
        all.extend(ESCAPED.iter().flat_map(|is_escaped| {
            let json = in_json(value, is_escaped, digits);
            let slashed = json.replace('/', r"\/");
            let escaped = json.replace('/', &digits.escape('/'));
            // Inside a text of JSON that is itself a text of JSON, as arguments are.
            let twice = [&json, &slashed, &escaped].map(|it| in_json(it, |_| false, digits));
            twice.into_iter().chain([json, slashed, escaped])
        }));
    }
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
    // Most secrets are letters and digits, which nearly all of these leave alone.
    all.sort_unstable();
    all.dedup();
    all
}

/// What is left as it is in an address besides letters and digits: all that may be,
/// that and slashes, what forms leave, what browsers leave in a part of an address,
/// and in a whole one.
const KEPT: &[&str] = &["-_.~", "-_.~/", "-_.*", "-_.~!'()*", "-_.~!'()*;,/?:@&=+$#"];

/// What writers of JSON spell by number though they need not: nothing, what is not
/// ASCII, what means something in HTML, and both together with a few more.
const ESCAPED: &[fn(char) -> bool] = &[
    |_| false,
    |letter| !letter.is_ascii(),
    |letter| matches!(letter, '<' | '>' | '&' | '\u{2028}' | '\u{2029}'),
    |letter| !letter.is_ascii() || "\"&'<>+`".contains(letter),
];

/// Which hex digits.
#[derive(Debug, Clone, Copy)]
enum Digits {
    Lower,
    Upper,
}

impl Digits {
    /// A letter by number, as JSON has it.
    fn escape(self, letter: char) -> String {
        let units = letter.encode_utf16(&mut [0; 2]).to_vec();
        let spelled = units.into_iter().map(|unit| match self {
            Self::Lower => format!("\\u{unit:04x}"),
            Self::Upper => format!("\\u{unit:04X}"),
        });
        spelled.collect()
    }
}

/// A text as JSON spells it, and by number what is escaped.
fn in_json(text: &str, is_escaped: impl Fn(char) -> bool, digits: Digits) -> String {
    let letter = |letter: char| match letter {
        _ if is_escaped(letter) => digits.escape(letter),
        '"' => "\\\"".to_owned(),
        '\\' => r"\\".to_owned(),
        '\n' => r"\n".to_owned(),
        '\r' => r"\r".to_owned(),
        '\t' => r"\t".to_owned(),
        '\u{8}' => r"\b".to_owned(),
        '\u{c}' => r"\f".to_owned(),
        '\0'..='\u{1f}' => digits.escape(letter),
        _ => letter.to_string(),
    };
    text.chars().map(letter).collect()
}

fn in_address(text: &str, kept: &str, digits: Digits) -> String {
    let letter = |byte: u8| match (byte, digits) {
        _ if byte.is_ascii_alphanumeric() || kept.as_bytes().contains(&byte) => {
            char::from(byte).to_string()
        }
        (_, Digits::Lower) => format!("%{byte:02x}"),
        (_, Digits::Upper) => format!("%{byte:02X}"),
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
    fn letters_and_digits_have_few_spellings() {
        for (secret, most) in [("AKIAIOSFODNN7EXAMPLE", 9), ("wJalr/K7MDENG+bP=", 40)] {
            let count = spellings(secret).len();
            assert!(count <= most, "{secret}: {count}");
        }
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
