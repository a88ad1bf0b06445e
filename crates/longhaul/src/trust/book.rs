//! The file in which a person's decisions are kept, outside of every project.
//!
//! Never: believed when others may write it, and never half written.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use longhaul_core::raw::Hash;
use longhaul_core::time::Timestamp;
use rustix::fs::{FlockOperation, OFlags, flock};
use serde::{Deserialize, Serialize};

use crate::trust::thing::Kind;

/// The file's name, in the folder for what the user's programs remember.
pub const NAME: &str = "trust.json";

/// More than this is no book of ours.
const BYTES_MAX: u64 = 8 << 20;

/// Which form the file has.
const VERSION: u32 = 1;

/// Why there is no book.
#[derive(Debug, thiserror::Error)]
pub enum BookError {
    /// It can't be read or written.
    #[error("`{at}`, where trust is kept, can't be used: {source}")]
    Io {
        /// Which file.
        at: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// Others may write it, so it says nothing.
    #[error("`{at}`, where trust is kept, may be written by others (mode {mode:03o})")]
    Open {
        /// Which file.
        at: PathBuf,
        /// Who may.
        mode: u32,
    },
    /// It belongs to somebody else, so it says nothing.
    #[error("`{at}`, where trust is kept, belongs to another user (uid {owner})")]
    Foreign {
        /// Which file.
        at: PathBuf,
        /// Whose it is.
        owner: u32,
    },
    /// It holds something else.
    #[error("`{at}`, where trust is kept, is not of this build's form")]
    Strange {
        /// Which file.
        at: PathBuf,
    },
    /// There is no folder for it.
    #[error("there is no home to keep trust in: set HOME or XDG_STATE_HOME")]
    Homeless,
}

/// One decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The project's folder, by its real path.
    pub project: PathBuf,
    /// What kind of thing.
    pub kind: Kind,
    /// What it is called.
    pub name: String,
    /// What was shown.
    pub hash: Hash,
    /// When.
    pub at: Timestamp,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Pages {
    version: u32,
    trusted: Vec<Entry>,
}

/// All decisions; there are none where there is no file.
pub fn read(at: &Path) -> Result<Vec<Entry>, BookError> {
    let io = |source| BookError::Io {
        at: at.to_owned(),
        source,
    };
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(at);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(io(error)),
    };
    let found = file.metadata().map_err(io)?;
    let me = rustix::process::geteuid().as_raw();
    believed(at, (found.uid(), found.mode()), me)?;
    let strange = || BookError::Strange { at: at.to_owned() };
    let mut text = String::new();
    let read = file.take(BYTES_MAX + 1).read_to_string(&mut text);
    read.map_err(io)?;
    let pages: Pages = serde_json::from_str(&text).map_err(|_| strange())?;
    match pages.version {
        VERSION => Ok(pages.trusted),
        _ => Err(strange()),
    }
}

/// Whether a file of this owner and mode says anything to this user.
fn believed(at: &Path, (owner, mode): (u32, u32), me: u32) -> Result<(), BookError> {
    let at = at.to_owned();
    let mode = mode & 0o777;
    if owner != me && owner != 0 {
        return Err(BookError::Foreign { at, owner });
    }
    match mode & 0o022 {
        0 => Ok(()),
        _ => Err(BookError::Open { at, mode }),
    }
}

/// Changes the decisions, one process after the other.
pub fn change(at: &Path, change: impl FnOnce(&mut Vec<Entry>)) -> Result<(), BookError> {
    let io = |source| BookError::Io {
        at: at.to_owned(),
        source,
    };
    let folder = at.parent().ok_or(BookError::Homeless)?;
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(io)?;
    let lock = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
        .open(at.with_extension("lock"))
        .map_err(io)?;
    flock(&lock, FlockOperation::LockExclusive).map_err(|errno| io(errno.into()))?;
    let mut trusted = read(at)?;
    change(&mut trusted);
    write(at, trusted).map_err(io)
}

/// Written beside and moved into place: nobody reads half a book.
fn write(at: &Path, trusted: Vec<Entry>) -> io::Result<()> {
    let version = VERSION;
    let text = serde_json::to_string_pretty(&Pages { version, trusted })?;
    let beside = at.with_extension(format!("json.{}", std::process::id()));
    _ = fs::remove_file(&beside);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&beside)?;
    let wrote = writeln!(file, "{text}").and_then(|()| file.sync_all());
    let moved = wrote.and_then(|()| fs::rename(&beside, at));
    if moved.is_err() {
        _ = fs::remove_file(&beside);
    }
    moved
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn entry(name: &str) -> Entry {
        Entry {
            project: PathBuf::from("/p"),
            kind: Kind::Mcp,
            name: name.to_owned(),
            hash: Hash::of(name.as_bytes()),
            at: Timestamp::from_micros(7),
        }
    }

    #[test]
    fn decisions_stay_and_only_their_owner_may_write_them() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join("state/longhaul").join(NAME);
        assert_eq!(read(&at).unwrap(), []);
        change(&at, |trusted| trusted.push(entry("a"))).unwrap();
        change(&at, |trusted| trusted.push(entry("b"))).unwrap();
        assert_eq!(read(&at).unwrap(), [entry("a"), entry("b")]);
        assert_eq!(fs::metadata(&at).unwrap().mode() & 0o777, 0o600);
        let parent = fs::metadata(at.parent().unwrap()).unwrap();
        assert_eq!(parent.mode() & 0o777, 0o700);
        assert_eq!(fs::read_dir(at.parent().unwrap()).unwrap().count(), 2);
    }

    #[test]
    fn only_what_its_owner_alone_may_write_is_believed() {
        let check = |owner, mode, says: Option<&str>| {
            let said = believed(Path::new("/b"), (owner, mode), 7).err();
            let said = said.map(|error| error.to_string());
            let right = says.map(|says| format!("`/b`, where trust is kept, {says}"));
            assert_eq!(said, right, "{owner} {mode:o}");
        };
        check(7, 0o100_600, None);
        check(7, 0o100_644, None);
        check(0, 0o100_600, None);
        let open = "may be written by others (mode 620)";
        check(7, 0o100_620, Some(open));
        let foreign = "belongs to another user (uid 8)";
        check(8, 0o100_600, Some(foreign));
        check(8, 0o100_666, Some(foreign));
    }

    #[test]
    fn a_book_that_says_nothing_is_told_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join(NAME);
        change(&at, |trusted| trusted.push(entry("a"))).unwrap();
        fs::set_permissions(&at, fs::Permissions::from_mode(0o622)).unwrap();
        assert!(matches!(read(&at), Err(BookError::Open { .. })));
        assert!(change(&at, Vec::clear).is_err());
        fs::set_permissions(&at, fs::Permissions::from_mode(0o600)).unwrap();
        for text in ["", "{", "[]", "{\"version\":2,\"trusted\":[]}"] {
            fs::write(&at, text).unwrap();
            assert!(
                matches!(read(&at), Err(BookError::Strange { .. })),
                "{text}"
            );
            assert!(change(&at, Vec::clear).is_err());
            assert_eq!(fs::read_to_string(&at).unwrap(), text);
        }
        let link = folder.path().join("link.json");
        std::os::unix::fs::symlink(&at, &link).unwrap();
        assert!(matches!(read(&link), Err(BookError::Io { .. })));
    }
}
