//! Messages of Daytona's API, as far as they are used.

use std::collections::BTreeMap;

use longhaul_core::change::SandboxState;
use longhaul_core::port::sandbox::{Isolation, SandboxInfo};
use serde::Deserialize;

/// A sandbox.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RemoteSandbox {
    pub(super) id: String,
    pub(super) name: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) state: String,
    error_reason: Option<String>,
    #[serde(default)]
    pub(super) toolbox_proxy_url: String,
    created_at: Option<String>,
}

/// What can be done with a sandbox in a state of Daytona.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Started,
    /// The sandbox can be started, and has no processes.
    Stopped,
    /// The sandbox can be started, and its processes are in memory.
    Paused,
    /// The state will change without a request.
    Changing,
    Failed,
    Deleted,
}

impl RemoteSandbox {
    /// Returns the phase of the sandbox. Unknown states are waited for, because Daytona adds new
    /// ones for transitions.
    pub(super) fn phase(&self) -> Phase {
        match self.state.as_str() {
            "started" => Phase::Started,
            "stopped" | "archived" => Phase::Stopped,
            "paused" => Phase::Paused,
            "error" | "build_failed" => Phase::Failed,
            "destroying" | "destroyed" => Phase::Deleted,
            _ => Phase::Changing,
        }
    }

    /// Returns why the sandbox is in its state.
    pub(super) fn failure(&self) -> String {
        let reason = self.error_reason.as_deref().unwrap_or("Daytona gives no reason");
        format!("the sandbox {} is in the state {:?}: {reason}", self.name, self.state)
    }

    pub(super) fn has_labels(&self, labels: &BTreeMap<String, String>) -> bool {
        labels.iter().all(|(name, value)| self.labels.get(name) == Some(value))
    }

    pub(super) fn info(&self) -> SandboxInfo {
        SandboxInfo {
            handle: self.id.clone(),
            name: self.name.clone(),
            labels: self.labels.clone(),
            state: self.sandbox_state(),
            isolation: Isolation::Remote,
            created_at: self.created_at.as_ref().and_then(|time| time.parse().ok()),
        }
    }

    fn sandbox_state(&self) -> SandboxState {
        let is_stopping = matches!(self.state.as_str(), "stopping" | "archiving" | "pausing");
        let is_starting = matches!(self.state.as_str(), "starting" | "restoring" | "resuming");
        match self.phase() {
            Phase::Started => SandboxState::Running,
            // A sandbox that has failed has no processes; its files may exist.
            Phase::Stopped | Phase::Paused | Phase::Failed => SandboxState::Stopped,
            Phase::Deleted => SandboxState::Deleted,
            Phase::Changing if is_stopping => SandboxState::Stopping,
            Phase::Changing if is_starting => SandboxState::Starting,
            Phase::Changing => SandboxState::Creating,
        }
    }
}

/// A page of a list of sandboxes.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SandboxPage {
    pub(super) items: Vec<RemoteSandbox>,
    pub(super) next_cursor: Option<String>,
}

/// A volume.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RemoteVolume {
    pub(super) id: String,
    pub(super) state: String,
    pub(super) error_reason: Option<String>,
}

/// Result of a command that was run by a toolbox.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ExecuteResult {
    #[serde(default)]
    pub(super) exit_code: i32,
    #[serde(default)]
    pub(super) result: String,
}

/// A shell session of a toolbox.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RemoteSession {
    pub(super) session_id: String,
}
