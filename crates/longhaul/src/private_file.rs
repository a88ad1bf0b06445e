//! Files of the runtime that belong to one user: read through no link, and written
//! whole or not at all.

use std::fs::{DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use tempfile::NamedTempFile;

/// Reason why a private file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum PrivateFileError {
    /// The system refuses.
    #[error("`{path}` can't be used: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// Others may read a secret.
    #[error("`{path}` may be read by others (mode {mode:03o}), so it is no secret")]
    Readable {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// Others may write what only one user decides.
    #[error("`{path}` may be written by others (mode {mode:03o})")]
    Writable {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// It belongs to somebody else.
    #[error("`{path}` belongs to another user (uid {owner})")]
    ForeignOwner {
        /// The file.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// Its content is not what it should be.
    #[error("`{path}` {what}")]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong, as the rest of a sentence.
        what: &'static str,
    },
    /// There is no folder for it.
    #[error("there is no home to keep trust in: set HOME or XDG_STATE_HOME")]
    NoHome,
}

/// What must hold before a file's content counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AccessCheck {
    /// Nobody else may read it.
    Secret,
    /// Nobody else may write it, and it belongs to this user or to root.
    Owned,
    /// It proves nothing, whoever wrote it.
    Unchecked,
}

impl AccessCheck {
    fn check(self, path: &Path, found: &Metadata) -> Result<(), PrivateFileError> {
        let me = rustix::process::geteuid().as_raw();
        self.check_owned(path, (found.uid(), found.mode() & 0o777), me)
    }

    fn check_owned(
        self,
        path: &Path,
        (owner, mode): (u32, u32),
        me: u32,
    ) -> Result<(), PrivateFileError> {
        let path = path.to_owned();
        match self {
            Self::Secret if mode & 0o077 != 0 => Err(PrivateFileError::Readable { path, mode }),
            Self::Owned if owner != me && owner != 0 => {
                Err(PrivateFileError::ForeignOwner { path, owner })
            }
            Self::Owned if mode & 0o022 != 0 => Err(PrivateFileError::Writable { path, mode }),
            Self::Secret | Self::Owned | Self::Unchecked => Ok(()),
        }
    }
}

/// The text of a file, at most `bytes_max` of it; `None` means that there is no file.
pub(crate) fn read(
    path: &Path,
    bytes_max: u64,
    guard: AccessCheck,
) -> Result<Option<String>, PrivateFileError> {
    // Without NONBLOCK a pipe in its place would be waited for.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path);
    let file = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(|error| io_error(path, error))?,
    };
    let found = file.metadata().map_err(|error| io_error(path, error))?;
    guard.check(path, &found)?;
    let mut text = String::new();
    let read = file.take(bytes_max).read_to_string(&mut text);
    read.map_err(|error| io_error(path, error))?;
    Ok(Some(text))
}

/// Replaces the file by one with this line, which only its owner may read.
pub(crate) fn write(path: &Path, line: &str) -> Result<(), PrivateFileError> {
    let written = write_temp(path, line).and_then(|file| Ok(file.persist(path)?));
    written.map(drop).map_err(|error| io_error(path, error))
}

/// Makes the file with this line, unless there is one: of two that make it one wins.
pub(crate) fn create(path: &Path, line: &str) -> Result<(), PrivateFileError> {
    match write_temp(path, line).and_then(|file| Ok(file.persist_noclobber(path)?)) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        created => created.map(drop).map_err(|error| io_error(path, error)),
    }
}

/// Waits for the lock beside this file, and holds it as long as the handle lives.
pub(crate) fn lock(path: &Path) -> Result<File, PrivateFileError> {
    let locked = || {
        make_folder(path)?;
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
    locked().map_err(|error| io_error(path, error))
}

/// A file in the same folder, complete on disk, that only its owner may read.
fn write_temp(path: &Path, line: &str) -> io::Result<NamedTempFile> {
    let folder = make_folder(path)?;
    let mut file = NamedTempFile::new_in(folder)?;
    // Under a strict umask not even the owner could read what is made.
    let mode = Permissions::from_mode(0o600);
    file.as_file().set_permissions(mode)?;
    writeln!(file, "{line}")?;
    file.as_file().sync_all()?;
    Ok(file)
}

fn make_folder(path: &Path) -> io::Result<&Path> {
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
        let check = |guard: AccessCheck, owner, mode, says: Option<&str>| {
            let said = guard.check_owned(Path::new("/b"), (owner, mode), 7).err();
            let said = said.map(|error| error.to_string());
            let right = says.map(|says| format!("`/b` {says}"));
            assert_eq!(said, right, "{guard:?} {owner} {mode:o}");
        };
        check(AccessCheck::Owned, 7, 0o600, None);
        check(AccessCheck::Owned, 7, 0o644, None);
        check(AccessCheck::Owned, 0, 0o600, None);
        let writable = "may be written by others (mode 620)";
        check(AccessCheck::Owned, 7, 0o620, Some(writable));
        let foreign = "belongs to another user (uid 8)";
        check(AccessCheck::Owned, 8, 0o600, Some(foreign));
        check(AccessCheck::Owned, 8, 0o666, Some(foreign));
        check(AccessCheck::Secret, 7, 0o600, None);
        let readable = "may be read by others (mode 644), so it is no secret";
        check(AccessCheck::Secret, 7, 0o644, Some(readable));
        check(AccessCheck::Unchecked, 8, 0o666, None);
    }

    #[test]
    fn links_and_pipes_are_refused_and_no_temp_file_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/file");
        assert!(read(&path, 9, AccessCheck::Secret).unwrap().is_none());
        create(&path, "one").unwrap();
        create(&path, "two").unwrap();
        assert_eq!(read(&path, 9, AccessCheck::Secret).unwrap().unwrap(), "one\n");
        write(&path, "three").unwrap();
        assert_eq!(read(&path, 3, AccessCheck::Owned).unwrap().unwrap(), "thr");
        let parent = path.parent().unwrap();
        assert_eq!(std::fs::read_dir(parent).unwrap().count(), 1);
        assert_eq!(parent.metadata().unwrap().mode() & 0o777, 0o700);
        let link = parent.join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(read(&link, 9, AccessCheck::Unchecked).is_err());
        rustix::fs::mkfifoat(rustix::fs::CWD, parent.join("pipe"), 0o600.into()).unwrap();
        assert_eq!(read(&parent.join("pipe"), 9, AccessCheck::Unchecked).unwrap().unwrap(), "");
    }
}
