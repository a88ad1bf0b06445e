//! The demo's project: a folder with an agent, a script and six notes.
//!
//! Invariants: no existing file is overwritten, nothing is written outside the folder, and the
//! user's API keys are not passed to the demo's worker, because the folder may come from a cloned
//! repository.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::Context as _;
use longhaul_project::config::process_env::ProcessEnv;
use longhaul_tool::FileLocation;

use crate::child_process::ChildProcess;
use crate::environment;

/// Name of the demo's agent.
pub(crate) const AGENT_NAME: &str = "demo-tidier";

/// Name of the model that every demo run uses, whatever the agent's file says.
pub(crate) const MODEL_NAME: &str = "scripted/demo-tidier";

/// Environment variables that the demo's worker inherits, besides those that start with `LC_` or
/// `XDG_`. None of them holds an API key.
const INHERITED_VARS: &str =
    "HOME LANG LOGNAME NO_COLOR PATH RUST_BACKTRACE SUDO_UID TERM TMPDIR TZ USER";

/// Files of a new demo folder, as path and content.
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

/// The demo's project: its folder and the environment of its worker.
#[derive(Debug, Clone)]
pub(crate) struct DemoProject {
    folder: PathBuf,
    display_path: String,
    process_env: ProcessEnv,
}

impl DemoProject {
    /// Creates the demo folder, or uses an existing one. Fails before anything is written if the
    /// configuration can't be loaded.
    pub(crate) fn create_or_open(process_env: &ProcessEnv) -> anyhow::Result<Self> {
        let (root, subfolder) = match process_env.project_root() {
            Some(root) => {
                environment::load_config_quietly(process_env)?;
                (root, ".longhaul/demo")
            }
            None => (process_env.cwd.as_path(), "longhaul-demo"),
        };
        let folder = root.join(subfolder);
        let project = Self {
            display_path: process_env.display_path(&folder).display().to_string(),
            folder: folder.clone(),
            process_env: process_env.clone(),
        };
        if folder.exists() {
            environment::load_config_quietly(&project.isolated_process_env())?;
        }
        for (name, text) in FILES {
            let file = FileLocation::below_root(root, &Path::new(subfolder).join(name));
            let result = file.map_or(Ok(false), |file| environment::write_new_file(&file, text));
            result.with_context(|| {
                format!("the demo can't write to {}; change to another folder", folder.display())
            })?;
        }
        Ok(project)
    }

    /// Starts a worker for the demo's project in a separate process.
    pub(crate) fn start_worker(&self) -> anyhow::Result<ChildProcess> {
        let env = self.isolated_process_env().env;
        ChildProcess::start_worker(&self.folder, env, Stdio::piped())
    }

    /// Returns the path of the demo folder, as printed in messages.
    pub(crate) fn display_path(&self) -> &str {
        &self.display_path
    }

    /// Returns an environment with the demo folder as current folder and without the user's
    /// settings, so that the demo is the same for every user.
    pub(crate) fn isolated_process_env(&self) -> ProcessEnv {
        let mut env = self.process_env.env.clone();
        env.retain(|name, _| is_inherited_var(name));
        let (cwd, uid) = (self.folder.clone(), self.process_env.uid);
        ProcessEnv { cwd, env, uid, ..ProcessEnv::default() }
    }
}

/// Returns whether the demo's worker inherits the environment variable with this name.
fn is_inherited_var(name: &str) -> bool {
    INHERITED_VARS.split(' ').any(|inherited| inherited == name)
        || name.starts_with("LC_")
        || name.starts_with("XDG_")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, chown};

    use super::*;

    /// User id that is neither root's nor that of the user who runs the tests.
    const OTHER_UID: u32 = 54_321;

    #[test]
    fn the_folder_of_another_user_is_refused() {
        for folder in ["", "longhaul-demo"] {
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join(folder).join("longhaul.toml");
            fs::create_dir_all(dir.path().join(folder)).unwrap();
            fs::write(&file, "").unwrap();
            let mut uid = OTHER_UID;
            // Files of root are never refused, but root can change the owner.
            if fs::metadata(&file).unwrap().uid() == 0 {
                chown(&file, Some(OTHER_UID), None).unwrap();
                uid = 0;
            }
            let process_env = ProcessEnv {
                cwd: dir.path().to_path_buf(),
                uid: Some(uid),
                ..ProcessEnv::default()
            };
            let result = DemoProject::create_or_open(&process_env).map(|project| project.folder);
            assert!(result.is_err(), "{folder}: {result:?}");
            let demo_folders = ["longhaul-demo/agents", ".longhaul/demo"];
            assert!(!demo_folders.iter().any(|folder| dir.path().join(folder).exists()));
        }
    }

    #[test]
    fn the_demo_worker_inherits_no_api_key() {
        for provider in longhaul_model::providers::built_in::BUILT_IN_PROVIDERS {
            assert!(!provider.key_env.iter().any(|name| is_inherited_var(name)), "{provider:?}");
        }
        for name in ["MY_TOKEN", "LONGHAUL_TRUST", "OLLAMA_HOST", "SSH_AUTH_SOCK"] {
            assert!(!is_inherited_var(name), "{name}");
        }
        for name in ["PATH", "HOME", "LC_ALL", "XDG_STATE_HOME"] {
            assert!(is_inherited_var(name), "{name}");
        }
    }
}
