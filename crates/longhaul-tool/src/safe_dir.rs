//! A directory that agents work in, walked by open handles: each step is taken
//! from the folder before it, and the system refuses a step that is a link.
//!
//! Never: joins a path from what a model said, or follows a link inside the
//! directory. So whoever swaps a link in between two steps gains nothing.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::{self as sys, AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::filename_fold::fold_case;
use crate::location::Location;
use crate::openat::{is_regular, make_folder, open_file, open_folder};

/// Why a file or a folder can't be reached.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FsError {
    /// It is not there.
    #[error("is not there")]
    NotFound,
    /// It is something else than it should be, or a link.
    #[error("is a link or not a plain file or folder, and nothing else is opened here")]
    NotRegular,
    /// It is a folder and should be a file.
    #[error("is a folder and not a file")]
    IsDirectory,
    /// It is the runtime's own.
    #[error("belongs to the runtime itself and is closed to agents")]
    Protected,
    /// It is there under a name that some file systems hold to be the same.
    #[error("is spelled `{0}` there; use exactly that spelling")]
    WrongSpelling(String),
    /// The file system takes it for another name that is there.
    #[error("is there under another spelling; a list shows it")]
    CaseConflict,
    /// Somebody else writes, and does not end.
    #[error("can't be written now: another writer holds the directory; try again later")]
    Busy,
    /// Somebody else changed it since it was read.
    #[error("was changed by somebody else just now; read it again")]
    Changed,
    /// The system refuses.
    #[error("can't be used: {0}")]
    Io(#[from] io::Error),
}

impl From<Errno> for FsError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOENT => Self::NotFound,
            // A link with NOFOLLOW, a file where a folder should be, a socket.
            Errno::LOOP | Errno::NOTDIR | Errno::NXIO => Self::NotRegular,
            Errno::WOULDBLOCK => Self::Busy,
            errno => Self::Io(errno.into()),
        }
    }
}

/// What a file or a folder is, under whatever name.
type FileId = (i128, i128);

fn file_id(stat: &Stat) -> FileId {
    // Systems differ in the types of these; all of them fit.
    (i128::from(stat.st_dev), i128::from(stat.st_ino))
}

/// A file and its last change, as far as the system tells them.
pub(crate) type FileStamp = (FileId, [i128; 3]);

/// The stamp of what was found.
pub(crate) fn file_stamp(stat: &Stat) -> FileStamp {
    let seconds = i128::from(stat.st_mtime);
    let change = [seconds, i128::from(stat.st_mtime_nsec), i128::from(stat.st_size)];
    (file_id(stat), change)
}

/// Where the directory is.
#[derive(Debug, Clone)]
pub(crate) struct SafeDir {
    root: Arc<Location>,
    /// Files and folders that nobody enters, wherever they are.
    protected: Arc<[PathBuf]>,
    modes: Modes,
}

/// Permissions of files and folders that are made in a directory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Modes {
    /// Permissions of a new file.
    pub(crate) file: Mode,
    folder: Mode,
}

impl Modes {
    /// As other programs make them.
    const SHARED: Self =
        Self { file: Mode::from_raw_mode(0o644), folder: Mode::from_raw_mode(0o755) };
    /// Only for their owner.
    const PRIVATE: Self =
        Self { file: Mode::from_raw_mode(0o600), folder: Mode::from_raw_mode(0o700) };
}

impl SafeDir {
    /// The directory at this location.
    pub(crate) fn new(root: impl Into<Location>) -> Self {
        Self { root: Arc::new(root.into()), protected: Arc::default(), modes: Modes::SHARED }
    }

    /// The directory at this location. What is made in it is for its owner only.
    pub(crate) fn private(root: impl Into<Location>) -> Self {
        Self { modes: Modes::PRIVATE, ..Self::new(root) }
    }

    /// The same without these files and folders.
    pub(crate) fn with_protected(self, kept: Vec<PathBuf>) -> Self {
        Self { protected: kept.into(), ..self }
    }

    /// The folder of these parts, each of which has been checked.
    pub(crate) fn open_dir(&self, parts: &[String]) -> Result<DirHandle, FsError> {
        let mut folder = self.open_root()?;
        for part in parts {
            folder = folder.open_child(part)?;
        }
        Ok(folder)
    }

    /// Makes the directory.
    pub(crate) fn create(&self) -> Result<(), FsError> {
        self.root.make_folder()?;
        Ok(())
    }

    /// The directory itself.
    pub(crate) fn open_root(&self) -> Result<DirHandle, FsError> {
        let handle = self.root.open_folder()?;
        // Known by what they are: another name for them opens nothing.
        let kept = self.protected.iter();
        let kept = kept.filter_map(|path| sys::stat(path).ok());
        let kept = kept.map(|stat| file_id(&stat)).collect();
        Ok(DirHandle { handle, protected: kept, modes: self.modes })
    }
}

/// An open folder.
#[derive(Debug)]
pub(crate) struct DirHandle {
    pub(crate) handle: OwnedFd,
    protected: Arc<[FileId]>,
    pub(crate) modes: Modes,
}

/// An open file.
#[derive(Debug)]
pub(crate) struct OpenFile {
    file: File,
    /// How long it is, in bytes.
    pub(crate) size: u64,
    mode: Mode,
    stamp: FileStamp,
}

/// What was read of a file.
#[derive(Debug)]
pub(crate) struct FileSnapshot {
    /// The bytes.
    pub(crate) bytes: Vec<u8>,
    /// There was more than was asked for.
    pub(crate) is_truncated: bool,
    /// Who may read and write it.
    pub(crate) mode: Mode,
    /// By which it is known again.
    pub(crate) stamp: FileStamp,
}

impl OpenFile {
    /// Reads at most so many bytes.
    pub(crate) fn read(self, bytes_max: usize) -> Result<FileSnapshot, FsError> {
        let mut bytes = Vec::new();
        let limit = (bytes_max as u64).saturating_add(1);
        self.file.take(limit).read_to_end(&mut bytes)?;
        let cut = bytes.len() > bytes_max;
        bytes.truncate(bytes_max);
        Ok(FileSnapshot { bytes, is_truncated: cut, mode: self.mode, stamp: self.stamp })
    }
}

impl FileSnapshot {
    /// The text; bytes that are no text are shown as such.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    /// Nobody may write it. A new file in its place would get around that.
    pub(crate) fn is_read_only(&self) -> bool {
        !self.mode.intersects(Mode::from_raw_mode(0o222))
    }
}

impl DirHandle {
    /// The folder below it with exactly this name.
    pub(crate) fn open_child(&self, part: &str) -> Result<Self, FsError> {
        self.check_spelling(part)?;
        self.enter_known(part)
    }

    /// The names in it, in no order, without hidden ones and those that are no text.
    pub(crate) fn visible_names(&self) -> Result<Vec<String>, FsError> {
        let names = self.all_names()?.into_iter();
        Ok(names.filter(|name| !name.starts_with('.')).collect())
    }

    /// Enters a folder whose name came from `names`.
    pub(crate) fn enter_known(&self, part: &str) -> Result<Self, FsError> {
        let handle = open_folder(&self.handle, part)?;
        self.check_not_protected(&sys::fstat(&handle)?)?;
        Ok(Self { handle, protected: Arc::clone(&self.protected), modes: self.modes })
    }

    /// Opens the file with exactly this name.
    pub(crate) fn open(&self, file: &str) -> Result<OpenFile, FsError> {
        self.check_spelling(file)?;
        self.open_known(file)
    }

    /// Opens a file whose name came from `names`.
    pub(crate) fn open_known(&self, file: &str) -> Result<OpenFile, FsError> {
        let (handle, found) = open_file(&self.handle, file, OFlags::RDONLY, Mode::empty())?;
        if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
            return Err(FsError::IsDirectory);
        }
        if !is_regular(&found) {
            return Err(FsError::NotRegular);
        }
        self.check_not_protected(&found)?;
        Ok(OpenFile {
            file: File::from(handle),
            size: u64::try_from(found.st_size).unwrap_or_default(),
            mode: Mode::from_raw_mode(found.st_mode) & Mode::from_raw_mode(0o777),
            stamp: file_stamp(&found),
        })
    }

    /// Reads the file with exactly this name, at most so many bytes.
    pub(crate) fn read(&self, file: &str, bytes_max: usize) -> Result<FileSnapshot, FsError> {
        self.open(file)?.read(bytes_max)
    }

    /// Reads a file whose name came from `names`.
    pub(crate) fn read_known(&self, file: &str, bytes_max: usize) -> Result<FileSnapshot, FsError> {
        self.open_known(file)?.read(bytes_max)
    }

    /// The folder below it with exactly this name, made where it is missing.
    pub(crate) fn open_or_create_child(&self, part: &str) -> Result<Self, FsError> {
        match self.open_child(part) {
            Err(FsError::NotFound) => {}
            other => return other,
        }
        match make_folder(&self.handle, part, self.modes.folder) {
            // The listing had no such name: the file system sees one in another.
            Err(Errno::EXIST) => return Err(FsError::CaseConflict),
            made => made?,
        }
        self.enter_known(part)
    }

    fn check_not_protected(&self, stat: &Stat) -> Result<(), FsError> {
        if self.protected.contains(&file_id(stat)) {
            return Err(FsError::Protected);
        }
        Ok(())
    }

    /// Whether this very name is here; one that differs only in case is trouble
    /// on every system, so that a name means the same on all of them.
    fn check_spelling(&self, name: &str) -> Result<(), FsError> {
        let names = self.all_names()?;
        if names.iter().any(|found| found == name) {
            return Ok(());
        }
        let folded = fold_case(name);
        match names.into_iter().find(|found| fold_case(found) == folded) {
            Some(found) => Err(FsError::WrongSpelling(found)),
            None => Err(FsError::NotFound),
        }
    }

    /// All names in it that are text.
    pub(crate) fn all_names(&self) -> Result<Vec<String>, FsError> {
        let mut names = Vec::new();
        for entry in sys::Dir::read_from(&self.handle)? {
            if let Ok(name) = entry?.file_name().to_str() {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    /// What is in it and of which kind, at most so many, in no order, without
    /// what is no text.
    pub(crate) fn entries(&self, count_max: usize) -> Result<Vec<(String, FileType)>, FsError> {
        let mut entries = Vec::new();
        for entry in sys::Dir::read_from(&self.handle)? {
            if entries.len() == count_max {
                break;
            }
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else {
                continue;
            };
            if name == "." || name == ".." {
                continue;
            }
            let mut kind = entry.file_type();
            if kind == FileType::Unknown {
                // Some file systems don't tell; what is gone by now has no kind.
                let stat = sys::statat(&self.handle, name, AtFlags::SYMLINK_NOFOLLOW);
                kind = stat.map_or(kind, |stat| FileType::from_raw_mode(stat.st_mode));
            }
            entries.push((name.to_owned(), kind));
        }
        Ok(entries)
    }
}
