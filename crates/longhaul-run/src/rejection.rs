//! Reasons for which a run rejects an input, each with a message for people and a code for
//! programs. A rejected input changes nothing.

use longhaul_core::id::{CallId, GateId, RuleId, RunId, Seq, SteerId};
use longhaul_core::policy::gate::{AnswerScope, GateStatus};
use longhaul_core::policy::rule::RememberedApprovalRevocation;
use longhaul_core::status::Status;
use longhaul_core::time::Timestamp;

/// Reason for which a run rejects an input.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// The run has already ended.
    #[error("the run has already ended: its status is {}", .0.as_str())]
    Ended(Status),
    /// The input is not valid in the run's current stage.
    #[error("{input} is not valid while the run is {stage}")]
    InvalidState {
        /// Description of the rejected input.
        input: &'static str,
        /// Description of the run's current stage.
        stage: &'static str,
    },
    /// The tool call was never started, or its result is already recorded.
    #[error("call {0} is not running: its result is already recorded, or it was never started")]
    CallNotRunning(CallId),
    /// The gate was already closed by an answer, or withdrawn.
    #[error("the gate {gate} was already {}{}", .status.as_str(), gate_closed_by_text(.by.as_ref()))]
    GateClosed {
        gate: GateId,
        status: GateStatus,
        /// Principal whose answer closed the gate, and the time of the answer. `None` means that no
        /// answer closed the gate.
        by: Option<(String, Timestamp)>,
    },
    /// The gate's deadline has passed.
    #[error("the gate {0} has expired")]
    GateExpired(GateId),
    /// The decision in the answer is not valid for this kind of gate.
    #[error(
        "the decision `{decision}` is not valid for this kind of gate; valid decisions: {}",
        .allowed.join(", ")
    )]
    InvalidDecision {
        /// Decision in the rejected answer.
        decision: &'static str,
        /// Decisions that are valid for this kind of gate.
        allowed: &'static [&'static str],
    },
    /// The answer is none of the question's options, or does not fill in its form.
    #[error("{0}")]
    InvalidAnswer(String),
    /// The approval does not include the digest of the content that was shown.
    #[error("an approval must include the digest of the content that was shown")]
    DigestMissing,
    /// The gate's content has changed since it was shown to the person who answers.
    #[error("the content of the gate has changed since it was shown: review the gate again")]
    DigestChanged,
    /// The gate does not offer an approval with this scope.
    #[error(
        "the scope `{}` is not offered here: {reason}; offered: {}",
        .scope.as_str(), joined_scope_names(.offered)
    )]
    ScopeNotOffered {
        scope: AnswerScope,
        /// Scopes of an approval that the gate offers: this call only, or all calls of a run, an agent
        /// or the project.
        offered: Vec<AnswerScope>,
        /// Reason why the scope is not offered.
        reason: &'static str,
    },
    /// The maximum number of remembered approvals that apply to an agent or the project is reached.
    #[error("{0} remembered approvals for agents and the project are active, which is the maximum")]
    RulesFull(usize),
    /// The remembered approval was revoked before.
    #[error(
        "the remembered approval {rule} was already revoked by {} at {}",
        .revocation.by, .revocation.at
    )]
    RuleRevoked {
        /// Id of the remembered approval.
        rule: RuleId,
        /// Who revoked the remembered approval, and when.
        revocation: RememberedApprovalRevocation,
    },
    /// The submitter of the run may not approve this gate.
    #[error(
        "the submitter of a run may not approve its gates, and neither may anybody else who added \
         work to the run with a task, a message, a schedule or a retry"
    )]
    SelfApproval,
    /// The person has already voted on this gate.
    #[error("{person} has already answered this gate", person = .0)]
    AlreadyVoted(String),
    /// The message to the run has already been delivered, dropped or withdrawn.
    #[error("the message {0} was already delivered, dropped or withdrawn and can't be changed")]
    SteerSettled(SteerId),
    /// Too many messages are queued for the run.
    #[error("too many messages: {0} are already queued for this run")]
    SteersFull(usize),
    /// A text in the input exceeds its maximum length.
    #[error("{text_name} is longer than {max} bytes")]
    TooLong {
        text_name: &'static str,
        /// Maximum length of the text in bytes.
        max: usize,
    },
    /// A required text in the input is empty.
    #[error("{text_name} must not be empty", text_name = .0)]
    Empty(&'static str),
    /// The task is invalid, for this reason.
    #[error("{0}")]
    InvalidTask(String),
    /// The run can't be retried, because it has not failed.
    #[error("only a failed run can be retried, and the status of this run is {}", .0.as_str())]
    NotFailed(Status),
    /// The run can't be forked from this event, which it does not have.
    #[error(
        "the run has no event {seq}: its journal has the events 1 to {last}. To list them: \
         `longhaul show {run} --events`"
    )]
    EventNotFound { run: RunId, seq: Seq, last: Seq },
    /// The run can't be forked, because the files of its sandbox at that turn are not kept.
    #[error(
        "the run {0} has worked in a sandbox, and its files at that turn are not kept. To go on in a \
         new sandbox without them, use `--fresh-files` (in the API: `\"fresh_files\": true`); the model \
         is told"
    )]
    FilesNotKept(RunId),
    /// The new cap of a budget is below the current one.
    #[error("the budget of {cap} is {current} already, and a raise does not lower it")]
    BudgetNotRaised {
        /// Name of the cap, such as `money`.
        cap: &'static str,
        /// Current value of the cap.
        current: String,
    },
    /// The budget has no cap of this kind, such as `turns`, that could be raised.
    #[error("the run has no limit of {cap} that could be raised", cap = .0)]
    NoCapToRaise(&'static str),
    /// The budget of the whole tree of runs is used up, so that a raise of the child run would not
    /// help.
    #[error(
        "the budget that the run shares with its root run is used up: raise it through {root_run}",
        root_run = .0
    )]
    TreeBudgetExhausted(RunId),
    /// The run can't be closed, because it is not open for messages.
    #[error(
        "only a run that has its result and waits for a message (`keep_open`) can be closed, and the \
         status of this run is {}", .0.as_str()
    )]
    NotOpen(Status),
    /// The run can't be closed, because a program has raised this gate and has not closed it yet.
    #[error("the run can't be closed while the gate {0} is open")]
    OpenGate(GateId),
    /// The run can't be resumed, because nobody has paused it. The text says what the run does.
    #[error("nobody has paused the run, so there is nothing to resume. {0}")]
    NotPaused(String),
    /// The run is already in the requested state, such as paused.
    #[error("the run is already {state}", state = .0)]
    AlreadyInState(&'static str),
}

/// Returns the names of scopes, separated by commas.
fn joined_scope_names(scopes: &[AnswerScope]) -> String {
    scopes.iter().map(|scope| scope.as_str()).collect::<Vec<_>>().join(", ")
}

fn gate_closed_by_text(closed_by: Option<&(String, Timestamp)>) -> String {
    closed_by.map_or_else(String::new, |(principal, at)| format!(" by {principal} at {at}"))
}

impl Rejection {
    /// Returns the code that identifies this rejection for programs.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Ended(_) => "run_ended",
            Self::InvalidState { .. } => "invalid_state",
            Self::CallNotRunning(_) => "call_not_running",
            Self::GateClosed { .. } => "already_answered",
            Self::GateExpired(_) => "gate_expired",
            Self::InvalidDecision { .. } => "invalid_decision",
            Self::InvalidAnswer(_) => "invalid_answer",
            Self::DigestMissing => "digest_missing",
            Self::DigestChanged => "digest_changed",
            Self::ScopeNotOffered { .. } => "scope_not_offered",
            Self::RulesFull(_) => "rules_full",
            Self::RuleRevoked { .. } => "rule_revoked",
            Self::SelfApproval => "self_approval",
            Self::AlreadyVoted(_) => "already_voted",
            Self::SteerSettled(_) => "steer_settled",
            Self::SteersFull(_) => "steers_full",
            Self::TooLong { .. } => "too_long",
            Self::Empty(_) => "empty",
            Self::InvalidTask(_) => "invalid_task",
            Self::NotFailed(_) => "not_failed",
            Self::EventNotFound { .. } => "event_not_found",
            Self::FilesNotKept(_) => "files_not_kept",
            Self::BudgetNotRaised { .. } | Self::NoCapToRaise(_) | Self::TreeBudgetExhausted(_) => {
                "budget_not_raised"
            }
            Self::NotOpen(_) => "not_open",
            Self::OpenGate(_) => "open_gate",
            Self::NotPaused(_) => "not_paused",
            Self::AlreadyInState(_) => "already_in_state",
        }
    }
}
