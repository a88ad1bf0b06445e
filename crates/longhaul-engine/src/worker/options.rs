//! Options with which a worker is started.

use longhaul_core::event::EVENT_FORMAT;
use longhaul_core::id::{InboxName, RunId};
use longhaul_core::port::queue::{PeekRequest, QueuePosition};
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
