//! Makes untrusted text fit for one terminal line.

pub(crate) use longhaul_core::sanitize::{sanitize_line, sanitize_text};

/// Truncates a text to this many characters. A truncated text ends in `…`.
pub(crate) fn truncate(text: &str, max_chars: usize) -> String {
    if text.chars().count() <= max_chars {
        return text.to_owned();
    }
    let prefix: String = text.chars().take(max_chars.saturating_sub(1)).collect();
    format!("{prefix}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_truncated_text_ends_in_an_ellipsis() {
        assert_eq!(truncate("abcdef", 4), "abc…");
        assert_eq!(truncate("abcd", 4), "abcd");
    }
}
