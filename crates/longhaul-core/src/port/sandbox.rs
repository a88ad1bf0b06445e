//! Sandboxes: rooms of their own in which an agent's commands run.
//!
//! Never: decides who may have one. Seats are rows of the store.

use async_trait::async_trait;

use crate::change::SandboxState;
use crate::id::{Epoch, RunId, SandboxId};
use crate::time::Millis;

/// A provider of sandboxes.
#[async_trait]
pub trait Sandboxes: Send + Sync + std::fmt::Debug {
    /// Makes one under a name derived from its id; one that exists is found again.
    async fn create(&self, plan: &SandboxPlan) -> Result<SandboxInfo, SandboxError>;

    /// Looks at one.
    async fn get(&self, sandbox: SandboxId) -> Result<Option<SandboxInfo>, SandboxError>;

    /// Starts a stopped one and opens it.
    async fn start(&self, sandbox: SandboxId) -> Result<Box<dyn Sandbox>, SandboxError>;

    /// Stops one; its files stay.
    async fn stop(&self, sandbox: SandboxId) -> Result<(), SandboxError>;

    /// Deletes one with its files.
    async fn delete(&self, sandbox: SandboxId) -> Result<(), SandboxError>;

    /// Everything of ours that the provider has.
    async fn list(&self) -> Result<Vec<SandboxInfo>, SandboxError>;
}

/// A sandbox that runs.
#[async_trait]
pub trait Sandbox: Send + Sync + std::fmt::Debug {
    /// Runs a command to its end.
    async fn exec(&self, command: &Command) -> Result<Executed, SandboxError>;

    /// Writes a file.
    async fn write(&self, path: &str, content: &[u8]) -> Result<(), SandboxError>;

    /// Reads a file.
    async fn read(&self, path: &str) -> Result<Vec<u8>, SandboxError>;

    /// Lists a folder.
    async fn list(&self, path: &str) -> Result<Vec<String>, SandboxError>;

    /// Says that it is still needed.
    async fn keep_alive(&self) -> Result<(), SandboxError>;
}

/// What a sandbox is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxPlan {
    /// Its id.
    pub sandbox: SandboxId,
    /// For which run.
    pub run: RunId,
    /// What it starts from, where the provider has a choice.
    pub image: Option<String>,
    /// Variables inside.
    pub env: Vec<(String, String)>,
    /// A volume and where it is mounted.
    pub volume: Option<(String, String)>,
}

/// A sandbox as its provider sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxInfo {
    /// Its id.
    pub sandbox: SandboxId,
    /// The provider's own name for it.
    pub handle: String,
    /// How it stands.
    pub state: SandboxState,
}

/// A command to run inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// The words of the command, for the sandbox's shell.
    pub line: String,
    /// Where.
    pub cwd: Option<String>,
    /// How long at most.
    pub timeout: Option<Millis>,
    /// The driver's fence, so that a later one can find what is left.
    pub epoch: Epoch,
}

/// What a command gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Executed {
    /// Its exit code; none: it was killed.
    pub code: Option<i32>,
    /// What it printed.
    pub stdout: String,
    /// What it complained about.
    pub stderr: String,
}

/// A sandbox that does not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// It is gone.
    #[error("the sandbox {0} is gone")]
    Gone(SandboxId),
    /// The provider refuses, and says why.
    #[error("the sandbox provider refuses: {0}")]
    Refused(String),
    /// The provider can't be reached.
    #[error("the sandbox provider can't be reached: {0}")]
    Unreachable(String),
}
