//! An open sandbox of the local provider.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::id::Epoch;
use longhaul_core::port::sandbox::{
    ExecExit, OutputReceiver, Sandbox, SandboxCommand, SandboxEntry, SandboxError, SandboxInfo,
    SandboxSpec,
};

use crate::local::ProviderParts;
use crate::local::cgroup::Cgroup;
use crate::local::command;
use crate::local::egress::SandboxEgress;
use crate::local::exec;
use crate::local::files::{MissingFolders, file_error};
use crate::local::layout::Layout;
use crate::local::path::{Folders, Location};
use crate::local::tree::{ExistingTarget, TreeCopy, host_entry};

/// Default maximum size of the files of a sandbox.
const DISK_BYTES_DEFAULT: u64 = 20 << 30;

/// What a sandbox consists of.
#[derive(Debug)]
pub(crate) struct SandboxParts {
    pub(crate) provider: Arc<ProviderParts>,
    pub(crate) layout: Layout,
    pub(crate) info: SandboxInfo,
    pub(crate) spec: SandboxSpec,
    /// Volumes by their paths in the sandbox, with their directories on this machine.
    pub(crate) volumes: Vec<(String, PathBuf)>,
    pub(crate) cgroup: Option<Cgroup>,
    pub(crate) egress: Option<SandboxEgress>,
}

impl SandboxParts {
    /// Returns the maximum size of the files of the sandbox.
    pub(crate) fn disk_bytes_max(&self) -> u64 {
        self.spec.limits.disk_bytes.unwrap_or(DISK_BYTES_DEFAULT)
    }
}

/// An open sandbox of the local provider.
#[derive(Debug)]
pub(crate) struct LocalSandbox {
    parts: Arc<SandboxParts>,
    folders: Folders,
    workspace: PathBuf,
}

impl LocalSandbox {
    pub(crate) fn new(parts: SandboxParts) -> Self {
        Self {
            folders: Folders::new(&parts.layout, &parts.volumes),
            workspace: parts.layout.workspace(),
            parts: Arc::new(parts),
        }
    }

    /// Accesses files at a path of the sandbox, on a thread that may block.
    async fn access<T: Send + 'static>(
        &self,
        path: &str,
        access: impl FnOnce(&Location) -> std::io::Result<T> + Send + 'static,
    ) -> Result<T, SandboxError> {
        let location = self.folders.locate(path)?;
        match tokio::task::spawn_blocking(move || access(&location)).await {
            Ok(result) => result.map_err(|error| file_error(path, error)),
            Err(error) => Err(SandboxError::Unavailable(format!("the access has failed: {error}"))),
        }
    }
}

#[async_trait]
impl Sandbox for LocalSandbox {
    fn info(&self) -> &SandboxInfo {
        &self.parts.info
    }

    fn workspace_dir(&self) -> Option<&Path> {
        Some(&self.workspace)
    }

    async fn exec(
        &self,
        command: SandboxCommand,
        on_output: OutputReceiver<'_>,
    ) -> Result<ExecExit, SandboxError> {
        exec::run(&self.parts, &self.folders, command, on_output).await
    }

    async fn read(&self, path: &str, max_bytes: u64) -> Result<Vec<u8>, SandboxError> {
        self.access(path, move |location| location.read(max_bytes)).await
    }

    async fn write(&self, path: &str, content: &[u8]) -> Result<(), SandboxError> {
        let content = content.to_vec();
        self.access(path, move |location| location.write(&content)).await
    }

    async fn list(&self, path: &str) -> Result<Vec<SandboxEntry>, SandboxError> {
        self.access(path, Location::list).await
    }

    async fn upload(&self, from: &Path, to: &str) -> Result<(), SandboxError> {
        let (from, bytes_left) = (from.to_owned(), self.parts.disk_bytes_max());
        let copy = move |location: &Location| {
            let source = host_entry(&from)?;
            let target = location.open_parent(MissingFolders::Create)?;
            TreeCopy { existing: ExistingTarget::Merge, bytes_left }.copy(&source, &target)
        };
        self.access(to, copy).await
    }

    async fn download(&self, from: &str, to: &Path) -> Result<(), SandboxError> {
        let (to, bytes_left) = (to.to_owned(), self.parts.disk_bytes_max());
        let copy = move |location: &Location| {
            let source = location.open_parent(MissingFolders::Fail)?;
            let target = host_entry(&to)?;
            TreeCopy { existing: ExistingTarget::Refuse, bytes_left }.copy(&source, &target)
        };
        self.access(from, copy).await
    }

    async fn kill_commands_before(&self, epoch: Epoch) -> Result<(), SandboxError> {
        command::kill_all(&self.parts.layout, epoch.0).await
    }

    async fn keep_alive(&self) -> Result<(), SandboxError> {
        Ok(())
    }
}
