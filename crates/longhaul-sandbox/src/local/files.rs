//! Files and folders of a sandbox, accessed from outside.
//!
//! Invariant: the programs of a sandbox can replace any file or folder by a link at any time. So
//! all paths are opened below the directory of the folder that they belong to, and the kernel
//! refuses each link that leads out of it.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use longhaul_core::port::sandbox::{SandboxEntry, SandboxEntryKind, SandboxError};
use rustix::fs::{self as sys, AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::local::layout::random_id;
use crate::local::path::Location;

/// Maximum number of entries of a list.
const ENTRIES_MAX: usize = 100_000;
/// Permissions of new files.
const FILE_MODE: Mode = Mode::from_raw_mode(0o644);
/// Permissions of new folders.
pub(crate) const FOLDER_MODE: Mode = Mode::from_raw_mode(0o755);

/// Returns the error for a failed access to a path of a sandbox.
pub(crate) fn file_error(path: &str, error: io::Error) -> SandboxError {
    let reason = match Errno::from_io_error(&error) {
        Some(Errno::NOENT) => "the file or folder does not exist".to_owned(),
        Some(Errno::XDEV | Errno::LOOP) => "a link leads out of the folder".to_owned(),
        Some(Errno::NOTDIR) => "a part of the path is not a folder".to_owned(),
        Some(Errno::ISDIR) => "the path is a folder and not a file".to_owned(),
        _ => error.to_string(),
    };
    SandboxError::File(format!("can't access {path:?}: {reason}"))
}

/// Opens the directory of this machine that contains a folder of the sandbox.
fn open_root(root: &Path) -> io::Result<OwnedFd> {
    Ok(sys::open(root, OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY, Mode::empty())?)
}

/// Opens a path below a directory. No link leads out of the directory, and no FIFO blocks.
pub(crate) fn open_below(dir: impl AsFd, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    // The kernel gives up when folders are moved while it walks.
    loop {
        match sys::openat2(&dir, path, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            opened => return Ok(opened?),
        }
    }
}

/// A folder of the sandbox, and the name of an entry in it.
#[derive(Debug)]
pub(crate) struct EntryLocation {
    pub(crate) folder: OwnedFd,
    pub(crate) name: PathBuf,
}

impl Location {
    /// Opens a file or folder.
    fn open(&self, flags: OFlags) -> io::Result<OwnedFd> {
        open_below(open_root(&self.root)?, &self.below, flags)
    }

    /// Opens the folder that contains the entry with this path. The folders of a sandbox themselves
    /// are entries of a directory that the sandbox does not see.
    pub(crate) fn open_parent(&self, missing: MissingFolders) -> io::Result<EntryLocation> {
        let (Some(name), Some(parent)) = (self.below.file_name(), self.below.parent()) else {
            let name = self.root.file_name().ok_or(Errno::ISDIR)?;
            let parent = self.root.parent().ok_or(Errno::ISDIR)?;
            return Ok(EntryLocation { folder: open_root(parent)?, name: name.into() });
        };
        let root = open_root(&self.root)?;
        let folder = match missing {
            MissingFolders::Create => create_folders(&root, parent)?,
            MissingFolders::Fail => open_below(&root, parent, OFlags::DIRECTORY)?,
        };
        Ok(EntryLocation { folder, name: name.into() })
    }

    /// Returns whether this is a folder of the sandbox itself, which can't be replaced by a file.
    fn is_folder_root(&self) -> bool {
        self.below.as_os_str().is_empty()
    }

    /// Returns the content of a regular file.
    pub(crate) fn read(&self, max_bytes: u64) -> io::Result<Vec<u8>> {
        let file = File::from(self.open(OFlags::RDONLY)?);
        let kind = FileType::from_raw_mode(sys::fstat(&file)?.st_mode);
        if kind == FileType::Directory {
            return Err(Errno::ISDIR.into());
        }
        if kind != FileType::RegularFile {
            return Err(io::Error::other("it is not a regular file"));
        }
        let mut content = Vec::new();
        file.take(max_bytes.saturating_add(1)).read_to_end(&mut content)?;
        if content.len() as u64 > max_bytes {
            let message = format!("it has more than {max_bytes} bytes; read a part with a command");
            return Err(io::Error::other(message));
        }
        Ok(content)
    }

    /// Creates or replaces a file.
    pub(crate) fn write(&self, mut content: &[u8]) -> io::Result<()> {
        if self.is_folder_root() {
            return Err(Errno::ISDIR.into());
        }
        let entry = self.open_parent(MissingFolders::Create)?;
        let mode = match sys::statat(&entry.folder, &entry.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {
                Mode::from_raw_mode(stat.st_mode) & Mode::from_raw_mode(0o777)
            }
            _ => FILE_MODE,
        };
        entry.replace_file(&mut content, mode)
    }

    /// Lists the entries of a folder by name.
    pub(crate) fn list(&self) -> io::Result<Vec<SandboxEntry>> {
        let folder = self.open(OFlags::DIRECTORY)?;
        let mut entries = Vec::new();
        for entry in sys::Dir::read_from(&folder)? {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            if entries.len() == ENTRIES_MAX {
                let message = format!("the folder has more than {ENTRIES_MAX} entries");
                return Err(io::Error::other(message));
            }
            // An entry may be gone by now.
            let Ok(stat) = sys::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let kind = match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => SandboxEntryKind::File,
                FileType::Directory => SandboxEntryKind::Dir,
                FileType::Symlink => SandboxEntryKind::Symlink,
                FileType::Fifo
                | FileType::Socket
                | FileType::CharacterDevice
                | FileType::BlockDevice
                | FileType::Unknown => SandboxEntryKind::Other,
            };
            let size = u64::try_from(stat.st_size).unwrap_or_default();
            let size = if kind == SandboxEntryKind::File { size } else { 0 };
            entries.push(SandboxEntry { name: name.to_string_lossy().into_owned(), kind, size });
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }
}

/// What happens to the missing folders of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MissingFolders {
    Create,
    Fail,
}

impl EntryLocation {
    /// Replaces the entry by a regular file with this content, not by writing to the file that it
    /// is, because that one may be a link or have other names.
    pub(crate) fn replace_file(&self, content: &mut impl io::Read, mode: Mode) -> io::Result<()> {
        let temp = format!(".longhaul-{}", random_id()?);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mut file = File::from(sys::openat(&self.folder, &temp, flags, mode)?);
        let written = io::copy(content, &mut file).and_then(|_| {
            file.flush()?;
            // Not subject to the umask of this process.
            sys::fchmod(&file, mode)?;
            Ok(sys::renameat(&self.folder, &temp, &self.folder, &self.name)?)
        });
        if written.is_err() {
            _ = sys::unlinkat(&self.folder, &temp, AtFlags::empty());
        }
        written
    }
}

/// Opens a folder below a directory, and creates it and the missing folders of its path.
fn create_folders(root: &OwnedFd, path: &Path) -> io::Result<OwnedFd> {
    let mut folder = open_below(root, Path::new(""), OFlags::DIRECTORY)?;
    let mut opened = PathBuf::new();
    for name in path {
        opened.push(name);
        match sys::mkdirat(&folder, name, FOLDER_MODE) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        // From the root, because a link in the folder may lead to another folder below the root.
        folder = open_below(root, &opened, OFlags::DIRECTORY)?;
    }
    Ok(folder)
}
