//! Makes untrusted text safe to show to people, on a terminal or a page: marks characters that move
//! the cursor, change colours, are invisible or reverse the reading direction.

/// The visible mark that replaces an unsafe character.
const MARK: char = '·';

/// Characters that are invisible or change the reading direction: those that Unicode calls default
/// ignorable, line and paragraph separators, annotation marks and noncharacters. Control characters
/// are not listed.
const INVISIBLE: &[(char, char)] = &[
    ('\u{ad}', '\u{ad}'),
    ('\u{34f}', '\u{34f}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{115f}', '\u{1160}'),
    ('\u{17b4}', '\u{17b5}'),
    ('\u{180b}', '\u{180f}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{2028}', '\u{202e}'),
    ('\u{2060}', '\u{206f}'),
    ('\u{3164}', '\u{3164}'),
    ('\u{fe00}', '\u{fe0f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{ffa0}', '\u{ffa0}'),
    ('\u{fff0}', '\u{fffb}'),
    ('\u{fffe}', '\u{ffff}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0000}', '\u{e0fff}'),
];

/// First character of the scripts that need joiners. Scripts before it, such as Latin and Cyrillic,
/// need none.
const JOINED_SCRIPTS_START: char = '\u{600}';

/// Makes text safe to show in one line. Line breaks and tabs are replaced too.
pub fn sanitize_line(text: &str) -> String {
    mark_unsafe(text, |_| false)
}

/// Makes text of several lines safe to show. Line breaks and tabs are kept.
pub fn sanitize_text(text: &str) -> String {
    mark_unsafe(text, |c| matches!(c, '\n' | '\t'))
}

/// Returns whether this is a control character, or one that is invisible or reverses the text around
/// it.
pub fn is_invisible(c: char) -> bool {
    let is_listed = |(first, last): &(char, char)| (*first..=*last).contains(&c);
    c.is_control() || (!c.is_ascii() && INVISIBLE.iter().any(is_listed))
}

/// Returns whether this invisible character has a use inside of a text: emoji and scripts such as
/// Persian need joiners, and emoji a selector of their form.
pub const fn is_joiner(c: char) -> bool {
    matches!(c, '\u{200c}' | '\u{200d}' | '\u{fe0e}' | '\u{fe0f}')
}

/// Replaces unsafe characters. A joiner is kept after a visible character that may need it.
fn mark_unsafe(text: &str, is_kept: impl Fn(char) -> bool) -> String {
    let mut last = MARK;
    let replace = |c: char| {
        let follows_visible = last >= JOINED_SCRIPTS_START && !is_invisible(last);
        let is_useful_joiner =
            is_joiner(c) && (follows_visible || (last, c) == ('\u{fe0f}', '\u{200d}'));
        let is_unsafe = is_invisible(c) && !is_useful_joiner && !is_kept(c);
        last = if is_unsafe { MARK } else { c };
        last
    };
    text.chars().map(replace).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_characters_are_marked() {
        for (input, expected) in [
            ("plain words, naïve 日本", "plain words, naïve 日本"),
            ("\u{1b}[2Jgone", "·[2Jgone"),
            ("over\rwritten", "over·written"),
            ("rm \u{202e}txt.exe", "rm ·txt.exe"),
            ("two\nlines", "two·lines"),
            ("pay\u{200b}ment", "pay·ment"),
            ("pass\u{ad}word", "pass·word"),
            ("tag\u{e0041}\u{e01ef}", "tag··"),
            ("a\u{200d}b é\u{200c}f \u{fe0f}", "a·b é·f ·"),
            ("می\u{200c}خواهم", "می\u{200c}خواهم"),
            ("👨\u{200d}👩 ❤\u{fe0f}\u{200d}🔥", "👨\u{200d}👩 ❤\u{fe0f}\u{200d}🔥"),
            ("👨\u{200d}\u{200c}\u{200d}", "👨\u{200d}··"),
            ("❤\u{fe0f}\u{fe0f}\u{200d}", "❤\u{fe0f}··"),
        ] {
            assert_eq!(sanitize_line(input), expected);
        }
        assert_eq!(sanitize_text("two\n\tlines\u{7}\u{2028}"), "two\n\tlines··");
    }

    #[test]
    fn invisible_characters_are_those_of_the_table() {
        let marked: Vec<u32> =
            ('\u{a0}'..=char::MAX).filter(|c| is_invisible(*c)).map(u32::from).collect();
        let listed = INVISIBLE.iter().flat_map(|(first, last)| *first..=*last).map(u32::from);
        assert_eq!(marked, listed.collect::<Vec<_>>());
        for visible in "a ~\u{a0}ßЖא日\u{2800}\u{fffd}👩".chars() {
            assert!(!is_invisible(visible), "{visible:?}");
        }
        for name in [
            '\0',
            '\u{1b}',
            '\u{7f}',
            '\u{9b}',
            '\u{ad}',
            '\u{200b}',
            '\u{200c}',
            '\u{200e}',
            '\u{2028}',
            '\u{2029}',
            '\u{202e}',
            '\u{2066}',
            '\u{feff}',
            '\u{e0041}',
            '\u{e0100}',
        ] {
            assert!(is_invisible(name), "{name:?}");
        }
        assert!(INVISIBLE.iter().all(|(first, _)| is_invisible(*first)));
    }
}
