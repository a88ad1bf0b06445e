//! The error type of the engine, with one stable code per variant.
//!
//! A failing model or tool is not an error of the engine: the failure is recorded as an event in
//! the journal.

use longhaul_core::id::{BatchId, GateId, LaneKey, RuleId, RunId, SandboxId, SteerId};
use longhaul_core::policy::effect_key::EffectKeyHolder;
use longhaul_core::port::store::StoreError;
use longhaul_core::time::{Millis, Timestamp};
pub use longhaul_run::Rejection;
use longhaul_run::state::ReplayError;

/// Result of an operation of the engine.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failed or rejected operation of the engine.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store failed to read or write.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The journal contains events that cannot be replayed.
    #[error(transparent)]
    InvalidJournal(#[from] ReplayError),
    /// The state machine rejected the input or command for a run.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    #[error("there is no run {0}")]
    RunNotFound(RunId),
    #[error("there is no batch {0}")]
    BatchNotFound(BatchId),
    #[error("there is no gate {0}")]
    GateNotFound(GateId),
    /// The call holds no effect key, or its outcome is known or is still awaited.
    #[error(
        "the call {} of {} holds no effect key in doubt: only the key of a call whose outcome is unknown \
         can be freed", .0.call, .0.run
    )]
    KeyNotInDoubt(EffectKeyHolder),
    /// No remembered approval (rule by which later calls are approved) has this id.
    #[error("there is no remembered approval {0}")]
    RuleNotFound(RuleId),
    /// The run can't be deleted, because it is still in use.
    #[error("{run} can't be deleted: {reason}")]
    RunInUse {
        run: RunId,
        /// What uses the run, and the command that helps.
        reason: String,
    },
    #[error("there is no sandbox {0}")]
    SandboxNotFound(SandboxId),
    /// The sandbox can't be used in this way now.
    #[error("the sandbox {sandbox} can't be used: {reason}")]
    SandboxUnusable {
        sandbox: SandboxId,
        /// Why, and what helps.
        reason: String,
    },
    /// No agent has the requested name.
    #[error("there is no agent named `{name}`")]
    AgentNotFound {
        /// Agent name that was requested.
        name: String,
        /// Existing agent name that is most similar. `None` if no name is similar.
        suggestion: Option<String>,
    },
    /// No chain has the requested name.
    #[error("there is no chain named `{name}`")]
    ChainNotFound {
        /// Chain name that was requested.
        name: String,
        /// Existing chain name that is most similar. `None` if no name is similar.
        suggestion: Option<String>,
    },
    /// No schedule has this name.
    #[error("there is no schedule named `{0}`")]
    ScheduleNotFound(String),
    /// A schedule with this name already exists.
    #[error("there is already a schedule named `{0}`")]
    ScheduleExists(String),
    /// The definition of a schedule is invalid. The message says why.
    #[error("{0}")]
    InvalidSchedule(String),
    /// The run has no message with this id that a person sent.
    #[error("there is no message {0} for this run")]
    SteerNotFound(SteerId),
    /// No active API key has this name; an expired or revoked key is not active.
    #[error("there is no active key named `{0}`")]
    KeyNotFound(String),
    /// An active API key with this name already exists.
    #[error("there is already a key named `{0}`")]
    KeyNameTaken(String),
    /// The operating system provides no secure random numbers.
    #[error("no secure random numbers are available, so no secret can be created")]
    EntropyUnavailable,
    /// The idempotency key was used for a request with a different body.
    #[error("this idempotency key was used for another request")]
    IdempotencyKeyReused,
    /// The lane has reached its maximum number of runs.
    #[error("the lane `{0}` is full: it has the maximum number of runs that `lanes.depth` allows")]
    LaneFull(LaneKey),
    /// The lane contains runs, and the agent refuses tasks while its lane is busy.
    #[error(
        "the lane `{lane}` is busy with {run}, and the agent refuses tasks while its lane is busy"
    )]
    LaneBusy {
        lane: LaneKey,
        /// Run that holds the lane, or the last run that waits for it.
        run: RunId,
    },
    /// A spend cap is reached, and refuses new tasks until its window (such as a day) ends.
    #[error(
        "the cap `{cap}`{} is reached; it takes tasks again at {until}", cap_subject_text(.subject)
    )]
    OverCap {
        /// Id of the spend cap.
        cap: String,
        /// Key, actor, agent or model whose usage the cap counts. Empty if it counts all usage
        /// together.
        subject: String,
        /// Time at which the window (such as a day) of the spend cap ends.
        until: Timestamp,
        /// Time from now until the window (such as a day) of the spend cap ends.
        retry_after: Millis,
    },
    /// No spend cap has this id.
    #[error("there is no spend cap named `{id}`")]
    CapNotFound {
        /// Spend cap id that was requested.
        id: String,
        /// Existing spend cap id that is most similar. `None` if no id is similar.
        suggestion: Option<String>,
    },
    /// The new limit of a spend cap is invalid. The message says why.
    #[error("{0}")]
    InvalidRaise(String),
    /// There are too many concurrent writes to the run. The caller may retry.
    #[error("there are too many concurrent writes to {0}; try again")]
    Contention(RunId),
    /// A template of an agent could not be rendered.
    #[error("{template_name} of agent `{agent}` can't be rendered: {reason}")]
    Template {
        /// Name of the agent whose template failed.
        agent: String,
        /// Name of the template that failed, such as "the lane".
        template_name: &'static str,
        /// Why the template could not be rendered, with the line in the template.
        reason: String,
    },
    /// The state machine, the engine and the store disagree about the state of a run. This is a bug
    /// in Longhaul.
    #[error("internal error in {run}: {reason}")]
    Internal {
        /// Run in which the error occurred.
        run: RunId,
        /// Description of the internal error, for a bug report.
        reason: String,
    },
}

/// Returns the error for a request that is invalid for this reason.
pub(crate) fn invalid_task<T>(reason: impl Into<String>) -> Result<T> {
    Err(Rejection::InvalidTask(reason.into()).into())
}

impl Error {
    /// Returns the stable error code for programs.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Store(StoreError::DiskFull { .. }) => "disk_full",
            Self::Store(StoreError::Busy { .. }) => "busy",
            Self::Store(_) => "store",
            Self::InvalidJournal(_) => "invalid_journal",
            Self::Rejected(refusal) => refusal.code(),
            Self::RunNotFound(_) => "run_not_found",
            Self::BatchNotFound(_) => "batch_not_found",
            Self::GateNotFound(_) => "gate_not_found",
            Self::KeyNotInDoubt(_) => "key_not_in_doubt",
            Self::RuleNotFound(_) => "rule_not_found",
            Self::SandboxNotFound(_) => "sandbox_not_found",
            Self::SandboxUnusable { .. } => "sandbox_unusable",
            Self::RunInUse { .. } => "run_in_use",
            Self::AgentNotFound { .. } => "agent_not_found",
            Self::ChainNotFound { .. } => "chain_not_found",
            Self::ScheduleNotFound(_) => "schedule_not_found",
            Self::ScheduleExists(_) => "schedule_exists",
            Self::InvalidSchedule(_) => "invalid_schedule",
            Self::SteerNotFound(_) => "steer_not_found",
            Self::KeyNotFound(_) => "key_not_found",
            Self::KeyNameTaken(_) => "key_taken",
            Self::EntropyUnavailable => "entropy_unavailable",
            Self::IdempotencyKeyReused => "idempotency_key_reused",
            Self::LaneFull(_) => "lane_full",
            Self::LaneBusy { .. } => "lane_busy",
            Self::OverCap { .. } => "over_cap",
            Self::CapNotFound { .. } => "cap_not_found",
            Self::InvalidRaise(_) => "invalid_raise",
            Self::Contention(_) => "contention",
            Self::Template { .. } => "template",
            Self::Internal { .. } => "internal",
        }
    }
}

/// Returns the part of an error message that names the key, actor, agent or model whose usage a
/// spend cap counts. Empty if the cap counts all usage together.
fn cap_subject_text(subject: &str) -> String {
    match subject {
        "" => String::new(),
        name => format!(" of {name}"),
    }
}
