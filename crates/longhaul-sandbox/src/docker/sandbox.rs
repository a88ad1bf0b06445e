//! A sandbox that is a running container.

use std::collections::BTreeSet;
use std::path::Path;

use async_trait::async_trait;
use longhaul_core::id::Epoch;
use longhaul_core::port::sandbox::{
    ExecExit, ExecStatus, OutputReceiver, Sandbox, SandboxCommand, SandboxEntry, SandboxError,
    SandboxInfo,
};

use super::archive::ContainerFiles;
use super::container::{HostDirs, User};
use super::exec::Commands;
use super::host_files::{HostPath, file_error, resolve};

/// Exit code of a command whose process got SIGKILL, as shells return it.
const KILLED: i32 = 137;

/// A running container with its directories on this machine.
#[derive(Debug)]
pub(super) struct DockerSandbox {
    pub(super) info: SandboxInfo,
    pub(super) dirs: HostDirs,
    pub(super) commands: Commands,
    /// User of the processes in the container.
    pub(super) user: User,
}

impl DockerSandbox {
    pub(super) fn files(&self) -> ContainerFiles<'_> {
        let Commands { engine, container, .. } = &self.commands;
        ContainerFiles { engine, container, user: self.user }
    }

    /// Runs an access to a path in a directory of this machine, in a thread that may block. `None`
    /// means that the path is only in the container.
    async fn on_host<T: Send + 'static>(
        &self,
        path: &str,
        access: impl FnOnce(HostPath) -> Result<T, SandboxError> + Send + 'static,
    ) -> Option<Result<T, SandboxError>> {
        let host_path = HostPath::new(&self.dirs, path)?;
        let result = tokio::task::spawn_blocking(move || access(host_path)).await;
        Some(result.unwrap_or_else(|error| file_error(path, &error)))
    }

    /// Returns whether the container has run out of memory since its start.
    async fn is_out_of_memory(&self) -> bool {
        let Ok(client) = self.commands.engine.client().await else { return false };
        let container = client.inspect_container(&self.commands.container, None).await;
        let state = container.ok().and_then(|container| container.state);
        state.and_then(|state| state.oom_killed).unwrap_or_default()
    }
}

#[async_trait]
impl Sandbox for DockerSandbox {
    fn info(&self) -> &SandboxInfo {
        &self.info
    }

    fn workspace_dir(&self) -> Option<&Path> {
        Some(&self.dirs.workspace)
    }

    /// The engine does not distinguish a signal from the exit code that a shell returns for it, so
    /// a signal is reported as that code.
    async fn exec(
        &self,
        command: SandboxCommand,
        on_output: OutputReceiver<'_>,
    ) -> Result<ExecExit, SandboxError> {
        let mut status = self.commands.run(&command, on_output).await?;
        if status == ExecStatus::Exited(KILLED) && self.is_out_of_memory().await {
            status = ExecStatus::OverLimit;
        }
        Ok(ExecExit { status, refusals: BTreeSet::new() })
    }

    async fn read(&self, path: &str, max_bytes: u64) -> Result<Vec<u8>, SandboxError> {
        let path = resolve(path)?;
        match self.on_host(&path, move |file| file.read(max_bytes)).await {
            Some(result) => result,
            None => self.files().read(&path, max_bytes).await,
        }
    }

    async fn write(&self, path: &str, content: &[u8]) -> Result<(), SandboxError> {
        let path = resolve(path)?;
        let bytes = content.to_vec();
        match self.on_host(&path, move |file| file.write(&bytes)).await {
            Some(result) => result,
            None => self.files().write(&path, content).await,
        }
    }

    async fn list(&self, path: &str) -> Result<Vec<SandboxEntry>, SandboxError> {
        let path = resolve(path)?;
        match self.on_host(&path, |folder| folder.list()).await {
            Some(result) => result,
            None => self.files().list(&path).await,
        }
    }

    async fn upload(&self, from: &Path, to: &str) -> Result<(), SandboxError> {
        let to = resolve(to)?;
        // The engine would create the folders as root.
        if let Some(created) = self.on_host(&to, |path| path.create_parents()).await {
            created?;
        }
        self.files().upload(from, &to).await
    }

    async fn download(&self, from: &str, to: &Path) -> Result<(), SandboxError> {
        self.files().download(&resolve(from)?, to).await
    }

    async fn kill_commands_before(&self, epoch: Epoch) -> Result<(), SandboxError> {
        self.commands.kill_before(epoch).await
    }

    async fn keep_alive(&self) -> Result<(), SandboxError> {
        Ok(())
    }
}
