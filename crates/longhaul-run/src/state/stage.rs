//! The stages of a run, each with its own data, and the progress of grading the result of a run
//! against the rubric of its agent.

use std::sync::Arc;

use longhaul_core::event::environment::{GradingVerdict, OutcomeGraded};
use longhaul_core::event::turn::ModelCallPurpose;
use longhaul_core::failure::FailureClass;
use longhaul_core::id::{Epoch, GateId, RunId, TimerId};
use longhaul_core::policy::spend_cap::CapHold;
use longhaul_core::status::{ResultApprovalAnswer, RunOutcome, RunOutput};
use longhaul_core::time::Timestamp;
use longhaul_core::usage::BudgetAmount;
use longhaul_core::wait::{OutageWait, WaitReason};
use serde::{Deserialize, Serialize};

use crate::state::call::{PendingTimer, TrackedCall, unfired_timer};

/// Stage of a run, with the data that only this stage needs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum RunStage {
    /// The run has not been prepared yet: it has no prompt.
    New {
        /// Whether the timer has fired that starts the run at its start time or after the previous
        /// run of its batch.
        start_timer_fired: bool,
    },
    /// The run is ready to call the model.
    ModelPending(PendingModelCall),
    /// The run waits for the model's reply.
    ModelRunning(RunningModelCall),
    /// The tool calls of a reply are running or waiting.
    ToolsRunning(RunningToolCalls),
    /// The run has its output and is about to end.
    Concluding(ConcludingRunState),
    /// The run has ended. No events may follow.
    Ended(EndedRun),
}

/// Maximum number of verdicts that the state keeps to be shown. The journal has all of them.
const VERDICTS_MAX: usize = 10;

/// Progress of grading one result.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Grading {
    /// No run grades the result yet.
    #[default]
    Pending,
    /// This run grades the result.
    Running(RunId),
    /// The grading run has ended. Its verdict is not recorded yet.
    Ended {
        /// Run that graded the result.
        child: RunId,
        /// Verdict about the result.
        verdict: GradingVerdict,
        /// What is missing in the result, or why there is no verdict.
        note: String,
    },
    /// The verdict is recorded.
    Graded(GradingVerdict),
}

/// The rounds in which results of the run were graded.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GradingRounds {
    /// Number of grading rounds since the last accepted result or message of a person.
    round: u32,
    verdicts: Arc<Vec<OutcomeGraded>>,
}

impl Default for RunStage {
    fn default() -> Self {
        Self::New { start_timer_fired: false }
    }
}

impl RunStage {
    /// Returns a description of the run's stage for error messages.
    pub const fn description(&self) -> &'static str {
        match self {
            Self::New { .. } => "new",
            Self::ModelPending(_) => "about to call the model",
            Self::ModelRunning(_) => "calling the model",
            Self::ToolsRunning(_) => "running tools",
            Self::Concluding(_) => "about to end",
            Self::Ended(_) => "ended",
        }
    }
}

/// What the model calls of one turn have in common.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnState {
    /// Number of failed model calls of this turn that count toward the retry limit.
    pub failures: u32,
    /// Outage of the provider for which the run waits or during which it calls the model. `None`
    /// means that no outage is known.
    pub outage: Option<ProviderOutage>,
    /// Number of failed model calls of this turn that were made during an outage of the provider.
    pub outage_attempts: u32,
    /// Class of the failure that made the run switch to its fallback model instead of waiting for
    /// the provider of the preferred model. `None` means that there was no such switch in this
    /// turn, or that the run has waited for the provider since.
    pub unavailable_model: Option<FailureClass>,
    /// Whether the conversation must be compacted before the turn.
    pub must_compact: bool,
    /// Whether the conversation was compacted after the last completed turn.
    pub compacted: bool,
    /// Whether the compactor (the model that summarizes conversations) has failed, so that the
    /// run's own model compacts.
    pub compactor_failed: bool,
    /// Whether the perception (the context provider's report on the outside world) was fetched for
    /// this turn.
    pub perception_refreshed: bool,
}

/// Data of a run that is ready to call the model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingModelCall {
    /// Number of model calls that were started for this turn.
    pub attempts: u32,
    pub turn: TurnState,
    /// Timer that must fire before the next model call. `None` means that the model can be called
    /// without a delay.
    pub timer: Option<PendingTimer>,
    /// Timer of a wait that a person has cut short, which the start of the turn deletes. `None` if
    /// there is none.
    pub skipped_timer: Option<TimerId>,
    /// Whether `timer` was set because the provider limits the request rate.
    pub rate_limited: bool,
    /// Whether a person has resumed the run, so that the next model call is made without a delay.
    pub resumed: bool,
    /// Whether the last model reply was interrupted and no message to the model followed it.
    pub interrupted: bool,
    /// Number of the run's attempt that starts when `timer` fires. `None` means that the current
    /// attempt continues.
    pub retry_attempt: Option<u32>,
}

impl PendingModelCall {
    /// Ends the wait for the timer, so that the model is called now.
    pub(crate) fn skip_timer(&mut self) {
        self.skipped_timer = unfired_timer(self.timer.take()).or(self.skipped_timer);
    }
}

/// Outage of a model provider for which a run waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderOutage {
    /// Time at which the wait for the provider began.
    pub since: Timestamp,
    /// Class of the provider's failure because of which the run waits.
    pub class: FailureClass,
    /// Number of waits for the provider so far, which determines the length of the next wait.
    pub waits: u32,
}

impl ProviderOutage {
    /// Returns the wait for the provider until the next request.
    pub(crate) const fn wait_until(self, until: Timestamp) -> WaitReason {
        let Self { since, class, .. } = self;
        WaitReason::Outage(OutageWait { since, until, class })
    }
}

/// Data of a run that waits for the model's reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningModelCall {
    /// Number of the turn that the model call belongs to.
    pub number: u32,
    /// Number of the model call within the turn, from 1.
    pub attempt: u32,
    pub turn: TurnState,
    /// Epoch (number of the claim) of the worker that made the model call.
    pub epoch: Epoch,
    /// Purpose of the model call: a turn or a compaction.
    pub purpose: ModelCallPurpose,
    /// Budget reserved for the model call.
    pub hold: BudgetAmount,
    /// Amounts reserved in spend caps for the model call.
    pub caps: Vec<CapHold>,
    /// Maximum length of the reply in tokens, as covered by the reserved budget.
    pub max_tokens: u64,
    /// Name of the called model. `None` means the run's own model.
    pub model: Option<String>,
}

impl RunningModelCall {
    /// Returns the name of the called model: another model that was chosen for this call, or else
    /// the run's own model.
    pub fn called_model<'a>(&'a self, run_model: &'a str) -> &'a str {
        self.model.as_deref().unwrap_or(run_model)
    }

    /// Returns whether the model call is an optional compaction: if it fails, the run continues
    /// with the full conversation.
    pub fn is_optional_compaction(&self) -> bool {
        self.purpose == ModelCallPurpose::Compact && !self.turn.must_compact
    }
}

/// Data of a run whose tool calls are running or waiting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningToolCalls {
    /// Number of the turn that the tool calls belong to.
    pub turn: u32,
    /// Tool calls of the reply, in the model's order.
    pub calls: Vec<TrackedCall>,
    /// Output of the run that was recorded with the reply because of its `finish` call. `None`
    /// means that the rule for replies without a recorded output applies.
    pub final_output: Option<RunOutput>,
    /// Output with which a `finish` call ends the run once all calls are done. `None` means that no
    /// `finish` call has succeeded.
    pub finish_output: Option<RunOutput>,
}

/// Data of a run that has its output and is about to end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConcludingRunState {
    /// Output of the run, unless a person edits it.
    pub output: RunOutput,
    /// Whether the agent called `finish`. Then the run is not kept open for messages.
    pub by_finish_tool: bool,
    /// Whether the output is from a handler (a function that replaces the model). A handler is not
    /// called again.
    pub by_handler: bool,
    /// Progress of grading the output against the rubric of the agent.
    pub grading: Grading,
    /// Whether a person has approved the output.
    pub approved: bool,
    /// Answer of the person who approved the output. `None` means that nobody has approved it, or
    /// that the answer has neither a note nor a payload.
    pub answer: Option<ResultApprovalAnswer>,
    /// Open gate at which a person approves the output. `None` means that no such gate is open.
    pub gate: Option<GateId>,
    /// Timer until which the run stays open for further messages. `None` means that the timer is
    /// not set.
    pub timer: Option<PendingTimer>,
}

/// Outcome of a run that has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EndedRun {
    pub outcome: RunOutcome,
    /// Result that a cancelled run had. `None` if it had none, or was not cancelled.
    pub(crate) cancelled_output: Option<Box<RunOutput>>,
}

impl GradingRounds {
    /// Returns the number of the next grading round, from 1.
    pub const fn next_round(&self) -> u32 {
        self.round.saturating_add(1)
    }

    /// Returns the latest verdicts, the newest last.
    pub fn verdicts(&self) -> &[OutcomeGraded] {
        &self.verdicts
    }

    /// Records the verdict of a grading round. An accepted result resets the count of rounds.
    pub(crate) fn record_verdict(&mut self, graded: &OutcomeGraded) {
        self.round = match graded.verdict {
            GradingVerdict::Satisfied => 0,
            GradingVerdict::NotSatisfied | GradingVerdict::GraderFailed => graded.round,
        };
        let verdicts = Arc::make_mut(&mut self.verdicts);
        verdicts.push(graded.clone());
        if verdicts.len() > VERDICTS_MAX {
            verdicts.remove(0);
        }
    }

    /// Restarts the count of grading rounds, because a person sent a message or the run is retried.
    pub(crate) const fn reset_count(&mut self) {
        self.round = 0;
    }
}
