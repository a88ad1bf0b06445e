//! Globs of approval rules, `effects` and spend caps: `*` stands for any characters, `?` for one.
//!
//! Invariant: matching is bounded, because the texts are untrusted. The matcher only returns to the
//! last `*`, so it compares each character of the text at most once with each character of the glob.
//! Longer globs and texts are not compared, so a match takes at most `GLOB_BYTES_MAX` times
//! `TEXT_BYTES_MAX`, 4 million, comparisons.

use wildmatch::WildMatch;

/// Maximum length of a glob in bytes.
pub const GLOB_BYTES_MAX: usize = 1024;

/// Maximum length in bytes of a text that is compared with a glob.
pub const TEXT_BYTES_MAX: usize = 4 * 1024;

/// Returns whether the glob matches the whole text. `None` means that one of them is too long to be
/// compared: the caller must choose the safe answer.
pub fn matches(glob: &str, text: &str) -> Option<bool> {
    let is_comparable = glob.len() <= GLOB_BYTES_MAX && text.len() <= TEXT_BYTES_MAX;
    is_comparable.then(|| WildMatch::new(glob).matches(text))
}

/// Checks the length of a glob. The error does not repeat the glob.
///
/// # Errors
/// The glob is longer than [`GLOB_BYTES_MAX`].
pub fn check_length(glob: &str) -> Result<(), String> {
    match glob.len() {
        0..=GLOB_BYTES_MAX => Ok(()),
        length => Err(format!(
            "the glob has {length} bytes, at most {GLOB_BYTES_MAX} are allowed: shorten it with `*`"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_whole_texts_within_the_limits() {
        let longest_text = "a".repeat(TEXT_BYTES_MAX);
        let longest_glob = format!("*{}b", "a".repeat(GLOB_BYTES_MAX - 2));
        for (glob, text, expected) in [
            ("git *", "git log", Some(true)),
            ("git *", "git", Some(false)),
            ("g?t", "gät", Some(true)),
            ("", "", Some(true)),
            ("*", "", Some(true)),
            ("*", &longest_text, Some(true)),
            ("*", &format!("{longest_text}a"), None),
            (&longest_glob, &longest_text, Some(false)),
            (&longest_glob, &format!("{}b", &longest_text[1..]), Some(true)),
            (&format!("{longest_glob}b"), "a", None),
            (&format!("*{}b", "a".repeat(14_000)), &"a".repeat(900_000), None),
        ] {
            assert_eq!(matches(glob, text), expected, "{} {}", glob.len(), text.len());
            assert_eq!(check_length(glob).is_ok(), glob.len() <= GLOB_BYTES_MAX);
        }
    }
}
