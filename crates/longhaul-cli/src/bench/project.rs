//! A temporary project for benchmarks, isolated from the user's settings.

use std::path::Path;
use std::process::Command;

use longhaul::config::process_env::ProcessEnv;
use tempfile::TempDir;

use crate::bench::report;
use crate::child_process::ChildProcess;
use crate::project_files;

/// A project in a temporary folder, which is removed when this value is dropped.
#[derive(Debug)]
pub(crate) struct BenchProject {
    _folder: TempDir,
    pub(crate) process_env: ProcessEnv,
}

impl BenchProject {
    /// Creates a project with these files, given as path and content, in a new temporary folder.
    pub(crate) fn new(
        parent_folder: Option<&Path>,
        files: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        let folder = report::create_temp_folder(parent_folder)?;
        let root = folder.path().canonicalize()?;
        project_files::write_project_files(&root, files)?;
        let is_kept = |name: &str| ["PATH", "HOME", "TMPDIR"].contains(&name);
        let process_env = ProcessEnv {
            cwd: root,
            env: std::env::vars().filter(|(name, _)| is_kept(name)).collect(),
            ..ProcessEnv::default()
        };
        Ok(Self { _folder: folder, process_env })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.process_env.cwd
    }

    /// Builds a command that runs `longhaul` with these arguments in the project's folder.
    pub(crate) fn longhaul_command(&self, args: &[&str]) -> anyhow::Result<Command> {
        ChildProcess::build_longhaul_command(args, self.root(), &self.process_env.env)
    }
}
