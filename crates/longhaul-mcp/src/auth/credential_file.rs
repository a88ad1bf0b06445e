//! The file that stores the login at one server. It is outside of every project.
//!
//! Invariant: the file is used only if no other user can access it, and it is replaced atomically.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use longhaul_core::raw::Hash;
use reqwest::Url;
use rmcp::transport::auth::StoredCredentials;
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::auth::redaction;

/// Maximum size of a credential file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Number of bytes that are reserved on disk before a login is saved. Few logins are larger.
const RESERVED_BYTES: usize = 16 * 1024;

const FORMAT_VERSION: u32 = 1;

/// Interval between two attempts to lock a credential file that another process has locked.
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Timeout for locking a credential file. Another process may hold the lock while it refreshes the
/// login.
const LOCK_TIMEOUT: Duration = Duration::from_secs(120);

/// Why a credential file can't be used, and what the user can do about it.
#[derive(Debug, thiserror::Error)]
#[error("the login {message}")]
pub struct CredentialFileError {
    message: String,
    /// Whether the same request may succeed later.
    pub(super) is_transient: bool,
}

type FileResult<T = ()> = Result<T, CredentialFileError>;

/// A login at an MCP server, as stored in its credential file.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct StoredLogin {
    version: u32,
    /// URL of the MCP server.
    pub(super) server: String,
    /// Client secret from our own dynamic client registration at the authorization server.
    pub(super) client_secret: Option<String>,
    /// Tokens and client id, in the form in which the SDK stores them.
    pub(super) credentials: StoredCredentials,
}

/// Access token and refresh token of a login, as the authorization server returned them.
#[derive(Default, Deserialize)]
pub(super) struct LoginTokens {
    pub(super) access_token: String,
    #[serde(default)]
    pub(super) token_type: String,
    #[serde(default)]
    pub(super) expires_in: Option<u64>,
    #[serde(default)]
    pub(super) refresh_token: Option<String>,
}

impl StoredLogin {
    pub(super) fn from_credentials(
        url: &Url,
        client_secret: Option<String>,
        credentials: StoredCredentials,
    ) -> Self {
        Self { version: FORMAT_VERSION, server: url.to_string(), client_secret, credentials }
    }

    /// Registers the secrets of this login, so that they are redacted from all texts from now on.
    pub(super) fn register_secrets_to_redact(&self) {
        let tokens = self.login_tokens().unwrap_or_default();
        let secrets = [Some(tokens.access_token), tokens.refresh_token, self.client_secret.clone()];
        secrets.into_iter().flatten().for_each(|secret| redaction::register_token(&secret));
    }

    /// Returns the tokens of this login. `None` means the tokens were revoked.
    pub(super) fn login_tokens(&self) -> Option<LoginTokens> {
        let tokens = serde_json::to_value(self.credentials.token_response.as_ref()?).ok()?;
        serde_json::from_value(tokens).ok()
    }
}

impl LoginTokens {
    /// Returns whether the access token can be sent: it is a bearer token and valid in an HTTP
    /// header.
    pub(super) fn has_usable_access_token(&self) -> bool {
        let token = self.access_token.as_bytes();
        self.has_bearer_token() && !token.is_empty() && token.iter().all(u8::is_ascii_graphic)
    }

    /// Returns whether the access token is a bearer token.
    pub(super) fn has_bearer_token(&self) -> bool {
        self.token_type.eq_ignore_ascii_case("bearer")
    }
}

/// The file that stores the login at one MCP server.
#[derive(Debug, Clone)]
pub(super) struct CredentialFile {
    dir: PathBuf,
    path: PathBuf,
    server: String,
}

/// The lock on a credential file. No other process changes the login while the lock exists.
#[derive(Debug)]
pub(super) struct FileLock(
    #[expect(dead_code, reason = "closing the file releases the lock")] File,
);

impl CredentialFile {
    /// Creates the handle for the credential file of the server at this URL. `server_name` is the
    /// server's name in the project.
    pub(super) fn new(dir: &Path, server_url: &Url, server_name: &str) -> Self {
        let mut server_url = server_url.clone();
        server_url.set_fragment(None);
        let name = Hash::digest(server_url.as_str().as_bytes());
        Self {
            dir: dir.to_owned(),
            path: dir.join(format!("{name}.json")),
            server: server_name.to_owned(),
        }
    }

    /// Checks whether a login can be stored in this file. Called before the user is asked to log
    /// in.
    pub(super) fn check_writable(&self) -> FileResult {
        self.open_lock_file().map(drop)
    }

    /// Loads the stored login. `None` means no login is stored.
    pub(super) fn load(&self) -> FileResult<Option<StoredLogin>> {
        let invalid_file = || {
            let (path, server) = (self.path.display(), &self.server);
            refused(format!(
                "file `{path}` is a symbolic link or has an unknown format. \
                 Run `longhaul mcp logout {server}`, and log in again."
            ))
        };
        let result = OpenOptions::new()
            .read(true)
            .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed())
            .open(&self.path);
        let file = match result {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if has_errno(&error, Errno::LOOP) => return Err(invalid_file()),
            Err(error) => return Err(io_error_at(&self.path)(error)),
        };
        check_file_is_private(&self.path, &file)?;
        let mut bytes = Vec::new();
        let result = file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
        result.map_err(io_error_at(&self.path))?;
        let record: StoredLogin = serde_json::from_slice(&bytes).map_err(|_| invalid_file())?;
        match record.version {
            FORMAT_VERSION => Ok(Some(record)),
            _ => Err(invalid_file()),
        }
    }

    /// Prepares to replace the stored login: creates the temporary file and reserves space in it, so
    /// that the tokens of a response that is requested next can be saved.
    pub(super) fn prepare_save(&self, _: &FileLock) -> FileResult<PreparedSave<'_>> {
        let temp_path = self.path.with_extension(format!("json.{}", std::process::id()));
        _ = fs::remove_file(&temp_path);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temp_path);
        let prepared =
            PreparedSave { target: self, file: file.map_err(io_error_at(&self.path))?, temp_path };
        let reserve = prepared
            .file
            .write_all_at(&[b' '; RESERVED_BYTES], 0)
            .and_then(|()| prepared.file.sync_all());
        reserve.map_err(io_error_at(&self.path))?;
        Ok(prepared)
    }

    /// Deletes the stored login. Returns whether a login was stored.
    pub(super) fn delete(&self, _: &FileLock) -> FileResult<bool> {
        match fs::remove_file(&self.path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(io_error_at(&self.path)(error)),
        }
    }

    /// Waits for the lock on this credential file.
    pub(super) async fn lock(&self) -> FileResult<FileLock> {
        let file = self.open_lock_file()?;
        let acquire = async {
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
        match tokio::time::timeout(LOCK_TIMEOUT, acquire).await {
            Ok(result) => result.map(|()| FileLock(file)),
            Err(_) => Err(CredentialFileError {
                message: format!(
                    "file `{}` has been locked by another process for too long: try again when \
                     that process has ended",
                    self.path.display()
                ),
                is_transient: true,
            }),
        }
    }

    fn open_lock_file(&self) -> FileResult<File> {
        let result = DirBuilder::new().recursive(true).mode(0o700).create(&self.dir);
        result.map_err(io_error_at(&self.dir))?;
        let folder = OpenOptions::new()
            .read(true)
            .custom_flags((OFlags::NOFOLLOW | OFlags::DIRECTORY).bits().cast_signed())
            .open(&self.dir)
            .map_err(|error| {
                match has_errno(&error, Errno::LOOP) || has_errno(&error, Errno::NOTDIR) {
                    true => refused(format!(
                        "directory `{}` is a symbolic link or not a directory. \
                         Replace it with a directory of your own (mode 700).",
                        self.dir.display()
                    )),
                    false => io_error_at(&self.dir)(error),
                }
            })?;
        check_file_is_private(&self.dir, &folder)?;
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

/// A temporary file that replaces a credential file. Dropping it keeps the credential file as it is.
pub(super) struct PreparedSave<'a> {
    target: &'a CredentialFile,
    file: File,
    temp_path: PathBuf,
}

impl PreparedSave<'_> {
    /// Replaces the stored login atomically.
    pub(super) fn save(self, login: &StoredLogin) -> FileResult {
        let write = || -> io::Result<()> {
            let text = format!("{}\n", serde_json::to_string_pretty(login)?);
            self.file.write_all_at(text.as_bytes(), 0)?;
            self.file.set_len(text.len() as u64)?;
            self.file.sync_all()?;
            fs::rename(&self.temp_path, &self.target.path)
        };
        write().map_err(io_error_at(&self.target.path))?;
        // After a power failure the older login should not come back. File systems that can't sync
        // directories still have the new file.
        _ = File::open(&self.target.dir).and_then(|folder| folder.sync_all());
        Ok(())
    }
}

impl Drop for PreparedSave<'_> {
    fn drop(&mut self) {
        // An error means that the file was renamed.
        _ = fs::remove_file(&self.temp_path);
    }
}

/// Creates the error of a file that is not private or has an unknown content.
const fn refused(message: String) -> CredentialFileError {
    CredentialFileError { message, is_transient: false }
}

fn io_error_at(path: &Path) -> impl FnOnce(io::Error) -> CredentialFileError {
    move |error| CredentialFileError {
        message: format!("file `{}` can't be used: {error}", path.display()),
        is_transient: true,
    }
}

/// Checks that only the current user can access a file that was opened from this path.
fn check_file_is_private(path: &Path, file: &File) -> FileResult {
    let metadata = file.metadata().map_err(io_error_at(path))?;
    let own_uid = rustix::process::geteuid().as_raw();
    check_owner_and_mode(path, own_uid, (metadata.uid(), metadata.mode() & 0o777))
}

/// Checks that the current user owns a file and that no other user has permissions for it.
fn check_owner_and_mode(at: &Path, own_uid: u32, (owner, mode): (u32, u32)) -> FileResult {
    let path = at.display();
    let problem = match (owner == own_uid, mode & 0o077) {
        (true, 0) => return Ok(()),
        (false, _) => format!(
            "file `{path}` belongs to another user than the current one. \
             Run the command as that user, or move the file away."
        ),
        (true, _) => format!(
            "file `{path}` is accessible to other users (mode {mode:03o}). \
             Run `chmod go-rwx` on it, and log in again if another user may have read it."
        ),
    };
    Err(refused(problem))
}

fn has_errno(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn stored_login(url: &Url) -> StoredLogin {
        let credentials = serde_json::json!({
            "client_id": "c",
            "token_response": { "access_token": "a", "token_type": "bearer", "refresh_token": "r" },
        });
        StoredLogin::from_credentials(url, None, serde_json::from_value(credentials).unwrap())
    }

    fn assert_refused(error: Option<CredentialFileError>, expected: &str) {
        let message = error.map(|error| error.to_string()).unwrap_or_default();
        assert!(message.contains(expected), "{message}");
    }

    #[tokio::test]
    async fn stored_credentials_persist_and_only_their_owner_can_read_them() {
        let temp_dir = tempfile::tempdir().unwrap();
        let folder = temp_dir.path().join("state/logins");
        let url: Url = "https://a.example/mcp?key=1".parse().unwrap();
        let file = CredentialFile::new(&folder, &url, "far");
        assert!(file.load().unwrap().is_none());
        let lock = file.lock().await.unwrap();
        assert!(!file.delete(&lock).unwrap());
        file.prepare_save(&lock).unwrap().save(&stored_login(&url)).unwrap();
        let tokens = file.load().unwrap().unwrap().login_tokens().unwrap();
        assert_eq!(tokens.access_token, "a");
        assert_eq!(tokens.refresh_token.as_deref(), Some("r"));
        let mode = |at: &Path| fs::metadata(at).unwrap().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&file.path)), (0o700, 0o600));
        // Another URL is another login.
        let other = CredentialFile::new(&folder, &"https://a.example/mcp".parse().unwrap(), "far");
        assert!(other.load().unwrap().is_none());
        assert!(file.delete(&lock).unwrap());
        assert!(file.load().unwrap().is_none());
    }

    #[tokio::test]
    async fn a_credential_file_that_others_can_read_or_own_is_rejected() {
        let temp_dir = tempfile::tempdir().unwrap();
        let folder = temp_dir.path().join("logins");
        let url: Url = "https://a.example/mcp".parse().unwrap();
        let file = CredentialFile::new(&folder, &url, "far");
        let lock = file.lock().await.unwrap();
        file.prepare_save(&lock).unwrap().save(&stored_login(&url)).unwrap();
        fs::set_permissions(&file.path, fs::Permissions::from_mode(0o640)).unwrap();
        assert_refused(file.load().err(), "is accessible to other users (mode 640)");
        fs::set_permissions(&file.path, fs::Permissions::from_mode(0o600)).unwrap();
        let assert_invalid = |file: &CredentialFile, case: &str| {
            assert!(file.load().is_err(), "{case}");
            assert_refused(file.load().err(), "Run `longhaul mcp logout far`");
        };
        for text in ["", "{", "[]", "{\"version\":2}"] {
            fs::write(&file.path, text).unwrap();
            assert_invalid(&file, text);
        }
        fs::write(&file.path, b"\xff\xfe").unwrap();
        assert_invalid(&file, "no text");
        let target = temp_dir.path().join("real.json");
        fs::rename(&file.path, &target).unwrap();
        symlink(&target, &file.path).unwrap();
        assert_invalid(&file, "a link");
        // Deletes the symbolic link, not its target.
        assert!(file.delete(&lock).unwrap());
        assert!(target.exists() && !file.path.exists());
    }

    #[tokio::test]
    async fn an_insecure_credential_folder_is_detected_before_writing() {
        let temp_dir = tempfile::tempdir().unwrap();
        let folder = temp_dir.path().join("logins");
        let url: Url = "https://a.example/mcp".parse().unwrap();
        let file = CredentialFile::new(&folder, &url, "far");
        file.check_writable().unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        assert_refused(file.check_writable().err(), "is accessible to other users (mode 755)");
        assert_refused(file.lock().await.err(), "is accessible to other users (mode 755)");
        let target = temp_dir.path().join("real");
        fs::rename(&folder, &target).unwrap();
        fs::set_permissions(&target, fs::Permissions::from_mode(0o700)).unwrap();
        symlink(&target, &folder).unwrap();
        assert_refused(file.check_writable().err(), "is a symbolic link or not a directory");
    }

    #[test]
    fn a_credential_file_of_another_user_is_reported_as_such() {
        for (owner, mode, expected) in [
            (7, 0o600, ""),
            (7, 0o640, "is accessible to other users (mode 640)"),
            (8, 0o600, "belongs to another user"),
            (8, 0o644, "belongs to another user"),
        ] {
            let result = check_owner_and_mode(Path::new("/logins"), 7, (owner, mode));
            let message = result.err().map(|error| error.to_string());
            let message = message.unwrap_or_default();
            assert!(message.contains(expected), "{message}");
            assert_eq!(message.is_empty(), expected.is_empty(), "{message}");
        }
    }

    #[test]
    fn a_token_is_usable_only_if_it_fits_a_header() {
        for (token, kind, expected) in [
            ("a.b-c_d~e+f/g=", "Bearer", true),
            ("a", "bearer", true),
            ("", "bearer", false),
            ("abc\r\n", "bearer", false),
            ("a b", "bearer", false),
            ("é", "bearer", false),
            ("a", "mac", false),
            ("a", "", false),
        ] {
            let tokens = LoginTokens {
                access_token: token.to_owned(),
                token_type: kind.to_owned(),
                ..LoginTokens::default()
            };
            assert_eq!(tokens.has_usable_access_token(), expected, "{token:?} {kind}");
        }
    }
}
