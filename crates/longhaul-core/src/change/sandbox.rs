//! Store rows of sandboxes, and the slots that limit how many sandboxes run concurrently at a
//! provider.

use serde::{Deserialize, Serialize};

use crate::event::environment::SandboxEvent;
use crate::id::{RunId, SandboxId};
use crate::port::sandbox::SandboxState;
use crate::time::Timestamp;

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
    /// Facts about the sandbox, as in the event of its last change.
    #[serde(flatten)]
    pub event: SandboxEvent,
    pub state: SandboxState,
    /// Time at which the sandbox reached the state.
    pub since: Timestamp,
    /// Time since which the owner does not use the sandbox, because it waits or has ended. `None`
    /// means that the owner may use the sandbox at any time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_since: Option<Timestamp>,
    /// Run whose tools work in the sandbox.
    pub owner: RunId,
    /// Whether the owner has ended, so that later changes are no events in its journal.
    #[serde(default)]
    pub owner_ended: bool,
}

/// Sandboxes to list, by id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SandboxFilter {
    /// Restricts the list to the sandboxes of this run.
    pub owner: Option<RunId>,
    /// Whether the list contains sandboxes that no longer exist.
    pub with_gone: bool,
    /// Continues the list after this sandbox.
    pub after: Option<SandboxId>,
    pub limit: usize,
}

/// Runs that wait for a slot of a sandbox provider.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SlotQueueLength {
    /// Number of runs for which no slot is free.
    pub waiting: u32,
    /// Number of runs that were woken for a free slot and have not acquired it yet.
    pub woken: u32,
}
