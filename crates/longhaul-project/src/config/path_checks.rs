//! Rejects settings of a project that contain a path out of the project.
//!
//! The user file, the process environment and flags may name any path. Files of the project may
//! not: otherwise the files of a cloned repository could make Longhaul write anywhere.

use std::path::{Path, PathBuf};

use longhaul_tool::FileLocation;
use longhaul_tool::message::DeliveryTarget;

use crate::config::cross_checks::setting_error_location;
use crate::config::error::{ErrorLocation, SettingError};
use crate::config::git_tracked::GitIndex;
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
        location: ErrorLocation::File(path, None),
    })
}

/// Returns an error if the project sets this setting to a path that a project must not choose.
fn disallowed_path_error(config: &Config, setting_path: &str) -> Option<SettingError> {
    let setting = config.settings.get(setting_path)?;
    if !setting.origin.is_from_project_file() {
        return None;
    }
    if setting_path == TRUST_FOLDERS_KEY {
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
    let reason = match FileLocation::below_root(&config.root, &path) {
        None => "leads out of the project",
        Some(_) if is_in_git_folder(&path) => {
            "leads into a `.git` folder, from which git runs programs"
        }
        // A line of JSON that is appended to a script or a hook would be executed.
        Some(_)
            if [DELIVER_KEY, LOG_FILE_KEY].contains(&setting_path)
                && !is_json_lines_file(&path) =>
        {
            "is not a JSON lines file with the suffix `.jsonl`"
        }
        Some(_) => return None,
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

fn is_in_git_folder(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str().eq_ignore_ascii_case(".git"))
}

fn is_json_lines_file(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "jsonl")
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
        location: ErrorLocation::File(path, None),
    }
}
