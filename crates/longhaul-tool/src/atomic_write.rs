//! Where a file is written: a new one beside it takes its place at once.
//!
//! Never: leaves half a file behind, or lets two writers at one directory.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{self as sys, AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::openat;
use crate::safe_dir::{DirHandle, FileSnapshot, FsError, SafeDir, file_stamp};

/// What a file begins and ends with until it is whole.
const TEMP_START: &str = ".longhaul-";
const TEMP_END: &str = ".tmp";
/// How many names are tried for a new file.
const TEMP_TRIES: u32 = 100;

/// An open folder to write in, while nobody else does.
#[derive(Debug)]
pub(crate) struct AtomicWriter {
    folder: DirHandle,
    is_locked: bool,
    _lock: DirHandle,
}

impl AtomicWriter {
    /// The folder of these parts, each of which has been checked, made where
    /// it is missing.
    pub(crate) fn open(place: &SafeDir, parts: &[String]) -> Result<Self, FsError> {
        place.create()?;
        let lock = place.open_root()?;
        // One writer at a time, of all processes: else two could make `Tasks` and `tasks`, or
        // lose what the other one wrote. Without locks files are still whole, and the last
        // writer wins.
        let locked = openat::lock(&lock.handle)?;
        let mut folder = place.open_root()?;
        for part in parts {
            folder = folder.open_or_create_child(part)?;
        }
        Ok(Self { folder, is_locked: locked, _lock: lock })
    }

    /// What is in the file now, if it is there.
    pub(crate) fn read(
        &self,
        file: &str,
        bytes_max: usize,
    ) -> Result<Option<FileSnapshot>, FsError> {
        match self.folder.read(file, bytes_max) {
            Ok(taken) => Ok(Some(taken)),
            Err(FsError::NotFound) => {
                match sys::statat(&self.folder.handle, file, AtFlags::SYMLINK_NOFOLLOW) {
                    Err(Errno::NOENT) => Ok(None),
                    // Not listed and yet there: the file system folds names.
                    Ok(_) => Err(FsError::CaseConflict),
                    Err(errno) => Err(errno.into()),
                }
            }
            Err(trouble) => Err(trouble),
        }
    }

    /// Makes sure that the file is still what was read: people's editors don't
    /// know of our lock.
    pub(crate) fn check_unchanged(&self, file: &str, before: &FileSnapshot) -> Result<(), FsError> {
        let stat = sys::statat(&self.folder.handle, file, AtFlags::SYMLINK_NOFOLLOW)?;
        if file_stamp(&stat) != before.stamp {
            return Err(FsError::Changed);
        }
        Ok(())
    }

    /// Puts the bytes in the file's place, whole or not at all, and on the disk.
    pub(crate) fn write(
        &self,
        file: &str,
        bytes: &[u8],
        before: Option<&FileSnapshot>,
    ) -> Result<(), FsError> {
        self.remove_stale()?;
        let mode = before.map_or(self.folder.modes.file, |before| before.mode);
        let (temp, handle) = self.create_temp(mode)?;
        let done = self.write_temp(handle, bytes, before).and_then(|()| {
            let here = &self.folder.handle;
            Ok(sys::renameat(here, &temp, here, file)?)
        });
        if done.is_err() {
            // What can't be removed now is swept by the next writer.
            let _ = sys::unlinkat(&self.folder.handle, &temp, AtFlags::empty());
        }
        done?;
        Ok(sys::fsync(&self.folder.handle)?)
    }

    fn write_temp(
        &self,
        handle: OwnedFd,
        bytes: &[u8],
        before: Option<&FileSnapshot>,
    ) -> Result<(), FsError> {
        if let Some(before) = before {
            // A file that others could not read stays so, whatever the umask says.
            sys::fchmod(&handle, before.mode)?;
        }
        let mut file = File::from(handle);
        file.write_all(bytes)?;
        Ok(file.sync_all()?)
    }

    fn create_temp(&self, mode: Mode) -> Result<(String, OwnedFd), FsError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        for _ in 0..TEMP_TRIES {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let temp = format!("{TEMP_START}{}-{count}{TEMP_END}", std::process::id());
            match sys::openat(&self.folder.handle, &temp, flags, mode) {
                Err(Errno::EXIST) => {}
                made => return Ok((temp, made?)),
            }
        }
        Err(Errno::EXIST.into())
    }

    /// Removes what a crash has left; under the lock nobody is at work on it.
    fn remove_stale(&self) -> Result<(), FsError> {
        if !self.is_locked {
            return Ok(());
        }
        let names = self.folder.all_names()?;
        let is_temp = |name: &&String| name.starts_with(TEMP_START) && name.ends_with(TEMP_END);
        for name in names.iter().filter(is_temp) {
            let _ = sys::unlinkat(&self.folder.handle, name, AtFlags::empty());
        }
        Ok(())
    }
}
