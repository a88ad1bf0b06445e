//! A project to measure in, shielded from what this user has set.

use std::path::Path;
use std::process::Command;

use longhaul::config::surroundings::Surroundings;
use tempfile::TempDir;

use crate::bench::report;
use crate::own_process::OwnProcess;
use crate::project_files;

/// A project in a folder of its own, which is removed in the end.
#[derive(Debug)]
pub(crate) struct Project {
    _folder: TempDir,
    pub(crate) here: Surroundings,
}

impl Project {
    /// A project with these files in a new folder.
    pub(crate) fn new(dir: Option<&Path>, files: &[(&str, &str)]) -> anyhow::Result<Self> {
        let folder = report::folder(dir)?;
        let root = folder.path().canonicalize()?;
        project_files::write(&root, files)?;
        let kept = |name: &str| ["PATH", "HOME", "TMPDIR"].contains(&name);
        let here = Surroundings {
            cwd: root,
            env: std::env::vars().filter(|(name, _)| kept(name)).collect(),
            ..Surroundings::default()
        };
        Ok(Self {
            _folder: folder,
            here,
        })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.here.cwd
    }

    /// A command of this program in the project.
    pub(crate) fn command(&self, args: &[&str]) -> anyhow::Result<Command> {
        OwnProcess::command(args, self.root(), &self.here.env)
    }
}
