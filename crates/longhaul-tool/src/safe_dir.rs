//! A directory that agents work in, accessed through open handles. Each path component is opened
//! from the folder before it, and the operating system rejects symbolic links.
//!
//! Invariant: paths from a model are never joined, and symbolic links inside the directory are not
//! followed. So replacing a folder by a link between two steps has no effect.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::{self as sys, AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::filename_fold::fold_case;
use crate::location::{FileLocation, is_regular_file, make_folder, open_file, open_folder};

/// Why a file or a folder can't be accessed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FsError {
    /// The file or folder does not exist.
    #[error("the file or folder does not exist")]
    NotFound,
    /// The entry is a symbolic link or of an unexpected type.
    #[error("the path is a symbolic link, or not a regular file or folder")]
    NotRegular,
    /// The entry is a folder and should be a file.
    #[error("the path is a folder and not a file")]
    IsDirectory,
    /// The file or folder belongs to the runtime.
    #[error("the path belongs to the runtime and is not accessible to agents")]
    Protected,
    /// The file or folder exists under a name that differs only in case.
    #[error("the name exists as `{0}`; use exactly this name")]
    WrongCase(String),
    /// The file system treats the name as the same as another existing name.
    #[error(
        "the file system treats the name as the same as another existing name; list the folder to see it"
    )]
    CaseConflict,
    /// Another writer has locked the directory for too long.
    #[error("another writer has locked the directory; try again later")]
    Busy,
    /// The file was changed since it was read.
    #[error("the file was changed meanwhile; read it again")]
    Changed,
    /// The operating system reports an error.
    #[error("the file or folder can't be used: {0}")]
    Io(#[from] io::Error),
}

impl From<Errno> for FsError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOENT => Self::NotFound,
            // A symbolic link with NOFOLLOW, a file instead of a folder, a socket.
            Errno::LOOP | Errno::NOTDIR | Errno::NXIO => Self::NotRegular,
            Errno::WOULDBLOCK => Self::Busy,
            errno => Self::Io(errno.into()),
        }
    }
}

/// Identity of a file or folder (device and inode), independent of its name.
type FileId = (i128, i128);

fn file_id(stat: &Stat) -> FileId {
    // The types of these fields differ between systems; all of them fit.
    (i128::from(stat.st_dev), i128::from(stat.st_ino))
}

/// Identity of a file, with its modification time and size.
pub(crate) type FileStamp = (FileId, [i128; 3]);

/// Returns the stamp of a file, which changes when the file is changed or replaced.
pub(crate) fn file_change_stamp(stat: &Stat) -> FileStamp {
    let seconds = i128::from(stat.st_mtime);
    let change = [seconds, i128::from(stat.st_mtime_nsec), i128::from(stat.st_size)];
    (file_id(stat), change)
}

/// A directory that agents work in, by its location; it is opened for each access.
#[derive(Debug, Clone)]
pub(crate) struct SafeDir {
    root: Arc<FileLocation>,
    /// Files and folders that agents can't access, under any name.
    protected: Arc<[PathBuf]>,
    /// Permissions that new files and folders don't have.
    umask: Mode,
}

/// Other users may read new files and folders.
const SHARED: Mode = Mode::from_raw_mode(0o022);
/// Only the owner can access new files and folders.
const PRIVATE: Mode = Mode::from_raw_mode(0o077);

impl SafeDir {
    /// Creates the safe directory at this location, without opening it.
    pub(crate) fn new(root: impl Into<FileLocation>) -> Self {
        Self { root: Arc::new(root.into()), protected: Arc::default(), umask: SHARED }
    }

    /// Creates a safe directory whose new files and folders only their owner can access.
    pub(crate) fn new_private(root: impl Into<FileLocation>) -> Self {
        Self { umask: PRIVATE, ..Self::new(root) }
    }

    /// Denies agents to read and write these files and folders.
    pub(crate) fn with_protected_paths(self, protected: Vec<PathBuf>) -> Self {
        Self { protected: protected.into(), ..self }
    }

    /// Opens the folder with these path components below the directory. The caller has checked
    /// them.
    pub(crate) fn open_dir(&self, path_parts: &[String]) -> Result<DirHandle, FsError> {
        let mut folder = self.open_root()?;
        for part in path_parts {
            folder = folder.open_folder(part)?;
        }
        Ok(folder)
    }

    /// Creates the directory if it is missing.
    pub(crate) fn create_root(&self) -> Result<(), FsError> {
        self.root.create_and_open_folder()?;
        Ok(())
    }

    /// Opens the directory itself.
    pub(crate) fn open_root(&self) -> Result<DirHandle, FsError> {
        let handle = self.root.open_folder()?;
        // Compared by identity, so that they can't be accessed under another name either.
        let protected = self.protected.iter();
        let protected = protected.filter_map(|path| sys::stat(path).ok());
        let protected = protected.map(|stat| file_id(&stat)).collect();
        Ok(DirHandle { handle, protected, umask: self.umask })
    }
}

/// An open folder of a safe directory.
#[derive(Debug)]
pub(crate) struct DirHandle {
    pub(crate) handle: OwnedFd,
    protected: Arc<[FileId]>,
    umask: Mode,
}

/// An open file of a safe directory.
#[derive(Debug)]
pub(crate) struct OpenFile {
    file: File,
    /// Length of the file in bytes.
    pub(crate) size: u64,
    mode: Mode,
    stamp: FileStamp,
}

/// Content of a file and its metadata at the time of reading.
#[derive(Debug)]
pub(crate) struct FileSnapshot {
    /// The bytes that were read of the file.
    pub(crate) bytes: Vec<u8>,
    /// Whether the file is longer than what was read.
    pub(crate) is_truncated: bool,
    /// Permissions of the file.
    pub(crate) mode: Mode,
    /// Identity, modification time and size of the file, to detect changes.
    pub(crate) stamp: FileStamp,
}

impl OpenFile {
    /// Reads at most `bytes_max` bytes of the file.
    pub(crate) fn read_snapshot(self, bytes_max: usize) -> Result<FileSnapshot, FsError> {
        let mut bytes = Vec::new();
        let limit = (bytes_max as u64).saturating_add(1);
        self.file.take(limit).read_to_end(&mut bytes)?;
        let is_truncated = bytes.len() > bytes_max;
        bytes.truncate(bytes_max);
        Ok(FileSnapshot { bytes, is_truncated, mode: self.mode, stamp: self.stamp })
    }
}

impl FileSnapshot {
    /// Returns the content as text, with invalid UTF-8 replaced.
    pub(crate) fn lossy_text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    /// Returns whether the file has no write permission. Replacing such a file would bypass its
    /// permissions.
    pub(crate) fn is_read_only(&self) -> bool {
        !self.mode.intersects(Mode::from_raw_mode(0o222))
    }
}

impl DirHandle {
    /// Returns the permissions of a new file.
    pub(crate) fn new_file_mode(&self) -> Mode {
        Mode::from_raw_mode(0o666) - self.umask
    }

    /// Opens the child folder with exactly this name, rejecting one that differs in case.
    pub(crate) fn open_folder(&self, name: &str) -> Result<Self, FsError> {
        self.check_exact_name_exists(name)?;
        self.open_listed_folder(name)
    }

    /// Opens a child folder whose exact name came from a listing of this folder.
    pub(crate) fn open_listed_folder(&self, name: &str) -> Result<Self, FsError> {
        let handle = open_folder(&self.handle, name)?;
        self.check_not_protected(&sys::fstat(&handle)?)?;
        Ok(Self { handle, protected: Arc::clone(&self.protected), umask: self.umask })
    }

    /// Opens the file with exactly this name, rejecting one that differs in case.
    pub(crate) fn open_file(&self, name: &str) -> Result<OpenFile, FsError> {
        self.check_exact_name_exists(name)?;
        self.open_listed_file(name)
    }

    /// Opens a file whose exact name came from a listing of this folder.
    pub(crate) fn open_listed_file(&self, name: &str) -> Result<OpenFile, FsError> {
        let (handle, stat) = open_file(&self.handle, name, OFlags::RDONLY, Mode::empty())?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            return Err(FsError::IsDirectory);
        }
        if !is_regular_file(&stat) {
            return Err(FsError::NotRegular);
        }
        self.check_not_protected(&stat)?;
        Ok(OpenFile {
            file: File::from(handle),
            size: u64::try_from(stat.st_size).unwrap_or_default(),
            mode: Mode::from_raw_mode(stat.st_mode) & Mode::from_raw_mode(0o777),
            stamp: file_change_stamp(&stat),
        })
    }

    /// Opens the child folder with exactly this name, creating it if it is missing.
    pub(crate) fn open_or_create_folder(&self, name: &str) -> Result<Self, FsError> {
        match self.open_folder(name) {
            Err(FsError::NotFound) => {}
            other => return other,
        }
        match make_folder(&self.handle, name, Mode::from_raw_mode(0o777) - self.umask) {
            // The listing has no such name, so the file system treats it as the same as another
            // one.
            Err(Errno::EXIST) => return Err(FsError::CaseConflict),
            result => result?,
        }
        self.open_listed_folder(name)
    }

    fn check_not_protected(&self, stat: &Stat) -> Result<(), FsError> {
        match self.protected.contains(&file_id(stat)) {
            true => Err(FsError::Protected),
            false => Ok(()),
        }
    }

    /// Checks that exactly this name exists in the folder. A name that differs only in case is an
    /// error on every system, so that names mean the same everywhere.
    fn check_exact_name_exists(&self, name: &str) -> Result<(), FsError> {
        let names = self.entry_names()?;
        if names.iter().any(|found| found == name) {
            return Ok(());
        }
        let folded = fold_case(name);
        match names.into_iter().find(|found| fold_case(found) == folded) {
            Some(found) => Err(FsError::WrongCase(found)),
            None => Err(FsError::NotFound),
        }
    }

    /// Returns all names in this folder that are UTF-8, unordered.
    pub(crate) fn entry_names(&self) -> Result<Vec<String>, FsError> {
        Ok(self.entries(usize::MAX)?.into_iter().map(|(name, _)| name).collect())
    }

    /// Returns at most `count_max` entries of this folder with their types, unordered, without
    /// names that are not UTF-8.
    pub(crate) fn entries(&self, count_max: usize) -> Result<Vec<(String, FileType)>, FsError> {
        let mut entries = Vec::new();
        for entry in sys::Dir::read_from(&self.handle)? {
            if entries.len() == count_max {
                break;
            }
            let entry = entry?;
            let Some(name) =
                entry.file_name().to_str().ok().filter(|name| *name != "." && *name != "..")
            else {
                continue;
            };
            let mut kind = entry.file_type();
            if kind == FileType::Unknown {
                // Some file systems don't report the type. An entry that is gone by now has none.
                let stat = sys::statat(&self.handle, name, AtFlags::SYMLINK_NOFOLLOW);
                kind = stat.map_or(kind, |stat| FileType::from_raw_mode(stat.st_mode));
            }
            entries.push((name.to_owned(), kind));
        }
        Ok(entries)
    }
}
