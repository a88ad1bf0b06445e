//! The file in which the login at one server is kept, outside of every project.
//!
//! Never: read or written where others may look, and never half written.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use longhaul_core::raw::Hash;
use reqwest::Url;
use rmcp::transport::auth::StoredCredentials;
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::auth::redaction;

/// More than this is no login.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Which form the file has.
const FORMAT_VERSION: u32 = 1;

/// How often it is looked whether another has finished.
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// So long another may hold a login: it renews it meanwhile.
const LOCK_TIMEOUT: Duration = Duration::from_secs(120);

/// Why a login can't be read or kept.
#[derive(Debug, thiserror::Error)]
pub enum CredentialFileError {
    /// It can't be read or written.
    #[error("`{path}`, where a login is kept, can't be used: {source}")]
    Io {
        /// Which file or folder.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// Others may look into it.
    #[error(
        "`{path}`, where a login is kept, is open to others (mode {mode:03o}). \
         Run `chmod go-rwx` on it, and log in anew if somebody may have looked."
    )]
    NotPrivate {
        /// Which file or folder.
        path: PathBuf,
        /// Who may.
        mode: u32,
    },
    /// Somebody else owns it.
    #[error(
        "`{path}`, where a login is kept, belongs to another user than the one that this runs as. \
         Run it as that user, or move that out of the way."
    )]
    WrongOwner {
        /// Which file or folder.
        path: PathBuf,
    },
    /// The folder is none of its own.
    #[error(
        "`{path}`, where logins are kept, is a link or no folder. \
         Put a folder of your own in its place (mode 700)."
    )]
    NotADirectory {
        /// Which folder.
        path: PathBuf,
    },
    /// It holds something else.
    #[error(
        "`{path}`, where a login is kept, is a link or not of this build's form. \
         Run `longhaul mcp logout {server}`, and log in anew."
    )]
    Invalid {
        /// Which file.
        path: PathBuf,
        /// Whose login it is.
        server: String,
    },
    /// Another process has held it for too long.
    #[error("`{path}`, where a login is kept, is held by another process, which does not finish")]
    Locked {
        /// Which file.
        path: PathBuf,
    },
}

/// A login as it is kept.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct StoredLogin {
    version: u32,
    /// The server's address.
    pub(super) server: String,
    /// The secret that came with a registration of our own.
    pub(super) client_secret: Option<String>,
    /// What the SDK keeps.
    pub(super) credentials: StoredCredentials,
}

/// What is read of a login.
#[derive(Default, Deserialize)]
pub(super) struct TokenInfo {
    pub(super) access_token: String,
    #[serde(default)]
    pub(super) token_type: String,
    #[serde(default)]
    pub(super) expires_in: Option<u64>,
    #[serde(default)]
    pub(super) refresh_token: Option<String>,
}

impl StoredLogin {
    pub(super) fn new(
        url: &Url,
        client_secret: Option<String>,
        credentials: StoredCredentials,
    ) -> Self {
        Self { version: FORMAT_VERSION, server: url.to_string(), client_secret, credentials }
    }

    /// From now on none of its secrets stays in a text.
    pub(super) fn register_secrets(&self) {
        let facts = self.token_info().unwrap_or_default();
        let secrets = [facts.refresh_token.as_ref(), self.client_secret.as_ref()];
        redaction::register(&facts.access_token);
        for secret in secrets.into_iter().flatten() {
            redaction::register(secret);
        }
    }

    /// Its tokens; none: they were taken back.
    pub(super) fn token_info(&self) -> Option<TokenInfo> {
        let tokens = self.credentials.token_response.as_ref()?;
        let tokens: Value = serde_json::to_value(tokens).ok()?;
        serde_json::from_value(tokens).ok()
    }
}

impl TokenInfo {
    /// Whether its token can be sent: in a header, and as the one kind that is known.
    pub(super) fn is_usable(&self) -> bool {
        let token = self.access_token.as_bytes();
        self.is_bearer() && !token.is_empty() && token.iter().all(u8::is_ascii_graphic)
    }

    /// Whether who has the token may use it.
    pub(super) fn is_bearer(&self) -> bool {
        self.token_type.eq_ignore_ascii_case("bearer")
    }
}

/// Where the login at one server is kept.
#[derive(Debug, Clone)]
pub(super) struct CredentialFile {
    dir: PathBuf,
    path: PathBuf,
    server: String,
}

/// As long as this lives, nobody else changes the login.
#[derive(Debug)]
pub(super) struct FileLock(#[expect(dead_code, reason = "closed, it lets go")] File);

impl CredentialFile {
    /// The place for the login at this address, which the project calls so.
    pub(super) fn new(folder: &Path, url: &Url, server: &str) -> Self {
        let mut url = url.clone();
        url.set_fragment(None);
        let name = Hash::digest(url.as_str().as_bytes());
        Self {
            dir: folder.to_owned(),
            path: folder.join(format!("{name}.json")),
            server: server.to_owned(),
        }
    }

    /// Whether a login could be kept here, before anybody is asked for one.
    pub(super) fn check_writable(&self) -> Result<(), CredentialFileError> {
        self.open_lock_file().map(drop)
    }

    /// The login; none: there is none.
    pub(super) fn load(&self) -> Result<Option<StoredLogin>, CredentialFileError> {
        let strange = || CredentialFileError::Invalid {
            path: self.path.clone(),
            server: self.server.clone(),
        };
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed())
            .open(&self.path);
        let file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if is_errno(&error, Errno::LOOP) => return Err(strange()),
            Err(error) => return Err(io_error_at(&self.path)(error)),
        };
        check_private(&self.path, &file)?;
        let mut bytes = Vec::new();
        let read = file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
        read.map_err(io_error_at(&self.path))?;
        let record: StoredLogin = serde_json::from_slice(&bytes).map_err(|_| strange())?;
        match record.version {
            FORMAT_VERSION => Ok(Some(record)),
            _ => Err(strange()),
        }
    }

    /// Keeps a login: written beside and moved into place.
    pub(super) fn save(
        &self,
        _: &FileLock,
        record: &StoredLogin,
    ) -> Result<(), CredentialFileError> {
        let wrote = || -> io::Result<()> {
            let text = serde_json::to_string_pretty(record)?;
            let beside = self.path.with_extension(format!("json.{}", std::process::id()));
            _ = fs::remove_file(&beside);
            let mut file =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
            let wrote = writeln!(file, "{text}").and_then(|()| file.sync_all());
            let moved = wrote.and_then(|()| fs::rename(&beside, &self.path));
            if moved.is_err() {
                _ = fs::remove_file(&beside);
            }
            moved?;
            // A machine that stops now should not come back with the older one. Where
            // folders can't be synced it is kept all the same.
            _ = File::open(&self.dir).and_then(|folder| folder.sync_all());
            Ok(())
        };
        wrote().map_err(io_error_at(&self.path))
    }

    /// Forgets the login; says whether there was one.
    pub(super) fn delete(&self, _: &FileLock) -> Result<bool, CredentialFileError> {
        match fs::remove_file(&self.path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(io_error_at(&self.path)(error)),
        }
    }

    /// Waits until nobody else changes the login.
    pub(super) async fn lock(&self) -> Result<FileLock, CredentialFileError> {
        let file = self.open_lock_file()?;
        let held = async {
            loop {
                match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                    Ok(()) => return Ok(()),
                    Err(Errno::WOULDBLOCK | Errno::INTR) => {
                        tokio::time::sleep(LOCK_POLL_INTERVAL).await;
                    }
                    Err(errno) => return Err(io_error_at(&self.path)(errno.into())),
                }
            }
        };
        match tokio::time::timeout(LOCK_TIMEOUT, held).await {
            Ok(held) => held.map(|()| FileLock(file)),
            Err(_) => Err(CredentialFileError::Locked { path: self.path.clone() }),
        }
    }

    fn open_lock_file(&self) -> Result<File, CredentialFileError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.dir);
        made.map_err(io_error_at(&self.dir))?;
        let folder = OpenOptions::new()
            .read(true)
            .custom_flags((OFlags::NOFOLLOW | OFlags::DIRECTORY).bits().cast_signed())
            .open(&self.dir)
            .map_err(|error| {
                match is_errno(&error, Errno::LOOP) || is_errno(&error, Errno::NOTDIR) {
                    true => CredentialFileError::NotADirectory { path: self.dir.clone() },
                    false => io_error_at(&self.dir)(error),
                }
            })?;
        check_private(&self.dir, &folder)?;
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
            .open(self.path.with_extension("lock"))
            .map_err(io_error_at(&self.path))
    }
}

fn io_error_at(at: &Path) -> impl FnOnce(io::Error) -> CredentialFileError {
    move |source| CredentialFileError::Io { path: at.to_owned(), source }
}

/// What others may look into keeps no secret.
fn check_private(at: &Path, file: &File) -> Result<(), CredentialFileError> {
    let found = file.metadata().map_err(io_error_at(at))?;
    let us = rustix::process::geteuid().as_raw();
    check_owner_and_mode(at, us, (found.uid(), found.mode() & 0o777))
}

/// Whether what has this owner and this mode is closed to all but us.
fn check_owner_and_mode(
    at: &Path,
    us: u32,
    (owner, mode): (u32, u32),
) -> Result<(), CredentialFileError> {
    let path = at.to_owned();
    match (owner == us, mode & 0o077) {
        (false, _) => Err(CredentialFileError::WrongOwner { path }),
        (true, 0) => Ok(()),
        (true, _) => Err(CredentialFileError::NotPrivate { path, mode }),
    }
}

fn is_errno(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn record(url: &Url) -> StoredLogin {
        let credentials = serde_json::json!({
            "client_id": "c",
            "token_response": { "access_token": "a", "token_type": "bearer", "refresh_token": "r" },
        });
        StoredLogin::new(url, None, serde_json::from_value(credentials).unwrap())
    }

    #[tokio::test]
    async fn stored_credentials_persist_and_only_their_owner_can_read_them() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("state/logins");
        let url: Url = "https://a.example/mcp?key=1".parse().unwrap();
        let book = CredentialFile::new(&folder, &url, "far");
        assert!(book.load().unwrap().is_none());
        let hold = book.lock().await.unwrap();
        assert!(!book.delete(&hold).unwrap());
        book.save(&hold, &record(&url)).unwrap();
        let facts = book.load().unwrap().unwrap().token_info().unwrap();
        assert_eq!(facts.access_token, "a");
        assert_eq!(facts.refresh_token.as_deref(), Some("r"));
        let mode = |at: &Path| fs::metadata(at).unwrap().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&book.path)), (0o700, 0o600));
        // Another address is another login.
        let other = CredentialFile::new(&folder, &"https://a.example/mcp".parse().unwrap(), "far");
        assert!(other.load().unwrap().is_none());
        assert!(book.delete(&hold).unwrap());
        assert!(book.load().unwrap().is_none());
    }

    #[tokio::test]
    async fn a_credential_file_that_others_can_read_or_own_is_rejected() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("logins");
        let url: Url = "https://a.example/mcp".parse().unwrap();
        let book = CredentialFile::new(&folder, &url, "far");
        let hold = book.lock().await.unwrap();
        book.save(&hold, &record(&url)).unwrap();
        fs::set_permissions(&book.path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(book.load(), Err(CredentialFileError::NotPrivate { .. })));
        fs::set_permissions(&book.path, fs::Permissions::from_mode(0o600)).unwrap();
        let is_strange = |book: &CredentialFile, what: &str| {
            let Err(error @ CredentialFileError::Invalid { .. }) = book.load() else {
                panic!("{what}");
            };
            let words = error.to_string();
            assert!(words.contains("`longhaul mcp logout far`"), "{words}");
        };
        for text in ["", "{", "[]", "{\"version\":2}"] {
            fs::write(&book.path, text).unwrap();
            is_strange(&book, text);
        }
        fs::write(&book.path, b"\xff\xfe").unwrap();
        is_strange(&book, "no text");
        let real = home.path().join("real.json");
        fs::rename(&book.path, &real).unwrap();
        symlink(&real, &book.path).unwrap();
        is_strange(&book, "a link");
        // The link goes, and what it led to stays.
        assert!(book.delete(&hold).unwrap());
        assert!(real.exists() && !book.path.exists());
    }

    #[tokio::test]
    async fn an_insecure_credential_folder_is_detected_before_writing() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("logins");
        let url: Url = "https://a.example/mcp".parse().unwrap();
        let book = CredentialFile::new(&folder, &url, "far");
        book.check_writable().unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(matches!(book.check_writable(), Err(CredentialFileError::NotPrivate { .. })));
        assert!(matches!(book.lock().await, Err(CredentialFileError::NotPrivate { .. })));
        let real = home.path().join("real");
        fs::rename(&folder, &real).unwrap();
        fs::set_permissions(&real, fs::Permissions::from_mode(0o700)).unwrap();
        symlink(&real, &folder).unwrap();
        assert!(matches!(book.check_writable(), Err(CredentialFileError::NotADirectory { .. })));
    }

    #[test]
    fn a_credential_file_of_another_user_is_reported_as_such() {
        for (owner, mode, expect) in [
            (7, 0o600, ""),
            (7, 0o640, "is open to others (mode 640)"),
            (8, 0o600, "belongs to another user"),
            (8, 0o644, "belongs to another user"),
        ] {
            let judged = check_owner_and_mode(Path::new("/logins"), 7, (owner, mode));
            let words = judged.err().map(|error| error.to_string());
            let words = words.unwrap_or_default();
            assert!(words.contains(expect), "{words}");
            assert_eq!(words.is_empty(), expect.is_empty(), "{words}");
        }
    }

    #[test]
    fn a_token_is_usable_only_if_it_fits_a_header() {
        for (token, kind, expect) in [
            ("a.b-c_d~e+f/g=", "Bearer", true),
            ("a", "bearer", true),
            ("", "bearer", false),
            ("abc\r\n", "bearer", false),
            ("a b", "bearer", false),
            ("é", "bearer", false),
            ("a", "mac", false),
            ("a", "", false),
        ] {
            let facts = TokenInfo {
                access_token: token.to_owned(),
                token_type: kind.to_owned(),
                ..TokenInfo::default()
            };
            assert_eq!(facts.is_usable(), expect, "{token:?} {kind}");
        }
    }
}
