//! What can go wrong in the engine, in short words with their causes.
//!
//! Never: what a model or a tool did wrong. That is data and stands in journals.

use longhaul_core::id::{GateId, LaneKey, RunId, SteerId};
use longhaul_core::port::store::StoreError;
pub use longhaul_run::Refusal;
use longhaul_run::state::Misfit;

/// A fault, or a no to whoever asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A journal does not fold.
    #[error(transparent)]
    Misfit(#[from] Misfit),
    /// The heart does not take what was said.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// There is no such run.
    #[error("there is no run {0}")]
    NoRun(RunId),
    /// There is no such gate.
    #[error("there is no gate {0}")]
    NoGate(GateId),
    /// There is no such agent.
    #[error("there is no agent named `{name}`")]
    NoAgent {
        /// What was asked for.
        name: String,
        /// What may have been meant.
        like: Option<String>,
    },
    /// There is no such message.
    #[error("there is no message {0} for this run")]
    NoSteer(SteerId),
    /// There is no such key, or it counts no longer.
    #[error("there is no key named `{0}` that still counts")]
    NoKey(String),
    /// A key of this name counts already.
    #[error("there is a key named `{0}` already")]
    KeyTaken(String),
    /// The system has no chance to give.
    #[error("this system gives no random numbers, so that no secret can be made")]
    NoChance,
    /// The idempotency key was used for another request.
    #[error("this idempotency key was used for another request")]
    KeyReused,
    /// The lane is full.
    #[error("the lane `{0}` is full")]
    LaneFull(LaneKey),
    /// Too much is going on at once: it may be tried again.
    #[error("others wrote to {0} all the time, so that nothing could be decided")]
    Crowded(RunId),
    /// A template of an agent can't be filled.
    #[error("{what} of agent `{agent}` can't be made: {why}")]
    Template {
        /// Whose.
        agent: String,
        /// Which.
        what: &'static str,
        /// Why not.
        why: String,
    },
    /// The heart and the engine do not understand each other: a fault of ours.
    #[error("{run} can't go on: {why}")]
    Stuck {
        /// Which run.
        run: RunId,
        /// What happened.
        why: String,
    },
}

impl Error {
    /// A word for programs.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Store(StoreError::Full { .. }) => "disk_full",
            Self::Store(StoreError::Busy { .. }) => "busy",
            Self::Store(_) => "store",
            Self::Misfit(_) => "misfit",
            Self::Refused(refusal) => refusal.code(),
            Self::NoRun(_) => "no_run",
            Self::NoGate(_) => "no_gate",
            Self::NoAgent { .. } => "no_agent",
            Self::NoSteer(_) => "no_steer",
            Self::NoKey(_) => "no_key",
            Self::KeyTaken(_) => "key_taken",
            Self::NoChance => "no_chance",
            Self::KeyReused => "idempotency_key_reused",
            Self::LaneFull(_) => "lane_full",
            Self::Crowded(_) => "crowded",
            Self::Template { .. } => "template",
            Self::Stuck { .. } => "stuck",
        }
    }
}
