//! Parsing of paths that a model writes.
//!
//! Invariant: the disk is not accessed. Approval rules and file access use the same parsed path, so
//! they can't differ.

use std::path::{Path, PathBuf};

use crate::filename_fold::{escape_for_message, is_invisible_char, is_windows_device_name};

/// Maximum length of a path in bytes.
const PATH_BYTES_MAX: usize = 1_024;
/// Maximum length of a path component in bytes, as in common file systems.
const PART_BYTES_MAX: usize = 255;
/// Maximum number of nested folders in a path.
pub(crate) const DEPTH_MAX: usize = 32;

/// What is wrong with a path or another name, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{subject} {problem}; {hint}")]
pub(crate) struct NameError {
    subject: String,
    problem: &'static str,
    hint: String,
}

impl NameError {
    /// Creates the error for a rejected name.
    pub(crate) fn new(name: &str, problem: &'static str, hint: impl Into<String>) -> Self {
        let subject = format!("`{}`", escape_for_message(name));
        Self { subject, problem, hint: hint.into() }
    }

    /// Adds the kind of the name, such as `folder`.
    pub(crate) fn with_kind(self, kind: &str) -> Self {
        Self { subject: format!("{kind} {}", self.subject), ..self }
    }
}

/// Error texts for a path outside of the folder that it must be in: what is wrong, and a hint.
#[derive(Debug)]
pub(crate) struct OutsidePathErrorTexts {
    outside: &'static str,
    hint: &'static str,
}

const WORKSPACE: OutsidePathErrorTexts = OutsidePathErrorTexts {
    outside: "is outside of the workspace",
    hint: "write the path relative to the top of the workspace, such as `src/main.rs`",
};

/// Error texts for paths that are relative to the folder of a skill.
pub(crate) const SKILL: OutsidePathErrorTexts = OutsidePathErrorTexts {
    outside: "is outside of the skill's folder",
    hint: "write the path relative to the skill's folder, such as `references/api.md`",
};

/// Returns the components of a path in the workspace; they are empty for the workspace itself. An
/// absolute path is allowed if it starts with a root of the workspace.
pub(crate) fn parse_in_workspace(roots: &[PathBuf], text: &str) -> Result<Vec<String>, NameError> {
    parse_below(&WORKSPACE, roots, text)
}

/// Returns the components of a path below one of these roots.
pub(crate) fn parse_below(
    texts: &OutsidePathErrorTexts,
    roots: &[PathBuf],
    text: &str,
) -> Result<Vec<String>, NameError> {
    let root_hint = texts.hint;
    if text.len() > PATH_BYTES_MAX {
        return Err(NameError::new(text, "is too long", root_hint));
    }
    let relative = if text.starts_with('/') {
        let relative = roots.iter().find_map(|root| strip_root_prefix(root, text));
        relative.ok_or_else(|| NameError::new(text, texts.outside, root_hint))?
    } else {
        text
    };
    if relative == "~" || relative.starts_with("~/") {
        return Err(NameError::new(text, texts.outside, root_hint));
    }
    let mut parts = Vec::new();
    for part in relative.split('/') {
        if part.is_empty() || part == "." {
            continue;
        }
        if part == ".." {
            // Rejected even where it would stay inside, because behind a symbolic link it would
            // not.
            return Err(NameError::new(text, "has `..` in it", root_hint));
        }
        if let Some((problem, hint)) = part_problem(part) {
            return Err(NameError::new(text, problem, hint));
        }
        parts.push(part.to_owned());
    }
    if parts.len() > DEPTH_MAX {
        let hint = "use at most 32 nested folders";
        return Err(NameError::new(text, "is too deep", hint));
    }
    Ok(parts)
}

/// Returns the path with these components in normal form, which approval rules match.
pub(crate) fn join_parts(parts: &[String]) -> String {
    if parts.is_empty() { ".".into() } else { parts.join("/") }
}

/// Returns what is wrong with a path component, and what to write instead. `None` if the component
/// is valid.
pub(crate) fn part_problem(part: &str) -> Option<(&'static str, &'static str)> {
    if part.len() > PART_BYTES_MAX {
        Some(("has a component longer than 255 bytes", "use a shorter name"))
    } else if part.chars().any(is_invisible_char) {
        Some(("contains a control or invisible character", "leave it out"))
    } else if part.contains('\\') {
        Some(("contains a `\\`", "separate folders by `/`"))
    } else {
        None
    }
}

/// Returns why no file or folder with this name may be created: some operating system can't store
/// the name or gives it another meaning. `None` means that the name is allowed.
pub(crate) fn new_name_problem(part: &str) -> Option<&'static str> {
    if part.ends_with('.') || part.trim() != part {
        Some("has a component that starts or ends with a space or ends with a dot")
    } else if part.contains(':') {
        Some("contains a `:`, which has a special meaning on some systems")
    } else if is_windows_device_name(part) {
        Some("has a name that Windows reserves for a device")
    } else {
        None
    }
}

/// Returns the part of an absolute path below this root. `None` if the path is not below it.
pub(crate) fn strip_root_prefix<'a>(root: &Path, text: &'a str) -> Option<&'a str> {
    let root = root.to_str()?.trim_end_matches('/');
    let rest = text.strip_prefix(root)?;
    (rest.is_empty() || rest.starts_with('/')).then_some(rest)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::{join_parts, parse_in_workspace};

    fn check_path_normal_form(text: &str, expected: &str) {
        let roots = [PathBuf::from("/home/ada/plot"), PathBuf::from("/w/")];
        let result = match parse_in_workspace(&roots, text) {
            Ok(parts) => join_parts(&parts),
            Err(error) => error.to_string(),
        };
        assert!(
            result == expected || result.contains("; ") && result.contains(expected),
            "{text:?}: {result}"
        );
    }

    #[test]
    fn each_path_has_one_normal_form() {
        for text in ["", ".", "./", "/w", "/w/", "/home/ada/plot", "/w/./"] {
            check_path_normal_form(text, ".");
        }
        for text in ["a/b", "./a/b", "a//b/", "a/./b", "/w/a/b", "/home/ada/plot//a/b"] {
            check_path_normal_form(text, "a/b");
        }
        check_path_normal_form("Größe/👨‍👩‍👧 .[id].tsx", "Größe/👨‍👩‍👧 .[id].tsx");
        check_path_normal_form("~x/a~", "~x/a~");
        check_path_normal_form("...", "...");
    }

    #[test]
    fn paths_outside_the_workspace_are_rejected() {
        for text in ["/", "/etc/passwd", "/wide", "/home/ada/plotshop/a", "//w/a", "~", "~/a"] {
            check_path_normal_form(text, "outside of the workspace");
        }
        for text in ["..", "../a", "a/..", "a/../b", "/w/../etc", "./../a", "a/b/../../.."] {
            check_path_normal_form(text, "has `..`");
        }
        check_path_normal_form("a\\b", "separate folders by `/`");
        check_path_normal_form("..\\..\\etc", "separate folders by `/`");
        check_path_normal_form("a\0b", "control or invisible");
        check_path_normal_form("a/\u{202e}b", "control or invisible");
        check_path_normal_form("a\nb", "control or invisible");
        check_path_normal_form("a\u{e0061}", "control or invisible");
        check_path_normal_form(".\u{200b}env", "control or invisible");
        check_path_normal_form(&"a/".repeat(33), "too deep");
        check_path_normal_form(&"a".repeat(256), "longer than 255 bytes");
        check_path_normal_form(&"a/".repeat(600), "too long");
    }
}
