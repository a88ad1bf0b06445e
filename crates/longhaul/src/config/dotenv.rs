//! The project's `.env`: what it sets, by name.
//!
//! Never: shows a value, waits for a pipe or reads without a bound, and never says
//! what of it counts: whoever reads it knows that.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use crate::inside::{self, Unread};

/// The name of the file.
pub const FILE_NAME: &str = ".env";

/// The longest file that is read.
const BYTES_MAX: usize = 1 << 20;

/// What the file sets.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Dotenv {
    /// Values by name. What stands there twice counts as it stands first.
    pub values: BTreeMap<String, String>,
    /// A line of it is no `NAME=VALUE`.
    pub is_broken: bool,
}

impl fmt::Debug for Dotenv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dotenv(hidden)")
    }
}

/// The file of the project in this folder; none sets nothing. The error says why
/// it can't be read, in words that go behind its name.
pub fn read(root: &Path) -> Result<Dotenv, String> {
    let bytes = match inside::plain(&root.join(FILE_NAME), BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(Unread::Missing) => return Ok(Dotenv::default()),
        Err(unread) => return Err(unread.to_string()),
    };
    let text = String::from_utf8_lossy(&bytes);
    let mut dotenv = Dotenv {
        is_broken: std::str::from_utf8(&bytes).is_err(),
        ..Dotenv::default()
    };
    for line in dotenvy::from_read_iter(text.as_bytes()) {
        match line {
            Ok((name, value)) => _ = dotenv.values.entry(name).or_insert(value),
            Err(_) => dotenv.is_broken = true,
        }
    }
    Ok(dotenv)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_is_no_file_of_a_fair_length_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(FILE_NAME);
        let check = |expected: &str| {
            let why = read(folder.path()).unwrap_err();
            assert!(why.contains(expected), "{why}");
            std::fs::remove_file(&file).unwrap();
        };
        assert_eq!(read(folder.path()), Ok(Dotenv::default()));
        symlink("/dev/zero", &file).unwrap();
        check("is no file");
        rustix::fs::mkfifoat(rustix::fs::CWD, &file, 0o600.into()).unwrap();
        check("is no file");
        std::fs::write(&file, "#".repeat(BYTES_MAX + 1)).unwrap();
        check("is longer than 1048576 bytes");
        std::fs::write(&file, b"A=1\nA=2\nwhat is this\nB='2 3'\n").unwrap();
        let read = read(folder.path()).unwrap();
        assert!(read.is_broken);
        let values: Vec<_> = read.values.iter().collect();
        let is = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let wanted = [is("A", "1"), is("B", "2 3")];
        assert_eq!(
            values,
            wanted.iter().map(|(a, b)| (a, b)).collect::<Vec<_>>()
        );
        assert_eq!(format!("{read:?}"), "Dotenv(hidden)");
    }
}
