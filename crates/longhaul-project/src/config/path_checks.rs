//! Rejects settings of a project that contain a path out of the project, and data that git tracks.
//!
//! The user file, the process environment and flags may name any path. Files of the project may
//! not: otherwise the files of a cloned repository could make Longhaul write anywhere. Of the git
//! index (the list of tracked files), only versions that store complete paths are supported.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use longhaul_tool::FileLocation;
use longhaul_tool::message::DeliveryTarget;

use crate::config::cross_checks::setting_error_location;
use crate::config::error::SettingError;
use crate::config::schema::{DELIVER_KEY, LOG_FILE_KEY, TRUST_FOLDERS_KEY};
use crate::config::settings::{Config, StoreUrl};
use crate::project_file;
use crate::spanned::escape_to_one_line;

/// Entries of the data folder that the runtime opens by path, so that symbolic links would be
/// followed.
const DATA_FILES: [&str; 3] = ["longhaul.db", "vault", "cassettes"];

/// Returns an error for each path that the project sets although a project must not choose it.
pub(crate) fn check_project_paths(config: &Config) -> Vec<SettingError> {
    let mut faults: Vec<SettingError> =
        ["data", "store.url", DELIVER_KEY, LOG_FILE_KEY, TRUST_FOLDERS_KEY]
            .into_iter()
            .chain(config.settings.keys().map(String::as_str).filter(|key| is_secret_host(key)))
            .filter_map(|key| disallowed_path_error(config, key))
            .collect();
    if faults.is_empty() {
        let mut links: Vec<PathBuf> = data_paths_in_project(config)
            .iter()
            .filter_map(|path| project_file::first_symlink(&config.root, path))
            .collect();
        links.dedup();
        faults.extend(links.into_iter().map(data_symlink_error));
        faults.extend(tracked_data_folder_error(config));
    }
    faults
}

/// Returns an error if git tracks the data folder: the runs in a cloned repository would be
/// continued, and its API keys would give access to the server.
fn tracked_data_folder_error(config: &Config) -> Option<SettingError> {
    let mut paths = Vec::new();
    if let FileLocation::Below { relative, .. } = config.data_folder_location().join("local.key") {
        paths.push(relative);
    }
    if let StoreUrl::Sqlite(FileLocation::Below { relative, .. }) = config.store_url() {
        paths.push(relative);
    }
    paths.retain(|path| config.root.join(path).symlink_metadata().is_ok());
    if paths.is_empty() {
        return None;
    }
    let tracked = GitIndex::load_for_project(&config.root)?;
    let path = paths.into_iter().find(|path| tracked.tracks(path))?;
    let data = path.parent().unwrap_or(&path).display();
    Some(SettingError {
        message: format!(
            "this path is tracked by git, so its runs and keys may be those of another user. If they are \
             yours, run `git rm -r --cached {data}` and commit: the files stay. If `local.key` was committed, \
             also run `rm {data}/local.key`: `longhaul serve` creates a new key. If they are not yours, set another folder with LONGHAUL_DATA"
        ),
        location: path.display().to_string(),
    })
}

/// Whether this setting says which hosts get the value of a secret.
fn is_secret_host(setting_path: &str) -> bool {
    setting_path.starts_with("secrets.") && setting_path.ends_with(".hosts")
}

/// Returns an error if the project sets this setting to a path that a project must not choose.
fn disallowed_path_error(config: &Config, setting_path: &str) -> Option<SettingError> {
    let setting = config.settings.get(setting_path)?;
    if !setting.origin.is_from_project_file() {
        return None;
    }
    if setting_path == TRUST_FOLDERS_KEY || is_secret_host(setting_path) {
        let message =
            format!("`{setting_path}` can't be set by a project: set it in your user file");
        let location = setting_error_location(&setting.origin);
        return Some(SettingError { location, message });
    }
    let text = setting.value.as_str()?;
    let path = match setting_path {
        "store.url" => {
            let path = text.strip_prefix("sqlite:")?;
            PathBuf::from(path.strip_prefix("//").unwrap_or(path))
        }
        DELIVER_KEY => match text.parse() {
            Ok(DeliveryTarget::File(file)) => file.path(),
            Ok(DeliveryTarget::Command(_) | DeliveryTarget::Webhook(_)) | Err(_) => return None,
        },
        _ => PathBuf::from(text),
    };
    let is_json_lines_file = path.extension().is_some_and(|end| end == "jsonl");
    let reason = if FileLocation::below_root(&config.root, &path).is_none() {
        "leads out of the project"
    } else if path.components().any(|part| part.as_os_str().eq_ignore_ascii_case(".git")) {
        "leads into a `.git` folder, from which git runs programs"
    } else if [DELIVER_KEY, LOG_FILE_KEY].contains(&setting_path) && !is_json_lines_file {
        // A line of JSON that is appended to a script or a hook would be executed.
        "is not a JSON lines file with the suffix `.jsonl`"
    } else {
        return None;
    };
    Some(SettingError {
        location: setting_error_location(&setting.origin),
        message: escape_to_one_line(&format!(
            "`{setting_path}` {reason}: `{}`. To use another path, set it in your user file \
             (`longhaul config path` shows where it is) or in the environment.",
            path.display()
        )),
    })
}

/// Returns the paths of the runtime's files and folders that are inside the project.
fn data_paths_in_project(config: &Config) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    if let FileLocation::Below { relative, .. } = config.data_folder_location() {
        paths.extend(DATA_FILES.map(|name| relative.join(name)));
    }
    if let StoreUrl::Sqlite(FileLocation::Below { relative, .. }) = config.store_url() {
        paths.push(relative);
    }
    paths
}

fn data_symlink_error(path: PathBuf) -> SettingError {
    SettingError {
        message: "the path is a symbolic link, which is not followed for a project's data: use the folder \
                  or file itself, or set another folder with LONGHAUL_DATA"
            .to_owned(),
        location: path.display().to_string(),
    }
}

/// Maximum size of the git index in bytes.
const INDEX_BYTES_MAX: usize = 64 << 20;

/// Maximum size in bytes of the file `.git` that a git worktree has instead of a folder.
const GIT_FILE_BYTES_MAX: usize = 4 << 10;

/// The git index (list of tracked files) of the repository that contains the project's folder.
pub(crate) struct GitIndex {
    index: Vec<u8>,
    /// Path of the project's folder, relative to the root of the repository.
    folder: PathBuf,
}

impl GitIndex {
    /// Loads the git index. `None` means that the folder is not in a repository or that the index
    /// can't be read.
    pub(crate) fn load_for_project(project_folder: &Path) -> Option<Self> {
        let repository_root = project_folder
            .ancestors()
            .find(|folder| folder.join(".git").symlink_metadata().is_ok())?;
        let index = FileLocation::from(git_folder(repository_root)?.join("index"));
        Some(Self {
            index: index.read_regular_file(INDEX_BYTES_MAX).ok()??,
            folder: project_folder.strip_prefix(repository_root).ok()?.to_path_buf(),
        })
    }

    /// Whether git tracks this path (relative to the project's folder) or a path below it.
    pub(crate) fn tracks(&self, path: &Path) -> bool {
        let path = self.folder.join(path);
        let path = path.as_os_str().as_bytes();
        let mut rest = &self.index[..];
        while let Some(at) = find_bytes(rest, path) {
            // A path ends with a zero byte; a path below it continues with a slash.
            if matches!(rest.get(at + path.len()), Some(0 | b'/')) {
                return true;
            }
            rest = &rest[at + 1..];
        }
        false
    }
}

/// Returns the folder that contains the git index. In a git worktree `.git` is a file with the path
/// of that folder.
fn git_folder(repository_root: &Path) -> Option<PathBuf> {
    let git = repository_root.join(".git");
    if git.is_dir() {
        return Some(git);
    }
    let text = FileLocation::from(git).read_regular_file(GIT_FILE_BYTES_MAX).ok()??;
    let path = text.strip_prefix(b"gitdir: ")?.trim_ascii_end();
    Some(repository_root.join(OsStr::from_bytes(path)))
}

fn find_bytes(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes.windows(needle.len()).position(|part| part == needle)
}
