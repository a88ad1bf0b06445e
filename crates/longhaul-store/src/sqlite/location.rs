//! Where a store is: its address, its folder, and what stands there already.
//!
//! Never: changes a file that is not a store of ours.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use longhaul_core::port::store::StoreError;

use crate::sqlite::error::{CommitError, io_error};

/// Where the database is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum StoreLocation {
    /// Gone when the store is dropped.
    Memory,
    /// A file.
    File(PathBuf),
}

/// Marks a database as ours, in its header: `Lhul`.
pub(crate) const APPLICATION_ID: i32 = 0x4c68_756c;

/// What stands in a file's first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// Nothing yet.
    Missing,
    /// A store of ours.
    Longhaul,
    /// A database that says nothing of whose it is. It may be ours, when we died
    /// while making it.
    Unmarked,
}

const MAGIC: &[u8; 16] = b"SQLite format 3\0";
const HEADER_LEN: usize = 100;
const APPLICATION_ID_AT: usize = 68;
/// So many links may lead to a file.
const LINKS_MAX: u32 = 40;

impl StoreLocation {
    /// Reads an address.
    pub(crate) fn parse(url: &str) -> Result<Self, StoreError> {
        let bad = |why: &str| StoreError::InvalidUrl { url: url.to_owned(), why: why.to_owned() };
        let Some(rest) = url.strip_prefix("sqlite:") else {
            let is_postgres = url.starts_with("postgres:") || url.starts_with("postgresql:");
            return Err(bad(if is_postgres {
                "stores on Postgres are not in this build yet, write `sqlite:PATH`"
            } else {
                "write `sqlite:PATH`, or `sqlite::memory:` for a store that is forgotten"
            }));
        };
        // `sqlite://a/b` is how other programs write the path `a/b`.
        let path = rest.strip_prefix("//").unwrap_or(rest);
        match path {
            ":memory:" => Ok(Self::Memory),
            "" => Err(bad("the path is missing")),
            _ if path.contains('\0') => Err(bad("a path holds no zero byte")),
            // SQLite would read it as an address of its own, with another file behind it.
            _ if path.starts_with("file:") => Err(bad("write the path without `file:`")),
            _ => Ok(Self::File(PathBuf::from(path))),
        }
    }
}

/// The folder of a file.
pub(crate) fn parent_dir(file: &Path) -> &Path {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) | None => Path::new("."),
    }
}

/// Makes a folder for its owner only, with everything above it, so that it is still there after a
/// power cut: a new name is safe only when the folder that holds it is synced.
pub(crate) fn create_private_dir(path: &Path) -> io::Result<()> {
    if path.as_os_str().is_empty() || path.is_dir() {
        return Ok(());
    }
    let above = parent_dir(path);
    create_private_dir(above)?;
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    match builder.create(path) {
        Ok(()) => File::open(above)?.sync_all(),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// The file itself, if the path is a link to it: the lock stands beside the file,
/// whatever name it is called by. The file need not be there yet.
pub(crate) fn resolve(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_symlink() => path = parent_dir(&path).join(fs::read_link(&path)?),
            Ok(_) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(path),
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("too many links lead on from it"))
}

/// How files are made that only their owner may read: journals hold what people
/// say to agents. SQLite gives its log the mode of the database.
pub(crate) fn private_file_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// A database file that is open, to be found under its path as long as it is.
#[derive(Debug, Clone)]
pub(crate) struct OpenedFile {
    path: PathBuf,
    /// Device and inode at the time of opening; `None`: they could not be read.
    identity: Option<(u64, u64)>,
}

impl OpenedFile {
    /// The file that has this path now.
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), identity: identity(path).ok() }
    }

    /// Makes sure that the path still leads to the same file: what is written to one
    /// that was removed or replaced is lost.
    pub(crate) fn check_in_place(&self) -> Result<(), String> {
        let path = self.path.display();
        match identity(&self.path) {
            Ok(found) if self.identity.is_none_or(|opened| opened == found) => Ok(()),
            Err(error) if !is_not_found(&error) => {
                tracing::warn!(store = %path, %error, "it can't be seen whether the file is in place");
                Ok(())
            }
            Ok(_) | Err(_) => Err(format!("`{path}` was moved or deleted while it was open")),
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let found = fs::metadata(path)?;
    Ok((found.dev(), found.ino()))
}

/// Whether nothing has this path. Other errors of a look at it are transient, or say
/// nothing about the file.
fn is_not_found(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory)
}

/// Makes the file for a database, empty, unless it is there.
pub(crate) fn create_file(path: &Path) -> io::Result<()> {
    match private_file_options().write(true).create_new(true).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Looks at a file's header without opening it as a database.
pub(crate) fn inspect_header(path: &Path, at: &str) -> Result<FileKind, StoreError> {
    let corrupt = |why: &str| Err(CommitError::Corrupt(why.to_owned()).to_store_error(at));
    match fs::metadata(path) {
        // Opening a pipe would wait for somebody to write into it.
        Ok(found) if !found.is_file() => return corrupt("it is no regular file"),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(FileKind::Missing),
        Err(error) => return Err(io_error(error, at)),
    }
    let mut header = Vec::with_capacity(HEADER_LEN);
    File::open(path)
        .and_then(|file| file.take(HEADER_LEN as u64).read_to_end(&mut header))
        .map_err(|error| io_error(error, at))?;
    if header.is_empty() {
        return Ok(FileKind::Missing);
    }
    if header.len() < HEADER_LEN || !header.starts_with(MAGIC) {
        return corrupt("it is no SQLite database");
    }
    let mark = header.get(APPLICATION_ID_AT..APPLICATION_ID_AT + 4);
    let mark = mark.and_then(|bytes| bytes.try_into().ok()).map(i32::from_be_bytes);
    match mark {
        Some(APPLICATION_ID) => Ok(FileKind::Longhaul),
        Some(0) => Ok(FileKind::Unmarked),
        Some(_) | None => corrupt("it is a database of another program"),
    }
}

/// Refuses file systems on which locks and shared memory are not to be trusted.
pub(crate) fn reject_network_fs(folder: &Path, at: &str) -> Result<(), StoreError> {
    match network_file_system(folder) {
        None => Ok(()),
        Some(name) => Err(StoreError::InvalidUrl {
            url: at.to_owned(),
            why: format!(
                "it is on a network file system ({name}), where locks can't be trusted: \
                 choose a local folder"
            ),
        }),
    }
}

#[cfg(target_os = "linux")]
fn network_file_system(folder: &Path) -> Option<&'static str> {
    let found = rustix::fs::statfs(folder).ok()?;
    // The magic is a number of 32 bits in a field whose width differs by machine.
    let magic = u32::try_from(found.f_type & 0xffff_ffff).ok()?;
    network_fs_name(magic)
}

#[cfg(not(target_os = "linux"))]
fn network_file_system(_: &Path) -> Option<&'static str> {
    None
}

#[cfg(target_os = "linux")]
fn network_fs_name(magic: u32) -> Option<&'static str> {
    const NETWORK: &[(u32, &str)] = &[
        (0x0000_6969, "NFS"),
        (0x0000_517b, "SMB"),
        (0xff53_4d42, "CIFS"),
        (0xfe53_4d42, "SMB2"),
        (0x5346_414f, "AFS"),
        (0x7375_7245, "Coda"),
        (0x0000_564c, "NCP"),
        (0x0102_1997, "9P"),
        (0x00c3_6400, "Ceph"),
        (0x0bd0_0bd0, "Lustre"),
        (0x4750_4653, "GPFS"),
        (0x786f_4256, "a shared folder of VirtualBox"),
    ];
    let known = NETWORK.iter().find(|(known, _)| *known == magic);
    known.map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_urls_are_parsed() {
        let file = |path: &str| StoreLocation::File(PathBuf::from(path));
        let read = |url| StoreLocation::parse(url).unwrap();
        assert_eq!(read("sqlite::memory:"), StoreLocation::Memory);
        assert_eq!(read("sqlite:.longhaul/longhaul.db"), file(".longhaul/longhaul.db"));
        assert_eq!(read("sqlite:/var/a b.db"), file("/var/a b.db"));
        assert_eq!(read("sqlite:///var/a.db"), file("/var/a.db"));
    }

    #[test]
    fn invalid_store_urls_are_rejected_with_a_hint() {
        for (url, way_out) in [
            ("postgres://db/x", "Postgres are not in this build yet"),
            ("mysql://db/x", "write `sqlite:PATH`"),
            ("longhaul.db", "write `sqlite:PATH`"),
            ("sqlite:", "the path is missing"),
            ("sqlite:file:a.db?mode=memory", "without `file:`"),
            ("sqlite://file:a.db", "without `file:`"),
        ] {
            let refused = StoreLocation::parse(url).unwrap_err().to_string();
            assert!(refused.contains(way_out), "{refused}");
        }
    }

    #[test]
    fn only_a_missing_or_replaced_file_is_reported() {
        let here = identity(Path::new("/")).ok();
        let too_long = format!("/{}", "a".repeat(300));
        for (path, identity, is_in_place) in [
            ("/", here, true),
            ("/", None, true),
            ("/", here.map(|(device, inode)| (device, inode + 1)), false),
            ("/no/such/file", here, false),
            ("/dev/null/x", here, false),
            // An error that says nothing about the file.
            (&too_long, here, true),
        ] {
            let path = PathBuf::from(path);
            let file = OpenedFile { path, identity };
            assert_eq!(file.check_in_place().is_ok(), is_in_place, "{file:?}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn network_file_systems_are_recognized_by_their_magic_number() {
        assert_eq!(network_fs_name(0x6969), Some("NFS"));
        assert_eq!(network_fs_name(0xff53_4d42), Some("CIFS"));
        for local in [0xef53, 0x0102_1994, 0x9123_683e, 0x5846_5342, 0x794c_7630] {
            assert_eq!(network_fs_name(local), None, "{local:x}");
        }
        assert_eq!(network_file_system(Path::new("/")), None);
    }
}
