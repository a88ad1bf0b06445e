//! Runs in responses, and bodies of requests for existing runs.

use std::collections::BTreeMap;

use crate::sandbox::RunSandboxView;
use longhaul_core::chain::{ChainRow, ChainStatus};
use longhaul_core::change::LateToolResult;
use longhaul_core::event::environment::{GradingVerdict, OutcomeGraded, ProgressReported};
use longhaul_core::id::{BatchId, CallId, GateId, RunId};
use longhaul_core::policy::budget::{Budget, BudgetPatch, BudgetRaise};
use longhaul_core::raw::{Hash, RawJson};
use longhaul_core::status::{ResultApprovalAnswer, RunError, Status};
use longhaul_core::time::{Millis, Timestamp};
use longhaul_core::usage::{MicroUsd, Usage};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::fork::ForkedFromView;

/// Numbers of repeated model calls and tool calls of a run, and of takeovers by other workers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Retries)]
pub struct RetryCountsView {
    /// Number of model calls that were repeated because the provider had failed.
    pub model_calls: u32,
    /// Number of tool calls that were started again because their worker had died.
    pub tool_calls: u32,
    /// Number of workers that took over the run from a worker that had died.
    pub takeovers: u32,
}

/// A run with all its details.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = Run)]
pub struct RunView {
    /// Id of the run.
    pub id: RunId,
    /// Name of the run's agent.
    pub agent: String,
    /// Version of the agent: the hash of its definition.
    pub agent_version: Hash,
    /// Status of the run, such as running, waiting or completed.
    pub status: Status,
    /// Reason for the status, for example what the run waits for.
    pub reason: Option<String>,
    /// What the run does now, in a sentence.
    pub now: String,
    /// Input of the task that the run works on.
    pub input: RawJson,
    /// Context values that the runtime injects into tool calls.
    pub context: BTreeMap<String, RawJson>,
    /// Number of turns that the run has completed.
    pub turns: u32,
    /// Names of the tools that the run has called, in order and with repetitions.
    pub tools_called: Vec<String>,
    /// Result of the run. `None` unless the run has completed.
    pub output: Option<OutputView>,
    /// Error of the run. `None` unless the run has failed or was cancelled.
    pub error: Option<RunError>,
    /// Latest verdicts of grading runs about results of the run, the newest last. Empty unless the
    /// agent has a rubric (criteria for grading).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub verdicts: Vec<GradingVerdictView>,
    /// Number of tokens that the run has used.
    pub usage: UsageView,
    /// Cost of the run so far in US dollars. `None` means that the price is not known.
    pub cost_usd: Option<f64>,
    /// Current budget of the run.
    pub budget: BudgetView,
    /// Total time of the model calls, tool calls and context fetches of the run, in milliseconds.
    pub active_ms: u64,
    /// Total time since the first claim in which no worker drove the run, in milliseconds.
    pub waiting_ms: u64,
    /// Number of the current attempt of the task, from 1, including the attempts of the failed runs
    /// that this run retries.
    pub attempt: u32,
    /// Numbers of repeated calls and of takeovers by other workers. They do not count as attempts
    /// of the run.
    pub retries: RetryCountsView,
    /// Epoch of the current claim: a number that grows with every claim of the run by a worker.
    pub epoch: u64,
    /// Model that the run uses, as `provider/model`. `None` if no model was called yet and the task
    /// names none.
    pub model: Option<String>,
    /// Thread (conversation) that the run belongs to.
    pub thread: Option<String>,
    /// Resource: the person or thing that the conversation is about.
    pub resource: Option<String>,
    /// Lane of the run. Runs of one lane execute one at a time.
    pub lane: Option<String>,
    /// Inbox in which the run was queued.
    pub inbox: String,
    /// Type of the task, as given at submission.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Priority of the run; runs with higher values are driven first.
    pub priority: i32,
    /// Person or system on whose behalf the run acts.
    pub actor: Option<RawJson>,
    /// References to related objects in other systems.
    pub links: Option<RawJson>,
    /// Tags of the run, for searching.
    pub tags: Vec<String>,
    /// Progress that the agent reported last. `None` if it has reported none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<ProgressView>,
    /// Id of the run that started this run. `None` for a root run.
    pub parent: Option<RunId>,
    /// Id of the root of the tree of runs that this run belongs to. A root run has its own id here.
    pub root: RunId,
    /// Id of the batch with which the run was submitted. `None` if it was not part of a batch.
    pub batch: Option<BatchId>,
    /// Id of the failed run that this run retries. `None` if the run is not a retry.
    pub retry_of: Option<RunId>,
    /// Run from which this run was forked. `None` if the run is no fork.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<ForkedFromView>,
    /// Chain that this run is a step of. `None` if the run belongs to no chain.
    pub chain: Option<RunChainView>,
    /// Last sandbox in which tools of the run worked. `None` means that no tool has needed one.
    pub sandbox: Option<RunSandboxView>,
    /// Ids of the run's open gates, which wait for a person.
    pub gates: Vec<GateId>,
    /// Any data of the caller, returned unchanged.
    pub metadata: Option<RawJson>,
    /// Time at which the run was submitted.
    pub created_at: Timestamp,
    /// Time at which a worker first claimed the run. `None` means that no worker has claimed it
    /// yet.
    pub started_at: Option<Timestamp>,
    /// Time at which the run ended. `None` means that it has not ended.
    pub finished_at: Option<Timestamp>,
    /// Results of tool calls that arrived after the run had ended, and who freed the effect keys of
    /// its calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub late: Vec<LateToolResult>,
    /// Whether the submitted task was added to this run as a message instead of starting a new run,
    /// because the lane is busy. Only set in the response to a submit.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub added: bool,
}

/// Verdict about a result of a run, given by another run that graded the result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Verdict)]
pub struct GradingVerdictView {
    /// Number of the grading round, from 1.
    pub round: u32,
    /// Verdict: `satisfied`, `not_satisfied` or `grader_failed`.
    pub verdict: GradingVerdict,
    /// What is missing in the result, or why there is no verdict.
    pub note: String,
    /// Run that graded the result. `None` means that no such run could be started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
}

impl From<&OutcomeGraded> for GradingVerdictView {
    fn from(graded: &OutcomeGraded) -> Self {
        let OutcomeGraded { round, verdict, note, child } = graded.clone();
        Self { round, verdict, note, run: child }
    }
}

/// Position of a run in its chain, and the state of the chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = RunChain)]
pub struct RunChainView {
    /// Name of the chain. `None` means that its steps were given in the request itself.
    pub name: Option<String>,
    /// Number of the run's step, from 1.
    pub step: u32,
    /// Number of steps of the chain.
    pub of: u32,
    /// Status of the chain: `running`, `waiting`, `completed`, `failed` or `cancelled`.
    pub status: ChainStatus,
    /// Id of the newest run of the chain.
    pub current: RunId,
}

impl RunView {
    /// Returns the run that commands for this run go to: the newest run of its chain if this run has
    /// ended, and otherwise this run.
    pub fn newest_run_in_chain(&self) -> RunId {
        let chain = self.chain.as_ref().filter(|_| self.status.is_terminal());
        chain.map_or(self.id, |chain| chain.current)
    }
}

impl RunChainView {
    pub const fn has_ended(&self) -> bool {
        !matches!(self.status, ChainStatus::Running | ChainStatus::Waiting)
    }
}

impl From<&ChainRow> for RunChainView {
    fn from(row: &ChainRow) -> Self {
        Self {
            name: row.name.clone(),
            step: row.step + 1,
            of: row.steps,
            status: row.current_status.into(),
            current: row.current,
        }
    }
}

/// Progress that an agent has reported with `report_progress`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Progress)]
pub struct ProgressView {
    /// Progress in percent, from 0 to 100.
    pub percent: u8,
    /// Description of the progress, written by the agent.
    pub message: String,
}

impl From<&ProgressReported> for ProgressView {
    fn from(reported: &ProgressReported) -> Self {
        Self { percent: reported.percent, message: reported.message.clone() }
    }
}

/// Result of a run that has completed.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = Output)]
pub struct OutputView {
    /// Final text of the agent.
    pub text: String,
    /// Structured result, such as the data that the agent's output schema describes. `None` means
    /// that there is only the text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<RawJson>,
    /// Confidence of the agent in its result, in percent. `None` means that the agent stated none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confidence: Option<u8>,
    /// Artifacts that the run created, such as files.
    pub artifacts: Vec<RawJson>,
    /// Answer with which a person approved the result. `None` unless that answer has a note or a
    /// payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<ResultApprovalAnswer>,
    /// Names of the tools that the run has called.
    pub tools_called: Vec<String>,
    /// Number of tokens that the run has used.
    pub usage: UsageView,
}

/// Number of tokens that a run has used.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[schema(as = Usage)]
pub struct UsageView {
    /// Number of input tokens that were neither read from nor written to the provider's cache.
    pub input_tokens: u64,
    /// Number of output tokens.
    pub output_tokens: u64,
    /// Number of input tokens read from the provider's cache.
    pub cached_tokens: u64,
    /// Number of input tokens written to the provider's cache.
    #[serde(default)]
    pub cache_write_tokens: u64,
}

impl From<Usage> for UsageView {
    fn from(usage: Usage) -> Self {
        let Usage { input_tokens, output_tokens, cached_tokens, cache_write_tokens, .. } = usage;
        Self { input_tokens, output_tokens, cached_tokens, cache_write_tokens }
    }
}

/// Budget of a run in a response. A value of `None` means no limit.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[schema(as = Budget)]
pub struct BudgetView {
    /// Maximum cost of the run in US dollars.
    pub usd: Option<f64>,
    /// Maximum number of tokens that the run may use.
    pub tokens: Option<u64>,
    /// Maximum number of turns of the run.
    pub turns: Option<u32>,
    /// Maximum time during which workers may drive the run, in milliseconds.
    pub active_ms: Option<u64>,
}

impl From<&Budget> for BudgetView {
    fn from(budget: &Budget) -> Self {
        Self {
            usd: budget.micro_usd.map(micro_usd_to_usd),
            tokens: budget.tokens,
            turns: budget.turns,
            active_ms: budget.active.map(|duration| duration.0),
        }
    }
}

/// Converts micro-dollars to dollars.
pub fn micro_usd_to_usd(micros: MicroUsd) -> f64 {
    micros.0 as f64 / 1_000_000.0
}

/// Budget of a run in a request. A limit that is `None` is not changed.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BudgetBody {
    /// Maximum cost of the run in US dollars.
    #[schema(minimum = 0, maximum = 1_000_000_000)]
    pub usd: Option<f64>,
    /// Maximum number of tokens that the run may use.
    #[schema(maximum = 9_007_199_254_740_991_u64)]
    pub tokens: Option<u64>,
    /// Maximum number of turns of the run.
    #[schema(maximum = 1_000_000_000)]
    pub turns: Option<u32>,
    /// Maximum time during which workers may drive the run, in milliseconds.
    #[schema(maximum = 9_007_199_254_740_991_u64)]
    pub active_ms: Option<u64>,
    /// Fraction of the budget, from 0 to 1, at which the agent is told to finish.
    #[schema(minimum = 0, maximum = 1)]
    pub warn_at: Option<f64>,
}

/// Maximum amount of money in US dollars and maximum number of turns that a requested budget may
/// have. A larger value is treated as a typing error.
const USD_MAX: f64 = 1_000_000_000.0;

/// Minimum budget in dollars: one millionth, the smallest amount that is counted.
const USD_MIN: f64 = 0.000_001;
const TURNS_MAX: u32 = 1_000_000_000;

/// Largest integer that every JSON parser can represent exactly (2^53 - 1).
const JSON_INTEGER_MAX: u64 = 9_007_199_254_740_991;

impl From<BudgetPatch> for BudgetBody {
    fn from(BudgetPatch { caps, warn_percent }: BudgetPatch) -> Self {
        Self {
            usd: caps.micro_usd.map(micro_usd_to_usd),
            tokens: caps.tokens,
            turns: caps.turns,
            active_ms: caps.active.map(|duration| duration.0),
            warn_at: warn_percent.map(|percent| f64::from(percent) / 100.0),
        }
    }
}

impl From<BudgetRaise> for BudgetBody {
    fn from(caps: BudgetRaise) -> Self {
        BudgetPatch { caps, warn_percent: None }.into()
    }
}

/// Fails if a limit is out of bounds. The error says which one.
impl TryFrom<BudgetBody> for BudgetPatch {
    type Error = String;

    fn try_from(body: BudgetBody) -> Result<Self, String> {
        if body.usd.is_some_and(|usd| !(USD_MIN..=USD_MAX).contains(&usd)) {
            return Err("`budget.usd` must be greater than 0 and at most 1,000,000,000".to_owned());
        }
        if body.warn_at.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
            return Err("`budget.warn_at` must be between 0 and 1".to_owned());
        }
        for (name, value, max) in [
            ("tokens", body.tokens, JSON_INTEGER_MAX),
            ("turns", body.turns.map(u64::from), TURNS_MAX.into()),
            ("active_ms", body.active_ms, JSON_INTEGER_MAX),
        ] {
            if value.is_some_and(|value| !(1..=max).contains(&value)) {
                return Err(format!("`budget.{name}` must be between 1 and {max}"));
            }
        }
        let caps = BudgetRaise {
            micro_usd: body.usd.map(|usd| MicroUsd((usd * 1_000_000.0).round() as u64)),
            tokens: body.tokens,
            turns: body.turns,
            active: body.active_ms.map(Millis),
        };
        let warn_percent = body.warn_at.map(|share| (share * 100.0).round() as u8);
        Ok(Self { caps, warn_percent })
    }
}

/// Body of a request to cancel a run.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CancelBody {
    /// Reason for the cancellation, recorded in the journal.
    pub reason: String,
}

/// Body of a request to resume a run.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResumeBody {
    /// Higher budget limits. They require the role approver. A limit below the current one is
    /// refused. `None` keeps all limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetBody>,
}

/// Body of a request to free the effect key of a call whose outcome is unknown.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FreeKeyBody {
    /// Id of the call that holds the effect key, such as `t3.1`.
    pub call: CallId,
    /// Why the call is known to have had no effect.
    #[serde(default)]
    pub note: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_cap_above_its_maximum_is_rejected() {
        let is_accepted = |body: serde_json::Value| {
            let body: BudgetBody = serde_json::from_value(body).unwrap();
            BudgetPatch::try_from(body).is_ok()
        };
        for (name, max) in [
            ("tokens", JSON_INTEGER_MAX),
            ("active_ms", JSON_INTEGER_MAX),
            ("turns", u64::from(TURNS_MAX)),
        ] {
            assert!(is_accepted(serde_json::json!({ name: max })), "{name}");
            assert!(!is_accepted(serde_json::json!({ name: max + 1 })), "{name}");
        }
    }
}
