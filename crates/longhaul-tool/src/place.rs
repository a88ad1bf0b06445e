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

use crate::handle::{is_regular, make_folder, open_file, open_folder};
use crate::location::Location;
use crate::spelling::fold;

/// Why a file or a folder can't be reached.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    /// It is not there.
    #[error("is not there")]
    Missing,
    /// It is something else than it should be, or a link.
    #[error("is a link or not a plain file or folder, and nothing else is opened here")]
    Strange,
    /// It is a folder and should be a file.
    #[error("is a folder and not a file")]
    Folder,
    /// It is the runtime's own.
    #[error("belongs to the runtime itself and is closed to agents")]
    Kept,
    /// It is there under a name that some file systems hold to be the same.
    #[error("is spelled `{0}` there; use exactly that spelling")]
    Spelled(String),
    /// The file system takes it for another name that is there.
    #[error("is there under another spelling; a list shows it")]
    Folded,
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

impl From<Errno> for Trouble {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOENT => Self::Missing,
            // A link with NOFOLLOW, a file where a folder should be, a socket.
            Errno::LOOP | Errno::NOTDIR | Errno::NXIO => Self::Strange,
            Errno::WOULDBLOCK => Self::Busy,
            errno => Self::Io(errno.into()),
        }
    }
}

/// What a file or a folder is, under whatever name.
type Identity = (i128, i128);

fn identity(stat: &Stat) -> Identity {
    // Systems differ in the types of these; all of them fit.
    (i128::from(stat.st_dev), i128::from(stat.st_ino))
}

/// A file and its last change, as far as the system tells them.
pub(crate) type Stamp = (Identity, [i128; 3]);

/// The stamp of what was found.
pub(crate) fn stamp(stat: &Stat) -> Stamp {
    let seconds = i128::from(stat.st_mtime);
    let change = [
        seconds,
        i128::from(stat.st_mtime_nsec),
        i128::from(stat.st_size),
    ];
    (identity(stat), change)
}

/// Where the directory is.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    root: Arc<Location>,
    /// Files and folders that nobody enters, wherever they are.
    kept: Arc<[PathBuf]>,
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
    const SHARED: Self = Self {
        file: Mode::from_raw_mode(0o644),
        folder: Mode::from_raw_mode(0o755),
    };
    /// Only for their owner.
    const PRIVATE: Self = Self {
        file: Mode::from_raw_mode(0o600),
        folder: Mode::from_raw_mode(0o700),
    };
}

impl Place {
    /// The directory at this location.
    pub(crate) fn new(root: impl Into<Location>) -> Self {
        Self {
            root: Arc::new(root.into()),
            kept: Arc::default(),
            modes: Modes::SHARED,
        }
    }

    /// The directory at this location. What is made in it is for its owner only.
    pub(crate) fn private(root: impl Into<Location>) -> Self {
        Self {
            modes: Modes::PRIVATE,
            ..Self::new(root)
        }
    }

    /// The same without these files and folders.
    pub(crate) fn without(self, kept: Vec<PathBuf>) -> Self {
        Self {
            kept: kept.into(),
            ..self
        }
    }

    /// The folder of these parts, each of which has been checked.
    pub(crate) fn folder(&self, parts: &[String]) -> Result<Folder, Trouble> {
        let mut folder = self.open()?;
        for part in parts {
            folder = folder.step(part)?;
        }
        Ok(folder)
    }

    /// Makes the directory.
    pub(crate) fn make(&self) -> Result<(), Trouble> {
        self.root.make_folder()?;
        Ok(())
    }

    /// The directory itself.
    pub(crate) fn open(&self) -> Result<Folder, Trouble> {
        let handle = self.root.open_folder()?;
        // Known by what they are: another name for them opens nothing.
        let kept = self.kept.iter();
        let kept = kept.filter_map(|path| sys::stat(path).ok());
        let kept = kept.map(|stat| identity(&stat)).collect();
        Ok(Folder {
            handle,
            kept,
            modes: self.modes,
        })
    }
}

/// An open folder.
#[derive(Debug)]
pub(crate) struct Folder {
    pub(crate) handle: OwnedFd,
    kept: Arc<[Identity]>,
    pub(crate) modes: Modes,
}

/// An open file.
#[derive(Debug)]
pub(crate) struct Opened {
    file: File,
    /// How long it is, in bytes.
    pub(crate) size: u64,
    mode: Mode,
    stamp: Stamp,
}

/// What was read of a file.
#[derive(Debug)]
pub(crate) struct Taken {
    /// The bytes.
    pub(crate) bytes: Vec<u8>,
    /// There was more than was asked for.
    pub(crate) cut: bool,
    /// Who may read and write it.
    pub(crate) mode: Mode,
    /// By which it is known again.
    pub(crate) stamp: Stamp,
}

impl Opened {
    /// Reads at most so many bytes.
    pub(crate) fn take(self, bytes_max: usize) -> Result<Taken, Trouble> {
        let mut bytes = Vec::new();
        let limit = (bytes_max as u64).saturating_add(1);
        self.file.take(limit).read_to_end(&mut bytes)?;
        let cut = bytes.len() > bytes_max;
        bytes.truncate(bytes_max);
        Ok(Taken {
            bytes,
            cut,
            mode: self.mode,
            stamp: self.stamp,
        })
    }
}

impl Taken {
    /// The text; bytes that are no text are shown as such.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    /// Nobody may write it. A new file in its place would get around that.
    pub(crate) fn is_read_only(&self) -> bool {
        !self.mode.intersects(Mode::from_raw_mode(0o222))
    }
}

impl Folder {
    /// The folder below it with exactly this name.
    pub(crate) fn step(&self, part: &str) -> Result<Self, Trouble> {
        self.spelled(part)?;
        self.enter(part)
    }

    /// The names in it, in no order, without hidden ones and those that are no text.
    pub(crate) fn names(&self) -> Result<Vec<String>, Trouble> {
        let names = self.all_names()?.into_iter();
        Ok(names.filter(|name| !name.starts_with('.')).collect())
    }

    /// Enters a folder whose name came from `names`.
    pub(crate) fn enter(&self, part: &str) -> Result<Self, Trouble> {
        let handle = open_folder(&self.handle, part)?;
        self.let_pass(&sys::fstat(&handle)?)?;
        Ok(Self {
            handle,
            kept: Arc::clone(&self.kept),
            modes: self.modes,
        })
    }

    /// Opens the file with exactly this name.
    pub(crate) fn open(&self, file: &str) -> Result<Opened, Trouble> {
        self.spelled(file)?;
        self.open_known(file)
    }

    /// Opens a file whose name came from `names`.
    pub(crate) fn open_known(&self, file: &str) -> Result<Opened, Trouble> {
        let (handle, found) = open_file(&self.handle, file, OFlags::RDONLY, Mode::empty())?;
        if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
            return Err(Trouble::Folder);
        }
        if !is_regular(&found) {
            return Err(Trouble::Strange);
        }
        self.let_pass(&found)?;
        Ok(Opened {
            file: File::from(handle),
            size: u64::try_from(found.st_size).unwrap_or_default(),
            mode: Mode::from_raw_mode(found.st_mode) & Mode::from_raw_mode(0o777),
            stamp: stamp(&found),
        })
    }

    /// Reads the file with exactly this name, at most so many bytes.
    pub(crate) fn read(&self, file: &str, bytes_max: usize) -> Result<Taken, Trouble> {
        self.open(file)?.take(bytes_max)
    }

    /// Reads a file whose name came from `names`.
    pub(crate) fn take(&self, file: &str, bytes_max: usize) -> Result<Taken, Trouble> {
        self.open_known(file)?.take(bytes_max)
    }

    /// The folder below it with exactly this name, made where it is missing.
    pub(crate) fn step_or_make(&self, part: &str) -> Result<Self, Trouble> {
        match self.step(part) {
            Err(Trouble::Missing) => {}
            other => return other,
        }
        match make_folder(&self.handle, part, self.modes.folder) {
            // The listing had no such name: the file system sees one in another.
            Err(Errno::EXIST) => return Err(Trouble::Folded),
            made => made?,
        }
        self.enter(part)
    }

    fn let_pass(&self, stat: &Stat) -> Result<(), Trouble> {
        if self.kept.contains(&identity(stat)) {
            return Err(Trouble::Kept);
        }
        Ok(())
    }

    /// Whether this very name is here; one that differs only in case is trouble
    /// on every system, so that a name means the same on all of them.
    fn spelled(&self, name: &str) -> Result<(), Trouble> {
        let names = self.all_names()?;
        if names.iter().any(|found| found == name) {
            return Ok(());
        }
        let folded = fold(name);
        match names.into_iter().find(|found| fold(found) == folded) {
            Some(found) => Err(Trouble::Spelled(found)),
            None => Err(Trouble::Missing),
        }
    }

    /// All names in it that are text.
    pub(crate) fn all_names(&self) -> Result<Vec<String>, Trouble> {
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
    pub(crate) fn entries(&self, count_max: usize) -> Result<Vec<(String, FileType)>, Trouble> {
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
