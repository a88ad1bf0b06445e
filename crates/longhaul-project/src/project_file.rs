//! Reads files of a project: files at fixed paths, and files that other files of the project name.
//!
//! Invariant: no path or symbolic link leads out of the project, a read never blocks on a pipe, and
//! every read has a size limit.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use longhaul_tool::FileLocation;
use rustix::io::Errno;

/// Reason why a file of the project can't be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProjectFileError {
    /// The project has no file at this path.
    #[error("the file does not exist")]
    Missing,
    /// The path leads out of the project.
    #[error("the path leads out of the project: name a file inside the project")]
    OutsideProject,
    /// The path is a symbolic link out of the project or to a hidden file.
    #[error(
        "the file is a link that leads out of the project or to a hidden file: put the file itself there"
    )]
    Symlink,
    /// The path is a folder, a pipe or a device.
    #[error("the file is not a regular file")]
    NotAFile,
    /// The file is longer than this many bytes.
    #[error("the file is longer than {0} bytes")]
    TooLong(usize),
    /// The operating system returned an error.
    #[error("the file can't be read: {0}")]
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
            // The link was created after the path had been resolved.
            Errno::LOOP => Self::Symlink,
            Errno::INVAL | Errno::NXIO => Self::NotAFile,
            errno => io::Error::from(errno).into(),
        }
    }
}

/// Reads the file `name` of the project in `root`, at most `bytes_max` bytes. A symbolic link is
/// followed if its target is inside the project.
pub(crate) fn read_file_in_project(
    root: &Path,
    name: &Path,
    bytes_max: usize,
) -> Result<Vec<u8>, ProjectFileError> {
    let is_inside = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    if !name.components().all(is_inside) {
        return Err(ProjectFileError::OutsideProject);
    }
    let root = root.canonicalize()?;
    let real_path = root.join(name).canonicalize()?;
    let relative = real_path.strip_prefix(&root).map_err(|_| ProjectFileError::Symlink)?;
    // A link into `.longhaul` or to `.env` would expose the keys in them.
    let is_hidden = |part: Component<'_>| {
        let name = part.as_os_str().as_encoded_bytes();
        name.starts_with(b".") && name != b".claude"
    };
    let normalized_name: PathBuf =
        name.components().filter(|part| *part != Component::CurDir).collect();
    if relative != normalized_name && relative.components().any(is_hidden) {
        return Err(ProjectFileError::Symlink);
    }
    // Opened relative to the root without following links, since links may have changed since they
    // were resolved.
    let file = FileLocation::below_root(&root, relative).ok_or(ProjectFileError::Symlink)?;
    file.read_regular_file(bytes_max)?.ok_or(ProjectFileError::TooLong(bytes_max))
}

/// Reads a file that the user chose, at most `bytes_max` bytes. Symbolic links are followed to any
/// target.
pub(crate) fn read_any_file(path: &Path, bytes_max: usize) -> Result<Vec<u8>, ProjectFileError> {
    let file = FileLocation::Anywhere(path.canonicalize()?);
    file.read_regular_file(bytes_max)?.ok_or(ProjectFileError::TooLong(bytes_max))
}

/// Returns the first component of `relative` that is a symbolic link. `None` means that there is
/// none.
pub(crate) fn first_symlink(root: &Path, relative: &Path) -> Option<PathBuf> {
    let mut path = PathBuf::new();
    relative.components().find_map(|part| {
        path.push(part);
        let metadata = fs::symlink_metadata(root.join(&path));
        metadata.is_ok_and(|metadata| metadata.is_symlink()).then(|| path.clone())
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
            let message = match read_file_in_project(&root, Path::new(name), 4) {
                Ok(bytes) => String::from_utf8(bytes).unwrap(),
                Err(error) => error.to_string(),
            };
            assert!(message.contains(expected), "{name}: {message}");
        };
        check("a/b", "text");
        check("./a/./b", "text");
        check("inside", "text");
        check("outside", "a link that leads out");
        check("../secret", "leads out");
        check("a/../a/b", "leads out");
        check("/etc/passwd", "leads out");
        check("loop", "can't be read");
        check("pipe", "not a regular file");
        check("a", "not a regular file");
        check("a/b/c", "not a regular file");
        check("none", "does not exist");
        fs::write(root.join("a/b"), "texts").unwrap();
        check("a/b", "longer than 4 bytes");
    }
}
