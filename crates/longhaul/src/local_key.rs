//! The machine's own key: a file that only its owner may read. Whoever may read
//! it could write the store as well, so it opens every door.
//!
//! Never: followed through a link, and never trusted when others may read it.

use std::path::{Path, PathBuf};

use longhaul_engine::secret::{KEY_PREFIX, Secret};

use crate::config::settings::Config;
use crate::private_file::{self, AccessCheck, PrivateFileError};

/// The file's name, in the data folder.
const FILE_NAME: &str = "local.key";

/// Maximum length of a key in bytes.
const BYTES_MAX: u64 = 256;

/// Where the key is.
pub fn path(config: &Config) -> PathBuf {
    config.data_folder().join(FILE_NAME)
}

/// The key; `None` means that there is no such file.
///
/// # Errors
/// The file is not its owner's alone, or can't be read.
pub fn load(at: &Path) -> Result<Option<Secret>, PrivateFileError> {
    let text = private_file::read(at, BYTES_MAX, AccessCheck::Secret)?;
    text.map(|text| parse(at, text.trim())).transpose()
}

/// The key, made now if there is none.
///
/// # Errors
/// The file is not its owner's alone, or can't be read or written.
pub fn load_or_create(at: &Path, fresh: &Secret) -> Result<Secret, PrivateFileError> {
    if let Some(key) = load(at)? {
        return Ok(key);
    }
    private_file::create(at, fresh.reveal())?;
    // Another process may have made one meanwhile.
    let text = private_file::read(at, BYTES_MAX, AccessCheck::Secret)?;
    parse(at, text.unwrap_or_default().trim())
}

fn parse(at: &Path, text: &str) -> Result<Secret, PrivateFileError> {
    if text.starts_with(KEY_PREFIX) && text.len() > KEY_PREFIX.len() + 40 {
        return Ok(Secret::from_text(text));
    }
    let path = at.to_owned();
    let what = "holds no key";
    Err(PrivateFileError::Content { path, what })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use super::*;

    fn secret(bits: u8) -> Secret {
        Secret::new(KEY_PREFIX, [bits; 32])
    }

    #[test]
    fn the_first_key_is_kept_and_readable_by_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join("data").join(FILE_NAME);
        assert!(load(&at).unwrap().is_none());
        assert_eq!(load_or_create(&at, &secret(1)).unwrap(), secret(1));
        assert_eq!(load_or_create(&at, &secret(2)).unwrap(), secret(1));
        assert_eq!(fs::metadata(&at).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(at.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn a_readable_or_linked_key_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join(FILE_NAME);
        load_or_create(&at, &secret(1)).unwrap();
        fs::set_permissions(&at, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(load(&at), Err(PrivateFileError::Readable { .. })));
        let link = folder.path().join("link.key");
        std::os::unix::fs::symlink(&at, &link).unwrap();
        assert!(matches!(load(&link), Err(PrivateFileError::Io { .. })));
        fs::write(&at, "nothing").unwrap();
        fs::set_permissions(&at, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(matches!(load(&at), Err(PrivateFileError::Content { .. })));
    }
}
