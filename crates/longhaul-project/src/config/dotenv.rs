//! Parses the project's `.env` file. The caller decides which values are used.
//!
//! Invariant: values are not shown, reading never blocks on a pipe and has a size limit, and
//! variables inside values are not expanded.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use crate::project_file::{self, ProjectFileError};

/// Name of the file with environment variables in a project's folder.
pub const FILE_NAME: &str = ".env";

/// Maximum size of the `.env` file in bytes.
const DOTENV_BYTES_MAX: usize = 1 << 20;

/// Replaces `$` while the lines are parsed. It is a Unicode noncharacter that a valid `.env` file
/// does not contain.
const DOLLAR_PLACEHOLDER: char = '\u{fdd0}';

/// Content of a `.env` file.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Dotenv {
    /// Values by variable name. If a name occurs twice, the first value is used.
    pub values: BTreeMap<String, String>,
    /// Whether a line of the file does not have the form `NAME=VALUE`.
    pub is_malformed: bool,
}

impl fmt::Debug for Dotenv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dotenv(hidden)")
    }
}

/// Loads the `.env` file of the project in this folder. If there is no file, the result has no
/// values.
///
/// # Errors
/// The file can't be read. The message does not contain the file's name.
pub fn load(root: &Path) -> Result<Dotenv, String> {
    let bytes =
        match project_file::read_file_in_project(root, Path::new(FILE_NAME), DOTENV_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(ProjectFileError::Missing) => return Ok(Dotenv::default()),
            Err(error) => return Err(error.to_string()),
        };
    let text = String::from_utf8_lossy(&bytes);
    let mut dotenv = Dotenv {
        is_malformed: std::str::from_utf8(&bytes).is_err() || text.contains(DOLLAR_PLACEHOLDER),
        ..Dotenv::default()
    };
    for line in dotenvy::from_read_iter(escape_dollar_signs(&text).as_bytes()) {
        match line {
            Ok((name, value)) => {
                let value = value.replace(DOLLAR_PLACEHOLDER, "$");
                _ = dotenv.values.entry(name).or_insert(value);
            }
            Err(_) => dotenv.is_malformed = true,
        }
    }
    Ok(dotenv)
}

/// Replaces every `$` with a placeholder, since the parser would expand `$NAME`. A `$` after a
/// backslash is already literal and stays.
fn escape_dollar_signs(text: &str) -> String {
    let mut is_escaped = false;
    let escaped = text.chars().map(|c| {
        let is_unescaped = !is_escaped;
        is_escaped = is_unescaped && c == '\\';
        match c {
            '$' if is_unescaped => DOLLAR_PLACEHOLDER,
            DOLLAR_PLACEHOLDER => char::REPLACEMENT_CHARACTER,
            _ => c,
        }
    });
    escaped.collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Ensures that a `.env` file is parsed in linear time: a parser that starts again at the first
    /// line for each line would take hours.
    #[test]
    fn long_dotenv_files_are_read_in_linear_time() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(FILE_NAME);
        let lines: String = (0..80_000).map(|n| format!("A{n:05}=1\n")).collect();
        std::fs::write(&file, lines).unwrap();
        assert_eq!(load(folder.path()).unwrap().values.len(), 80_000);
        let open = format!("A=\"{}", "x\n".repeat(500_000));
        std::fs::write(&file, open).unwrap();
        assert!(load(folder.path()).unwrap().is_malformed);
    }

    #[test]
    fn a_dotenv_that_is_a_link_a_pipe_or_too_long_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(FILE_NAME);
        let check = |expected: &str| {
            let error = load(folder.path()).unwrap_err();
            assert!(error.contains(expected), "{error}");
            std::fs::remove_file(&file).unwrap();
        };
        assert_eq!(load(folder.path()), Ok(Dotenv::default()));
        symlink("/dev/zero", &file).unwrap();
        check("is a link that leads out of the project");
        rustix::fs::mkfifoat(rustix::fs::CWD, &file, 0o600.into()).unwrap();
        check("is not a regular file");
        std::fs::write(&file, "#".repeat(DOTENV_BYTES_MAX + 1)).unwrap();
        check("is longer than 1048576 bytes");
        std::fs::write(&file, b"A=1\nA=2\nwhat is this\nB='2 3'\n").unwrap();
        let dotenv = load(folder.path()).unwrap();
        assert!(dotenv.is_malformed);
        let values: Vec<_> = dotenv.values.iter().collect();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let expected_values = [pair("A", "1"), pair("B", "2 3")];
        assert_eq!(values, expected_values.iter().map(|(a, b)| (a, b)).collect::<Vec<_>>());
        assert_eq!(format!("{dotenv:?}"), "Dotenv(hidden)");
    }

    #[test]
    fn a_dollar_is_literal_and_nothing_is_expanded() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(FILE_NAME);
        // PATH exists in every process, so an expansion would be noticed.
        assert!(std::env::var_os("PATH").is_some());
        for (raw_value, expect) in [
            ("$PATH", "$PATH"),
            ("${PATH}", "${PATH}"),
            ("pa$$word", "pa$$word"),
            ("$A-$", "$A-$"),
            ("\"a $PATH ${A}\"", "a $PATH ${A}"),
            ("'a $PATH ${A}'", "a $PATH ${A}"),
            (r"\$PATH", "$PATH"),
            (r"\\$PATH", r"\$PATH"),
            (r"\\\$PATH", r"\$PATH"),
            (r#""\$PATH \\$PATH""#, r"$PATH \$PATH"),
            (r"'\$PATH \\$PATH'", r"\$PATH \\$PATH"),
            ("'a\n$PATH'", "a\n$PATH"),
            ("v # $PATH ${", "v"),
        ] {
            std::fs::write(&file, format!("A=1\nB={raw_value}\nC=3\n")).unwrap();
            let dotenv = load(folder.path()).unwrap();
            let value = |name: &str| dotenv.values.get(name).map(String::as_str);
            assert!(!dotenv.is_malformed, "{raw_value}");
            assert_eq!(value("B"), Some(expect), "{raw_value}");
            assert_eq!((value("A"), value("C")), (Some("1"), Some("3")));
        }
        std::fs::write(&file, "A='\u{fdd0}PATH'\n").unwrap();
        let dotenv = load(folder.path()).unwrap();
        assert!(dotenv.is_malformed);
        assert_eq!(dotenv.values["A"], "\u{fffd}PATH");
    }

    #[test]
    fn dotenv_values_are_never_longer_than_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let dotenv_text = format!("A={}\nB={}\n", "a".repeat(1_000), "$A".repeat(10_000));
        std::fs::write(folder.path().join(FILE_NAME), &dotenv_text).unwrap();
        let dotenv = load(folder.path()).unwrap();
        let bytes = dotenv.values.values().map(String::len).sum::<usize>();
        assert_eq!(bytes, 1_000 + 20_000);
    }
}
