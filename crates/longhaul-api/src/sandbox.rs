//! A sandbox (isolated environment in which the tools of a run work) in responses, and a command to
//! run in one.

use longhaul_core::change::{SandboxRow, SandboxState};
use longhaul_core::event::environment::SandboxEvent;
use longhaul_core::id::{RunId, SandboxId};
use longhaul_core::port::sandbox::Isolation;
use longhaul_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A sandbox (isolated environment in which the tools of a run work).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Sandbox)]
pub struct SandboxView {
    /// Id of the sandbox.
    pub id: SandboxId,
    /// Name of the sandbox provider, such as `local`.
    pub provider: String,
    /// Identifier that the provider uses for the sandbox. Empty until the sandbox was created.
    pub handle: String,
    /// Lifecycle state of the sandbox.
    pub state: SandboxState,
    /// Why the sandbox is in this state. `None` means that a tool call needed it.
    pub reason: Option<String>,
    /// How well the sandbox is isolated. `None` until the sandbox was created.
    pub isolation: Option<Isolation>,
    /// Machine that the sandbox is bound to. `None` means any machine.
    pub host: Option<String>,
    /// Run whose tools work in the sandbox.
    pub run: RunId,
    /// Time at which the sandbox was first needed.
    pub created_at: Timestamp,
    /// Time since which the run does not use the sandbox. `None` means that it may use it now.
    pub idle_since: Option<Timestamp>,
}

impl From<&SandboxRow> for SandboxView {
    fn from(row: &SandboxRow) -> Self {
        let SandboxRow { event, state, idle_since, owner, .. } = row;
        Self {
            id: event.sandbox,
            provider: event.provider.clone(),
            handle: event.handle.clone(),
            state: *state,
            reason: event.reason.clone(),
            isolation: event.isolation,
            host: event.host.clone(),
            run: *owner,
            created_at: event.sandbox.created_at(),
            idle_since: *idle_since,
        }
    }
}

/// The sandbox of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = RunSandbox)]
pub struct RunSandboxView {
    /// Id of the sandbox.
    pub id: SandboxId,
    /// Name of the sandbox provider, such as `local`.
    pub provider: String,
    /// Lifecycle state of the sandbox.
    pub state: SandboxState,
    /// How well the sandbox is isolated. `None` until the sandbox was created.
    pub isolation: Option<Isolation>,
}

impl RunSandboxView {
    /// Creates the view of a sandbox in this state.
    pub fn new(event: &SandboxEvent, state: SandboxState) -> Self {
        let SandboxEvent { sandbox, provider, isolation, .. } = event;
        Self { id: *sandbox, provider: provider.clone(), state, isolation: *isolation }
    }
}

/// A command to run in a sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = SandboxExec)]
pub struct SandboxExecBody {
    /// Program and arguments.
    #[schema(min_items = 1, max_items = 1000)]
    pub command: Vec<String>,
    /// Working directory. Default: the work folder.
    #[serde(default)]
    pub cwd: Option<String>,
    /// Time in seconds after which the command is killed. Default: 60.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 600)]
    pub timeout: Option<u64>,
}

/// How a command in a sandbox ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = SandboxExecResult)]
pub struct SandboxExecView {
    /// Exit code. `None` means that the command was killed.
    pub exit: Option<i32>,
    /// Why the command was killed. `None` means that it exited.
    pub killed: Option<String>,
    /// Standard output, at most 1 MiB from its end. Invalid UTF-8 is replaced.
    pub stdout: String,
    /// Standard error, at most 1 MiB from its end. Invalid UTF-8 is replaced.
    pub stderr: String,
    /// What the sandbox refused to the command.
    pub refused: Vec<String>,
}
