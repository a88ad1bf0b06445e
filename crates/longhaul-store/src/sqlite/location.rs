//! The location of a store: its URL, its directory and the kind of file found there.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use longhaul_core::port::store::StoreError;

use crate::sqlite::error::{CommitError, store_error_from_io};

/// Location of a store's database: memory or a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum StoreLocation {
    /// The database is in memory and is lost when the store is dropped.
    Memory,
    /// The database is in the file at this path.
    File(PathBuf),
}

/// SQLite application id in the header of Longhaul databases: `Lhul` in ASCII.
pub(crate) const APPLICATION_ID: i32 = 0x4c68_756c;

/// Kind of the file at a store's path, according to the file's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreFileKind {
    /// There is no file, or the file is empty.
    Missing,
    Longhaul,
    /// The file is a database without an application id. It may be a Longhaul store whose creation
    /// was interrupted.
    Unmarked,
}

const MAGIC: &[u8; 16] = b"SQLite format 3\0";
const HEADER_LEN: usize = 100;
const APPLICATION_ID_AT: usize = 68;
/// Maximum number of symbolic links that are followed to find the file.
const LINKS_MAX: u32 = 40;

impl StoreLocation {
    /// Parses a store URL, such as `sqlite:PATH`.
    pub(crate) fn parse_store_url(url: &str) -> Result<Self, StoreError> {
        let invalid_url = |reason: &str| StoreError::InvalidUrl {
            url: url.to_owned(),
            reason: reason.to_owned(),
        };
        let Some(rest) = url.strip_prefix("sqlite:") else {
            let is_postgres = url.starts_with("postgres:") || url.starts_with("postgresql:");
            return Err(invalid_url(if is_postgres {
                "Postgres is not supported yet; use `sqlite:PATH`"
            } else {
                "use `sqlite:PATH`, or `sqlite::memory:` for a store in memory"
            }));
        };
        // Other programs write the path `a/b` as `sqlite://a/b`.
        let path = rest.strip_prefix("//").unwrap_or(rest);
        match path {
            ":memory:" => Ok(Self::Memory),
            "" => Err(invalid_url("the path is missing")),
            _ if path.contains('\0') => Err(invalid_url("the path contains a null byte")),
            // SQLite would interpret it as a URI that may refer to another file.
            _ if path.starts_with("file:") => Err(invalid_url("use the path without `file:`")),
            _ => Ok(Self::File(PathBuf::from(path))),
        }
    }
}

/// Returns the directory that contains a file.
pub(crate) fn parent_dir(file: &Path) -> &Path {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) | None => Path::new("."),
    }
}

/// Creates a directory and its missing parents, accessible only to the owner. Each parent is
/// synced, so that the new directory survives a power failure.
pub(crate) fn create_private_dir(path: &Path) -> io::Result<()> {
    if path.as_os_str().is_empty() || path.is_dir() {
        return Ok(());
    }
    let parent = parent_dir(path);
    create_private_dir(parent)?;
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    match builder.create(path) {
        Ok(()) => File::open(parent)?.sync_all(),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Resolves symbolic links, because the driver lock must be next to the file itself whatever path
/// is used. The file need not exist.
pub(crate) fn resolve_symlinks(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        match fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.is_symlink() => {
                path = parent_dir(&path).join(fs::read_link(&path)?)
            }
            Ok(_) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(path),
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("too many symbolic links"))
}

/// Returns options that create files readable only by their owner, because journals contain what
/// people say to agents. SQLite gives its write-ahead log the same permissions as the database
/// file.
pub(crate) fn private_file_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Path and identity of an open database file.
#[derive(Debug, Clone)]
pub(crate) struct OpenedDatabaseFile {
    path: PathBuf,
    /// Device and inode of the file when it was opened. `None` means that they could not be read.
    identity: Option<(u64, u64)>,
}

impl OpenedDatabaseFile {
    /// Remembers the path and the current identity of the file.
    pub(crate) fn new(database_path: &Path) -> Self {
        Self { path: database_path.to_owned(), identity: device_and_inode(database_path).ok() }
    }

    /// Checks that the path still leads to the same file, because writes to a deleted or replaced
    /// file are lost.
    pub(crate) fn check_not_replaced(&self) -> Result<(), String> {
        let path = self.path.display();
        match device_and_inode(&self.path) {
            Ok(found) if self.identity.is_none_or(|opened| opened == found) => Ok(()),
            Err(error) if !is_file_missing_error(&error) => {
                tracing::warn!(store = %path, %error, "can't check whether the store file still exists");
                Ok(())
            }
            Ok(_) | Err(_) => Err(format!("`{path}` was moved or deleted while it was open")),
        }
    }
}

fn device_and_inode(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Returns whether the error means that the file does not exist. Other errors are transient or say
/// nothing about the file.
fn is_file_missing_error(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory)
}

/// Creates an empty database file if no file exists at the path.
pub(crate) fn create_database_file(path: &Path) -> io::Result<()> {
    match private_file_options().write(true).create_new(true).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Reads the kind of a file from its header, without opening the file as a database.
pub(crate) fn read_store_file_kind(
    path: &Path,
    location: &str,
) -> Result<StoreFileKind, StoreError> {
    let corrupt =
        |reason: &str| Err(CommitError::Corrupt(reason.to_owned()).to_store_error(location));
    match fs::metadata(path) {
        // Opening a pipe would block until a process writes to it.
        Ok(metadata) if !metadata.is_file() => return corrupt("the path is not a regular file"),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(StoreFileKind::Missing),
        Err(error) => return Err(store_error_from_io(error, location)),
    }
    let mut header = Vec::with_capacity(HEADER_LEN);
    File::open(path)
        .and_then(|file| file.take(HEADER_LEN as u64).read_to_end(&mut header))
        .map_err(|error| store_error_from_io(error, location))?;
    if header.is_empty() {
        return Ok(StoreFileKind::Missing);
    }
    if header.len() < HEADER_LEN || !header.starts_with(MAGIC) {
        return corrupt("not a SQLite database");
    }
    let application_id = header.get(APPLICATION_ID_AT..APPLICATION_ID_AT + 4);
    let application_id =
        application_id.and_then(|bytes| bytes.try_into().ok()).map(i32::from_be_bytes);
    match application_id {
        Some(APPLICATION_ID) => Ok(StoreFileKind::Longhaul),
        Some(0) => Ok(StoreFileKind::Unmarked),
        Some(_) | None => corrupt("it belongs to another program"),
    }
}

/// Returns an error if the directory is on a network file system, where locks and shared memory are
/// unreliable.
pub(crate) fn reject_network_fs(folder: &Path, location: &str) -> Result<(), StoreError> {
    match network_file_system_name(folder) {
        None => Ok(()),
        Some(name) => Err(StoreError::InvalidUrl {
            url: location.to_owned(),
            reason: format!(
                "the store is on a network file system ({name}), where locks are unreliable: \
                 choose a local directory"
            ),
        }),
    }
}

#[cfg(target_os = "linux")]
fn network_file_system_name(folder: &Path) -> Option<&'static str> {
    let stat = rustix::fs::statfs(folder).ok()?;
    // The magic is a 32-bit number in a field whose width depends on the platform.
    let magic = u32::try_from(stat.f_type & 0xffff_ffff).ok()?;
    network_fs_name(magic)
}

#[cfg(not(target_os = "linux"))]
fn network_file_system_name(_: &Path) -> Option<&'static str> {
    None
}

#[cfg(target_os = "linux")]
fn network_fs_name(fs_magic: u32) -> Option<&'static str> {
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
        (0x786f_4256, "a VirtualBox shared folder"),
    ];
    let entry = NETWORK.iter().find(|(entry, _)| *entry == fs_magic);
    entry.map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_urls_are_parsed() {
        let file = |path: &str| StoreLocation::File(PathBuf::from(path));
        let parse = |url| StoreLocation::parse_store_url(url).unwrap();
        assert_eq!(parse("sqlite::memory:"), StoreLocation::Memory);
        assert_eq!(parse("sqlite:.longhaul/longhaul.db"), file(".longhaul/longhaul.db"));
        assert_eq!(parse("sqlite:/var/a b.db"), file("/var/a b.db"));
        assert_eq!(parse("sqlite:///var/a.db"), file("/var/a.db"));
    }

    #[test]
    fn invalid_store_urls_are_rejected_with_a_hint() {
        for (url, hint) in [
            ("postgres://db/x", "Postgres is not supported yet"),
            ("mysql://db/x", "use `sqlite:PATH`"),
            ("longhaul.db", "use `sqlite:PATH`"),
            ("sqlite:", "the path is missing"),
            ("sqlite:file:a.db?mode=memory", "without `file:`"),
            ("sqlite://file:a.db", "without `file:`"),
        ] {
            let message = StoreLocation::parse_store_url(url).unwrap_err().to_string();
            assert!(message.contains(hint), "{message}");
        }
    }

    #[test]
    fn only_a_missing_or_replaced_store_file_is_an_error() {
        let root_identity = device_and_inode(Path::new("/")).ok();
        let too_long = format!("/{}", "a".repeat(300));
        for (path, identity, is_in_place) in [
            ("/", root_identity, true),
            ("/", None, true),
            ("/", root_identity.map(|(device, inode)| (device, inode + 1)), false),
            ("/no/such/file", root_identity, false),
            ("/dev/null/x", root_identity, false),
            // An error that says nothing about the file.
            (&too_long, root_identity, true),
        ] {
            let path = PathBuf::from(path);
            let file = OpenedDatabaseFile { path, identity };
            assert_eq!(file.check_not_replaced().is_ok(), is_in_place, "{file:?}");
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
        assert_eq!(network_file_system_name(Path::new("/")), None);
    }
}
