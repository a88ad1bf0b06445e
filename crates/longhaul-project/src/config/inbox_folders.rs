//! The folder inboxes of a project: the folders in `inbox/`, whose files become tasks.

use longhaul_core::id::InboxName;
use rustix::fs::{self as sys, AtFlags, FileType, Mode, OFlags};

use crate::config::settings::Config;

/// Name of the project's folder that contains its folder inboxes (folders whose files become
/// tasks).
pub const INBOX_FOLDER: &str = "inbox";

/// Maximum number of folder inboxes of a project.
const INBOXES_MAX: usize = 100;

/// A folder inbox of a project: a folder whose files become tasks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct InboxFolderConfig {
    /// Name of the inbox, which is the name of its folder in `inbox/`.
    pub name: InboxName,
    /// Agent that works on the files of the folder. `None` if `[inboxes.NAME] agent` is not set.
    pub agent: Option<String>,
}

/// Returns the folder inboxes of the project: the folders in `inbox/`, ordered by name. Symbolic
/// links and folders whose names are not valid names of inboxes are left out.
pub fn inbox_folders(config: &Config) -> Vec<InboxFolderConfig> {
    let agents = config.default_agents_by_inbox();
    let folder = |name: String| {
        let agent = agents.get(&name).cloned();
        Some(InboxFolderConfig { name: InboxName::new(name).ok()?, agent })
    };
    let mut folders: Vec<_> = inbox_folder_names(config).into_iter().filter_map(folder).collect();
    folders.sort();
    folders.truncate(INBOXES_MAX);
    folders
}

fn inbox_folder_names(config: &Config) -> Vec<String> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(parent) = sys::open(config.root.join(INBOX_FOLDER), flags, Mode::empty()) else {
        return Vec::new();
    };
    let Ok(entries) = sys::Dir::read_from(&parent) else {
        return Vec::new();
    };
    let names =
        entries.filter_map(|entry| entry.ok()?.file_name().to_str().ok().map(str::to_owned));
    let is_folder = |name: &String| {
        let stat = sys::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW);
        !name.starts_with('.')
            && stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
    };
    names.filter(is_folder).collect()
}
