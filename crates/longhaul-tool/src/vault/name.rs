//! Rules for names of notes, folders and tags.
//!
//! Invariant: a name is never silently changed to one that looks different. A name that some file
//! system or Obsidian can't store is rejected with a suggestion. So the name that an approval rule
//! matches is the name that is accessed, and a note has the same name on every machine.

use icu_normalizer::ComposingNormalizerBorrowed;

use crate::filename_fold::{
    escape_for_message, fold_case, is_invisible_char, is_windows_device_name,
};
use crate::files::path::NameError;

/// Maximum length of a path component in bytes. Every file system allows that length plus `.md`.
const PART_BYTES_MAX: usize = 200;
/// Maximum number of nested folders in a vault.
pub(crate) const DEPTH_MAX: usize = 8;
/// Maximum length of a tag in bytes.
const TAG_BYTES_MAX: usize = 100;
/// Characters that can't be in a name on Windows, on macOS or in an Obsidian link.
const FORBIDDEN: &[char] = &['/', '\\', ':', '*', '?', '"', '<', '>', '|', '#', '^', '[', ']'];
/// Normalizes a name to Unicode NFC, so that `é` is always a single code point.
pub(crate) fn normalize_nfc(text: &str) -> String {
    let nfc = const { ComposingNormalizerBorrowed::new_nfc() };
    nfc.normalize(text).into_owned()
}

/// Returns the components of a folder path such as `Projects/Alpha`, empty for the vault itself.
pub(crate) fn parse_note_folder(text: &str) -> Result<Vec<String>, NameError> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let text = &normalize_nfc(text);
    let parts: Vec<&str> = text.split('/').collect();
    if parts.len() > DEPTH_MAX {
        let hint = format!("use at most {DEPTH_MAX} nested folders");
        return Err(NameError::new(text, "is too deep", hint).with_kind("folder"));
    }
    if parts.contains(&"") {
        let names: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        let hint = match names.as_slice() {
            [] => "leave it out for the vault itself".into(),
            names => format!("use for example `{}`", escape_for_message(&names.join("/"))),
        };
        return Err(NameError::new(text, "has an empty component", hint).with_kind("folder"));
    }
    for part in &parts {
        check_name_component("folder", part)?;
    }
    Ok(parts.into_iter().map(str::to_owned).collect())
}

pub(crate) fn note_file_name(title: &str) -> Result<String, NameError> {
    let title = normalize_nfc(title);
    check_name_component("title", &title)?;
    Ok(format!("{title}.md"))
}

/// Returns a tag in the form in which it is stored, without a leading `#`.
pub(crate) fn parse_tag(text: &str) -> Result<String, NameError> {
    let tag = text.strip_prefix('#').unwrap_or(text);
    let is_tag_char = |c: char| {
        matches!(c, '-' | '_' | '/')
            || c.is_ascii_alphanumeric()
            || !(c.is_ascii() || c.is_whitespace() || is_invisible_char(c))
    };
    let problem = if tag.is_empty() {
        "is empty"
    } else if tag.len() > TAG_BYTES_MAX {
        "is too long"
    } else if !tag.chars().all(is_tag_char) {
        "has a character that is not allowed in tags"
    } else if tag.chars().all(|c| c.is_ascii_digit()) {
        "is only a number"
    } else {
        return Ok(tag.to_owned());
    };
    let hint = "use letters, digits, `-`, `_` and `/` without spaces, such as `to-do`";
    Err(NameError::new(text, problem, hint).with_kind("tag"))
}

fn check_name_component(name_kind: &'static str, text: &str) -> Result<(), NameError> {
    if fold_case(text).ends_with(".md") {
        let hint = "leave `.md` out, the vault adds it to notes";
        return Err(NameError::new(text, "has a file extension", hint).with_kind(name_kind));
    }
    let Some(problem) = name_component_problem(text) else {
        return Ok(());
    };
    let hint = match suggest_valid_name(text) {
        Some(valid_name) => format!("use for example `{valid_name}`"),
        None => "use another name".into(),
    };
    Err(NameError::new(text, problem, hint).with_kind(name_kind))
}

fn name_component_problem(text: &str) -> Option<&'static str> {
    if text.is_empty() {
        Some("is empty")
    } else if text.len() > PART_BYTES_MAX {
        Some("is longer than 200 bytes")
    } else if text.starts_with('.') {
        Some("starts with a dot")
    } else if text.ends_with('.') {
        Some("ends with a dot")
    } else if text.trim() != text {
        Some("starts or ends with a space")
    } else if text.chars().any(|c| FORBIDDEN.contains(&c)) {
        Some("contains one of / \\ : * ? \" < > | # ^ [ ]")
    } else if text.chars().any(is_invisible_char) {
        Some("contains a control or invisible character")
    } else if is_windows_device_name(text) {
        Some("is a name that Windows reserves for a device")
    } else {
        None
    }
}

fn suggest_valid_name(text: &str) -> Option<String> {
    let mut suggestion = String::new();
    for c in text.chars() {
        let c = match c {
            c if is_invisible_char(c) => continue,
            c if FORBIDDEN.contains(&c) => '-',
            c => c,
        };
        if suggestion.len() + c.len_utf8() > PART_BYTES_MAX {
            break;
        }
        suggestion.push(c);
    }
    if is_windows_device_name(&suggestion) {
        suggestion.insert_str(0, "Note ");
    }
    let suggestion = suggestion.trim_matches(|c: char| c == '.' || c == '-' || c.is_whitespace());
    name_component_problem(suggestion).is_none().then(|| suggestion.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{note_file_name, parse_note_folder, parse_tag};
    use crate::filename_fold::fold_case;

    fn check_note_title(title: &str, expected: &str) {
        let result = note_file_name(title).unwrap_or_else(|error| error.to_string());
        assert!(result.contains(expected), "{title:?}: {result}");
    }

    #[test]
    fn note_titles_are_validated() {
        check_note_title("Buy milk", "Buy milk.md");
        check_note_title("Größe 2.0 👨‍👩‍👧", "Größe 2.0 👨‍👩‍👧.md");
        check_note_title("console", "console.md");
        check_note_title("COM10", "COM10.md");
        check_note_title("", "title `` is empty; use another name");
        check_note_title("..", "starts with a dot");
        check_note_title(".obsidian", "use for example `obsidian`");
        check_note_title("a.", "ends with a dot");
        check_note_title(" a", "use for example `a`");
        check_note_title("What is HTTP/2?", "use for example `What is HTTP-2`");
        check_note_title("a\0b", "control or invisible");
        check_note_title("a\u{202e}b", "use for example `ab`");
        check_note_title("nul", "use for example `Note nul`");
        check_note_title("Aux.txt", "reserves for a device");
        check_note_title("COM¹", "reserves for a device");
        check_note_title("lpt1 .x", "reserves for a device");
        check_note_title("Plan.MD", "leave `.md` out");
        check_note_title(&"é".repeat(101), "longer than 200 bytes");
        check_note_title(&"é".repeat(100), ".md");
    }

    #[test]
    fn note_folders_are_validated_by_segment() {
        let check = |text: &str, expected: Option<usize>| {
            let parts = parse_note_folder(text).ok().map(|parts| parts.len());
            assert_eq!(parts, expected, "{text:?}");
        };
        check("", Some(0));
        check("Projects/Alpha", Some(2));
        for text in ["/etc", "a/", "a//b", "a/../b", "./a", "a\\b", "C:", "a/con/b", "a.md"] {
            check(text, None);
        }
        check(&["a"; 9].join("/"), None);
        let error = parse_note_folder("/etc").unwrap_err().to_string();
        assert_eq!(error, "folder `/etc` has an empty component; use for example `etc`");
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
