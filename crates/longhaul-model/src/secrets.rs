//! Redactor for the secrets of one account at a provider.

use longhaul_core::redact::Redactor;

use crate::key::ApiKey;

/// Text that replaces the API key in redacted texts.
const KEY_PLACEHOLDER: &str = "[key]";

/// Text that replaces the value of a header in redacted texts.
const HEADER_PLACEHOLDER: &str = "[header]";

/// Creates a redactor for the API key and for the values of the headers that the user has set,
/// which may contain other keys.
pub(crate) fn credential_redactor(key: Option<&ApiKey>, headers: &[(String, String)]) -> Redactor {
    let key = key.map(|key| (KEY_PLACEHOLDER.to_owned(), key.reveal_key_text()));
    let values = headers.iter().flat_map(|(_, value)| {
        // In `Bearer KEY` the key alone is a secret too.
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

    fn test_redactor() -> Redactor {
        let headers = [
            ("authorization".to_owned(), "Bearer by-hand-1".to_owned()),
            ("x-short".to_owned(), "blue".to_owned()),
        ];
        credential_redactor(Some(&ApiKey::new(SECRET)), &headers)
    }

    #[test]
    fn a_secret_is_found_in_every_encoding() {
        let base64 = STANDARD_NO_PAD.encode(SECRET);
        for (text, redacted) in [
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
            assert_eq!(test_redactor().contains_secret(&text), redacted != "blue");
            assert_eq!(test_redactor().redact(&text), format!("<{redacted}>"));
        }
    }

    #[test]
    fn a_secret_is_found_inside_of_base64() {
        for before in ["", "a", "ab", "abc", "user:"] {
            for after in ["", "\n", "::"] {
                let text = format!("{before}{SECRET}{after}");
                for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
                    let hidden = test_redactor().redact(&engine.encode(&text)).into_owned();
                    assert!(hidden.contains("[key]"), "{text}: {hidden}");
                    assert!(hidden.len() < 20, "{text}: {hidden}");
                }
            }
        }
    }
}
