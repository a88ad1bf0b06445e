//! Which names a note, a folder and a tag may have.
//!
//! Never: maps a name to one that looks different. A name that some file system or
//! Obsidian can't hold is refused with one to use instead, so what a rule matched
//! is what is touched, and a note has one spelling on every machine.

use icu_normalizer::ComposingNormalizerBorrowed;

use crate::filename_fold::{escaped, fold_case, is_device_name, is_invisible};

/// The longest part of a path, in bytes: with `.md` it fits every file system.
const PART_BYTES_MAX: usize = 200;
/// How deep folders may stand in one another.
pub(crate) const DEPTH_MAX: usize = 8;
/// The longest tag, in bytes.
const TAG_BYTES_MAX: usize = 100;
/// What Windows, macOS or a link of Obsidian can't hold in a name.
const FORBIDDEN: &[char] = &['/', '\\', ':', '*', '?', '"', '<', '>', '|', '#', '^', '[', ']'];
/// What is wrong with a name, and what to use instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} `{display}` {problem}; {hint}")]
pub(crate) struct NameError {
    what: &'static str,
    display: String,
    problem: &'static str,
    hint: String,
}

/// The name with each letter and its marks as one character where there is one
/// (NFC): `é` has one spelling here, whoever sends it.
pub(crate) fn nfc(text: &str) -> String {
    let nfc = const { ComposingNormalizerBorrowed::new_nfc() };
    nfc.normalize(text).into_owned()
}

/// The parts of a folder such as `Projects/Alpha`; none for the vault itself.
pub(crate) fn parse_folder(text: &str) -> Result<Vec<String>, NameError> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let text = &nfc(text);
    let parts: Vec<&str> = text.split('/').collect();
    if parts.len() > DEPTH_MAX {
        let mend = format!("use at most {DEPTH_MAX} folders in one another");
        return Err(name_error("folder", text, "is too deep", mend));
    }
    for part in &parts {
        check_part("folder", part)?;
    }
    Ok(parts.into_iter().map(str::to_owned).collect())
}

/// The file of the note with this title.
pub(crate) fn note_file(title: &str) -> Result<String, NameError> {
    let title = nfc(title);
    check_part("title", &title)?;
    Ok(format!("{title}.md"))
}

/// A tag as it is stored, without a leading `#`.
pub(crate) fn parse_tag(text: &str) -> Result<String, NameError> {
    let tag = text.strip_prefix('#').unwrap_or(text);
    let wrong = if tag.is_empty() {
        "is empty"
    } else if tag.len() > TAG_BYTES_MAX {
        "is too long"
    } else if !tag.chars().all(is_tag_char) {
        "has a character that tags can't hold"
    } else if tag.chars().all(|letter| letter.is_ascii_digit()) {
        "is only a number"
    } else {
        return Ok(tag.to_owned());
    };
    let mend = "use letters, digits, `-`, `_` and `/` without spaces, such as `to-do`".into();
    Err(name_error("tag", text, wrong, mend))
}

fn is_tag_char(letter: char) -> bool {
    let kept = matches!(letter, '-' | '_' | '/');
    kept || letter.is_ascii_alphanumeric()
        || !(letter.is_ascii() || letter.is_whitespace() || is_invisible(letter))
}

fn check_part(what: &'static str, text: &str) -> Result<(), NameError> {
    if fold_case(text).ends_with(".md") {
        let mend = "leave `.md` out, the vault adds it to notes".into();
        return Err(name_error(what, text, "has a file's ending", mend));
    }
    let Some(wrong) = part_error(text) else {
        return Ok(());
    };
    let mend = match suggestion(text) {
        Some(better) => format!("use for example `{better}`"),
        None => "use another name".into(),
    };
    Err(name_error(what, text, wrong, mend))
}

fn part_error(text: &str) -> Option<&'static str> {
    if text.is_empty() {
        Some("has an empty part")
    } else if text.len() > PART_BYTES_MAX {
        Some("is longer than 200 bytes")
    } else if text.starts_with('.') {
        Some("begins with a dot")
    } else if text.ends_with('.') {
        Some("ends with a dot")
    } else if text.trim() != text {
        Some("begins or ends with a space")
    } else if text.chars().any(|letter| FORBIDDEN.contains(&letter)) {
        Some("holds one of / \\ : * ? \" < > | # ^ [ ]")
    } else if text.chars().any(is_invisible) {
        Some("holds a control or invisible character")
    } else if is_device_name(text) {
        Some("is a name that Windows keeps for a device")
    } else {
        None
    }
}

fn suggestion(text: &str) -> Option<String> {
    let mut better = String::new();
    for letter in text.chars() {
        let letter = match letter {
            letter if is_invisible(letter) => continue,
            letter if FORBIDDEN.contains(&letter) => '-',
            letter => letter,
        };
        if better.len() + letter.len_utf8() > PART_BYTES_MAX {
            break;
        }
        better.push(letter);
    }
    if is_device_name(&better) {
        better.insert_str(0, "Note ");
    }
    let better =
        better.trim_matches(|edge: char| edge == '.' || edge == '-' || edge.is_whitespace());
    part_error(better).is_none().then(|| better.to_owned())
}

fn name_error(what: &'static str, text: &str, problem: &'static str, hint: String) -> NameError {
    NameError { what, display: escaped(text), problem, hint }
}

#[cfg(test)]
mod tests {
    use super::{note_file, parse_folder, parse_tag};
    use crate::filename_fold::fold_case;

    fn check(title: &str, expected: &str) {
        let said = note_file(title).unwrap_or_else(|bad| bad.to_string());
        assert!(said.contains(expected), "{title:?}: {said}");
    }

    #[test]
    fn note_titles_are_validated() {
        check("Buy milk", "Buy milk.md");
        check("Größe 2.0 👨‍👩‍👧", "Größe 2.0 👨‍👩‍👧.md");
        check("console", "console.md");
        check("COM10", "COM10.md");
        check("", "has an empty part; use another name");
        check("..", "begins with a dot");
        check(".obsidian", "use for example `obsidian`");
        check("a.", "ends with a dot");
        check(" a", "use for example `a`");
        check("What is HTTP/2?", "use for example `What is HTTP-2`");
        check("a\0b", "control or invisible");
        check("a\u{202e}b", "use for example `ab`");
        check("nul", "use for example `Note nul`");
        check("Aux.txt", "keeps for a device");
        check("COM¹", "keeps for a device");
        check("lpt1 .x", "keeps for a device");
        check("Plan.MD", "leave `.md` out");
        check(&"é".repeat(101), "longer than 200 bytes");
        check(&"é".repeat(100), ".md");
    }

    #[test]
    fn note_folders_are_validated_by_segment() {
        let check = |text: &str, expected: Option<usize>| {
            let parts = parse_folder(text).ok().map(|parts| parts.len());
            assert_eq!(parts, expected, "{text:?}");
        };
        check("", Some(0));
        check("Projects/Alpha", Some(2));
        for text in ["/etc", "a/", "a//b", "a/../b", "./a", "a\\b", "C:", "a/con/b", "a.md"] {
            check(text, None);
        }
        check(&["a"; 9].join("/"), None);
    }

    #[test]
    fn tags_are_validated_and_keep_their_case() {
        assert_eq!(parse_tag("#work/Ünïcode_1"), Ok("work/Ünïcode_1".into()));
        for text in ["", "#", "to do", "2026", "a,b", "a#b", "a\u{200b}"] {
            assert!(parse_tag(text).is_err(), "{text:?}");
        }
        assert_eq!(fold_case("STRASSE ſ"), fold_case("straße S"));
    }
}
