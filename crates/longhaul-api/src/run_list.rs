//! Lists of runs in responses, and counts of runs.

use longhaul_core::id::RunId;
use longhaul_core::port::store::{RunCounts, RunRow};
use longhaul_core::status::Status;
use longhaul_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::run::{ProgressView, RunChainView, RunView, micro_usd_to_usd};

/// Short form of a run for lists, without data for which the journal would have to be read.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = RunBrief)]
pub struct RunBriefView {
    /// Id of the run.
    pub id: RunId,
    /// Name of the run's agent.
    pub agent: String,
    /// Status of the run, such as running, waiting or completed.
    pub status: Status,
    /// Reason for the status, for example what the run waits for.
    pub reason: Option<String>,
    /// What the run does now, in a few words.
    pub now: String,
    /// First words of the task, on one line.
    #[serde(default)]
    pub title: String,
    /// Progress that the agent reported last. `None` if it has reported none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<ProgressView>,
    /// Error code of the run. `None` unless the run has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// Number of turns that the run has completed.
    pub turns: u32,
    /// Cost of the run so far in US dollars. `None` means that the price is not known.
    pub cost_usd: Option<f64>,
    /// Total time of the model calls, tool calls and context fetches of the run, in milliseconds.
    pub active_ms: u64,
    /// Run that started this run. `None` for a root run.
    pub parent: Option<RunId>,
    /// Chain that this run is a step of. `None` if the run belongs to no chain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<RunChainView>,
    /// Lane of the run. Runs of one lane execute one at a time.
    pub lane: Option<String>,
    /// Inbox in which the run was queued.
    pub inbox: String,
    /// Sequence number of the last entry in the run's journal.
    pub last_seq: u64,
    /// Time at which the run was submitted.
    pub created_at: Timestamp,
    /// Time at which the run ended. `None` means that it has not ended.
    pub finished_at: Option<Timestamp>,
}

impl RunBriefView {
    /// Builds the short form of a run from its row in the store. `current_activity`
    /// describes what the run does now.
    pub fn brief_view_of_row(row: &RunRow, current_activity: String) -> Self {
        Self {
            id: row.id,
            agent: row.agent.to_string(),
            status: row.status,
            reason: row.reason.clone(),
            now: current_activity,
            title: row.title.clone(),
            progress: row.progress.as_ref().map(ProgressView::from),
            error_code: row.code.clone(),
            turns: row.turns,
            cost_usd: row.cost.map(micro_usd_to_usd),
            active_ms: row.active.0,
            parent: row.parent,
            chain: row.chain.as_ref().map(RunChainView::from),
            lane: row.lane.as_ref().map(ToString::to_string),
            inbox: row.inbox.to_string(),
            last_seq: row.last_seq.0,
            created_at: row.created_at,
            finished_at: row.finished_at,
        }
    }
}

/// Numbers of runs in the store, and what they have cost.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = RunCounts)]
pub struct RunCountsView {
    /// Number of all runs, including child runs.
    pub total: u64,
    /// Number of runs that have not ended.
    pub open: u64,
    /// Number of open runs that wait for a person: for an answer, for help or for a higher budget.
    pub waiting_for_person: u64,
    /// Number of failed runs that nobody has retried, without child runs.
    pub failed: u64,
    /// Total cost of all model calls with a known price, in US dollars.
    pub cost_usd: f64,
    /// Number of runs with a model call whose price is unknown.
    pub unpriced: u64,
}

impl From<RunCounts> for RunCountsView {
    fn from(counts: RunCounts) -> Self {
        let RunCounts { total, open, waiting_for_person, failed, cost, unpriced } = counts;
        let cost_usd = micro_usd_to_usd(cost);
        Self { total, open, waiting_for_person, failed, cost_usd, unpriced }
    }
}

/// A page of runs.
#[derive(Debug, Serialize, ToSchema)]
pub struct RunList {
    /// Runs of this page, newest first. With `brief` they have the short form `RunBrief`.
    pub data: Vec<FullOrBriefRun>,
    /// Value of the `after` parameter for the next page. `None` means that this is the last page.
    pub next: Option<String>,
}

/// A run in full or in short form.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub enum FullOrBriefRun {
    /// All fields of the run.
    Full(Box<RunView>),
    /// Short form of the run, for lists.
    Brief(Box<RunBriefView>),
}

/// Runs that were deleted, and what is kept.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = DeletedRun)]
pub struct DeletedRunView {
    /// Id of the root of the deleted runs.
    pub id: RunId,
    /// Ids of all deleted runs: the run, its child runs, and the other runs of its chain.
    pub runs: Vec<RunId>,
    /// Number of deleted notes that the runs wrote about resources.
    pub notes: u64,
    /// What is kept, and why, each as a phrase.
    pub kept: Vec<String>,
}
