//! The files of a folder inbox, accessed through open handles and without following symbolic links.
//!
//! Invariant: a file is always in exactly one of the folders, because it is moved by a rename. The
//! result of a task is written before its file is moved, so a moved file has its result beside it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use longhaul_tool::FileLocation;
use rustix::fs::{self as sys, AtFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

/// Maximum size in bytes of a file that becomes a task.
pub(crate) const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Maximum number of files that are looked at in one scan of a folder.
const SCAN_MAX: usize = 10_000;

/// Suffixes of files that a program is still writing.
const UNFINISHED_SUFFIXES: [&str; 2] = [".tmp", ".part"];

/// Folder with the files of claimed tasks.
const WORKING: &str = "working";

/// Folder with the files of completed tasks.
pub(crate) const DONE: &str = "done";

/// Folder with the files of failed tasks.
pub(crate) const FAILED: &str = "failed";

/// Modification time (seconds and nanoseconds) and size of a file, which change while the file is
/// written.
pub(crate) type FileTimeAndSize = [i128; 3];

/// A file in a folder of the inbox. Files are ordered by modification time, size and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WaitingFile {
    /// Size and modification time of the file. Older files are ordered first.
    pub(crate) stamp: FileTimeAndSize,
    pub(crate) name: OsString,
}

/// The folder that is an inbox. It is opened for each access.
#[derive(Debug, Clone)]
pub(crate) struct InboxFolder(pub(crate) FileLocation);

impl InboxFolder {
    /// Creates the subfolders, if they are missing.
    pub(crate) fn create_subfolders(&self) -> io::Result<()> {
        let root = self.open_inbox_folder()?;
        for name in [WORKING, DONE, FAILED] {
            self.open_subfolder(&root, name)?;
        }
        Ok(sys::fsync(&root)?)
    }

    /// Lists the files that wait in the folder, oldest first. Left out are folders, links, hidden
    /// files and files that a program is still writing.
    pub(crate) fn waiting_files(&self) -> io::Result<Vec<WaitingFile>> {
        list_files(&self.open_inbox_folder()?)
    }

    /// Lists the names of the files of claimed tasks, oldest first.
    pub(crate) fn claimed_file_names(&self) -> io::Result<Vec<String>> {
        let files = list_files(&self.open_subfolder(&self.open_inbox_folder()?, WORKING)?)?;
        // A claimed file has a valid name. Others were put there by somebody else.
        Ok(files.into_iter().filter_map(|file| file.name.into_string().ok()).collect())
    }

    /// Claims a file: moves it into the folder of claimed tasks, under a new name. Returns `false`
    /// if the file is gone.
    pub(crate) fn claim_file_if_present(&self, name: &OsStr, new_name: &str) -> io::Result<bool> {
        let root = self.open_inbox_folder()?;
        let working = self.open_subfolder(&root, WORKING)?;
        match sys::renameat_with(&root, name, &working, new_name, RenameFlags::NOREPLACE) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Ok(false),
            Err(errno) => return Err(errno.into()),
        }
        // Both folders are synced before the task is submitted: after a power cut the file must not
        // be back under its old name, because it would become another task.
        sys::fsync(&working)?;
        sys::fsync(&root)?;
        Ok(true)
    }

    /// Reads the file of a claimed task, at most one byte more than [`FILE_BYTES_MAX`].
    pub(crate) fn read_claimed_file(&self, name: &str) -> io::Result<Vec<u8>> {
        let working = self.open_subfolder(&self.open_inbox_folder()?, WORKING)?;
        read_regular_file(&working, OsStr::new(name))
    }

    /// Reads a file that waits in the folder, at most one byte more than [`FILE_BYTES_MAX`].
    pub(crate) fn read_waiting_file(&self, name: &OsStr) -> io::Result<Vec<u8>> {
        read_regular_file(&self.open_inbox_folder()?, name)
    }

    /// Ends a task: writes its result, and moves its file to the folder of completed or of failed
    /// tasks (`end`). The file is in the folder of claimed tasks, or in that of failed tasks if the
    /// run was retried. Does nothing if it is in neither of them.
    pub(crate) fn move_claimed_file(&self, name: &str, end: &str, result: &[u8]) -> io::Result<()> {
        if name.contains('/') || name.starts_with('.') {
            return Err(io::Error::other("the id of the task is not the name of a file"));
        }
        let root = self.open_inbox_folder()?;
        let target = self.open_subfolder(&root, end)?;
        let failed = self.open_subfolder(&root, FAILED)?;
        let result_name = format!("{name}.result.json");
        let source =
            match (contains_file(&root, &[WORKING, name])?, contains_file(&failed, &[name])?) {
                (true, _) => self.open_subfolder(&root, WORKING)?,
                (false, true) if end == FAILED => {
                    return replace_file(&failed, &result_name, result);
                }
                (false, true) => failed,
                (false, false) => return Ok(()),
            };
        replace_file(&target, &result_name, result)?;
        sys::renameat(&source, name, &target, name)?;
        match sys::unlinkat(&source, &result_name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
        sys::fsync(&target)?;
        Ok(sys::fsync(&source)?)
    }

    fn open_inbox_folder(&self) -> io::Result<OwnedFd> {
        self.0.open_folder().map_err(|errno| error_with_path(&self.0.path(), errno))
    }

    /// Opens a subfolder of the inbox. Creates it if it is missing, since a person may have deleted
    /// it.
    fn open_subfolder(&self, root: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
        let folder = match open_folder(root, name) {
            Err(Errno::NOENT) => match sys::mkdirat(root, name, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => open_folder(root, name),
                Err(errno) => Err(errno),
            },
            folder => folder,
        };
        folder.map_err(|errno| error_with_path(&self.0.join(name).path(), errno))
    }
}

fn read_regular_file(folder: &OwnedFd, name: &OsStr) -> io::Result<Vec<u8>> {
    // Without NONBLOCK, opening a named pipe would wait for a writer.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let handle = sys::openat(folder, name, flags, Mode::empty())?;
    if FileType::from_raw_mode(sys::fstat(&handle)?.st_mode) != FileType::RegularFile {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    File::from(handle).take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn open_folder(parent: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    sys::openat(parent, name, flags, Mode::empty())
}

/// Converts an error of the operating system to one whose message contains this path.
fn error_with_path(path: &Path, errno: Errno) -> io::Error {
    let error = io::Error::from(errno);
    io::Error::new(error.kind(), format!("`{}`: {error}", path.display()))
}

/// Whether there is a regular file at this path below the folder.
fn contains_file(folder: &OwnedFd, path: &[&str]) -> io::Result<bool> {
    let path: PathBuf = path.iter().collect();
    match sys::statat(folder, &path, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Whether a file with this name is hidden, or a program is still writing it.
fn is_ignored_file_name(name: &[u8]) -> bool {
    name.starts_with(b".") || UNFINISHED_SUFFIXES.iter().any(|end| name.ends_with(end.as_bytes()))
}

fn list_files(folder: &OwnedFd) -> io::Result<Vec<WaitingFile>> {
    let mut files = Vec::new();
    for entry in sys::Dir::read_from(folder)? {
        if files.len() == SCAN_MAX {
            break;
        }
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if is_ignored_file_name(name.as_bytes()) {
            continue;
        }
        // The file may be gone by now.
        let Ok(stat) = sys::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) else {
            continue;
        };
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            continue;
        }
        // The types of these fields differ between systems; all of them fit.
        let stamp = [stat.st_mtime.into(), stat.st_mtime_nsec.into(), stat.st_size.into()];
        files.push(WaitingFile { stamp, name: name.to_owned() });
    }
    files.sort();
    Ok(files)
}

/// Writes a file completely under a temporary name, syncs it and renames it.
fn replace_file(folder: &OwnedFd, name: &str, bytes: &[u8]) -> io::Result<()> {
    let temp_name = format!(".{name}.tmp");
    let flags =
        OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = sys::openat(folder, &temp_name, flags, Mode::from_raw_mode(0o644))?;
    let mut file = File::from(handle);
    file.write_all(bytes)?;
    file.sync_all()?;
    sys::renameat(folder, &temp_name, folder, name)?;
    Ok(sys::fsync(folder)?)
}
