//! The location of a file or directory of the runtime, and how it is opened.
//!
//! Invariant: below a project's directory each path component is opened from the handle of the one
//! before it, and symbolic links are rejected. So a cloned project can't lead out of its directory,
//! and replacing a directory by a link between two steps has no effect.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fs::{self as sys, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::path::Arg;

/// Maximum number of attempts to lock a file, with a delay between them: half a minute in all.
const LOCK_TRIES: u32 = 6_000;
const LOCK_RETRY_DELAY: Duration = Duration::from_millis(5);
/// Mode of directories that the runtime creates: only their owner can access them.
const FOLDER_MODE: u32 = 0o700;

/// The path of a file or directory, and whether symbolic links in it are followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileLocation {
    /// A path below a project's directory. The directory itself may be reached through symbolic
    /// links, but nothing below it.
    Below {
        /// The project's directory.
        root: PathBuf,
        /// Path relative to the project's directory, with plain names only.
        relative: PathBuf,
    },
    /// A path that the user chose. Symbolic links in it are followed.
    Anywhere(PathBuf),
}

impl<P: Into<PathBuf>> From<P> for FileLocation {
    fn from(path: P) -> Self {
        Self::Anywhere(path.into())
    }
}

impl FileLocation {
    /// Returns the location of `relative` below `root`. `None` if `relative` is absolute or
    /// contains `..`.
    pub fn below_root(root: &Path, relative: &Path) -> Option<Self> {
        let mut normalized = PathBuf::new();
        for part in relative.components() {
            match part {
                Component::Normal(name) => normalized.push(name),
                Component::CurDir => {}
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
            }
        }
        Some(Self::Below { root: root.to_path_buf(), relative: normalized })
    }

    /// Returns the whole path, for messages and for programs that open files by path.
    pub fn path(&self) -> PathBuf {
        match self {
            Self::Below { root, relative } => root.join(relative),
            Self::Anywhere(path) => path.clone(),
        }
    }

    /// Resolves a relative path that the user chose against the directory `base_folder`.
    #[must_use]
    pub fn resolved_from(self, base_folder: &Path) -> Self {
        match self {
            Self::Below { .. } => self,
            Self::Anywhere(path) => Self::Anywhere(base_folder.join(path)),
        }
    }

    /// Returns the location of the file or directory `name` in this directory.
    #[must_use]
    pub fn join(&self, name: &str) -> Self {
        match self {
            Self::Below { root, relative } => {
                Self::Below { root: root.clone(), relative: relative.join(name) }
            }
            Self::Anywhere(path) => Self::Anywhere(path.join(name)),
        }
    }

    /// Opens the directory.
    ///
    /// # Errors
    /// `NOENT` if the directory is missing; `LOOP` or `NOTDIR` for a symbolic link.
    pub fn open_folder(&self) -> Result<OwnedFd, Errno> {
        match self {
            Self::Below { root, relative } => {
                open_folder_below(root, relative, |folder, name| open_folder(folder, name))
            }
            Self::Anywhere(path) => open_folder_following_links(path),
        }
    }

    /// Opens the directory, creating it and missing parents. New names are synced to disk.
    ///
    /// # Errors
    /// `LOOP` or `NOTDIR` for a symbolic link, and any other error of the operating system.
    pub fn create_and_open_folder(&self) -> Result<OwnedFd, Errno> {
        match self {
            Self::Below { root, relative } => {
                open_folder_below(root, relative, open_or_make_folder)
            }
            Self::Anywhere(path) => match open_folder_following_links(path) {
                Err(Errno::NOENT) => {
                    let (parent, name) = self.split_parent_and_name()?;
                    open_or_make_folder(&parent.create_and_open_folder()?, name)
                }
                result => result,
            },
        }
    }

    /// Opens the directory that holds this file, and returns it with the file's name.
    ///
    /// # Errors
    /// Like [`Self::open_folder`]; `INVAL` if the path has no file name.
    pub fn open_parent_with_file_name(&self) -> Result<(OwnedFd, &OsStr), Errno> {
        let (parent, name) = self.split_parent_and_name()?;
        Ok((parent.open_folder()?, name))
    }

    /// Like [`Self::open_parent_with_file_name`], but creates missing directories.
    ///
    /// # Errors
    /// Like [`Self::create_and_open_folder`].
    pub fn create_and_open_parent_with_file_name(&self) -> Result<(OwnedFd, &OsStr), Errno> {
        let (parent, name) = self.split_parent_and_name()?;
        Ok((parent.create_and_open_folder()?, name))
    }

    fn split_parent_and_name(&self) -> Result<(Self, &OsStr), Errno> {
        let (Self::Below { relative: path, .. } | Self::Anywhere(path)) = self;
        let name = path.file_name().ok_or(Errno::INVAL)?;
        let parent = path.parent().unwrap_or(Path::new("")).to_path_buf();
        let parent = match self {
            Self::Below { root, .. } => Self::Below { root: root.clone(), relative: parent },
            Self::Anywhere(_) => Self::Anywhere(parent),
        };
        Ok((parent, name))
    }

    /// Reads a regular file of at most `bytes_max` bytes. `None` if the file is longer.
    ///
    /// # Errors
    /// `NOENT` if the file is missing, `LOOP` or `NOTDIR` for a symbolic link, `INVAL` for anything
    /// else that is not a regular file.
    pub fn read_regular_file(&self, bytes_max: usize) -> Result<Option<Vec<u8>>, Errno> {
        let (folder, name) = self.open_parent_with_file_name()?;
        let (file, stat) = open_file(folder, name, OFlags::RDONLY, Mode::empty())?;
        if !is_regular_file(&stat) {
            return Err(Errno::INVAL);
        }
        let mut bytes = Vec::new();
        let file = File::from(file);
        let result = file.take(bytes_max as u64 + 1).read_to_end(&mut bytes);
        result.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        Ok((bytes.len() <= bytes_max).then_some(bytes))
    }
}

/// Opens a directory that the user chose, following symbolic links.
fn open_folder_following_links(path: &Path) -> Result<OwnedFd, Errno> {
    let path = match path.as_os_str().is_empty() {
        true => Path::new("."),
        false => path,
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    sys::open(path, flags, Mode::empty())
}

/// Opens the directory `relative` below `root`, one path component at a time.
fn open_folder_below(
    root: &Path,
    relative: &Path,
    step: fn(&OwnedFd, &OsStr) -> Result<OwnedFd, Errno>,
) -> Result<OwnedFd, Errno> {
    let mut folder = open_folder_following_links(root)?;
    for part in relative.components() {
        let Component::Normal(name) = part else {
            return Err(Errno::INVAL);
        };
        folder = step(&folder, name)?;
    }
    Ok(folder)
}

fn open_or_make_folder(folder: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    match open_folder(folder, name) {
        Err(Errno::NOENT) => {}
        result => return result,
    }
    match make_folder(folder, name, Mode::from_raw_mode(FOLDER_MODE)) {
        // Another process created the directory meanwhile.
        Err(Errno::EXIST) => {}
        result => result?,
    }
    open_folder(folder, name)
}

pub(crate) fn open_folder(parent: impl AsFd, name: impl Arg) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    sys::openat(parent, name, flags, Mode::empty())
}

/// Creates the folder `name` in the open folder `parent`, and syncs `parent` to disk.
pub(crate) fn make_folder(parent: impl AsFd, name: impl Arg, mode: Mode) -> Result<(), Errno> {
    sys::mkdirat(&parent, name, mode)?;
    sys::fsync(parent)
}

/// Opens the entry `name` in the open folder `folder`, with access and creation as in `flags`. The
/// entry is not necessarily a regular file, so its status is returned too.
pub(crate) fn open_file(
    folder: impl AsFd,
    name: impl Arg,
    flags: OFlags,
    mode: Mode,
) -> Result<(OwnedFd, Stat), Errno> {
    // Without NONBLOCK, opening a named pipe would wait for a writer.
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let handle = sys::openat(folder, name, flags, mode)?;
    let stat = sys::fstat(&handle)?;
    Ok((handle, stat))
}

/// Returns whether this status is of a regular file.
pub(crate) fn is_regular_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

/// Locks a file or folder until its handle is dropped or the process ends. Returns `false` if the
/// file system has no locks, such as some network file systems.
///
/// # Errors
/// `WOULDBLOCK` if another process holds the lock during all attempts.
pub(crate) fn lock_handle_if_supported(handle: impl AsFd) -> Result<bool, Errno> {
    for _ in 0..LOCK_TRIES {
        // Polled instead of blocking: a process that never unlocks must not block a thread of ours.
        match sys::flock(&handle, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) => thread::sleep(LOCK_RETRY_DELAY),
            Err(_) => return Ok(false),
        }
    }
    Err(Errno::WOULDBLOCK)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_path_with_parent_components_is_rejected() {
        let root = Path::new("/project");
        for (relative, path) in [
            ("a/b", Some("/project/a/b")),
            ("./a/./b", Some("/project/a/b")),
            ("", Some("/project")),
            ("/etc/passwd", None),
            ("../a", None),
            ("a/../b", None),
        ] {
            let found =
                FileLocation::below_root(root, Path::new(relative)).map(|found| found.path());
            assert_eq!(found.as_deref(), path.map(Path::new), "{relative}");
        }
    }

    #[test]
    fn no_link_below_the_root_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("project");
        let outside = folder.path().join("outside");
        fs::create_dir_all(root.join("real")).unwrap();
        fs::create_dir_all(outside.join("deep")).unwrap();
        fs::write(outside.join("secret"), "secret").unwrap();
        fs::write(root.join("real/file"), "text").unwrap();
        symlink(&outside, root.join("link")).unwrap();
        symlink(outside.join("secret"), root.join("real/linked")).unwrap();
        let at = |relative: &str| FileLocation::below_root(&root, Path::new(relative)).unwrap();
        assert_eq!(at("real/file").read_regular_file(4), Ok(Some(b"text".to_vec())));
        assert_eq!(at("real/file").read_regular_file(3), Ok(None));
        assert_eq!(at("real/none").read_regular_file(9), Err(Errno::NOENT));
        assert_eq!(at("real").read_regular_file(9), Err(Errno::INVAL));
        for path in ["link/secret", "real/linked"] {
            let result = at(path).read_regular_file(9);
            assert!(matches!(result, Err(Errno::LOOP | Errno::NOTDIR)), "{path}: {result:?}");
        }
        assert!(at("link").open_folder().is_err());
        assert!(at("link/deep").create_and_open_folder().is_err());
        assert!(at("link/new").create_and_open_folder().is_err());
        assert!(!outside.join("new").exists());
        at("real/a/b").create_and_open_folder().unwrap();
        assert!(root.join("real/a/b").is_dir());
        // A path that the user chose may be a symbolic link.
        assert!(FileLocation::from(root.join("link")).open_folder().is_ok());
        FileLocation::from(root.join("link/new/er")).create_and_open_folder().unwrap();
        assert!(outside.join("new/er").is_dir());
    }
}
