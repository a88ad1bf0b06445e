//! The environment in which a command was started: working directory, environment variables, home
//! folder and user id. The caller passes it in.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Name of the configuration file.
pub const CONFIG_FILE_NAME: &str = "longhaul.toml";

/// Name of a project's data folder.
pub const DATA_FOLDER_NAME: &str = ".longhaul";

/// Files and folders in a project folder that the runtime uses.
const PROJECT_ENTRIES: [&str; 10] = [
    CONFIG_FILE_NAME,
    DATA_FOLDER_NAME,
    "agents",
    ".claude",
    ".mcp.json",
    ".env",
    "scripts",
    "skills",
    "AGENTS.md",
    "CLAUDE.md",
];

/// User id of the user root.
const ROOT_UID: u32 = 0;

/// Environment in which a command was started.
#[derive(Debug, Clone, Default)]
pub struct ProcessEnv {
    /// Working directory of the command.
    pub cwd: PathBuf,
    /// Environment variables of the command, with those of the project's `.env`.
    pub env: BTreeMap<String, String>,
    /// Names of the variables that only the project's `.env` sets.
    pub from_dotenv: BTreeSet<String>,
    /// Home folder of the user. `None` means that it is unknown.
    pub home: Option<PathBuf>,
    /// User id of this process. `None` disables the check that the project belongs to this user.
    pub uid: Option<u32>,
}

impl ProcessEnv {
    /// Returns the value of an environment variable. `None` means that the variable is unset or
    /// empty.
    pub fn var(&self, name: &str) -> Option<&str> {
        let value = self.env.get(name).map(String::as_str);
        value.filter(|value| !value.is_empty())
    }

    /// Returns the project folder: the first of the working directory and its parents that contains
    /// `longhaul.toml` or `.longhaul`. `None` means that there is no project.
    pub fn project_root(&self) -> Option<&Path> {
        self.cwd.ancestors().find(|folder| {
            folder.join(CONFIG_FILE_NAME).is_file() || folder.join(DATA_FOLDER_NAME).is_dir()
        })
    }

    /// Returns the owner's user id if the folder, or a file in it that the runtime uses, belongs to
    /// another user. Root and the user who called `sudo` do not count as other users.
    pub fn uid_of_other_owner(&self, folder: &Path) -> Option<u32> {
        let uid = self.uid?;
        let sudo_uid = self.var("SUDO_UID");
        let sudo_uid =
            sudo_uid.filter(|_| uid == ROOT_UID && !self.from_dotenv.contains("SUDO_UID"));
        let sudo_uid = sudo_uid.and_then(|sudo_uid| sudo_uid.parse::<u32>().ok());
        let owner_uid =
            |path: &Path| fs::symlink_metadata(path).map(|metadata| metadata.uid()).ok();
        let is_foreign = |owner: &u32| ![uid, ROOT_UID].contains(owner) && Some(*owner) != sudo_uid;
        let paths = PROJECT_ENTRIES.iter().map(|name| folder.join(name));
        let owners: Vec<u32> = paths.filter_map(|path| owner_uid(&path)).collect();
        // An empty folder of another user is allowed.
        let folder = owner_uid(folder).filter(|_| !owners.is_empty());
        owners.into_iter().chain(folder).find(is_foreign)
    }

    /// Returns the path of the user's configuration file, which may not exist. `None` means that
    /// the home folder is unknown.
    pub fn user_config_file(&self) -> Option<PathBuf> {
        let folder = self.xdg_or_home_folder("XDG_CONFIG_HOME", ".config")?;
        Some(folder.join(CONFIG_FILE_NAME))
    }

    /// Returns the folder for the user's state outside projects. `None` means that the home folder
    /// is unknown.
    pub fn state_folder(&self) -> Option<PathBuf> {
        self.xdg_or_home_folder("XDG_STATE_HOME", ".local/state")
    }

    /// Returns the folder `longhaul` in the folder that the XDG variable names or, if the variable
    /// is not set, in `home_subfolder` of the home folder. `None` means that neither is known.
    fn xdg_or_home_folder(&self, variable: &str, home_subfolder: &str) -> Option<PathBuf> {
        // The XDG specification says that relative paths are ignored.
        let xdg = self.var(variable).map(Path::new);
        let xdg = xdg.filter(|path| path.is_absolute()).map(Path::to_path_buf);
        let folder = xdg.or_else(|| self.home.as_ref().map(|home| home.join(home_subfolder)))?;
        Some(folder.join("longhaul"))
    }

    /// Returns a path for messages: relative to the working directory if the path is inside it.
    pub fn display_path(&self, path: &Path) -> PathBuf {
        let relative = path.strip_prefix(&self.cwd).ok();
        relative.unwrap_or(path).to_path_buf()
    }
}
