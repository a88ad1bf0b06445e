//! Reads a file of the project, one of those that have their place or one that
//! another file of it names.
//!
//! Never: follows a path or a link out of the project, waits for a pipe, or
//! reads without a bound.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use longhaul_tool::Location;
use rustix::io::Errno;

/// Why a file can't be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProjectFileError {
    /// It is not there.
    #[error("is not there")]
    Missing,
    /// Its name leads somewhere else.
    #[error("leads out of the project: name a file inside of it")]
    OutsideProject,
    /// What stands there leads somewhere else.
    #[error(
        "is a link that leads out of the project or to a hidden file: put the file itself there"
    )]
    Symlink,
    /// It is a folder, a pipe or a device.
    #[error("is no file")]
    NotAFile,
    /// It is too long.
    #[error("is longer than {0} bytes")]
    TooLong(usize),
    /// The system refuses.
    #[error("can't be read: {0}")]
    Io(io::Error),
}

impl From<io::Error> for ProjectFileError {
    fn from(error: io::Error) -> Self {
        let kind = error.kind();
        if kind == io::ErrorKind::NotFound {
            Self::Missing
        } else if kind == io::ErrorKind::NotADirectory {
            Self::NotAFile
        } else {
            Self::Io(error)
        }
    }
}

impl From<Errno> for ProjectFileError {
    fn from(errno: Errno) -> Self {
        match errno {
            // A link that was put there after it was looked up.
            Errno::LOOP => Self::Symlink,
            Errno::INVAL | Errno::NXIO => Self::NotAFile,
            errno => io::Error::from(errno).into(),
        }
    }
}

/// The bytes of a file below `root`, at most `most`. A link is followed as long as it stays
/// inside.
pub(crate) fn read(root: &Path, name: &Path, most: usize) -> Result<Vec<u8>, ProjectFileError> {
    let inward = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    if !name.components().all(inward) {
        return Err(ProjectFileError::OutsideProject);
    }
    let root = root.canonicalize()?;
    let real = root.join(name).canonicalize()?;
    let relative = real.strip_prefix(&root).map_err(|_| ProjectFileError::Symlink)?;
    // A link into `.longhaul` or to `.env` would show the keys in them.
    let hides = |part: Component<'_>| {
        let name = part.as_os_str().as_encoded_bytes();
        name.starts_with(b".") && name != b".claude"
    };
    let plain: PathBuf = name.components().filter(|part| *part != Component::CurDir).collect();
    if relative != plain && relative.components().any(hides) {
        return Err(ProjectFileError::Symlink);
    }
    // Opened by handles from the root: the links may lead elsewhere by now.
    let file = Location::below(&root, relative).ok_or(ProjectFileError::Symlink)?;
    file.read(most)?.ok_or(ProjectFileError::TooLong(most))
}

/// The bytes of a file that the user chose, at most `most`. A link is followed, wherever it leads.
pub(crate) fn read_user_file(path: &Path, most: usize) -> Result<Vec<u8>, ProjectFileError> {
    let file = Location::Anywhere(path.canonicalize()?);
    file.read(most)?.ok_or(ProjectFileError::TooLong(most))
}

/// The first component of `relative` that is a link.
pub(crate) fn first_symlink(root: &Path, relative: &Path) -> Option<PathBuf> {
    let mut path = PathBuf::new();
    relative.components().find_map(|part| {
        path.push(part);
        let found = fs::symlink_metadata(root.join(&path));
        found.is_ok_and(|found| found.is_symlink()).then(|| path.clone())
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn files_outside_the_project_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("project");
        fs::create_dir_all(root.join("a")).unwrap();
        fs::write(folder.path().join("secret"), "secret").unwrap();
        fs::write(root.join("a/b"), "text").unwrap();
        symlink("a/b", root.join("inside")).unwrap();
        symlink("../secret", root.join("outside")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, root.join("pipe"), 0o600.into()).unwrap();
        let check = |name: &str, expected: &str| {
            let said = match read(&root, Path::new(name), 4) {
                Ok(bytes) => String::from_utf8(bytes).unwrap(),
                Err(unread) => unread.to_string(),
            };
            assert!(said.contains(expected), "{name}: {said}");
        };
        check("a/b", "text");
        check("./a/./b", "text");
        check("inside", "text");
        check("outside", "a link that leads out");
        check("../secret", "leads out");
        check("a/../a/b", "leads out");
        check("/etc/passwd", "leads out");
        check("loop", "can't be read");
        check("pipe", "no file");
        check("a", "no file");
        check("a/b/c", "no file");
        check("none", "not there");
        fs::write(root.join("a/b"), "texts").unwrap();
        check("a/b", "longer than 4 bytes");
    }
}
