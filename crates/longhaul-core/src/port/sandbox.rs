//! The sandbox port: isolated environments in which the tools of a run work, and the providers that
//! create them.
//!
//! Invariant: the value of a secret never enters a sandbox. Its environment contains placeholders,
//! which the provider replaces in requests to the hosts that the secret is for.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;

use crate::id::Epoch;
use crate::text_macros::string_enum;
use crate::time::{Millis, Timestamp};

/// Path of the work folder in every sandbox. Relative paths are relative to this folder.
pub const WORKSPACE: &str = "/workspace";

/// Environment variable of each command in a sandbox with the epoch (fencing token) of the claim
/// under which it runs.
pub const EPOCH_VAR: &str = "LONGHAUL_EPOCH";

/// A provider of sandboxes.
#[async_trait]
pub trait Sandboxes: Send + Sync + std::fmt::Debug {
    /// Returns the name of the provider, such as `local`.
    fn name(&self) -> &str;

    /// Returns the machine on which alone the provider's sandboxes can be used. `None` means that
    /// they can be used on any machine.
    fn host(&self) -> Option<String>;

    /// Returns whether and how well the provider can isolate sandboxes now.
    async fn status(&self) -> ProviderStatus;

    /// Creates and starts a sandbox. If a sandbox with this name exists, for example because the
    /// answer to an earlier call was lost, that sandbox is started and returned.
    async fn create(&self, spec: &SandboxSpec) -> Result<Arc<dyn Sandbox>, SandboxError>;

    /// Connects to the sandbox with this handle, which was created with this spec, and starts it if
    /// it is stopped.
    async fn start(
        &self,
        handle: &str,
        spec: &SandboxSpec,
    ) -> Result<Arc<dyn Sandbox>, SandboxError>;

    /// Returns the state of the sandbox with this handle.
    async fn get(&self, handle: &str) -> Result<SandboxInfo, SandboxError>;

    /// Lists the sandboxes that have all of these labels.
    async fn list(
        &self,
        labels: &BTreeMap<String, String>,
    ) -> Result<Vec<SandboxInfo>, SandboxError>;

    /// Stops a sandbox: kills all its processes and keeps its files. Returns once the sandbox is
    /// stopped. Stopping a stopped sandbox does nothing.
    async fn stop(&self, handle: &str) -> Result<(), SandboxError>;

    /// Deletes a sandbox with its files, whether it runs or not. Returns once the sandbox is gone.
    /// Volumes are kept. Deleting a sandbox that does not exist does nothing.
    async fn delete(&self, handle: &str) -> Result<(), SandboxError>;
}

/// A running sandbox.
#[async_trait]
pub trait Sandbox: Send + Sync + std::fmt::Debug {
    /// Returns the handle, labels and isolation of the sandbox, as of when it was opened.
    fn info(&self) -> &SandboxInfo;

    /// Returns the directory of this machine that is the work folder of the sandbox. `None` means
    /// that the work folder can only be accessed through the methods of the sandbox.
    ///
    /// Programs in the sandbox can put symbolic links into the directory that lead out of it.
    fn workspace_dir(&self) -> Option<&Path>;

    /// Runs a command and returns how it ended. Its output is passed to `on_output` as it arrives.
    /// When the future is dropped, or when the timeout has passed, all processes of the command are
    /// killed, including those that it has put into the background.
    async fn exec(
        &self,
        command: SandboxCommand,
        on_output: OutputReceiver<'_>,
    ) -> Result<ExecExit, SandboxError>;

    /// Returns the content of a file. A file with more than `max_bytes` bytes is an error.
    async fn read(&self, path: &str, max_bytes: u64) -> Result<Vec<u8>, SandboxError>;

    /// Creates or replaces a file, and creates the missing folders of its path.
    async fn write(&self, path: &str, content: &[u8]) -> Result<(), SandboxError>;

    /// Lists the entries of a folder, sorted by name.
    async fn list(&self, path: &str) -> Result<Vec<SandboxEntry>, SandboxError>;

    /// Copies a file or a directory tree of this machine into the sandbox. Existing files are
    /// replaced. Symbolic links are copied as links.
    async fn upload(&self, from: &Path, to: &str) -> Result<(), SandboxError>;

    /// Copies a file or a directory tree of the sandbox to this machine. Symbolic links are copied
    /// as links; special files are left out. `to` must not exist.
    async fn download(&self, from: &str, to: &Path) -> Result<(), SandboxError>;

    /// Kills all processes of commands that ran under an earlier claim than this one.
    async fn kill_commands_before(&self, epoch: Epoch) -> Result<(), SandboxError>;

    /// Tells the provider that the sandbox is in use, so that it does not stop the sandbox on its
    /// own.
    async fn keep_alive(&self) -> Result<(), SandboxError>;
}

/// Receiver of the output of a command, in the order in which it arrives.
pub type OutputReceiver<'a> = &'a mut (dyn FnMut(OutputStream, &[u8]) + Send);

/// One of the two output streams of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputStream {
    Stdout,
    Stderr,
}

string_enum! {
    /// Lifecycle state of a sandbox.
    #[derive(Default)]
    pub enum SandboxState {
        #[default]
        Creating = "creating",
        Starting = "starting",
        Running = "running",
        Stopping = "stopping",
        /// The sandbox is stopped; its files are kept.
        Stopped = "stopped",
        Deleted = "deleted",
        /// The provider can't find the sandbox any more.
        Lost = "lost",
    }
}

impl SandboxState {
    /// Returns whether a sandbox in this state occupies one of the limited slots of its provider.
    pub const fn holds_slot(self) -> bool {
        match self {
            Self::Creating | Self::Starting | Self::Running | Self::Stopping => true,
            Self::Stopped | Self::Deleted | Self::Lost => false,
        }
    }

    /// Returns whether the files of a sandbox in this state no longer exist.
    pub const fn is_gone(self) -> bool {
        matches!(self, Self::Deleted | Self::Lost)
    }
}

/// Everything that a provider needs to know to create a sandbox.
#[derive(Debug, Clone, Default)]
pub struct SandboxSpec {
    /// Name of the sandbox, unique at the provider: letters, digits and hyphens.
    pub name: String,
    pub labels: BTreeMap<String, String>,
    /// Container image or snapshot that contains the programs of the sandbox. `None` means the
    /// provider's default. Providers without images ignore it.
    pub image: Option<String>,
    /// Environment variables of all commands.
    pub env: BTreeMap<String, String>,
    pub volumes: Vec<SandboxVolume>,
    pub limits: SandboxLimits,
    pub network: NetworkPolicy,
    /// Lowest acceptable isolation. A sandbox that would be isolated less well is refused.
    pub min_isolation: Isolation,
    /// Time without use after which the provider stops the sandbox on its own, if it can. `None`
    /// means never.
    pub auto_stop: Option<Millis>,
    /// Secrets for outgoing requests.
    pub secrets: Vec<SandboxSecret>,
}

/// A directory that outlives the sandboxes that use it, such as a cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxVolume {
    /// Name of the volume, unique at the provider: letters, digits and hyphens. A missing volume is
    /// created.
    pub name: String,
    /// Absolute path of the volume in the sandbox.
    pub path: String,
}

/// Limits of the resources of a sandbox. `None` means the provider's default.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SandboxLimits {
    pub memory_bytes: Option<u64>,
    pub cpus: Option<f64>,
    /// Maximum number of processes and threads.
    pub tasks: Option<u32>,
    pub disk_bytes: Option<u64>,
}

/// Hosts that programs in a sandbox can reach.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum NetworkPolicy {
    /// No host.
    #[default]
    None,
    /// The hosts of this list: names such as `example.com`, `*.example.com` or `example.com:8443`,
    /// and the presets `packages` and `github`. A name that begins with `!` is refused even if
    /// another one allows it.
    Hosts(Vec<String>),
    /// Everything that the machine of the sandbox can reach.
    Host,
}

string_enum! {
    /// How well a sandbox is isolated from the machine that it runs on, from none to the strongest.
    #[derive(Default)]
    pub enum Isolation {
        /// Programs run with the rights of the worker.
        None = "none",
        /// Programs run with the rights of the worker, in a container that the worker itself runs
        /// in.
        Container = "container",
        /// Landlock and seccomp restrict files and network. Other processes are visible.
        #[default]
        Landlock = "landlock",
        /// Namespaces of bubblewrap: only the work folder is visible and writable.
        Bubblewrap = "bubblewrap",
        /// A container of its own.
        Docker = "docker",
        /// Another machine.
        Remote = "remote",
    }
}

impl Isolation {
    /// Returns whether this isolation is at least as strong as `other`.
    pub const fn is_at_least(self, other: Self) -> bool {
        self as u8 >= other as u8
    }
}

/// A secret that programs in a sandbox may use in requests to certain hosts.
#[derive(Clone, PartialEq, Eq)]
pub struct SandboxSecret {
    /// Environment variable that contains the placeholder of the secret.
    pub name: String,
    /// Value that replaces the placeholder in requests to the hosts.
    pub value: String,
    /// Hosts that the value may be sent to.
    pub hosts: Vec<String>,
}

impl SandboxSecret {
    /// Returns the text that stands for the secret in the sandbox.
    pub fn placeholder(&self) -> String {
        format!("lh-placeholder-{}", self.name)
    }
}

impl std::fmt::Debug for SandboxSecret {
    /// Formats the secret without its value.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SandboxSecret").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What a provider knows about a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxInfo {
    /// Identifier that the provider uses for the sandbox.
    pub handle: String,
    /// Name that the sandbox was created with.
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub state: SandboxState,
    pub isolation: Isolation,
    /// `None` means that the provider does not know it.
    pub created_at: Option<Timestamp>,
}

/// Whether and how well a provider can isolate sandboxes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderStatus {
    /// Isolation of new sandboxes, or the reason why there can be none, with what helps.
    pub isolation: Result<Isolation, String>,
    /// Facts for the user, each a sentence, such as why the isolation is not stronger and which
    /// command helps.
    pub notes: Vec<String>,
}

/// A command to run in a sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SandboxCommand {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Working directory. `None` means the work folder.
    pub cwd: Option<String>,
    /// Environment variables in addition to those of the sandbox.
    pub env: BTreeMap<String, String>,
    /// Content of the standard input, which is then closed.
    pub stdin: Vec<u8>,
    /// Time after which all processes of the command are killed. `None` means no limit.
    pub timeout: Option<Millis>,
    /// Epoch (fencing token) of the claim under which the command runs.
    pub epoch: Epoch,
}

impl SandboxCommand {
    /// Creates a command that runs a script with the POSIX shell.
    pub fn shell(script: &str) -> Self {
        let argv = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
        Self { argv, ..Self::default() }
    }
}

/// How a command in a sandbox ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecExit {
    pub status: ExecStatus,
    /// What the sandbox refused to the command, each a sentence for the model. Bounded.
    pub refusals: BTreeSet<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecStatus {
    /// The command exited with this code.
    Exited(i32),
    /// The command was killed by this signal.
    Signaled(i32),
    /// The command was killed because its timeout had passed.
    TimedOut,
    /// The command was killed because the sandbox used too much memory or disk.
    OverLimit,
}

/// An entry of a folder in a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxEntry {
    pub name: String,
    pub kind: SandboxEntryKind,
    /// Size of a file in bytes, otherwise 0.
    pub size: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxEntryKind {
    File,
    Dir,
    Symlink,
    /// For example a socket or a device.
    Other,
}

/// Failure of a provider or of an access to a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SandboxError {
    /// The provider knows no such sandbox. If it existed, its files are lost.
    #[error("the sandbox does not exist any more")]
    NotFound,
    /// The provider has reached a limit of its own. The run waits until a sandbox was stopped.
    #[error("the provider has no room for another sandbox: {0}")]
    NoCapacity(String),
    /// The provider can't be used now. The access may be tried again.
    #[error("the sandbox provider does not answer: {0}")]
    Unavailable(String),
    /// The provider can't do this, however often it is tried. The message says what to change.
    #[error("{0}")]
    Refused(String),
    /// The access to a file failed, for example because the file does not exist. The model reads the
    /// message.
    #[error("{0}")]
    File(String),
}
