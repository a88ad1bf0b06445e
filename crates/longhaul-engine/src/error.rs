//! What can go wrong in the engine, in short words with their causes.
//!
//! Never: what a model or a tool did wrong. That is data and stands in journals.

use longhaul_core::id::{GateId, LaneKey, RunId, SteerId};
use longhaul_core::port::store::StoreError;
pub use longhaul_run::Rejection;
use longhaul_run::state::ReplayError;

/// A fault, or a no to whoever asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A journal does not fold.
    #[error(transparent)]
    InvalidJournal(#[from] ReplayError),
    /// The heart does not take what was said.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// There is no such run.
    #[error("there is no run {0}")]
    RunNotFound(RunId),
    /// There is no such gate.
    #[error("there is no gate {0}")]
    GateNotFound(GateId),
    /// There is no such agent.
    #[error("there is no agent named `{name}`")]
    AgentNotFound {
        /// What was asked for.
        name: String,
        /// What may have been meant.
        suggestion: Option<String>,
    },
    /// There is no such message.
    #[error("there is no message {0} for this run")]
    SteerNotFound(SteerId),
    /// There is no such key, or it counts no longer.
    #[error("there is no key named `{0}` that still counts")]
    KeyNotFound(String),
    /// A key of this name counts already.
    #[error("there is a key named `{0}` already")]
    KeyNameTaken(String),
    /// The system has no chance to give.
    #[error("this system gives no random numbers, so that no secret can be made")]
    EntropyUnavailable,
    /// The idempotency key was used for another request.
    #[error("this idempotency key was used for another request")]
    IdempotencyKeyReused,
    /// The lane is full.
    #[error("the lane `{0}` is full")]
    LaneFull(LaneKey),
    /// Too much is going on at once: it may be tried again.
    #[error("others wrote to {0} all the time, so that nothing could be decided")]
    Contention(RunId),
    /// A template of an agent can't be filled.
    #[error("{what} of agent `{agent}` can't be made: {reason}")]
    Template {
        /// Whose.
        agent: String,
        /// Which.
        what: &'static str,
        /// Why not.
        reason: String,
    },
    /// The heart and the engine do not understand each other: a fault of ours.
    #[error("{run} can't go on: {reason}")]
    Internal {
        /// Which run.
        run: RunId,
        /// What happened.
        reason: String,
    },
}

impl Error {
    /// A word for programs.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Store(StoreError::DiskFull { .. }) => "disk_full",
            Self::Store(StoreError::Busy { .. }) => "busy",
            Self::Store(_) => "store",
            Self::InvalidJournal(_) => "invalid_journal",
            Self::Rejected(refusal) => refusal.code(),
            Self::RunNotFound(_) => "no_run",
            Self::GateNotFound(_) => "no_gate",
            Self::AgentNotFound { .. } => "no_agent",
            Self::SteerNotFound(_) => "no_steer",
            Self::KeyNotFound(_) => "no_key",
            Self::KeyNameTaken(_) => "key_taken",
            Self::EntropyUnavailable => "entropy_unavailable",
            Self::IdempotencyKeyReused => "idempotency_key_reused",
            Self::LaneFull(_) => "lane_full",
            Self::Contention(_) => "contention",
            Self::Template { .. } => "template",
            Self::Internal { .. } => "internal",
        }
    }
}
