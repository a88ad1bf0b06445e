//! Runs in responses, and what requests say about a run that exists.

use std::collections::BTreeMap;

use longhaul_core::id::{GateId, RunId};
use longhaul_core::policy::budget::{Budget, BudgetRaise};
use longhaul_core::port::store::RunRow;
use longhaul_core::raw::{Hash, RawJson};
use longhaul_core::status::{RunError, Status};
use longhaul_core::time::Timestamp;
use longhaul_core::usage::{MicroUsd, Usage};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::schema;

/// A run, whole.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = Run)]
pub struct RunView {
    /// Which.
    #[schema(schema_with = schema::run_id)]
    pub id: RunId,
    /// Who does it.
    pub agent: String,
    /// The agent's version.
    #[schema(schema_with = schema::hash)]
    pub agent_version: Hash,
    /// How it stands.
    #[schema(schema_with = schema::status)]
    pub status: Status,
    /// Why it rests.
    pub reason: Option<String>,
    /// What is going on, in a sentence.
    pub now: String,
    /// What was asked.
    #[schema(schema_with = schema::any)]
    pub input: RawJson,
    /// What the runtime injects.
    #[schema(value_type = std::collections::BTreeMap<String, serde_json::Value>)]
    pub context: BTreeMap<String, RawJson>,
    /// Completed turns.
    pub turns: u32,
    /// The tools called, in order and with repeats.
    pub tools_called: Vec<String>,
    /// The result, if there is one.
    pub output: Option<OutputView>,
    /// Why it failed, if it did.
    #[schema(value_type = Option<RunErrorView>)]
    pub error: Option<RunError>,
    /// Tokens.
    pub usage: UsageView,
    /// Money; none: not known.
    pub cost_usd: Option<f64>,
    /// The caps in force.
    pub budget: BudgetView,
    /// Time between claim and park.
    pub active_ms: u64,
    /// The other time since it was first claimed.
    pub waiting_ms: u64,
    /// Which attempt, from 1.
    pub attempt: u32,
    /// The fence.
    pub epoch: u64,
    /// The model that is asked.
    pub model: Option<String>,
    /// The conversation it belongs to.
    pub thread: Option<String>,
    /// Whom the conversation is about.
    pub resource: Option<String>,
    /// Its lane.
    pub lane: Option<String>,
    /// Where it queues.
    pub inbox: String,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Its priority.
    pub priority: i32,
    /// On whose behalf.
    #[schema(schema_with = schema::any)]
    pub actor: Option<RawJson>,
    /// Handles of things elsewhere.
    #[schema(schema_with = schema::any)]
    pub links: Option<RawJson>,
    /// Labels.
    pub tags: Vec<String>,
    /// The run that asked for it.
    #[schema(value_type = Option<String>)]
    pub parent: Option<RunId>,
    /// The run at the top.
    #[schema(schema_with = schema::run_id)]
    pub root: RunId,
    /// Its place in a chain.
    #[schema(schema_with = schema::any)]
    pub chain: Option<RawJson>,
    /// Its sandbox.
    #[schema(schema_with = schema::any)]
    pub sandbox: Option<RawJson>,
    /// The gates that are open.
    #[schema(value_type = Vec<String>)]
    pub gates: Vec<GateId>,
    /// Anything else the caller gave.
    #[schema(schema_with = schema::any)]
    pub metadata: Option<RawJson>,
    /// When it was submitted.
    #[schema(schema_with = schema::time)]
    pub created_at: Timestamp,
    /// When it was first claimed.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub finished_at: Option<Timestamp>,
}

/// Why a run failed: how [`Fault`] is described.
#[derive(Debug, ToSchema)]
#[schema(as = RunError)]
pub struct RunErrorView {
    /// A word for programs, such as `turn_limit` or `auth`.
    pub code: String,
    /// What happened.
    pub message: String,
    /// What helps.
    #[schema(required = false)]
    pub hint: String,
}

/// A run as lists show it: what its row says, and nothing that needs its journal.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = RunBrief)]
pub struct RunBriefView {
    /// Which.
    #[schema(schema_with = schema::run_id)]
    pub id: RunId,
    /// Who does it.
    pub agent: String,
    /// How it stands.
    #[schema(schema_with = schema::status)]
    pub status: Status,
    /// Why it rests.
    pub reason: Option<String>,
    /// What is going on, in a few words.
    pub now: String,
    /// Completed turns.
    pub turns: u32,
    /// Money; none: not known.
    pub cost_usd: Option<f64>,
    /// Time between claim and park.
    pub active_ms: u64,
    /// Its lane.
    pub lane: Option<String>,
    /// Where it queues.
    pub inbox: String,
    /// The last place of its journal.
    pub last_seq: u64,
    /// When it was submitted.
    #[schema(schema_with = schema::time)]
    pub created_at: Timestamp,
    /// When it ended.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub finished_at: Option<Timestamp>,
}

impl RunBriefView {
    /// The run behind a row, with a few words about it.
    pub fn new(row: &RunRow, now: String) -> Self {
        Self {
            id: row.id,
            agent: row.agent.to_string(),
            status: row.status,
            reason: row.reason.clone(),
            now,
            turns: row.turns,
            cost_usd: row.cost.map(usd),
            active_ms: row.active.0,
            lane: row.lane.as_ref().map(ToString::to_string),
            inbox: row.inbox.to_string(),
            last_seq: row.last_seq.0,
            created_at: row.created_at,
            finished_at: row.finished_at,
        }
    }
}

/// The result of a completed run.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = Output)]
pub struct OutputView {
    /// The final words.
    pub text: String,
    /// The structured answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = schema::any)]
    pub data: Option<RawJson>,
    /// How sure the agent says it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confidence: Option<u8>,
    /// Things it made.
    #[schema(value_type = Vec<serde_json::Value>)]
    pub artifacts: Vec<RawJson>,
    /// The tools called.
    pub tools_called: Vec<String>,
    /// Tokens.
    pub usage: UsageView,
}

/// Tokens as answers show them.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[schema(as = Usage)]
pub struct UsageView {
    /// Read at the full price.
    pub input_tokens: u64,
    /// Written.
    pub output_tokens: u64,
    /// Read from a cache.
    pub cached_tokens: u64,
    /// Written to a cache.
    #[serde(default)]
    pub cache_write_tokens: u64,
}

impl From<Usage> for UsageView {
    fn from(usage: Usage) -> Self {
        Self {
            input_tokens: usage.input_tokens,
            output_tokens: usage.output_tokens,
            cached_tokens: usage.cached_tokens,
            cache_write_tokens: usage.cache_write_tokens,
        }
    }
}

/// Caps as answers show them; none: no cap.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[schema(as = Budget)]
pub struct BudgetView {
    /// Money.
    pub usd: Option<f64>,
    /// Tokens.
    pub tokens: Option<u64>,
    /// Turns.
    pub turns: Option<u32>,
    /// Active time.
    pub active_ms: Option<u64>,
}

impl From<&Budget> for BudgetView {
    fn from(budget: &Budget) -> Self {
        Self {
            usd: budget.micro_usd.map(usd),
            tokens: budget.tokens,
            turns: budget.turns,
            active_ms: budget.active.map(|span| span.0),
        }
    }
}

/// Money in dollars.
pub fn usd(micros: MicroUsd) -> f64 {
    micros.0 as f64 / 1_000_000.0
}

/// Caps in a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BudgetBody {
    /// Money.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1_000_000_000)]
    pub usd: Option<f64>,
    /// Tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 9_007_199_254_740_991_u64)]
    pub tokens: Option<u64>,
    /// Turns.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 1_000_000_000)]
    pub turns: Option<u32>,
    /// Active time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 9_007_199_254_740_991_u64)]
    pub active_ms: Option<u64>,
    /// From this share on the agent is told to wrap up.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1)]
    pub warn_at: Option<f64>,
}

impl From<BudgetRaise> for BudgetBody {
    fn from(raise: BudgetRaise) -> Self {
        Self {
            usd: raise.micro_usd.map(usd),
            tokens: raise.tokens,
            turns: raise.turns,
            active_ms: raise.active.map(|span| span.0),
            warn_at: None,
        }
    }
}

/// Why a run is cancelled.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CancelBody {
    /// A word for the journal.
    pub reason: String,
}

/// With what a run is resumed.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResumeBody {
    /// Caps that take the place of those in force. They need the role approver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetBody>,
}
