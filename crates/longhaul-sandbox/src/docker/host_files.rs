//! Files in the directories of this machine that are folders of a sandbox.
//!
//! Invariant: symbolic links are not followed, so no path leads out of these directories, whatever
//! the commands in the sandbox do at the same time.

use std::fs::{self, File, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use longhaul_core::port::sandbox::{SandboxEntry, SandboxEntryKind, SandboxError, WORKSPACE};
use rustix::fs::{self as sys, AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::container::{HOME, HostDirs};

/// Maximum number of bytes of a path.
const PATH_BYTES_MAX: usize = 4_000;
/// Maximum number of entries of a folder that are listed.
pub(super) const ENTRIES_MAX: usize = 100_000;

/// Returns the absolute path in the sandbox of a path that may be relative to the work folder,
/// without `.` and `..`.
pub(super) fn resolve(path: &str) -> Result<String, SandboxError> {
    if path.contains('\0') || path.len() > PATH_BYTES_MAX {
        return file_error(path, &"it is too long or contains a NUL byte");
    }
    let base = if path.starts_with('/') { "" } else { WORKSPACE };
    let mut parts = Vec::new();
    for part in base.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => _ = parts.pop(),
            part => parts.push(part),
        }
    }
    Ok(format!("/{}", parts.join("/")))
}

/// A path in the sandbox below a directory of this machine.
#[derive(Debug)]
pub(super) struct HostPath {
    dir: PathBuf,
    parts: Vec<String>,
    /// Path in the sandbox, for messages.
    path: String,
}

impl HostPath {
    /// Returns the place of a resolved path. `None` means that no directory of this machine
    /// contains it.
    pub(super) fn new(dirs: &HostDirs, path: &str) -> Option<Self> {
        let folders = [(WORKSPACE, &dirs.workspace), (HOME, &dirs.home)];
        folders.into_iter().find_map(|(folder, dir)| {
            let rest = path.strip_prefix(folder)?;
            let is_below = rest.is_empty() || rest.starts_with('/');
            let parts = rest.split('/').filter(|part| !part.is_empty()).map(str::to_owned);
            is_below.then(|| Self { dir: dir.clone(), parts: parts.collect(), path: path.into() })
        })
    }

    /// Returns the content of the file.
    pub(super) fn read(&self, max_bytes: u64) -> Result<Vec<u8>, SandboxError> {
        let file = self.open_file(OFlags::RDONLY, false)?;
        let mut content = Vec::new();
        let read = file.take(max_bytes.saturating_add(1)).read_to_end(&mut content);
        read.map_err(|error| self.error(&error))?;
        match content.len() as u64 > max_bytes {
            true => file_error(&self.path, &too_large(max_bytes)),
            false => Ok(content),
        }
    }

    /// Creates or replaces the file, and creates the missing folders of its path.
    pub(super) fn write(&self, content: &[u8]) -> Result<(), SandboxError> {
        let mut file = self.open_file(OFlags::WRONLY | OFlags::CREATE, true)?;
        let written = file.set_len(0).and_then(|()| file.write_all(content));
        written.map_err(|error| self.error(&error))
    }

    /// Lists the folder, without names that are not UTF-8.
    pub(super) fn list(&self) -> Result<Vec<SandboxEntry>, SandboxError> {
        let folder = self.open_folder(&self.parts, false).map_err(|error| self.error(&error))?;
        let mut entries = Vec::new();
        for entry in sys::Dir::read_from(&folder).map_err(|error| self.error(&error.into()))? {
            let entry = entry.map_err(|error| self.error(&error.into()))?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            if matches!(name, "." | "..") {
                continue;
            }
            // An entry that is gone by now is left out.
            let Ok(stat) = sys::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            if entries.len() == ENTRIES_MAX {
                return file_error(&self.path, &format!("it has more than {ENTRIES_MAX} entries"));
            }
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
            let is_file = kind == SandboxEntryKind::File;
            let size = if is_file { u64::try_from(stat.st_size).unwrap_or_default() } else { 0 };
            entries.push(SandboxEntry { name: name.to_owned(), kind, size });
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    /// Creates the missing folders above this path.
    pub(super) fn create_parents(&self) -> Result<(), SandboxError> {
        let parents = self.parts.split_last().map_or(&[][..], |(_, parents)| parents);
        self.open_folder(parents, true).map(drop).map_err(|error| self.error(&error))
    }

    fn open_file(&self, flags: OFlags, create_parents: bool) -> Result<File, SandboxError> {
        let Some((name, parents)) = self.parts.split_last() else {
            return file_error(&self.path, &"it is a folder");
        };
        let open = || -> io::Result<File> {
            let folder = self.open_folder(parents, create_parents)?;
            // Without blocking, because a FIFO has no other end.
            let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let file = sys::openat(&folder, name.as_str(), flags, Mode::from_raw_mode(0o644))?;
            match FileType::from_raw_mode(sys::fstat(&file)?.st_mode) {
                FileType::RegularFile => Ok(File::from(file)),
                FileType::Directory => Err(Errno::ISDIR.into()),
                _ => Err(Errno::NXIO.into()),
            }
        };
        open().map_err(|error| self.error(&error))
    }

    fn open_folder(&self, parts: &[String], create: bool) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut folder = sys::open(&self.dir, flags, Mode::empty())?;
        for part in parts {
            if create {
                match sys::mkdirat(&folder, part.as_str(), Mode::from_raw_mode(0o755)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            folder = sys::openat(&folder, part.as_str(), flags, Mode::empty())?;
        }
        Ok(folder)
    }

    fn error(&self, error: &io::Error) -> SandboxError {
        let reason = match Errno::from_io_error(error) {
            Some(Errno::LOOP | Errno::MLINK) => {
                "it is a symbolic link, which is not followed".into()
            }
            Some(Errno::NXIO) => "it is no regular file".to_owned(),
            Some(Errno::NOTDIR) => "a part of it is a file or a symbolic link".to_owned(),
            _ => error.to_string(),
        };
        SandboxError::File(message(&self.path, &reason))
    }
}

pub(super) fn too_large(max_bytes: u64) -> String {
    format!("it has more than {max_bytes} bytes; read a part of it with a command")
}

pub(super) fn file_error<T>(path: &str, reason: &dyn std::fmt::Display) -> Result<T, SandboxError> {
    Err(SandboxError::File(message(path, reason)))
}

fn message(path: &str, reason: &dyn std::fmt::Display) -> String {
    let path: String = path.chars().take(200).collect();
    format!("{path:?} can't be accessed: {reason}")
}

/// Deletes a directory with everything in it, if it exists. Gives this user the permissions for
/// that, which commands in the sandbox may have taken away.
pub(super) fn remove_tree(dir: &Path) -> io::Result<()> {
    let mut result = fs::remove_dir_all(dir);
    if matches!(&result, Err(error) if error.kind() == io::ErrorKind::PermissionDenied) {
        let mut folders = vec![dir.to_owned()];
        while let Some(folder) = folders.pop() {
            fs::set_permissions(&folder, Permissions::from_mode(0o700))?;
            for entry in fs::read_dir(&folder)? {
                let entry = entry?;
                // The type of a symbolic link is not that of its target.
                if entry.file_type()?.is_dir() {
                    folders.push(entry.path());
                }
            }
        }
        result = fs::remove_dir_all(dir);
    }
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}
