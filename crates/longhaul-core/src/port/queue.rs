//! Listing the ready runs of an inbox, and selecting the runs that a worker may claim.

use crate::id::{InboxName, LaneKey, RunId};

/// Selection of the runs that a worker may claim with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunsToClaim {
    Runs(Vec<RunId>),
    /// The run with this id and all its descendants.
    Tree(RunId),
}

/// Request to list ready runs of an inbox.
#[derive(Debug, Clone)]
pub struct PeekRequest {
    /// Inbox whose runs are listed.
    pub inbox: InboxName,
    /// Task types to list. Empty means all types.
    pub types: Vec<String>,
    /// Highest version of the event format that the worker can read.
    pub format: u32,
    /// Machine that the worker runs on, for runs that are bound to one machine. `None` leaves such
    /// runs out.
    pub host: Option<String>,
    /// Lists runs behind this position. `None` means from the head of the queue.
    pub after: Option<QueuePosition>,
    /// Maximum number of runs to list.
    pub limit: usize,
}

/// Position of a ready run in the queue of its inbox. Positions compare in queue order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueuePosition {
    /// Negated priority of the run, because higher priorities come first.
    pub rank: i64,
    /// Number that orders runs of the same priority, lower numbers first. Currently always 0.
    pub sort_key: i64,
    /// Id of the ready run. Among runs with equal `rank` and `sort_key`, the older one comes first.
    pub run: RunId,
}

/// State of a lane at the time when it refused a new run, because it contained other runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BusyLane {
    pub lane: LaneKey,
    /// Run that holds the lane. `None` means that the lane is paused.
    pub holder: Option<RunId>,
    /// Run that entered the lane last. It may be the run that holds the lane.
    pub last: RunId,
}
