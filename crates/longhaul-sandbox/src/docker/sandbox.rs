//! A sandbox that is a running container.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use async_trait::async_trait;
use longhaul_core::id::Epoch;
use longhaul_core::port::sandbox::{
    ExecExit, ExecStatus, OutputReceiver, Sandbox, SandboxCommand, SandboxEntry, SandboxError,
    SandboxInfo, WORKSPACE,
};

use super::archive::ContainerFiles;
use super::container::{HostDirs, User};
use super::exec::Commands;
use crate::local::files::{MissingFolders, file_error};
use crate::local::path::{HOME, Location, normalize};
use crate::local::tree::{ExistingTarget, TreeCopy, host_entry};

/// Exit code of a command whose process got SIGKILL, as shells return it.
const KILLED: i32 = 137;

/// Prints the counters of killed processes of both versions of control groups.
const OOM_COUNTS: &str = "cat /sys/fs/cgroup/memory.events \
     /sys/fs/cgroup/memory/memory.oom_control 2>/dev/null";

/// Maximum size of a tree that is copied.
const TREE_BYTES_MAX: u64 = 20 << 30;

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

    /// Returns where a path of the sandbox is.
    fn locate(&self, path: &str) -> Result<Place, SandboxError> {
        let absolute = normalize(path)?;
        let folders = [(WORKSPACE, &self.dirs.workspace), (HOME, &self.dirs.home)];
        let mut locations = folders.into_iter().filter_map(|(folder, root)| {
            let below = absolute.strip_prefix(folder).ok()?.to_owned();
            Some(Place::Host(Location { root: root.clone(), below }))
        });
        let container = || Place::Container(absolute.to_string_lossy().into_owned());
        Ok(locations.next().unwrap_or_else(container))
    }

    /// Returns whether a process of the container was killed because the memory was used up. The
    /// engine itself only notices this for some versions of control groups.
    async fn is_out_of_memory(&self) -> bool {
        let command = SandboxCommand::shell(OOM_COUNTS);
        let mut counts = Vec::new();
        let counted = self.commands.run(&command, &mut |_, output| counts.extend(output)).await;
        let counts = String::from_utf8_lossy(&counts);
        let killed = counts.lines().filter_map(|line| line.strip_prefix("oom_kill "));
        counted.is_ok() && killed.into_iter().any(|count| count != "0")
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
        match self.locate(path)? {
            Place::Host(location) => access(path, move || location.read(max_bytes)).await,
            Place::Container(path) => self.files().read(&path, max_bytes).await,
        }
    }

    async fn write(&self, path: &str, content: &[u8]) -> Result<(), SandboxError> {
        match self.locate(path)? {
            Place::Host(location) => {
                let content = content.to_vec();
                access(path, move || location.write(&content)).await
            }
            Place::Container(path) => self.files().write(&path, content).await,
        }
    }

    async fn list(&self, path: &str) -> Result<Vec<SandboxEntry>, SandboxError> {
        match self.locate(path)? {
            Place::Host(location) => access(path, move || location.list()).await,
            Place::Container(path) => self.files().list(&path).await,
        }
    }

    async fn upload(&self, from: &Path, to: &str) -> Result<(), SandboxError> {
        let (from, mut copy) = (from.to_owned(), tree_copy(ExistingTarget::Merge));
        match self.locate(to)? {
            Place::Host(location) => {
                let copy = move || {
                    let target = location.open_parent(MissingFolders::Create)?;
                    copy.copy(&host_entry(&from)?, &target)
                };
                access(to, copy).await
            }
            Place::Container(to) => self.files().upload(&from, &to).await,
        }
    }

    async fn download(&self, from: &str, to: &Path) -> Result<(), SandboxError> {
        let (to, mut copy) = (to.to_owned(), tree_copy(ExistingTarget::Refuse));
        match self.locate(from)? {
            Place::Host(location) => {
                let copy = move || {
                    let source = location.open_parent(MissingFolders::Fail)?;
                    copy.copy(&source, &host_entry(&to)?)
                };
                access(from, copy).await
            }
            Place::Container(from) => self.files().download(&from, &to).await,
        }
    }

    async fn kill_commands_before(&self, epoch: Epoch) -> Result<(), SandboxError> {
        self.commands.kill_before(epoch).await
    }

    async fn keep_alive(&self) -> Result<(), SandboxError> {
        Ok(())
    }
}

/// Place of a file of a sandbox.
#[derive(Debug)]
enum Place {
    /// In a directory of this machine.
    Host(Location),
    /// At this path, only in the container.
    Container(String),
}

/// Accesses files of this machine at a path of the sandbox, on a thread that may block.
async fn access<T: Send + 'static>(
    path: &str,
    access: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, SandboxError> {
    let result = tokio::task::spawn_blocking(access).await;
    result.unwrap_or_else(|error| Err(error.into())).map_err(|error| file_error(path, error))
}

fn tree_copy(existing: ExistingTarget) -> TreeCopy {
    TreeCopy { existing, bytes_left: TREE_BYTES_MAX }
}
