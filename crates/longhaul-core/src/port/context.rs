//! The context provider port: supplies a run with the current state of what its agent works with,
//! such as a game world or a shop.
//!
//! Every answer is journaled, so a replay never asks the provider again.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::id::{AgentName, ResourceKey, RunId, ThreadKey};
use crate::raw::RawJson;

/// Provides the current state of what an agent works with, such as a game world or a shop. The model
/// is shown this state with the task.
#[async_trait]
pub trait ContextProvider: Send + Sync + std::fmt::Debug {
    /// Fetches the current state of what the agent of this run works with.
    async fn fetch(&self, request: &ContextRequest) -> Result<Perception, ContextError>;
}

/// Input of a context provider: the run that needs context, with its agent, input and thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextRequest {
    /// Run that needs the context.
    pub run: RunId,
    /// Agent that executes the run.
    pub agent: AgentName,
    /// Kind of the event that triggered the run. `None` if no event did.
    pub event: Option<String>,
    /// Input that the run was submitted with.
    pub input: RawJson,
    /// Actor on whose behalf the run acts, as stated by the caller. `None` if none was stated.
    pub actor: Option<RawJson>,
    /// Resource (person or thing) that the run is about. `None` if the run has no resource.
    pub resource: Option<ResourceKey>,
    /// Thread (conversation) that the run belongs to. `None` if the run has no thread.
    pub thread: Option<ThreadKey>,
    /// Number of the next turn, from 1.
    pub turn: u32,
}

/// Perception, i.e. the answer of a context provider: the current state of what an agent works
/// with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Perception {
    /// Current state of what the agent works with, as JSON, available to the agent's templates.
    pub world: RawJson,
    /// Values that the runtime injects into tool calls, by name.
    #[serde(default)]
    pub context: std::collections::BTreeMap<String, RawJson>,
}

/// Failure of a context provider.
#[derive(Debug, thiserror::Error)]
#[error("the context provider failed: {message}")]
pub struct ContextError {
    /// Description of the failure for people.
    pub message: String,
    /// Whether the failure is permanent, so that a retry would fail too.
    pub is_permanent: bool,
}

impl ContextError {
    /// Creates a transient failure, which is retried a limited number of times.
    pub fn transient(failure_reason: impl Into<String>) -> Self {
        Self { message: failure_reason.into(), is_permanent: false }
    }

    /// Creates a permanent failure, which is not retried because somebody must fix its cause first.
    pub fn permanent(failure_reason: impl Into<String>) -> Self {
        Self { message: failure_reason.into(), is_permanent: true }
    }
}
