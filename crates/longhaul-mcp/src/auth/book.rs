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

use crate::auth::tokens;

/// More than this is no login.
const BYTES_MAX: u64 = 1 << 20;

/// Which form the file has.
const VERSION: u32 = 1;

/// How often it is looked whether another has finished.
const LOOKS: Duration = Duration::from_millis(20);

/// So long another may hold a login: it renews it meanwhile.
const HELD_MAX: Duration = Duration::from_secs(120);

/// Why a login can't be read or kept.
#[derive(Debug, thiserror::Error)]
pub enum BookError {
    /// It can't be read or written.
    #[error("`{at}`, where a login is kept, can't be used: {source}")]
    Io {
        /// Which file or folder.
        at: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// Others may look into it.
    #[error(
        "`{at}`, where a login is kept, is open to others (mode {mode:03o}). \
         Run `chmod go-rwx` on it, and log in anew if somebody may have looked."
    )]
    Open {
        /// Which file or folder.
        at: PathBuf,
        /// Who may.
        mode: u32,
    },
    /// Somebody else owns it.
    #[error(
        "`{at}`, where a login is kept, belongs to another user than the one that this runs as. \
         Run it as that user, or move that out of the way."
    )]
    Foreign {
        /// Which file or folder.
        at: PathBuf,
    },
    /// The folder is none of its own.
    #[error(
        "`{at}`, where logins are kept, is a link or no folder. \
         Put a folder of your own in its place (mode 700)."
    )]
    Elsewhere {
        /// Which folder.
        at: PathBuf,
    },
    /// It holds something else.
    #[error(
        "`{at}`, where a login is kept, is a link or not of this build's form. \
         Run `longhaul mcp logout {server}`, and log in anew."
    )]
    Strange {
        /// Which file.
        at: PathBuf,
        /// Whose login it is.
        server: String,
    },
    /// Another process has held it for too long.
    #[error("`{at}`, where a login is kept, is held by another process, which does not finish")]
    Held {
        /// Which file.
        at: PathBuf,
    },
}

/// A login as it is kept.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Record {
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
pub(super) struct Facts {
    pub(super) access_token: String,
    #[serde(default)]
    pub(super) token_type: String,
    #[serde(default)]
    pub(super) expires_in: Option<u64>,
    #[serde(default)]
    pub(super) refresh_token: Option<String>,
}

impl Record {
    pub(super) fn new(
        url: &Url,
        client_secret: Option<String>,
        credentials: StoredCredentials,
    ) -> Self {
        Self {
            version: VERSION,
            server: url.to_string(),
            client_secret,
            credentials,
        }
    }

    /// From now on none of its secrets stays in a text.
    pub(super) fn remember(&self) {
        let facts = self.facts().unwrap_or_default();
        let secrets = [facts.refresh_token.as_ref(), self.client_secret.as_ref()];
        tokens::remember(&facts.access_token);
        for secret in secrets.into_iter().flatten() {
            tokens::remember(secret);
        }
    }

    /// Its tokens; none: they were taken back.
    pub(super) fn facts(&self) -> Option<Facts> {
        let tokens = self.credentials.token_response.as_ref()?;
        let tokens: Value = serde_json::to_value(tokens).ok()?;
        serde_json::from_value(tokens).ok()
    }
}

impl Facts {
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
pub(super) struct Book {
    folder: PathBuf,
    at: PathBuf,
    server: String,
}

/// As long as this lives, nobody else changes the login.
#[derive(Debug)]
pub(super) struct Hold(#[expect(dead_code, reason = "closed, it lets go")] File);

impl Book {
    /// The place for the login at this address, which the project calls so.
    pub(super) fn of(folder: &Path, url: &Url, server: &str) -> Self {
        let mut url = url.clone();
        url.set_fragment(None);
        let name = Hash::of(url.as_str().as_bytes());
        Self {
            folder: folder.to_owned(),
            at: folder.join(format!("{name}.json")),
            server: server.to_owned(),
        }
    }

    /// Whether a login could be kept here, before anybody is asked for one.
    pub(super) fn prepare(&self) -> Result<(), BookError> {
        self.lock_file().map(drop)
    }

    /// The login; none: there is none.
    pub(super) fn read(&self) -> Result<Option<Record>, BookError> {
        let strange = || BookError::Strange {
            at: self.at.clone(),
            server: self.server.clone(),
        };
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed())
            .open(&self.at);
        let file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if is(&error, Errno::LOOP) => return Err(strange()),
            Err(error) => return Err(io_at(&self.at)(error)),
        };
        private(&self.at, &file)?;
        let mut bytes = Vec::new();
        let read = file.take(BYTES_MAX + 1).read_to_end(&mut bytes);
        read.map_err(io_at(&self.at))?;
        let record: Record = serde_json::from_slice(&bytes).map_err(|_| strange())?;
        match record.version {
            VERSION => Ok(Some(record)),
            _ => Err(strange()),
        }
    }

    /// Keeps a login: written beside and moved into place.
    pub(super) fn write(&self, _: &Hold, record: &Record) -> Result<(), BookError> {
        let wrote = || -> io::Result<()> {
            let text = serde_json::to_string_pretty(record)?;
            let beside = self
                .at
                .with_extension(format!("json.{}", std::process::id()));
            _ = fs::remove_file(&beside);
            let mut file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&beside)?;
            let wrote = writeln!(file, "{text}").and_then(|()| file.sync_all());
            let moved = wrote.and_then(|()| fs::rename(&beside, &self.at));
            if moved.is_err() {
                _ = fs::remove_file(&beside);
            }
            moved?;
            // A machine that stops now should not come back with the older one. Where
            // folders can't be synced it is kept all the same.
            _ = File::open(&self.folder).and_then(|folder| folder.sync_all());
            Ok(())
        };
        wrote().map_err(io_at(&self.at))
    }

    /// Forgets the login; says whether there was one.
    pub(super) fn forget(&self, _: &Hold) -> Result<bool, BookError> {
        match fs::remove_file(&self.at) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(io_at(&self.at)(error)),
        }
    }

    /// Waits until nobody else changes the login.
    pub(super) async fn hold(&self) -> Result<Hold, BookError> {
        let file = self.lock_file()?;
        let held = async {
            loop {
                match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                    Ok(()) => return Ok(()),
                    Err(Errno::WOULDBLOCK | Errno::INTR) => {
                        tokio::time::sleep(LOOKS).await;
                    }
                    Err(errno) => return Err(io_at(&self.at)(errno.into())),
                }
            }
        };
        match tokio::time::timeout(HELD_MAX, held).await {
            Ok(held) => held.map(|()| Hold(file)),
            Err(_) => Err(BookError::Held {
                at: self.at.clone(),
            }),
        }
    }

    fn lock_file(&self) -> Result<File, BookError> {
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.folder);
        made.map_err(io_at(&self.folder))?;
        let folder = OpenOptions::new()
            .read(true)
            .custom_flags((OFlags::NOFOLLOW | OFlags::DIRECTORY).bits().cast_signed())
            .open(&self.folder)
            .map_err(
                |error| match is(&error, Errno::LOOP) || is(&error, Errno::NOTDIR) {
                    true => BookError::Elsewhere {
                        at: self.folder.clone(),
                    },
                    false => io_at(&self.folder)(error),
                },
            )?;
        private(&self.folder, &folder)?;
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
            .open(self.at.with_extension("lock"))
            .map_err(io_at(&self.at))
    }
}

fn io_at(at: &Path) -> impl FnOnce(io::Error) -> BookError {
    move |source| BookError::Io {
        at: at.to_owned(),
        source,
    }
}

/// What others may look into keeps no secret.
fn private(at: &Path, file: &File) -> Result<(), BookError> {
    let found = file.metadata().map_err(io_at(at))?;
    let us = rustix::process::geteuid().as_raw();
    shut(at, us, (found.uid(), found.mode() & 0o777))
}

/// Whether what has this owner and this mode is closed to all but us.
fn shut(at: &Path, us: u32, (owner, mode): (u32, u32)) -> Result<(), BookError> {
    let at = at.to_owned();
    match (owner == us, mode & 0o077) {
        (false, _) => Err(BookError::Foreign { at }),
        (true, 0) => Ok(()),
        (true, _) => Err(BookError::Open { at, mode }),
    }
}

fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn record(url: &Url) -> Record {
        let credentials = serde_json::json!({
            "client_id": "c",
            "token_response": { "access_token": "a", "token_type": "bearer", "refresh_token": "r" },
        });
        Record::new(url, None, serde_json::from_value(credentials).unwrap())
    }

    #[tokio::test]
    async fn a_login_stays_and_only_its_owner_may_look() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("state/logins");
        let url: Url = "https://a.example/mcp?key=1".parse().unwrap();
        let book = Book::of(&folder, &url, "far");
        assert!(book.read().unwrap().is_none());
        let hold = book.hold().await.unwrap();
        assert!(!book.forget(&hold).unwrap());
        book.write(&hold, &record(&url)).unwrap();
        let facts = book.read().unwrap().unwrap().facts().unwrap();
        assert_eq!(facts.access_token, "a");
        assert_eq!(facts.refresh_token.as_deref(), Some("r"));
        let mode = |at: &Path| fs::metadata(at).unwrap().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&book.at)), (0o700, 0o600));
        // Another address is another login.
        let other = Book::of(&folder, &"https://a.example/mcp".parse().unwrap(), "far");
        assert!(other.read().unwrap().is_none());
        assert!(book.forget(&hold).unwrap());
        assert!(book.read().unwrap().is_none());
    }

    #[tokio::test]
    async fn what_others_may_read_or_made_is_no_login() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("logins");
        let url: Url = "https://a.example/mcp".parse().unwrap();
        let book = Book::of(&folder, &url, "far");
        let hold = book.hold().await.unwrap();
        book.write(&hold, &record(&url)).unwrap();
        fs::set_permissions(&book.at, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(book.read(), Err(BookError::Open { .. })));
        fs::set_permissions(&book.at, fs::Permissions::from_mode(0o600)).unwrap();
        let is_strange = |book: &Book, what: &str| {
            let Err(error @ BookError::Strange { .. }) = book.read() else {
                panic!("{what}");
            };
            let words = error.to_string();
            assert!(words.contains("`longhaul mcp logout far`"), "{words}");
        };
        for text in ["", "{", "[]", "{\"version\":2}"] {
            fs::write(&book.at, text).unwrap();
            is_strange(&book, text);
        }
        fs::write(&book.at, b"\xff\xfe").unwrap();
        is_strange(&book, "no text");
        let real = home.path().join("real.json");
        fs::rename(&book.at, &real).unwrap();
        symlink(&real, &book.at).unwrap();
        is_strange(&book, "a link");
        // The link goes, and what it led to stays.
        assert!(book.forget(&hold).unwrap());
        assert!(real.exists() && !book.at.exists());
    }

    #[tokio::test]
    async fn a_folder_that_is_not_ours_alone_is_seen_before_anything_is_kept() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("logins");
        let url: Url = "https://a.example/mcp".parse().unwrap();
        let book = Book::of(&folder, &url, "far");
        book.prepare().unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(matches!(book.prepare(), Err(BookError::Open { .. })));
        assert!(matches!(book.hold().await, Err(BookError::Open { .. })));
        let real = home.path().join("real");
        fs::rename(&folder, &real).unwrap();
        fs::set_permissions(&real, fs::Permissions::from_mode(0o700)).unwrap();
        symlink(&real, &folder).unwrap();
        assert!(matches!(book.prepare(), Err(BookError::Elsewhere { .. })));
    }

    #[test]
    fn what_another_owns_is_not_called_open() {
        for (owner, mode, expect) in [
            (7, 0o600, ""),
            (7, 0o640, "is open to others (mode 640)"),
            (8, 0o600, "belongs to another user"),
            (8, 0o644, "belongs to another user"),
        ] {
            let judged = shut(Path::new("/logins"), 7, (owner, mode));
            let words = judged.err().map(|error| error.to_string());
            let words = words.unwrap_or_default();
            assert!(words.contains(expect), "{words}");
            assert_eq!(words.is_empty(), expect.is_empty(), "{words}");
        }
    }

    #[test]
    fn a_token_is_used_only_if_it_can_be_sent() {
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
            let facts = Facts {
                access_token: token.to_owned(),
                token_type: kind.to_owned(),
                ..Facts::default()
            };
            assert_eq!(facts.is_usable(), expect, "{token:?} {kind}");
        }
    }
}
