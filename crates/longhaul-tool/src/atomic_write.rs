//! Atomic writing of files: the content is written to a temporary file, which is then renamed.
//!
//! Invariant: no partial file is left behind, and a directory has one writer at a time.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{self as sys, AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::location::lock_handle_if_supported;
use crate::safe_dir::{DirHandle, FileSnapshot, FsError, SafeDir, file_change_stamp};

/// Prefix of the names of temporary files.
const TEMP_START: &str = ".longhaul-";
/// Suffix of the names of temporary files.
const TEMP_END: &str = ".tmp";
/// Maximum number of names tried for a temporary file.
const TEMP_TRIES: u32 = 100;

/// An open directory to write files in. Other writers are locked out.
#[derive(Debug)]
pub(crate) struct AtomicWriter {
    folder: DirHandle,
    is_locked: bool,
    _lock: DirHandle,
}

impl AtomicWriter {
    /// Opens and locks the directory with these path components, creating it if it is missing. The
    /// caller has checked the components.
    pub(crate) fn open_and_lock_dir(dir: &SafeDir, parts: &[String]) -> Result<Self, FsError> {
        dir.create_root()?;
        let lock = dir.open_root()?;
        // One writer at a time across all processes. Otherwise two writers could create `Tasks` and
        // `tasks`, or lose each other's changes. Without locks files are still complete, and the
        // last writer wins.
        let locked = lock_handle_if_supported(&lock.handle)?;
        let mut folder = dir.open_root()?;
        for part in parts {
            folder = folder.open_or_create_folder(part)?;
        }
        Ok(Self { folder, is_locked: locked, _lock: lock })
    }

    /// Reads the current content of a file before it is replaced. `None` if the file does not
    /// exist.
    pub(crate) fn read_current_file(
        &self,
        file: &str,
        bytes_max: usize,
    ) -> Result<Option<FileSnapshot>, FsError> {
        match self.folder.open_file(file).and_then(|file| file.read_snapshot(bytes_max)) {
            Ok(snapshot) => Ok(Some(snapshot)),
            Err(FsError::NotFound) => {
                match sys::statat(&self.folder.handle, file, AtFlags::SYMLINK_NOFOLLOW) {
                    Err(Errno::NOENT) => Ok(None),
                    // Not in the listing and yet there: the file system ignores case.
                    Ok(_) => Err(FsError::CaseConflict),
                    Err(errno) => Err(errno.into()),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Checks that a file was not changed since it was read as `before`. The lock does not keep out
    /// editors that people use.
    pub(crate) fn check_file_unchanged(
        &self,
        file: &str,
        before: &FileSnapshot,
    ) -> Result<(), FsError> {
        let stat = sys::statat(&self.folder.handle, file, AtFlags::SYMLINK_NOFOLLOW)?;
        if file_change_stamp(&stat) != before.stamp {
            return Err(FsError::Changed);
        }
        Ok(())
    }

    /// Replaces a file atomically and syncs it to disk.
    pub(crate) fn replace_file(
        &self,
        file: &str,
        bytes: &[u8],
        before: Option<&FileSnapshot>,
    ) -> Result<(), FsError> {
        self.remove_stale_temp_files()?;
        let mode = before.map_or(self.folder.new_file_mode(), |before| before.mode);
        let (temp, handle) = self.create_temp_file(mode)?;
        let result = self.write_temp_file(handle, bytes, before).and_then(|()| {
            let folder = &self.folder.handle;
            Ok(sys::renameat(folder, &temp, folder, file)?)
        });
        if result.is_err() {
            // If the file can't be removed now, the next writer removes it.
            let _ = sys::unlinkat(&self.folder.handle, &temp, AtFlags::empty());
        }
        result?;
        Ok(sys::fsync(&self.folder.handle)?)
    }

    fn write_temp_file(
        &self,
        handle: OwnedFd,
        bytes: &[u8],
        before: Option<&FileSnapshot>,
    ) -> Result<(), FsError> {
        if let Some(before) = before {
            // Keeps the permissions of the old file, whatever the umask is.
            sys::fchmod(&handle, before.mode)?;
        }
        let mut file = File::from(handle);
        file.write_all(bytes)?;
        Ok(file.sync_all()?)
    }

    fn create_temp_file(&self, mode: Mode) -> Result<(String, OwnedFd), FsError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        for _ in 0..TEMP_TRIES {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let temp = format!("{TEMP_START}{}-{count}{TEMP_END}", std::process::id());
            match sys::openat(&self.folder.handle, &temp, flags, mode) {
                Err(Errno::EXIST) => {}
                result => return Ok((temp, result?)),
            }
        }
        Err(Errno::EXIST.into())
    }

    /// Removes temporary files that a crash left behind. No other writer uses them while the lock
    /// is held.
    fn remove_stale_temp_files(&self) -> Result<(), FsError> {
        if !self.is_locked {
            return Ok(());
        }
        let names = self.folder.entry_names()?;
        let is_temp = |name: &&String| name.starts_with(TEMP_START) && name.ends_with(TEMP_END);
        for name in names.iter().filter(is_temp) {
            let _ = sys::unlinkat(&self.folder.handle, name, AtFlags::empty());
        }
        Ok(())
    }
}
