//! Files and folders opened below an open folder.
//!
//! Invariant: a symbolic link is refused, and no call waits for another process without a bound.

use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::Duration;

use rustix::fs::{self as sys, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::path::Arg;

/// Attempts to lock, with a pause between them: half a minute in all.
const LOCK_TRIES: u32 = 6_000;
const LOCK_RETRY_DELAY: Duration = Duration::from_millis(5);

/// Opens the folder `name` in `folder`.
pub(crate) fn open_folder(folder: impl AsFd, name: impl Arg) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    sys::openat(folder, name, flags, Mode::empty())
}

/// Makes the folder `name` in `folder`. Its name is on the disk when this returns.
pub(crate) fn make_folder(folder: impl AsFd, name: impl Arg, mode: Mode) -> Result<(), Errno> {
    sys::mkdirat(&folder, name, mode)?;
    sys::fsync(folder)
}

/// Opens what `name` in `folder` is, which may be no regular file, with access and creation as
/// in `flags`. Says what was opened.
pub(crate) fn open_file(
    folder: impl AsFd,
    name: impl Arg,
    flags: OFlags,
    mode: Mode,
) -> Result<(OwnedFd, Stat), Errno> {
    // Without NONBLOCK a pipe of that name would wait for a writer.
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let handle = sys::openat(folder, name, flags, mode)?;
    let found = sys::fstat(&handle)?;
    Ok((handle, found))
}

/// Whether this is a regular file.
pub(crate) fn is_regular(found: &Stat) -> bool {
    FileType::from_raw_mode(found.st_mode) == FileType::RegularFile
}

/// Locks a file or folder until its handle is dropped, so also by a crash. False where the file
/// system has no locks, as some network file systems.
///
/// # Errors
/// `WOULDBLOCK` if another process holds the lock all the time.
pub(crate) fn lock(handle: impl AsFd) -> Result<bool, Errno> {
    for _ in 0..LOCK_TRIES {
        // Not waited for in the system: whoever never unlocks must not block a thread of ours.
        match sys::flock(&handle, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) => thread::sleep(LOCK_RETRY_DELAY),
            Err(_) => return Ok(false),
        }
    }
    Err(Errno::WOULDBLOCK)
}
