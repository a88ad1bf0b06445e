//! Words that may be a stranger's, made safe for a terminal.
//!
//! Never: lets through what moves the cursor, changes colours, or turns the
//! reading direction so that a line reads as another one than it is.

/// A text of one line.
pub(crate) fn line(text: &str) -> String {
    text.chars().map(|letter| if is_unsafe(letter) { '·' } else { letter }).collect()
}

/// A text of many lines.
pub(crate) fn text(text: &str) -> String {
    let safe = |letter| match letter {
        '\n' | '\t' => letter,
        _ if is_unsafe(letter) => '·',
        _ => letter,
    };
    text.chars().map(safe).collect()
}

/// At most so many letters, and a sign that there were more.
pub(crate) fn truncate(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    let kept: String = text.chars().take(max.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// Whether a letter does something to a terminal, or hides what stands there.
fn is_unsafe(letter: char) -> bool {
    let turns_or_hides = matches!(
        letter,
        '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{2069}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}'
    );
    letter.is_control() || turns_or_hides
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_control_characters_are_replaced() {
        for (said, safe) in [
            ("plain words, naïve 日本", "plain words, naïve 日本"),
            ("\u{1b}[2Jgone", "·[2Jgone"),
            ("over\rwritten", "over·written"),
            ("rm \u{202e}txt.exe", "rm ·txt.exe"),
            ("two\nlines", "two·lines"),
        ] {
            assert_eq!(line(said), safe);
        }
        assert_eq!(text("two\n\tlines\u{7}"), "two\n\tlines·");
        assert_eq!(truncate("abcdef", 4), "abc…");
        assert_eq!(truncate("abcd", 4), "abcd");
    }
}
