//! A project to measure in, shielded from what this user has set.

use std::path::Path;
use std::process::Command;

use longhaul::config::process_env::ProcessEnv;
use tempfile::TempDir;

use crate::bench::report;
use crate::child_process::ChildProcess;
use crate::project_files;

/// A project in a folder of its own, which is removed in the end.
#[derive(Debug)]
pub(crate) struct BenchProject {
    _folder: TempDir,
    pub(crate) process_env: ProcessEnv,
}

impl BenchProject {
    /// A project with these files in a new folder.
    pub(crate) fn new(dir: Option<&Path>, files: &[(&str, &str)]) -> anyhow::Result<Self> {
        let folder = report::create_temp_folder(dir)?;
        let root = folder.path().canonicalize()?;
        project_files::write_files(&root, files)?;
        let kept = |name: &str| ["PATH", "HOME", "TMPDIR"].contains(&name);
        let here = ProcessEnv {
            cwd: root,
            env: std::env::vars().filter(|(name, _)| kept(name)).collect(),
            ..ProcessEnv::default()
        };
        Ok(Self { _folder: folder, process_env: here })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.process_env.cwd
    }

    /// A command of this program in the project.
    pub(crate) fn command(&self, args: &[&str]) -> anyhow::Result<Command> {
        ChildProcess::command(args, self.root(), &self.process_env.env)
    }
}
