//! Refuses paths that lead out of a project where the project itself chose them.
//!
//! The user's own file, the real environment and flags may name any path. What comes with the
//! project may not, for a cloned repository would write wherever it likes.

use std::path::{Path, PathBuf};

use longhaul_tool::Location;
use longhaul_tool::message::DeliveryTarget;
use serde_json::Value as Json;

use crate::config::cross_checks::error_location;
use crate::config::error::{ErrorLocation, SettingError};
use crate::config::git_tracked::GitIndex;
use crate::config::schema::{DELIVER_KEY, LOG_FILE_KEY, TRUST_FOLDERS_KEY};
use crate::config::settings::{Config, StoreUrl};
use crate::config::value::Value;
use crate::project_file;
use crate::spanned::escape_line;

/// What the runtime keeps in the data folder and opens by path, links included.
const DATA_FILES: [&str; 3] = ["longhaul.db", "vault", "cassettes"];

/// What is wrong with the paths of this project.
pub(crate) fn check(config: &Config) -> Vec<SettingError> {
    let mut faults: Vec<SettingError> =
        ["data", "store.url", DELIVER_KEY, LOG_FILE_KEY, TRUST_FOLDERS_KEY]
            .into_iter()
            .filter_map(|key| outside_path(config, key))
            .collect();
    if faults.is_empty() {
        let mut links: Vec<PathBuf> = data_paths(config)
            .iter()
            .filter_map(|path| project_file::first_symlink(&config.root, path))
            .collect();
        links.dedup();
        faults.extend(links.into_iter().map(symlink_error));
        faults.extend(tracked_data(config));
    }
    faults
}

/// The fault of data that a git repository brought along: its runs would be driven, and its keys
/// would open the server.
fn tracked_data(config: &Config) -> Option<SettingError> {
    let mut paths = Vec::new();
    if let Location::Below { relative, .. } = config.data_location().join("local.key") {
        paths.push(relative);
    }
    if let StoreUrl::Sqlite(Location::Below { relative, .. }) = config.store_url() {
        paths.push(relative);
    }
    paths.retain(|path| config.root.join(path).symlink_metadata().is_ok());
    if paths.is_empty() {
        return None;
    }
    let tracked = GitIndex::new(&config.root)?;
    let path = paths.into_iter().find(|path| tracked.tracks(path))?;
    let data = path.parent().unwrap_or(&path).display();
    Some(SettingError {
        message: format!(
            "came with the git repository, so its runs and keys are not yours. Take it out with \
             `git rm -r --cached {data}` and delete it, or name another folder with LONGHAUL_DATA"
        ),
        location: ErrorLocation::File(path, None),
    })
}

/// The fault of a setting of the project whose path is not for a project to choose.
fn outside_path(config: &Config, key: &str) -> Option<SettingError> {
    let setting = config.settings.get(key)?;
    if !setting.origin.is_project() {
        return None;
    }
    if key == TRUST_FOLDERS_KEY {
        let message = format!("`{key}` is not for a project: set it in your own file");
        let spot = error_location(&setting.origin);
        return Some(SettingError { location: spot, message });
    }
    let path = match (key, &setting.value) {
        ("store.url", Value::Text(url)) => url.strip_prefix("sqlite:").map(|path| {
            let path = path.strip_prefix("//").unwrap_or(path);
            PathBuf::from(path)
        }),
        (DELIVER_KEY, Value::Any(Json::String(text))) => match text.parse() {
            Ok(DeliveryTarget::File(file)) => Some(file.path()),
            Ok(DeliveryTarget::Command(_) | DeliveryTarget::Webhook(_)) | Err(_) => None,
        },
        (_, Value::Text(path) | Value::Any(Json::String(path))) => Some(PathBuf::from(path)),
        (_, _) => None,
    };
    let path = path?;
    let why = match Location::below(&config.root, &path) {
        None => "leads out of the project",
        Some(_) if is_in_git(&path) => "leads into a `.git` folder, where programs are run from",
        // A line of JSON in a script or a hook would be run.
        Some(_) if [DELIVER_KEY, LOG_FILE_KEY].contains(&key) && !is_json_lines(&path) => {
            "is no file of JSON lines, whose name ends in `.jsonl`"
        }
        Some(_) => return None,
    };
    Some(SettingError {
        location: error_location(&setting.origin),
        message: escape_line(&format!(
            "`{key}` {why}: `{}`. For another path set it in your own file (`longhaul config \
             path` says where that is) or in the environment.",
            path.display()
        )),
    })
}

fn is_in_git(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str().eq_ignore_ascii_case(".git"))
}

fn is_json_lines(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "jsonl")
}

/// The files and folders that the runtime keeps below the project.
fn data_paths(config: &Config) -> Vec<PathBuf> {
    let mut kept = Vec::new();
    if let Location::Below { relative, .. } = config.data_location() {
        kept.extend(DATA_FILES.map(|name| relative.join(name)));
    }
    if let StoreUrl::Sqlite(Location::Below { relative, .. }) = config.store_url() {
        kept.push(relative);
    }
    kept
}

fn symlink_error(path: PathBuf) -> SettingError {
    SettingError {
        message: "is a link, and a project's data is not followed through links: put the folder \
                  or file itself there, or name another folder with LONGHAUL_DATA"
            .to_owned(),
        location: ErrorLocation::File(path, None),
    }
}
