//! The ways in which others may spell a secret.
//!
//! Never: keeps one, or shows it.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

/// A text of fewer bytes is in every other text by chance, and is not looked for.
pub const HIDDEN_FROM: usize = 6;

/// A secret as it is, as JSON spells it, in an address, as hex digits and as base64,
/// alone or in the midst of something; each once.
pub fn spellings(value: &str) -> Vec<String> {
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

    #[test]
    fn letters_and_digits_have_few_spellings() {
        for (secret, most) in [("AKIAIOSFODNN7EXAMPLE", 9), ("wJalr/K7MDENG+bP=", 40)] {
            let count = spellings(secret).len();
            assert!(count <= most, "{secret}: {count}");
        }
    }
}
