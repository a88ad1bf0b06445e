//! Copies of files of a sandbox whose work folder is not a directory of this machine.
//!
//! A file tool works on the copy, which is then uploaded if the tool may have changed it.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_core::port::sandbox::{Sandbox, SandboxError, WORKSPACE};
use tempfile::TempDir;

use crate::files::path::{join_parts, parse_in_workspace};

/// A copy of a file or folder of a sandbox in a temporary directory, which is deleted when the copy
/// is dropped.
#[derive(Debug)]
pub(crate) struct SandboxCopy {
    sandbox: Arc<dyn Sandbox>,
    dir: TempDir,
    /// Path of the file or folder, relative to the work folder. Empty for the work folder itself.
    path: String,
}

impl SandboxCopy {
    /// Downloads the file or folder at this path. A path where nothing exists gives an empty copy.
    pub(crate) async fn download(
        sandbox: Arc<dyn Sandbox>,
        path: &str,
    ) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let parts = parse_in_workspace(&[PathBuf::from(WORKSPACE)], path)?;
        let path = if parts.is_empty() { String::new() } else { join_parts(&parts) };
        let copy = Self { sandbox, dir: TempDir::new()?, path };
        let target = copy.local_path();
        std::fs::create_dir_all(target.parent().unwrap_or(&target))?;
        match copy.sandbox.download(&copy.remote_path(), &target).await {
            Ok(()) => Ok(copy),
            Err(SandboxError::File(_)) => {
                std::fs::create_dir_all(copy.work_folder())?;
                Ok(copy)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the directory that stands for the work folder of the sandbox.
    pub(crate) fn work_folder(&self) -> PathBuf {
        self.dir.path().join("workspace")
    }

    /// Uploads the copy to the sandbox.
    pub(crate) async fn upload(&self) -> Result<(), SandboxError> {
        self.sandbox.upload(&self.local_path(), &self.remote_path()).await
    }

    fn local_path(&self) -> PathBuf {
        // Joined to an empty path, a folder would end with `/`.
        let folder = self.work_folder();
        if self.path.is_empty() { folder } else { folder.join(Path::new(&self.path)) }
    }

    fn remote_path(&self) -> String {
        match self.path.is_empty() {
            true => WORKSPACE.to_owned(),
            false => format!("{WORKSPACE}/{}", self.path),
        }
    }
}
