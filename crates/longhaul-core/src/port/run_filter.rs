//! Which runs a list contains, in which order, and how many runs a store has.

use crate::id::{AgentName, InboxName, LaneKey, ResourceKey, RunId, ThreadKey};
use crate::status::Status;
use crate::text_macros::string_enum;
use crate::time::Timestamp;
use crate::usage::MicroUsd;

/// Filter for listing runs. All restrictions apply together.
#[derive(Debug, Clone, Default)]
pub struct RunFilter {
    /// Statuses of the runs to list. Empty means all statuses.
    pub statuses: Vec<Status>,
    /// Reasons for waiting, or error codes, of the runs to list. Empty means no restriction.
    pub reasons: Vec<String>,
    /// Restricts the list to runs of this agent. `None` means no restriction.
    pub agent: Option<AgentName>,
    /// Restricts the list to runs in this lane. `None` means no restriction.
    pub lane: Option<LaneKey>,
    /// Restricts the list to runs in this inbox. `None` means no restriction.
    pub inbox: Option<InboxName>,
    /// Restricts the list to runs of this thread. `None` means no restriction.
    pub thread: Option<ThreadKey>,
    /// Restricts the list to runs about this resource. `None` means no restriction.
    pub resource: Option<ResourceKey>,
    /// Restricts the list to runs with this tag. `None` means no restriction.
    pub tag: Option<String>,
    /// Restricts the list to runs whose task contains this text, in any case. `None` means no
    /// restriction.
    pub search: Option<String>,
    /// Restricts the list to runs submitted at this time or later. `None` means no restriction.
    pub since: Option<Timestamp>,
    /// Restricts the list to runs submitted before this time. `None` means no restriction.
    pub until: Option<Timestamp>,
    /// Restricts the list to runs that no later run retries.
    pub not_retried: bool,
    /// Restricts the list to runs that somebody has submitted: without child runs, and of each
    /// chain only the newest run.
    pub roots_only: bool,
    /// Restricts the list to runs that need a person: those that wait for one, and failed runs that
    /// are no child runs and that no later run retries.
    pub needs_person: bool,
    /// Restricts the list to the tree of runs with this root, including the root. `None` means no
    /// restriction.
    pub root: Option<RunId>,
    /// Restricts the list to the child runs of this run. `None` means no restriction.
    pub parent: Option<RunId>,
    /// Order of the list.
    pub sort: RunSort,
    /// Continues after this run in the order of the list. `None` means from the first run.
    pub after: Option<RunId>,
    /// Maximum number of runs to list.
    pub limit: usize,
}

string_enum! {
    /// Order of a list of runs. Runs with equal values are ordered by age, the newest first.
    #[derive(Default)]
    pub enum RunSort {
        /// The run submitted last comes first.
        #[default]
        Created = "created",
        /// The run that was claimed for the first time last comes first; runs never claimed are last.
        Started = "started",
        /// The run with the highest known cost comes first.
        Cost = "cost",
        /// The run with the longest active time comes first.
        Active = "active",
        /// The run that has waited longest since it was submitted comes first.
        Waiting = "waiting",
    }
}

/// Numbers of runs in a store, and what they have cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunCounts {
    /// Number of all runs, including child runs.
    pub total: u64,
    /// Number of runs that have not ended.
    pub open: u64,
    /// Number of open runs that wait for a person.
    pub waiting_for_person: u64,
    /// Number of failed runs that are no child runs and that no later run retries.
    pub failed: u64,
    /// Total cost of all model calls with a known price.
    pub cost: MicroUsd,
    /// Number of runs with a model call whose price is unknown.
    pub unpriced: u64,
}
