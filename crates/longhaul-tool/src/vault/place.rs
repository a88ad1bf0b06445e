//! The vault on disk, walked by open handles: each step is taken from the
//! folder before it, and the system refuses a step that is a link.
//!
//! Never: joins a path from what a model said, or follows a link inside the
//! vault.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{self as sys, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::vault::name;

/// Why a note or a folder can't be reached.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    /// It is not there.
    #[error("is not in the vault")]
    Missing,
    /// It is something else than it should be, or a link.
    #[error("is a link or not a plain file or folder, and the vault opens nothing else")]
    Strange,
    /// It is there under a name that some file systems hold to be the same.
    #[error("is spelled `{0}` in the vault; use exactly that spelling")]
    Spelled(String),
    /// The file system takes it for another name that is there.
    #[error("is in the vault under another spelling; vault_list shows it")]
    Folded,
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
            errno => Self::Io(errno.into()),
        }
    }
}

/// Where the vault is.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    root: Arc<Path>,
}

impl Place {
    /// The vault in this directory.
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root: root.into() }
    }

    /// The folder of these parts, each of which has been checked.
    pub(crate) fn folder(&self, parts: &[String]) -> Result<Folder, Trouble> {
        let mut folder = self.open()?;
        for part in parts {
            folder = folder.step(part)?;
        }
        Ok(folder)
    }

    /// Makes the directory of the vault.
    pub(crate) fn make(&self) -> io::Result<()> {
        if self.root.is_dir() {
            return Ok(());
        }
        fs::create_dir_all(&self.root)?;
        let above = self.root.parent().filter(|above| *above != Path::new(""));
        File::open(above.unwrap_or(Path::new(".")))?.sync_all()
    }

    /// The vault itself. The root alone may be a link: it is the owner's
    /// choice, not a model's.
    pub(crate) fn open(&self) -> Result<Folder, Trouble> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let handle = sys::open(&*self.root, flags, Mode::empty())?;
        Ok(Folder { handle })
    }
}

/// An open folder.
#[derive(Debug)]
pub(crate) struct Folder {
    pub(crate) handle: OwnedFd,
}

/// What was read of a file.
#[derive(Debug)]
pub(crate) struct Taken {
    /// The text; bytes that are no text are shown as such.
    pub(crate) text: String,
    /// There was more than was asked for.
    pub(crate) cut: bool,
    /// Who may read and write it.
    pub(crate) mode: Mode,
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
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = sys::openat(&self.handle, part, flags, Mode::empty())?;
        Ok(Self { handle })
    }

    /// Reads the file with exactly this name, at most so many bytes.
    pub(crate) fn read(&self, file: &str, bytes_max: usize) -> Result<Taken, Trouble> {
        self.spelled(file)?;
        self.take(file, bytes_max)
    }

    /// Reads a file whose name came from `names`.
    pub(crate) fn take(&self, file: &str, bytes_max: usize) -> Result<Taken, Trouble> {
        // Without NONBLOCK a pipe of that name would hold us until somebody writes.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let handle = sys::openat(&self.handle, file, flags, Mode::empty())?;
        let found = sys::fstat(&handle)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Err(Trouble::Strange);
        }
        let mut bytes = Vec::new();
        let limit = (bytes_max as u64).saturating_add(1);
        File::from(handle).take(limit).read_to_end(&mut bytes)?;
        let cut = bytes.len() > bytes_max;
        bytes.truncate(bytes_max);
        Ok(Taken {
            text: String::from_utf8_lossy(&bytes).into_owned(),
            cut,
            mode: Mode::from_raw_mode(found.st_mode) & Mode::from_raw_mode(0o777),
        })
    }

    /// The folder below it with exactly this name, made where it is missing.
    pub(crate) fn step_or_make(&self, part: &str) -> Result<Self, Trouble> {
        match self.step(part) {
            Err(Trouble::Missing) => {}
            other => return other,
        }
        match sys::mkdirat(&self.handle, part, Mode::from_raw_mode(0o755)) {
            // The listing had no such name: the file system sees one in another.
            Err(Errno::EXIST) => return Err(Trouble::Folded),
            made => made?,
        }
        sys::fsync(&self.handle)?;
        self.enter(part)
    }

    /// Whether this very name is here; one that differs only in case is trouble
    /// on every system, so that a vault means the same on all of them.
    fn spelled(&self, name: &str) -> Result<(), Trouble> {
        let names = self.all_names()?;
        if names.iter().any(|found| found == name) {
            return Ok(());
        }
        let folded = name::fold(name);
        match names.into_iter().find(|found| name::fold(found) == folded) {
            Some(found) => Err(Trouble::Spelled(
                found.strip_suffix(".md").unwrap_or(&found).into(),
            )),
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
}
