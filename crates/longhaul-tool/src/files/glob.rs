//! Globs for paths: `*` and `?` inside of a name, `**` across folders, `{a,b}`, `[a-z]`.
//!
//! Invariant: matching takes linear time for every glob.

use regex::{Regex, RegexBuilder, escape};

/// Maximum length of a glob in bytes.
const GLOB_BYTES_MAX: usize = 500;
/// Maximum size of the regular expression that a glob is compiled to, in bytes.
const REGEX_BYTES_MAX: usize = 1024 * 1024;

/// A compiled glob for paths.
#[derive(Debug)]
pub(crate) struct Glob {
    regex: Regex,
    text: String,
    /// Whether the glob has no `/`, so that it matches names in any folder.
    names_only: bool,
}

impl Glob {
    /// Compiles a glob. The error says what is wrong with the glob.
    pub(crate) fn new(text: &str) -> Result<Self, String> {
        if text.len() > GLOB_BYTES_MAX {
            return Err(format!("the glob is longer than {GLOB_BYTES_MAX} bytes"));
        }
        let text = text.strip_prefix("./").unwrap_or(text);
        let mut builder = RegexBuilder::new(&glob_to_regex(text));
        let regex = builder.size_limit(REGEX_BYTES_MAX).build();
        let regex = regex.map_err(|_| {
            format!(
                "`{text}` is not a valid glob; write one such as `*.rs`, `src/**/*.rs` or `*.{{ts,tsx}}`"
            )
        })?;
        Ok(Self { regex, names_only: !text.contains('/'), text: text.to_owned() })
    }

    /// Compiles the glob of an input. Models send an empty text for fields they leave out.
    pub(crate) fn parse_optional(text: Option<&str>) -> Result<Option<Self>, String> {
        text.filter(|text| !text.is_empty()).map(Self::new).transpose()
    }

    /// Returns whether the glob matches a file. Its path is passed twice: relative to the top of
    /// the workspace, and relative to the folder where the walk started.
    pub(crate) fn is_match(
        &self,
        path_from_workspace_root: &str,
        path_from_walk_start: &str,
    ) -> bool {
        if self.names_only {
            return path_from_workspace_root
                .rsplit('/')
                .next()
                .is_some_and(|name| self.regex.is_match(name));
        }
        self.regex.is_match(path_from_walk_start) || self.regex.is_match(path_from_workspace_root)
    }

    /// Returns whether one of the glob's path components is exactly this folder name.
    pub(crate) fn contains_folder_name(&self, folder_name: &str) -> bool {
        self.text.split('/').any(|part| part == folder_name)
    }
}

fn glob_to_regex(glob_text: &str) -> String {
    let mut regex = String::from("^(?s:");
    let mut rest = glob_text;
    let mut depth = 0_usize;
    while let Some(c) = rest.chars().next() {
        if let Some((class, after)) = split_char_class(rest) {
            regex.push_str(&class);
            rest = after;
            continue;
        }
        let wildcards =
            [("**/", "(?:.*/)?"), ("**", ".*"), ("*", "[^/]*"), ("?", "[^/]"), ("{", "(?:")];
        let wildcard = wildcards.into_iter().find(|(glob, _)| rest.starts_with(glob));
        rest = &rest[wildcard.map_or(c.len_utf8(), |(glob, _)| glob.len())..];
        match (wildcard, c) {
            (Some((_, part)), _) => {
                depth += usize::from(c == '{');
                regex.push_str(part);
            }
            (None, '}') if depth > 0 => {
                depth -= 1;
                regex.push(')');
            }
            (None, ',') if depth > 0 => regex.push('|'),
            (None, c) => regex.push_str(&escape(c.encode_utf8(&mut [0; 4]))),
        }
    }
    regex.push_str(")$");
    regex
}

/// Translates a leading `[...]` of a glob to a regular expression, and returns it with the rest of
/// the glob. `None` means that the glob does not start with a valid `[...]`.
fn split_char_class(glob_rest: &str) -> Option<(String, &str)> {
    let class_chars = glob_rest.strip_prefix('[')?;
    let (class_chars, rest_of_glob) = class_chars.split_once(']')?;
    let (negation, class_chars) = match class_chars.strip_prefix(['!', '^']) {
        Some(class_chars) => ("^/", class_chars),
        None => ("", class_chars),
    };
    if class_chars.is_empty() {
        return None;
    }
    let escaped_chars: String = class_chars
        .chars()
        .map(|c| match c {
            '-' => "-".to_owned(),
            c => escape(c.encode_utf8(&mut [0; 4])),
        })
        .collect();
    Some((format!("[{negation}{escaped_chars}]"), rest_of_glob))
}

#[cfg(test)]
mod tests {
    use super::Glob;

    fn check_glob_match(glob: &str, path: &str, expected: bool) {
        let is_match = Glob::new(glob).unwrap().is_match(path, path);
        assert_eq!(is_match, expected, "{glob} {path}");
    }

    #[test]
    fn globs_match_paths() {
        check_glob_match("*.rs", "main.rs", true);
        check_glob_match("*.rs", "src/deep/main.rs", true);
        check_glob_match("*.rs", "main.rsx", false);
        check_glob_match("src/*.rs", "src/main.rs", true);
        check_glob_match("src/*.rs", "src/deep/main.rs", false);
        check_glob_match("src/**/*.rs", "src/main.rs", true);
        check_glob_match("src/**/*.rs", "src/a/b/main.rs", true);
        check_glob_match("**/*.rs", "main.rs", true);
        check_glob_match("**", "a/b", true);
        check_glob_match("src/**", "src/a/b", true);
        check_glob_match("./src/**", "src/a/b", true);
        check_glob_match("*.{ts,tsx}", "a/b.tsx", true);
        check_glob_match("*.{ts,tsx}", "a/b.tsxx", false);
        check_glob_match("[a-c]?.md", "b1.md", true);
        check_glob_match("[!a-c]*.md", "b1.md", false);
        check_glob_match("[!a-c]*.md", "d.md", true);
        check_glob_match("pages/[[]id].tsx", "pages/[id].tsx", true);
        check_glob_match("a+b(c).$", "a+b(c).$", true);
        check_glob_match("größe-?.md", "größe-ü.md", true);
        check_glob_match("[", "[", true);
    }

    #[test]
    fn hostile_globs_are_matched_in_linear_time_or_refused() {
        // A backtracking matcher would take practically forever.
        let (path, other) = ("a".repeat(1_000), format!("{}b", "a".repeat(1_000)));
        for (glob, fits_path, fits_other) in [
            ("*a".repeat(200), true, false),
            ("{*,**}".repeat(60), true, true),
            ("**/".repeat(120), false, false),
        ] {
            check_glob_match(&glob, &path, fits_path);
            check_glob_match(&glob, &other, fits_other);
        }
        for glob in ["{a", "[z-a]", &"x".repeat(501)] {
            assert!(Glob::new(glob).is_err(), "{glob}");
        }
    }
}
