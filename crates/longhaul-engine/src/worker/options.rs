//! Options with which a worker is started, and its hooks: callbacks into the embedding program when
//! runs start, end or park.
//!
//! A hook never delays a run for long: it has a timeout, and a panic in a hook is logged and
//! ignored.

use async_trait::async_trait;
use longhaul_core::event::EVENT_FORMAT;
use longhaul_core::id::{InboxName, RunId};
use longhaul_core::port::queue::{PeekRequest, QueuePosition};
use longhaul_core::port::store::RunRow;
use longhaul_core::time::Millis;

use crate::background::sweep::RunRetention;

/// Default number of worker crashes after which the run that was driven is blocked.
const CRASH_LIMIT: u32 = 4;

/// Options with which a worker is started.
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// Inboxes from which the worker claims runs, in this order.
    pub inboxes: Vec<InboxName>,
    /// Root of the only tree of runs (a run and its descendants) that the worker claims, whatever
    /// their inbox and type. `None` means all runs of the inboxes.
    pub only_tree: Option<RunId>,
    /// Types of the tasks whose runs the worker claims. An empty list means all types.
    pub types: Vec<String>,
    /// Maximum number of runs that the worker drives concurrently.
    pub concurrency: usize,
    /// Duration of the worker's lease. A worker without a heartbeat for this time counts as dead.
    pub lease: Millis,
    /// Interval at which the worker looks for runs when no change notification arrives.
    pub poll: Millis,
    /// Maximum time that runs may continue after shutdown was requested.
    pub drain_timeout: Millis,
    /// Number of worker crashes at the same point of a run after which the run is blocked. `None`
    /// means no limit.
    pub crash_limit: Option<u32>,
    /// Name of the machine on which the worker runs.
    pub host: String,
    /// Version of the build that the worker runs.
    pub build: String,
    /// Settings of how long ended runs are kept.
    pub retention: RunRetention,
}

/// Callbacks that a worker invokes. Every method has an empty default implementation.
#[async_trait]
pub trait WorkerHooks: Send + Sync + std::fmt::Debug {
    /// Called when the worker has claimed a run, before it drives the run.
    async fn on_run_claimed(&self, _run: RunId) {}

    /// Called when a run has completed.
    async fn on_run_completed(&self, _run: &RunRow) {}

    /// Called when a run has failed or was cancelled.
    async fn on_run_failed(&self, _run: &RunRow) {}

    /// Called when a run was parked (it waits for something), paused or released, and this worker
    /// no longer drives it.
    async fn on_run_idle(&self, _run: &RunRow) {}

    /// Called when the worker found no run to claim.
    async fn on_no_run_found(&self) {}
}

/// [`WorkerHooks`] that do nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoHooks;

impl WorkerOptions {
    /// Creates default options for a worker of this inbox.
    pub fn new(inbox: InboxName) -> Self {
        Self {
            inboxes: vec![inbox],
            only_tree: None,
            types: Vec::new(),
            concurrency: 256,
            lease: Millis::from_secs(15),
            poll: Millis::from_secs(1),
            drain_timeout: Millis::from_secs(30),
            crash_limit: Some(CRASH_LIMIT),
            host: "local".to_owned(),
            build: env!("CARGO_PKG_VERSION").to_owned(),
            retention: RunRetention { runs: None },
        }
    }

    /// Returns the request that reads the ready runs of an inbox that the worker may claim.
    pub(super) fn peek_request(
        &self,
        inbox: &InboxName,
        after: Option<QueuePosition>,
        limit: usize,
    ) -> PeekRequest {
        let (inbox, types, host) = (inbox.clone(), self.types.clone(), Some(self.host.clone()));
        PeekRequest { inbox, types, format: EVENT_FORMAT, host, after, limit }
    }
}

impl WorkerHooks for NoHooks {}
