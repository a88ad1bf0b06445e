//! Where a command was started: folder, environment, home.
//!
//! Never: asks the process. Who starts the command says it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The name of the file.
pub const CONFIG_FILE_NAME: &str = "longhaul.toml";

/// The folder with the data of a project.
pub const DATA_FOLDER_NAME: &str = ".longhaul";

/// What is used of a folder.
const PROJECT_ENTRIES: [&str; 9] = [
    CONFIG_FILE_NAME,
    DATA_FOLDER_NAME,
    "agents",
    ".claude",
    ".mcp.json",
    ".env",
    "scripts",
    "skills",
    "AGENTS.md",
];

/// The user who may do anything.
const ROOT_UID: u32 = 0;

/// What a command finds around it.
#[derive(Debug, Clone, Default)]
pub struct ProcessEnv {
    /// The current folder.
    pub cwd: PathBuf,
    /// The environment.
    pub env: BTreeMap<String, String>,
    /// Those variables of it that only the project's `.env` sets.
    pub from_dotenv: BTreeSet<String>,
    /// The user's home, if there is one.
    pub home: Option<PathBuf>,
    /// The user that this process runs as. `None` disables the check of who owns a project.
    pub uid: Option<u32>,
}

impl ProcessEnv {
    /// A variable that is set to something.
    pub fn var(&self, name: &str) -> Option<&str> {
        let value = self.env.get(name).map(String::as_str);
        value.filter(|value| !value.is_empty())
    }

    /// The nearest folder from here up that is a project, if there is one.
    pub fn project_root(&self) -> Option<&Path> {
        self.cwd.ancestors().find(|folder| {
            folder.join(CONFIG_FILE_NAME).is_file() || folder.join(DATA_FOLDER_NAME).is_dir()
        })
    }

    /// Another user to whom a folder, or what is used of it, belongs. Root and the user who
    /// called `sudo` don't count as others.
    pub fn foreign_owner(&self, folder: &Path) -> Option<u32> {
        let uid = self.uid?;
        let sudo = self.var("SUDO_UID");
        let sudo = sudo.filter(|_| uid == ROOT_UID && !self.from_dotenv.contains("SUDO_UID"));
        let sudo = sudo.and_then(|sudo| sudo.parse::<u32>().ok());
        let owner = |path: &Path| fs::symlink_metadata(path).map(|found| found.uid()).ok();
        let is_foreign = |owner: &u32| ![uid, ROOT_UID].contains(owner) && Some(*owner) != sudo;
        let used = PROJECT_ENTRIES.iter().map(|name| folder.join(name));
        let found: Vec<u32> = used.filter_map(|path| owner(&path)).collect();
        // An empty folder of another user may be worked in.
        let folder = owner(folder).filter(|_| !found.is_empty());
        found.into_iter().chain(folder).find(is_foreign)
    }

    /// Where the user's own file would be.
    pub fn user_file(&self) -> Option<PathBuf> {
        let folder = self.user_folder("XDG_CONFIG_HOME", ".config")?;
        Some(folder.join(CONFIG_FILE_NAME))
    }

    /// Where we would remember things for the user, outside of every project.
    pub fn state_folder(&self) -> Option<PathBuf> {
        self.user_folder("XDG_STATE_HOME", ".local/state")
    }

    fn user_folder(&self, variable: &str, below_home: &str) -> Option<PathBuf> {
        // The XDG rules say that a relative path is to be passed over.
        let xdg = self.var(variable).map(Path::new);
        let xdg = xdg.filter(|path| path.is_absolute()).map(Path::to_path_buf);
        let folder = xdg.or_else(|| self.home.as_ref().map(|home| home.join(below_home)))?;
        Some(folder.join("longhaul"))
    }

    /// A path as it is said to people: from the current folder where it lies in it.
    pub fn display_path(&self, path: &Path) -> PathBuf {
        let below = path.strip_prefix(&self.cwd).ok();
        below.unwrap_or(path).to_path_buf()
    }
}
