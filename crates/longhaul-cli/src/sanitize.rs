//! Makes untrusted text safe for a terminal: replaces characters that move the cursor, change
//! colours or reverse the reading direction.

/// Makes text safe for one line of a terminal. Line breaks and tabs are replaced too.
pub(crate) fn sanitize_line(text: &str) -> String {
    text.chars().map(|c| if is_terminal_unsafe(c) { '·' } else { c }).collect()
}

/// Makes text of several lines safe for a terminal. Line breaks and tabs are kept.
pub(crate) fn sanitize_text(text: &str) -> String {
    let replace_unsafe = |c| match c {
        '\n' | '\t' => c,
        _ if is_terminal_unsafe(c) => '·',
        _ => c,
    };
    text.chars().map(replace_unsafe).collect()
}

/// Truncates a text to this many characters. A truncated text ends in `…`.
pub(crate) fn truncate(text: &str, max_chars: usize) -> String {
    if text.chars().count() <= max_chars {
        return text.to_owned();
    }
    let prefix: String = text.chars().take(max_chars.saturating_sub(1)).collect();
    format!("{prefix}…")
}

/// Returns whether a character controls the terminal, is invisible or changes the reading
/// direction.
fn is_terminal_unsafe(c: char) -> bool {
    let is_invisible_or_bidi = matches!(
        c,
        '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{2069}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}'
    );
    c.is_control() || is_invisible_or_bidi
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_control_characters_are_replaced() {
        for (input, expected) in [
            ("plain words, naïve 日本", "plain words, naïve 日本"),
            ("\u{1b}[2Jgone", "·[2Jgone"),
            ("over\rwritten", "over·written"),
            ("rm \u{202e}txt.exe", "rm ·txt.exe"),
            ("two\nlines", "two·lines"),
        ] {
            assert_eq!(sanitize_line(input), expected);
        }
        assert_eq!(sanitize_text("two\n\tlines\u{7}"), "two\n\tlines·");
        assert_eq!(truncate("abcdef", 4), "abc…");
        assert_eq!(truncate("abcd", 4), "abcd");
    }
}
