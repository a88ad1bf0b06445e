//! Files of the runtime that belong to one user. They are read without following symbolic links,
//! and written atomically.

use std::fs::{DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use tempfile::NamedTempFile;

/// Reason why a private file (a file of the runtime that belongs to one user) can't be used.
#[derive(Debug, thiserror::Error)]
pub enum PrivateFileError {
    /// The operating system returned an error for the file.
    #[error("`{path}` can't be used: {source}")]
    Io {
        path: PathBuf,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// Other users may read a file that contains a secret.
    #[error("`{path}` is readable by other users (mode {mode:03o}), but contains a secret")]
    Readable {
        /// Path of the file that others may read.
        path: PathBuf,
        /// Permission bits of the file.
        mode: u32,
    },
    /// Other users may write a file that must be protected from changes.
    #[error("`{path}` is writable by other users (mode {mode:03o})")]
    Writable {
        /// Path of the file that others may write.
        path: PathBuf,
        /// Permission bits of the file.
        mode: u32,
    },
    /// The file belongs to another user, so its content can't be trusted.
    #[error("`{path}` belongs to another user (uid {owner})")]
    ForeignOwner {
        /// Path of the file that belongs to another user.
        path: PathBuf,
        /// User id of the file's owner.
        owner: u32,
    },
    /// The content of the private file is invalid.
    #[error("`{path}` {problem}")]
    Content {
        /// Path of the file with invalid content.
        path: PathBuf,
        /// What is wrong with the content. It follows the path in the message, such as `is empty`.
        problem: &'static str,
    },
    /// The folder for the file can't be determined, because the home folder is unknown.
    #[error("no folder to store trust decisions in: set HOME or XDG_STATE_HOME")]
    NoHome,
}

/// Check of owner and access rights that a file must pass before its content is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileAccessCheck {
    /// Other users must not be able to read the file.
    Secret,
    /// Other users must not be able to write the file, and it must belong to this user or to root.
    Owned,
    /// The file is not checked: its content is not trusted anyway.
    Unchecked,
}

impl FileAccessCheck {
    fn check_file_access(self, path: &Path, metadata: &Metadata) -> Result<(), PrivateFileError> {
        let current_uid = rustix::process::geteuid().as_raw();
        self.check_owner_and_mode(path, (metadata.uid(), metadata.mode() & 0o777), current_uid)
    }

    fn check_owner_and_mode(
        self,
        path: &Path,
        (owner, mode): (u32, u32),
        current_uid: u32,
    ) -> Result<(), PrivateFileError> {
        let path = path.to_owned();
        match self {
            Self::Secret if mode & 0o077 != 0 => Err(PrivateFileError::Readable { path, mode }),
            Self::Owned if owner != current_uid && owner != 0 => {
                Err(PrivateFileError::ForeignOwner { path, owner })
            }
            Self::Owned if mode & 0o022 != 0 => Err(PrivateFileError::Writable { path, mode }),
            Self::Secret | Self::Owned | Self::Unchecked => Ok(()),
        }
    }
}

/// Reads a private file as text, at most `bytes_max` bytes. `None` means that there is no file.
pub(crate) fn read_private_file(
    path: &Path,
    bytes_max: u64,
    guard: FileAccessCheck,
) -> Result<Option<String>, PrivateFileError> {
    // Without NONBLOCK, opening a pipe would block.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let result = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path);
    let file = match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        result => result.map_err(|error| io_error(path, error))?,
    };
    let metadata = file.metadata().map_err(|error| io_error(path, error))?;
    guard.check_file_access(path, &metadata)?;
    let mut text = String::new();
    let result = file.take(bytes_max).read_to_string(&mut text);
    result.map_err(|error| io_error(path, error))?;
    Ok(Some(text))
}

/// Replaces the content of the file with this line, atomically and readable only by its owner.
pub(crate) fn write_private_file(path: &Path, line: &str) -> Result<(), PrivateFileError> {
    let result = write_temp_file(path, line).and_then(|file| Ok(file.persist(path)?));
    result.map(drop).map_err(|error| io_error(path, error))
}

/// Creates a file with this line, unless the file exists. If two processes do so at once, one of
/// them wins.
pub(crate) fn create_private_file(path: &Path, line: &str) -> Result<(), PrivateFileError> {
    match write_temp_file(path, line).and_then(|file| Ok(file.persist_noclobber(path)?)) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        created => created.map(drop).map_err(|error| io_error(path, error)),
    }
}

/// Locks the lock file that belongs to `path`, waiting if necessary. The lock is held until the
/// returned handle is dropped.
pub(crate) fn lock_private_file(path: &Path) -> Result<File, PrivateFileError> {
    let open_and_lock = || {
        create_parent_folder(path)?;
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
            .open(path.with_extension("lock"))?;
        flock(&file, FlockOperation::LockExclusive)?;
        Ok(file)
    };
    open_and_lock().map_err(|error| io_error(path, error))
}

/// Writes a temporary file in the folder of `path`, synced to disk and readable only by its owner.
fn write_temp_file(path: &Path, line: &str) -> io::Result<NamedTempFile> {
    let folder = create_parent_folder(path)?;
    let mut file = NamedTempFile::new_in(folder)?;
    // Under a strict umask not even the owner could read the new file.
    let mode = Permissions::from_mode(0o600);
    file.as_file().set_permissions(mode)?;
    writeln!(file, "{line}")?;
    file.as_file().sync_all()?;
    Ok(file)
}

fn create_parent_folder(path: &Path) -> io::Result<&Path> {
    let folder = path.parent().unwrap_or(path);
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700).create(folder)?;
    Ok(folder)
}

fn io_error(path: &Path, source: io::Error) -> PrivateFileError {
    let path = path.to_owned();
    PrivateFileError::Io { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_others_may_change_or_read_are_refused() {
        let check = |guard: FileAccessCheck, owner, mode, expected: Option<&str>| {
            let message = guard.check_owner_and_mode(Path::new("/b"), (owner, mode), 7).err();
            let message = message.map(|error| error.to_string());
            let expected_message = expected.map(|expected| format!("`/b` {expected}"));
            assert_eq!(message, expected_message, "{guard:?} {owner} {mode:o}");
        };
        check(FileAccessCheck::Owned, 7, 0o600, None);
        check(FileAccessCheck::Owned, 7, 0o644, None);
        check(FileAccessCheck::Owned, 0, 0o600, None);
        let writable = "is writable by other users (mode 620)";
        check(FileAccessCheck::Owned, 7, 0o620, Some(writable));
        let foreign = "belongs to another user (uid 8)";
        check(FileAccessCheck::Owned, 8, 0o600, Some(foreign));
        check(FileAccessCheck::Owned, 8, 0o666, Some(foreign));
        check(FileAccessCheck::Secret, 7, 0o600, None);
        let readable = "is readable by other users (mode 644), but contains a secret";
        check(FileAccessCheck::Secret, 7, 0o644, Some(readable));
        check(FileAccessCheck::Unchecked, 8, 0o666, None);
    }

    #[test]
    fn links_and_pipes_are_refused_and_no_temp_file_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/file");
        assert!(read_private_file(&path, 9, FileAccessCheck::Secret).unwrap().is_none());
        create_private_file(&path, "one").unwrap();
        create_private_file(&path, "two").unwrap();
        assert_eq!(read_private_file(&path, 9, FileAccessCheck::Secret).unwrap().unwrap(), "one\n");
        write_private_file(&path, "three").unwrap();
        assert_eq!(read_private_file(&path, 3, FileAccessCheck::Owned).unwrap().unwrap(), "thr");
        let parent = path.parent().unwrap();
        assert_eq!(std::fs::read_dir(parent).unwrap().count(), 1);
        assert_eq!(parent.metadata().unwrap().mode() & 0o777, 0o700);
        let link = parent.join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(read_private_file(&link, 9, FileAccessCheck::Unchecked).is_err());
        rustix::fs::mkfifoat(rustix::fs::CWD, parent.join("pipe"), 0o600.into()).unwrap();
        assert_eq!(
            read_private_file(&parent.join("pipe"), 9, FileAccessCheck::Unchecked)
                .unwrap()
                .unwrap(),
            ""
        );
    }
}
