//! Store rows of sandboxes, and the slots that limit how many sandboxes run concurrently at a
//! provider.

use serde::{Deserialize, Serialize};

use crate::id::{RunId, SandboxId};

/// One of the limited number of slots for sandboxes that run concurrently at a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxSlot {
    /// Sandbox that occupies the slot.
    pub sandbox: SandboxId,
    /// Sandbox provider that the slot belongs to.
    pub provider: String,
    /// Maximum number of sandboxes that may run concurrently at the provider.
    pub capacity: u32,
}

/// Row of a sandbox in the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxRow {
    pub sandbox: SandboxId,
    /// Name of the sandbox provider, such as `local`.
    pub provider: String,
    /// Identifier that the provider uses for the sandbox.
    pub handle: String,
    /// Lifecycle state of the sandbox.
    pub state: SandboxState,
    /// Machine that the sandbox is bound to. `None` means any machine.
    pub host: Option<String>,
    pub owner: RunId,
}

/// Lifecycle state of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxState {
    Creating,
    Starting,
    Running,
    Stopping,
    /// The sandbox is stopped; its files are kept.
    Stopped,
    Deleted,
    /// The provider can't find the sandbox any more.
    Lost,
}
