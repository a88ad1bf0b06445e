//! A path as a model writes it, and the one path that is meant.
//!
//! Never: asks the disk. What a rule matched and what is touched come from the
//! same lines, so they can't differ.

use std::path::{Path, PathBuf};

use crate::filename_fold::{escaped, is_device_name, is_invisible};

/// The longest path, in bytes.
const PATH_BYTES_MAX: usize = 1_024;
/// The longest part of a path, in bytes: what file systems hold.
const PART_BYTES_MAX: usize = 255;
/// How deep folders may stand in one another.
pub(crate) const DEPTH_MAX: usize = 32;

/// What is wrong with a path, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{display}` {problem}; {hint}")]
pub(crate) struct PathError {
    display: String,
    problem: &'static str,
    hint: &'static str,
}

impl PathError {
    /// A path that is refused for this.
    pub(crate) fn new(text: &str, problem: &'static str, hint: &'static str) -> Self {
        Self { display: escaped(text), problem, hint }
    }
}

/// What a path begins at, in words for whoever wrote one that leads elsewhere.
#[derive(Debug)]
pub(crate) struct PathRoot {
    outside: &'static str,
    hint: &'static str,
}

const WORKSPACE: PathRoot = PathRoot {
    outside: "is outside of the workspace",
    hint: "write the path from the workspace's top, such as `src/main.rs`",
};

/// The folder of a skill.
pub(crate) const SKILL: PathRoot = PathRoot {
    outside: "is outside of the skill's folder",
    hint: "write the path from the skill's folder, such as `references/api.md`",
};

/// The parts of a path below the workspace; none for the workspace itself.
/// An absolute path is fine where it begins with one of the workspace's own.
pub(crate) fn parts(roots: &[PathBuf], text: &str) -> Result<Vec<String>, PathError> {
    parts_below(&WORKSPACE, roots, text)
}

/// The same below another top.
pub(crate) fn parts_below(
    top: &PathRoot,
    roots: &[PathBuf],
    text: &str,
) -> Result<Vec<String>, PathError> {
    let from_top = top.hint;
    if text.len() > PATH_BYTES_MAX {
        return Err(PathError::new(text, "is too long", from_top));
    }
    let below = if text.starts_with('/') {
        let below = roots.iter().find_map(|root| below(root, text));
        below.ok_or_else(|| PathError::new(text, top.outside, from_top))?
    } else {
        text
    };
    if below == "~" || below.starts_with("~/") {
        return Err(PathError::new(text, top.outside, from_top));
    }
    let mut parts = Vec::new();
    for part in below.split('/') {
        if part.is_empty() || part == "." {
            continue;
        }
        if part == ".." {
            // Not even where it would stay inside: behind a link it would not.
            return Err(PathError::new(text, "has `..` in it", from_top));
        }
        if let Some((wrong, mend)) = part_error(part) {
            return Err(PathError::new(text, wrong, mend));
        }
        parts.push(part.to_owned());
    }
    if parts.len() > DEPTH_MAX {
        let mend = "use at most 32 folders in one another";
        return Err(PathError::new(text, "is too deep", mend));
    }
    Ok(parts)
}

/// The one spelling of a path, by which rules know it.
pub(crate) fn joined(parts: &[String]) -> String {
    if parts.is_empty() { ".".into() } else { parts.join("/") }
}

/// What is wrong with a part of any path.
pub(crate) fn part_error(part: &str) -> Option<(&'static str, &'static str)> {
    if part.len() > PART_BYTES_MAX {
        Some(("has a part longer than 255 bytes", "use a shorter name"))
    } else if part.chars().any(is_invisible) {
        Some(("holds a control or invisible character", "leave it out"))
    } else if part.contains('\\') {
        Some(("holds a `\\`", "part folders by `/`"))
    } else {
        None
    }
}

/// What is wrong with a part of a path that is to be written: it would be
/// another file, or none, on another system.
pub(crate) fn write_error(part: &str) -> Option<&'static str> {
    if part.ends_with('.') || part.trim() != part {
        Some("has a part that begins or ends with a space or ends with a dot")
    } else if part.contains(':') {
        Some("holds a `:`, which some systems take for something else")
    } else if is_device_name(part) {
        Some("has a name that Windows keeps for a device")
    } else {
        None
    }
}

fn below<'a>(root: &Path, text: &'a str) -> Option<&'a str> {
    let root = root.to_str()?.trim_end_matches('/');
    let below = text.strip_prefix(root)?;
    (below.is_empty() || below.starts_with('/')).then_some(below)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::{joined, parts};

    fn check(text: &str, expected: &str) {
        let roots = [PathBuf::from("/home/ada/plot"), PathBuf::from("/w/")];
        let said = match parts(&roots, text) {
            Ok(parts) => joined(&parts),
            Err(bad) => bad.to_string(),
        };
        assert!(
            said == expected || said.contains("; ") && said.contains(expected),
            "{text:?}: {said}"
        );
    }

    #[test]
    fn each_path_has_one_normal_form() {
        for text in ["", ".", "./", "/w", "/w/", "/home/ada/plot", "/w/./"] {
            check(text, ".");
        }
        for text in ["a/b", "./a/b", "a//b/", "a/./b", "/w/a/b", "/home/ada/plot//a/b"] {
            check(text, "a/b");
        }
        check("Größe/👨‍👩‍👧 .[id].tsx", "Größe/👨‍👩‍👧 .[id].tsx");
        check("~x/a~", "~x/a~");
        check("...", "...");
    }

    #[test]
    fn paths_outside_the_workspace_are_rejected() {
        for text in ["/", "/etc/passwd", "/wide", "/home/ada/plotshop/a", "//w/a", "~", "~/a"] {
            check(text, "outside of the workspace");
        }
        for text in ["..", "../a", "a/..", "a/../b", "/w/../etc", "./../a", "a/b/../../.."] {
            check(text, "has `..`");
        }
        check("a\\b", "part folders by `/`");
        check("..\\..\\etc", "part folders by `/`");
        check("a\0b", "control or invisible");
        check("a/\u{202e}b", "control or invisible");
        check("a\nb", "control or invisible");
        check("a\u{e0061}", "control or invisible");
        check(".\u{200b}env", "control or invisible");
        check(&"a/".repeat(33), "too deep");
        check(&"a".repeat(256), "longer than 255 bytes");
        check(&"a/".repeat(600), "too long");
    }
}
