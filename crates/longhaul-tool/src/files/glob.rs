//! Globs over paths: `*` and `?` inside of a name, `**` over folders, `{a,b}`,
//! `[a-z]`.
//!
//! Never: takes longer than the path is long, whatever was written.

use regex::{Regex, RegexBuilder, escape};

/// The longest glob, in bytes.
const GLOB_BYTES_MAX: usize = 500;
/// The largest automaton, in bytes.
const REGEX_BYTES_MAX: usize = 1024 * 1024;

/// A glob.
#[derive(Debug)]
pub(crate) struct Glob {
    regex: Regex,
    text: String,
    /// Without a `/` it is about names, in whatever folder.
    names_only: bool,
}

impl Glob {
    /// The glob of this text, or what is wrong with it.
    pub(crate) fn new(text: &str) -> Result<Self, String> {
        if text.len() > GLOB_BYTES_MAX {
            return Err(format!("the glob is longer than {GLOB_BYTES_MAX} bytes"));
        }
        let text = text.strip_prefix("./").unwrap_or(text);
        let mut builder = RegexBuilder::new(&to_regex(text));
        let regex = builder.size_limit(REGEX_BYTES_MAX).build();
        let regex = regex.map_err(|_| {
            format!(
                "`{text}` is no glob; write one such as `*.rs`, `src/**/*.rs` or `*.{{ts,tsx}}`"
            )
        })?;
        Ok(Self { regex, names_only: !text.contains('/'), text: text.to_owned() })
    }

    /// Whether it fits a path, which is given from the workspace's top and
    /// from the folder where the walk began.
    pub(crate) fn is_match(&self, from_top: &str, from_start: &str) -> bool {
        if self.names_only {
            let name = from_top.rsplit('/').next().unwrap_or(from_top);
            return self.regex.is_match(name);
        }
        self.regex.is_match(from_start) || self.regex.is_match(from_top)
    }

    /// Whether it names this folder.
    pub(crate) fn mentions(&self, folder: &str) -> bool {
        self.text.split('/').any(|part| part == folder)
    }
}

fn to_regex(text: &str) -> String {
    let mut regex = String::from("^(?s:");
    let mut rest = text;
    let mut depth = 0_usize;
    while let Some(letter) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("**/") {
            regex.push_str("(?:.*/)?");
            rest = after;
            continue;
        }
        if let Some(after) = rest.strip_prefix("**") {
            regex.push_str(".*");
            rest = after;
            continue;
        }
        if let Some((class, after)) = char_class(rest) {
            regex.push_str(&class);
            rest = after;
            continue;
        }
        rest = &rest[letter.len_utf8()..];
        match letter {
            '*' => regex.push_str("[^/]*"),
            '?' => regex.push_str("[^/]"),
            '{' => {
                depth += 1;
                regex.push_str("(?:");
            }
            '}' if depth > 0 => {
                depth -= 1;
                regex.push(')');
            }
            ',' if depth > 0 => regex.push('|'),
            letter => regex.push_str(&escape(letter.encode_utf8(&mut [0; 4]))),
        }
    }
    regex.push_str(")$");
    regex
}

/// `[...]` at the beginning, as a regular expression, and what comes after.
fn char_class(rest: &str) -> Option<(String, &str)> {
    let inside = rest.strip_prefix('[')?;
    let (inside, after) = inside.split_once(']')?;
    let (not, inside) = match inside.strip_prefix(['!', '^']) {
        Some(inside) => ("^/", inside),
        None => ("", inside),
    };
    if inside.is_empty() {
        return None;
    }
    let letters: String = inside
        .chars()
        .map(|letter| match letter {
            '-' => "-".to_owned(),
            letter => escape(letter.encode_utf8(&mut [0; 4])),
        })
        .collect();
    Some((format!("[{not}{letters}]"), after))
}

#[cfg(test)]
mod tests {
    use super::Glob;

    fn check(glob: &str, path: &str, expected: bool) {
        let fits = Glob::new(glob).unwrap().is_match(path, path);
        assert_eq!(fits, expected, "{glob} {path}");
    }

    #[test]
    fn globs_match_paths() {
        check("*.rs", "main.rs", true);
        check("*.rs", "src/deep/main.rs", true);
        check("*.rs", "main.rsx", false);
        check("src/*.rs", "src/main.rs", true);
        check("src/*.rs", "src/deep/main.rs", false);
        check("src/**/*.rs", "src/main.rs", true);
        check("src/**/*.rs", "src/a/b/main.rs", true);
        check("**/*.rs", "main.rs", true);
        check("**", "a/b", true);
        check("src/**", "src/a/b", true);
        check("./src/**", "src/a/b", true);
        check("*.{ts,tsx}", "a/b.tsx", true);
        check("*.{ts,tsx}", "a/b.tsxx", false);
        check("[a-c]?.md", "b1.md", true);
        check("[!a-c]*.md", "b1.md", false);
        check("[!a-c]*.md", "d.md", true);
        check("pages/[[]id].tsx", "pages/[id].tsx", true);
        check("a+b(c).$", "a+b(c).$", true);
        check("größe-?.md", "größe-ü.md", true);
        check("[", "[", true);
    }

    #[test]
    fn hostile_globs_are_matched_in_linear_time_or_refused() {
        // A matcher that goes back to try again would take longer than anybody waits.
        let (path, other) = ("a".repeat(1_000), format!("{}b", "a".repeat(1_000)));
        for (glob, fits_path, fits_other) in [
            ("*a".repeat(200), true, false),
            ("{*,**}".repeat(60), true, true),
            ("**/".repeat(120), false, false),
        ] {
            check(&glob, &path, fits_path);
            check(&glob, &other, fits_other);
        }
        for glob in ["{a", "[z-a]", &"x".repeat(501)] {
            assert!(Glob::new(glob).is_err(), "{glob}");
        }
    }
}
