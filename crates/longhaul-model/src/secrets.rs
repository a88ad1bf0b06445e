//! What must not be shown of one account.
//!
//! Never: shows it, whoever prints what holds it.

use longhaul_core::redact::Redactor;

use crate::key::ApiKey;

/// What stands where a key stood.
const KEY_PLACEHOLDER: &str = "[key]";

/// What stands where the value of a header stood.
const HEADER_PLACEHOLDER: &str = "[header]";

/// Knows the key of an account, and the values of the headers that the user set, which may
/// hold another.
pub(crate) fn redactor(key: Option<&ApiKey>, headers: &[(String, String)]) -> Redactor {
    let key = key.map(|key| (KEY_PLACEHOLDER.to_owned(), key.reveal()));
    let values = headers.iter().flat_map(|(_, value)| {
        // As in `Bearer` and a key: the key alone is a secret too.
        let credentials = value.trim().split_once(' ').map(|(_, rest)| rest);
        [Some(value.as_str()), credentials]
    });
    let values = values.flatten().map(|value| (HEADER_PLACEHOLDER.to_owned(), value));
    Redactor::with_placeholders(key.into_iter().chain(values))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
    use longhaul_core::port::redact::Redact as _;

    const SECRET: &str = "sk-a/b+c=very \"secret\"";

    fn secrets() -> Redactor {
        let headers = [
            ("authorization".to_owned(), "Bearer by-hand-1".to_owned()),
            ("x-short".to_owned(), "blue".to_owned()),
        ];
        redactor(Some(&ApiKey::new(SECRET)), &headers)
    }

    #[test]
    fn a_secret_is_found_in_every_encoding() {
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
            assert_eq!(secrets().contains_secret(&text), shown != "blue");
            assert_eq!(secrets().redact(&text), format!("<{shown}>"));
        }
    }

    #[test]
    fn a_secret_is_found_inside_of_base64() {
        for before in ["", "a", "ab", "abc", "user:"] {
            for after in ["", "\n", "::"] {
                let text = format!("{before}{SECRET}{after}");
                for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
                    let hidden = secrets().redact(&engine.encode(&text)).into_owned();
                    assert!(hidden.contains("[key]"), "{text}: {hidden}");
                    assert!(hidden.len() < 20, "{text}: {hidden}");
                }
            }
        }
    }
}
