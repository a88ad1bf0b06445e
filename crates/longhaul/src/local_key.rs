//! The machine's own key: a file that only its owner may read. Whoever may read
//! it could write the store as well, so it opens every door.
//!
//! Never: followed through a link, and never trusted when others may read it.

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

use longhaul_engine::secret::{KEY_PREFIX, Secret};

use crate::config::settings::Config;

/// The file's name, in the data folder.
const NAME: &str = "local.key";

/// More than this is no key.
const BYTES_MAX: u64 = 256;

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum LocalKeyError {
    /// The file can't be read or made.
    #[error("`{at}` can't be used: {source}")]
    Io {
        /// Which file.
        at: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// Others may read it, so it is no secret any more.
    #[error("`{at}` may be read by others (mode {mode:03o}), so it is no secret")]
    Open {
        /// Which file.
        at: PathBuf,
        /// Who may.
        mode: u32,
    },
    /// It holds something else.
    #[error("`{at}` holds no key")]
    NoKey {
        /// Which file.
        at: PathBuf,
    },
}

/// Where the key is.
pub fn path(config: &Config) -> PathBuf {
    config.data().join(NAME)
}

/// The key; none: there is no such file.
pub fn read(at: &Path) -> Result<Option<Secret>, LocalKeyError> {
    let io = |source| LocalKeyError::Io {
        at: at.to_owned(),
        source,
    };
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
        .open(at);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io(error)),
    };
    let mode = file.metadata().map_err(io)?.mode() & 0o777;
    if mode & 0o077 != 0 {
        let at = at.to_owned();
        return Err(LocalKeyError::Open { at, mode });
    }
    let mut text = String::new();
    file.take(BYTES_MAX).read_to_string(&mut text).map_err(io)?;
    let text = text.trim();
    match text.starts_with(KEY_PREFIX) && text.len() > KEY_PREFIX.len() + 40 {
        true => Ok(Some(Secret::shown(text))),
        false => Err(LocalKeyError::NoKey { at: at.to_owned() }),
    }
}

/// The key, made now if there is none.
pub fn read_or_make(at: &Path, fresh: &Secret) -> Result<Secret, LocalKeyError> {
    if let Some(key) = read(at)? {
        return Ok(key);
    }
    let io = |source| LocalKeyError::Io {
        at: at.to_owned(),
        source,
    };
    if let Some(folder) = at.parent() {
        let mut builder = fs::DirBuilder::new();
        let made = builder.recursive(true).mode(0o700).create(folder);
        made.map_err(io)?;
    }
    // Written beside and moved into place: nobody reads half a key.
    let beside = at.with_extension(format!("key.{}", std::process::id()));
    _ = fs::remove_file(&beside);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&beside)
        .map_err(io)?;
    let wrote = writeln!(file, "{}", fresh.reveal()).and_then(|()| {
        // The mode that was asked for is only the most that it may be.
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
        file.sync_all()
    });
    // A link fails where a file is, so that of two who make it one wins.
    let linked = wrote.and_then(|()| match fs::hard_link(&beside, at) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    });
    _ = fs::remove_file(&beside);
    linked.map_err(io)?;
    match read(at)? {
        Some(key) => Ok(key),
        None => Err(LocalKeyError::NoKey { at: at.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(bits: u8) -> Secret {
        Secret::new(KEY_PREFIX, [bits; 32])
    }

    #[test]
    fn the_first_key_stays_and_only_its_owner_may_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join("data").join(NAME);
        assert!(read(&at).unwrap().is_none());
        assert_eq!(read_or_make(&at, &secret(1)).unwrap(), secret(1));
        assert_eq!(read_or_make(&at, &secret(2)).unwrap(), secret(1));
        assert_eq!(fs::metadata(&at).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(at.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn what_others_may_read_or_a_link_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join(NAME);
        read_or_make(&at, &secret(1)).unwrap();
        fs::set_permissions(&at, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(read(&at), Err(LocalKeyError::Open { .. })));
        let link = folder.path().join("link.key");
        std::os::unix::fs::symlink(&at, &link).unwrap();
        assert!(matches!(read(&link), Err(LocalKeyError::Io { .. })));
        fs::write(&at, "nothing").unwrap();
        fs::set_permissions(&at, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(matches!(read(&at), Err(LocalKeyError::NoKey { .. })));
    }
}
