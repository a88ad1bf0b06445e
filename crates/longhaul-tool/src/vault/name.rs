//! Which names a note, a folder and a tag may have.
//!
//! Never: maps a name to one that looks different. A name that some file system or
//! Obsidian can't hold is refused with one to use instead, so what a rule matched
//! is what is touched, and a note has one spelling on every machine.

use icu_normalizer::ComposingNormalizerBorrowed;

use crate::spelling::{fold, is_device, is_unseen, shown};

/// The longest part of a path, in bytes: with `.md` it fits every file system.
const PART_BYTES_MAX: usize = 200;
/// How deep folders may stand in one another.
pub(crate) const DEPTH_MAX: usize = 8;
/// The longest tag, in bytes.
const TAG_BYTES_MAX: usize = 100;
/// What Windows, macOS or a link of Obsidian can't hold in a name.
const FORBIDDEN: &[char] = &[
    '/', '\\', ':', '*', '?', '"', '<', '>', '|', '#', '^', '[', ']',
];
/// What is wrong with a name, and what to use instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} `{shown}` {wrong}; {mend}")]
pub(crate) struct BadName {
    what: &'static str,
    shown: String,
    wrong: &'static str,
    mend: String,
}

/// The name with each letter and its marks as one character where there is one
/// (NFC): `é` has one spelling here, whoever sends it.
pub(crate) fn composed(text: &str) -> String {
    let nfc = const { ComposingNormalizerBorrowed::new_nfc() };
    nfc.normalize(text).into_owned()
}

/// The parts of a folder such as `Projects/Alpha`; none for the vault itself.
pub(crate) fn folder(text: &str) -> Result<Vec<String>, BadName> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let text = &composed(text);
    let parts: Vec<&str> = text.split('/').collect();
    if parts.len() > DEPTH_MAX {
        let mend = format!("use at most {DEPTH_MAX} folders in one another");
        return Err(bad("folder", text, "is too deep", mend));
    }
    for part in &parts {
        check("folder", part)?;
    }
    Ok(parts.into_iter().map(str::to_owned).collect())
}

/// The file of the note with this title.
pub(crate) fn file(title: &str) -> Result<String, BadName> {
    let title = composed(title);
    check("title", &title)?;
    Ok(format!("{title}.md"))
}

/// A tag as it is stored, without a leading `#`.
pub(crate) fn tag(text: &str) -> Result<String, BadName> {
    let tag = text.strip_prefix('#').unwrap_or(text);
    let wrong = if tag.is_empty() {
        "is empty"
    } else if tag.len() > TAG_BYTES_MAX {
        "is too long"
    } else if !tag.chars().all(in_tag) {
        "has a character that tags can't hold"
    } else if tag.chars().all(|letter| letter.is_ascii_digit()) {
        "is only a number"
    } else {
        return Ok(tag.to_owned());
    };
    let mend = "use letters, digits, `-`, `_` and `/` without spaces, such as `to-do`".into();
    Err(bad("tag", text, wrong, mend))
}

fn in_tag(letter: char) -> bool {
    let kept = matches!(letter, '-' | '_' | '/');
    kept || letter.is_ascii_alphanumeric()
        || !(letter.is_ascii() || letter.is_whitespace() || is_unseen(letter))
}

fn check(what: &'static str, text: &str) -> Result<(), BadName> {
    if fold(text).ends_with(".md") {
        let mend = "leave `.md` out, the vault adds it to notes".into();
        return Err(bad(what, text, "has a file's ending", mend));
    }
    let Some(wrong) = fault(text) else {
        return Ok(());
    };
    let mend = match suggestion(text) {
        Some(better) => format!("use for example `{better}`"),
        None => "use another name".into(),
    };
    Err(bad(what, text, wrong, mend))
}

fn fault(text: &str) -> Option<&'static str> {
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
    } else if text.chars().any(is_unseen) {
        Some("holds a control or invisible character")
    } else if is_device(text) {
        Some("is a name that Windows keeps for a device")
    } else {
        None
    }
}

fn suggestion(text: &str) -> Option<String> {
    let mut better = String::new();
    for letter in text.chars() {
        let letter = match letter {
            letter if is_unseen(letter) => continue,
            letter if FORBIDDEN.contains(&letter) => '-',
            letter => letter,
        };
        if better.len() + letter.len_utf8() > PART_BYTES_MAX {
            break;
        }
        better.push(letter);
    }
    if is_device(&better) {
        better.insert_str(0, "Note ");
    }
    let better =
        better.trim_matches(|edge: char| edge == '.' || edge == '-' || edge.is_whitespace());
    fault(better).is_none().then(|| better.to_owned())
}

fn bad(what: &'static str, text: &str, wrong: &'static str, mend: String) -> BadName {
    BadName {
        what,
        shown: shown(text),
        wrong,
        mend,
    }
}

#[cfg(test)]
mod tests {
    use super::{file, folder, tag};
    use crate::spelling::fold;

    fn check(title: &str, expected: &str) {
        let said = file(title).unwrap_or_else(|bad| bad.to_string());
        assert!(said.contains(expected), "{title:?}: {said}");
    }

    #[test]
    fn titles() {
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
    fn folders_are_checked_part_by_part() {
        let check = |text: &str, expected: Option<usize>| {
            let parts = folder(text).ok().map(|parts| parts.len());
            assert_eq!(parts, expected, "{text:?}");
        };
        check("", Some(0));
        check("Projects/Alpha", Some(2));
        for text in [
            "/etc", "a/", "a//b", "a/../b", "./a", "a\\b", "C:", "a/con/b", "a.md",
        ] {
            check(text, None);
        }
        check(&["a"; 9].join("/"), None);
    }

    #[test]
    fn tags_and_case() {
        assert_eq!(tag("#work/Ünïcode_1"), Ok("work/Ünïcode_1".into()));
        for text in ["", "#", "to do", "2026", "a,b", "a#b", "a\u{200b}"] {
            assert!(tag(text).is_err(), "{text:?}");
        }
        assert_eq!(fold("STRASSE ſ"), fold("straße S"));
    }
}
