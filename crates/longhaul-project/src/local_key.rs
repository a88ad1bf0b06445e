//! The local API key: a file in the data folder that only its owner may read. The key grants full
//! access to the server, since a user who can read the file could also write the store.
//!
//! Invariant: the file is not read through a symbolic link and not trusted if other users may read
//! it.

use std::path::{Path, PathBuf};

use longhaul_engine::secret::{KEY_PREFIX, Secret};

use crate::config::settings::Config;
use crate::private_file::{self, FileAccessCheck, PrivateFileError};

/// Name of the file with the local API key, in the project's data folder.
const FILE_NAME: &str = "local.key";

/// Maximum length of the key file in bytes.
const KEY_BYTES_MAX: u64 = 256;

/// Returns the path of the key file of a project.
pub fn local_key_path(config: &Config) -> PathBuf {
    config.data_folder().join(FILE_NAME)
}

/// Loads the local API key from this file. `None` means that the file does not exist.
///
/// # Errors
/// Other users may read the file, or it can't be read.
pub fn load_local_key(file: &Path) -> Result<Option<Secret>, PrivateFileError> {
    let text = private_file::read_private_file(file, KEY_BYTES_MAX, FileAccessCheck::Secret)?;
    text.map(|text| parse_local_key(file, text.trim())).transpose()
}

/// Loads the local API key from this file. If the file does not exist, creates it with a new key.
///
/// # Errors
/// Other users may read the file, or it can't be read or written.
pub fn load_or_create_local_key(file: &Path, new_key: &Secret) -> Result<Secret, PrivateFileError> {
    if let Some(key) = load_local_key(file)? {
        return Ok(key);
    }
    private_file::create_private_file(file, new_key.reveal())?;
    // Another process may have created the file in the meantime.
    let text = private_file::read_private_file(file, KEY_BYTES_MAX, FileAccessCheck::Secret)?;
    parse_local_key(file, text.unwrap_or_default().trim())
}

fn parse_local_key(file: &Path, text: &str) -> Result<Secret, PrivateFileError> {
    if text.starts_with(KEY_PREFIX) && text.len() > KEY_PREFIX.len() + 40 {
        return Ok(Secret::from_text(text));
    }
    let path = file.to_owned();
    let problem = "does not contain a valid key";
    Err(PrivateFileError::Content { path, problem })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use super::*;

    fn secret_of_repeated_byte(byte: u8) -> Secret {
        Secret::new(KEY_PREFIX, [byte; 32])
    }

    #[test]
    fn the_first_key_is_kept_and_readable_by_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data").join(FILE_NAME);
        assert!(load_local_key(&path).unwrap().is_none());
        assert_eq!(
            load_or_create_local_key(&path, &secret_of_repeated_byte(1)).unwrap(),
            secret_of_repeated_byte(1)
        );
        assert_eq!(
            load_or_create_local_key(&path, &secret_of_repeated_byte(2)).unwrap(),
            secret_of_repeated_byte(1)
        );
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn a_key_file_readable_by_others_or_linked_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE_NAME);
        load_or_create_local_key(&path, &secret_of_repeated_byte(1)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(load_local_key(&path), Err(PrivateFileError::Readable { .. })));
        let link = folder.path().join("link.key");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(matches!(load_local_key(&link), Err(PrivateFileError::Io { .. })));
        fs::write(&path, "nothing").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(matches!(load_local_key(&path), Err(PrivateFileError::Content { .. })));
    }
}
