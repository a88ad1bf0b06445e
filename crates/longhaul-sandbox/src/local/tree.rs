//! Copies of files and directory trees into a sandbox and out of it.
//!
//! Links are copied as links and never followed, on either side.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{self as sys, AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::local::files::{EntryLocation, FOLDER_MODE, open_below};

/// Maximum depth of a tree. Each folder on the way is open while its entries are copied.
const DEPTH_MAX: usize = 128;

/// What a copy does where the target exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExistingTarget {
    /// Replaces files and adds to folders.
    Merge,
    /// Fails.
    Refuse,
}

/// A copy of a tree.
#[derive(Debug)]
pub(crate) struct TreeCopy {
    pub(crate) existing: ExistingTarget,
    /// Number of bytes that may still be copied.
    pub(crate) bytes_left: u64,
}

/// Opens the folder of this machine that contains the entry with this path.
pub(crate) fn host_entry(path: &Path) -> io::Result<EntryLocation> {
    let name = path.file_name().ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, "the path does not end with a name")
    })?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(EntryLocation { folder: sys::open(parent, flags, Mode::empty())?, name: name.into() })
}

impl TreeCopy {
    /// Copies an entry with everything below it.
    pub(crate) fn copy(&mut self, from: &EntryLocation, to: &EntryLocation) -> io::Result<()> {
        self.copy_entry(from, to, DEPTH_MAX)
    }

    fn copy_entry(
        &mut self,
        from: &EntryLocation,
        to: &EntryLocation,
        depth_left: usize,
    ) -> io::Result<()> {
        let stat = sys::statat(&from.folder, &from.name, AtFlags::SYMLINK_NOFOLLOW)?;
        if self.existing == ExistingTarget::Refuse && to.exists()? {
            return Err(io::Error::other("the target exists already; choose a new path"));
        }
        let mode = Mode::from_raw_mode(stat.st_mode) & Mode::from_raw_mode(0o755);
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => self.copy_file(from, to, mode | Mode::RUSR | Mode::WUSR),
            FileType::Symlink => copy_link(from, to),
            FileType::Directory => self.copy_folder(from, to, depth_left),
            FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => Ok(()),
        }
    }

    fn copy_file(
        &mut self,
        from: &EntryLocation,
        to: &EntryLocation,
        mode: Mode,
    ) -> io::Result<()> {
        let file = File::from(open_below(&from.folder, &from.name, OFlags::NOFOLLOW)?);
        // The entry may have been replaced meanwhile.
        if FileType::from_raw_mode(sys::fstat(&file)?.st_mode) != FileType::RegularFile {
            return Ok(());
        }
        let mut content = file.take(self.bytes_left.saturating_add(1));
        to.replace_file(&mut content, mode)?;
        match content.limit() {
            0 => Err(io::Error::other("the tree is larger than the disk limit of a sandbox")),
            limit => {
                self.bytes_left = limit - 1;
                Ok(())
            }
        }
    }

    fn copy_folder(
        &mut self,
        from: &EntryLocation,
        to: &EntryLocation,
        depth_left: usize,
    ) -> io::Result<()> {
        let Some(depth_left) = depth_left.checked_sub(1) else {
            return Err(io::Error::other(format!("the tree is deeper than {DEPTH_MAX} folders")));
        };
        let source = open_folder(from)?;
        match sys::mkdirat(&to.folder, &to.name, FOLDER_MODE) {
            Err(Errno::EXIST) if self.existing == ExistingTarget::Merge => {}
            created => created?,
        }
        let target = open_folder(to)?;
        for entry in sys::Dir::read_from(&source)? {
            let entry = entry?;
            if entry.file_name() != c"." && entry.file_name() != c".." {
                let from = entry_below(&source, entry.file_name())?;
                self.copy_entry(&from, &entry_below(&target, entry.file_name())?, depth_left)?;
            }
        }
        Ok(())
    }
}

impl EntryLocation {
    fn exists(&self) -> io::Result<bool> {
        match sys::statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// Opens a folder that is not a link.
fn open_folder(entry: &EntryLocation) -> io::Result<OwnedFd> {
    open_below(&entry.folder, &entry.name, OFlags::DIRECTORY | OFlags::NOFOLLOW)
}

fn entry_below(folder: &OwnedFd, name: &CStr) -> io::Result<EntryLocation> {
    let name = std::ffi::OsStr::from_bytes(name.to_bytes()).into();
    Ok(EntryLocation { folder: folder.as_fd().try_clone_to_owned()?, name })
}

/// Creates a link with the same target, in place of a file or link.
fn copy_link(from: &EntryLocation, to: &EntryLocation) -> io::Result<()> {
    let target = sys::readlinkat(&from.folder, &from.name, Vec::new())?;
    match sys::unlinkat(&to.folder, &to.name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(sys::symlinkat(target.as_c_str(), &to.folder, &to.name)?)
}
