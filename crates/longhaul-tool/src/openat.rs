//! Opens files and folders relative to an open folder.
//!
//! Invariant: symbolic links are rejected, and no call waits for another process without a limit.

use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::Duration;

use rustix::fs::{self as sys, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::path::Arg;

/// Maximum number of attempts to lock a file, with a delay between them: half a minute in all.
const LOCK_TRIES: u32 = 6_000;
const LOCK_RETRY_DELAY: Duration = Duration::from_millis(5);

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
