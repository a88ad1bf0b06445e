//! The demo's project: a folder with an agent, a script and six notes.
//!
//! Never: writes over a file that is there, or outside its folder; hands a key of the user's to
//! what stands there already, for a cloned repository may have brought it along.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::Context as _;
use longhaul::config::process_env::ProcessEnv;
use longhaul_tool::Location;

use crate::child_process::ChildProcess;
use crate::environment;

/// The demo's agent.
pub(crate) const AGENT_NAME: &str = "demo-tidier";

/// The model of every run of it, whatever the agent's file says.
pub(crate) const MODEL_NAME: &str = "scripted/demo-tidier";

/// The variables that its worker sees, and those that begin with `LC_` or `XDG_`. No key is among
/// them, whatever it is called.
const INHERITED_VARS: &[&str] = &[
    "HOME",
    "LANG",
    "LOGNAME",
    "NO_COLOR",
    "PATH",
    "RUST_BACKTRACE",
    "SUDO_UID",
    "TERM",
    "TMPDIR",
    "TZ",
    "USER",
];

/// What the folder begins with.
const FILES: &[(&str, &str)] = &[
    ("longhaul.toml", "# Every value has a default: longhaul config show --origin\n"),
    ("agents/demo-tidier.md", include_str!("../../demo/demo-tidier.md")),
    ("scripts/demo-tidier.yaml", include_str!("../../demo/demo-tidier.yaml")),
    (".longhaul/vault/Inbox/lamp idea.md", include_str!("../../demo/notes/lamp-idea.md")),
    (".longhaul/vault/Inbox/lamp parts.md", include_str!("../../demo/notes/lamp-parts.md")),
    (
        ".longhaul/vault/Inbox/tuesday meeting.md",
        include_str!("../../demo/notes/tuesday-meeting.md"),
    ),
    (
        ".longhaul/vault/Inbox/meeting follow-up.md",
        include_str!("../../demo/notes/meeting-follow-up.md"),
    ),
    (".longhaul/vault/Inbox/groceries.md", include_str!("../../demo/notes/groceries.md")),
    (".longhaul/vault/Inbox/diary.md", include_str!("../../demo/notes/diary.md")),
];

/// The demo's folder.
#[derive(Debug, Clone)]
pub(crate) struct DemoProject {
    folder: PathBuf,
    display_path: String,
    process_env: ProcessEnv,
}

impl DemoProject {
    /// Makes the folder, or takes the one that is there. A project that no other command would
    /// open is refused before anything is written.
    pub(crate) fn create_or_open(here: &ProcessEnv) -> anyhow::Result<Self> {
        let (root, below) = match here.project_root() {
            Some(root) => {
                environment::load_config_quietly(here)?;
                (root, ".longhaul/demo")
            }
            None => (here.cwd.as_path(), "longhaul-demo"),
        };
        let folder = root.join(below);
        let project = Self {
            display_path: here.display_path(&folder).display().to_string(),
            folder: folder.clone(),
            process_env: here.clone(),
        };
        if folder.exists() {
            environment::load_config_quietly(&project.process_env())?;
        }
        for (name, text) in FILES {
            let file = Location::below(root, &Path::new(below).join(name));
            let written = file.map_or(Ok(()), |file| write_new(&file, text));
            written.with_context(|| {
                format!("the demo can't write to {}; go to another folder", folder.display())
            })?;
        }
        Ok(project)
    }

    /// Starts a worker of the folder in a process of its own.
    pub(crate) fn start_worker(&self) -> anyhow::Result<ChildProcess> {
        let args = ["worker", "--quiet", "--until-eof"];
        let mut command = ChildProcess::command(&args, &self.folder, self.process_env().env)?;
        ChildProcess::start(command.stderr(Stdio::piped()))
    }

    /// The folder as it is said to people.
    pub(crate) fn display_path(&self) -> &str {
        &self.display_path
    }

    /// As if somebody stood in it, with nothing set: the demo is the same for all.
    pub(crate) fn process_env(&self) -> ProcessEnv {
        let env = self.process_env.env.iter();
        ProcessEnv {
            cwd: self.folder.clone(),
            env: env
                .filter(|(name, _)| is_inherited(name))
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
            uid: self.process_env.uid,
            ..ProcessEnv::default()
        }
    }
}

/// Whether the worker sees this variable.
fn is_inherited(name: &str) -> bool {
    INHERITED_VARS.contains(&name) || name.starts_with("LC_") || name.starts_with("XDG_")
}

/// Writes the file unless it is there. Nothing is written through a link.
fn write_new(file: &Location, text: &str) -> std::io::Result<()> {
    file.make_parent()?;
    match fs::OpenOptions::new().write(true).create_new(true).open(file.path()) {
        Ok(mut file) => file.write_all(text.as_bytes()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, chown};

    use super::*;

    /// The number of a user who is neither root nor whoever runs the tests.
    const OTHER_UID: u32 = 54_321;

    #[test]
    fn the_folder_of_another_user_is_refused() {
        for folder in ["", "longhaul-demo"] {
            let place = tempfile::tempdir().unwrap();
            let file = place.path().join(folder).join("longhaul.toml");
            fs::create_dir_all(place.path().join(folder)).unwrap();
            fs::write(&file, "").unwrap();
            let mut uid = OTHER_UID;
            // Files of root are nobody's to refuse, but root may give them away.
            if fs::metadata(&file).unwrap().uid() == 0 {
                chown(&file, Some(OTHER_UID), None).unwrap();
                uid = 0;
            }
            let here = ProcessEnv {
                cwd: place.path().to_path_buf(),
                uid: Some(uid),
                ..ProcessEnv::default()
            };
            let made = DemoProject::create_or_open(&here).map(|project| project.folder);
            assert!(made.is_err(), "{folder}: {made:?}");
            let demo = ["longhaul-demo/agents", ".longhaul/demo"];
            assert!(!demo.iter().any(|made| place.path().join(made).exists()));
        }
    }

    #[test]
    fn the_demo_worker_inherits_no_api_key() {
        for known in longhaul::config::built_in_providers::BUILT_IN_PROVIDERS {
            assert!(!known.key_env.iter().any(|name| is_inherited(name)), "{known:?}");
        }
        for hidden in ["MY_TOKEN", "LONGHAUL_TRUST", "OLLAMA_HOST", "SSH_AUTH_SOCK"] {
            assert!(!is_inherited(hidden), "{hidden}");
        }
        for seen in ["PATH", "HOME", "LC_ALL", "XDG_STATE_HOME"] {
            assert!(is_inherited(seen), "{seen}");
        }
    }
}
