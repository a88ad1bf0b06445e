//! Why an input is not taken: a reason for people and a word for programs.
//!
//! Never: a fault. A refusal changes nothing and is nobody's error.

use longhaul_core::id::{CallId, GateId, SteerId};
use longhaul_core::policy::gate::GateStatus;
use longhaul_core::status::Status;
use longhaul_core::time::Timestamp;

/// Why an input is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// Nothing follows the end.
    #[error("the run has ended: it is {}", .0.as_str())]
    Ended(Status),
    /// What was told does not fit where the run stands.
    #[error("{what} does not fit a run that is {stage}")]
    InvalidState {
        /// What was told.
        what: &'static str,
        /// Where the run stands.
        stage: &'static str,
    },
    /// Nobody has started this call, or its result is recorded already.
    #[error("call {0} is not under way: its result is recorded, or it was never started")]
    CallNotRunning(CallId),
    /// The gate is closed.
    #[error("{gate} is {}{}", .status.as_str(), closed_by(.by.as_ref()))]
    GateClosed {
        /// Which gate.
        gate: GateId,
        /// How it stands.
        status: GateStatus,
        /// Who closed it and when.
        by: Option<(String, Timestamp)>,
    },
    /// The gate's time is over.
    #[error("{0} has expired")]
    GateExpired(GateId),
    /// Such an answer does not fit such a gate.
    #[error("`{decision}` is no answer to a gate of this kind; it takes {allowed}")]
    InvalidDecision {
        /// What was said.
        decision: &'static str,
        /// What can be said.
        allowed: &'static str,
    },
    /// An approval must name what was shown.
    #[error("an approval names the digest of what was shown, and this one does not")]
    DigestMissing,
    /// Something else was shown than what is asked now.
    #[error("the call has changed since it was shown: look again")]
    DigestChanged,
    /// The rule does not let an approval reach further.
    #[error("this approval can only be given once")]
    ScopeNotOffered,
    /// Whoever submitted the run may not approve it.
    #[error("whoever submitted the run may not approve it")]
    SelfApproval,
    /// One person has one voice.
    #[error("{0} has answered this gate already")]
    AlreadyVoted(String),
    /// The message is read, dropped or taken back.
    #[error("{0} is settled and can't be changed")]
    SteerSettled(SteerId),
    /// Too many messages wait.
    #[error("{0} messages wait for this run already")]
    SteersFull(usize),
    /// Something is longer than its bound.
    #[error("{what} is longer than {max} bytes")]
    TooLong {
        /// What.
        what: &'static str,
        /// The bound.
        max: usize,
    },
    /// Something says nothing.
    #[error("{0} needs words")]
    Empty(&'static str),
    /// A task that can't be.
    #[error("{0}")]
    InvalidTask(String),
    /// It is so already.
    #[error("the run is {0} already")]
    AlreadyInState(&'static str),
}

fn closed_by(by: Option<&(String, Timestamp)>) -> String {
    by.map_or_else(String::new, |(who, when)| format!(", by {who} at {when}"))
}

impl Rejection {
    /// A word for programs.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Ended(_) => "run_ended",
            Self::InvalidState { .. } => "invalid_state",
            Self::CallNotRunning(_) => "call_not_running",
            Self::GateClosed { .. } => "already_answered",
            Self::GateExpired(_) => "gate_expired",
            Self::InvalidDecision { .. } => "invalid_decision",
            Self::DigestMissing => "digest_missing",
            Self::DigestChanged => "digest_changed",
            Self::ScopeNotOffered => "scope_not_offered",
            Self::SelfApproval => "self_approval",
            Self::AlreadyVoted(_) => "already_voted",
            Self::SteerSettled(_) => "steer_settled",
            Self::SteersFull(_) => "steers_full",
            Self::TooLong { .. } => "too_long",
            Self::Empty(_) => "empty",
            Self::InvalidTask(_) => "invalid_task",
            Self::AlreadyInState(_) => "already_in_state",
        }
    }
}
