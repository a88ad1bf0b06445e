//! Which inboxes the live workers serve, and explanations of runs whose inbox no worker serves.

use longhaul_core::id::InboxName;
use longhaul_core::port::records::WorkerRow;
use longhaul_core::port::store::{RunRow, WorkerLiveness};

use crate::error::Error;
use crate::handle::Longhaul;

/// The live workers of a store, each with the inboxes and types that it serves.
#[derive(Debug)]
pub(super) struct LiveWorkers(Vec<WorkerRow>);

impl Longhaul {
    /// Returns the workers that have sent a heartbeat within the duration of their lease.
    pub(super) async fn live_workers(&self) -> Result<LiveWorkers, Error> {
        let mut workers = self.services.records.list_workers().await?;
        let now = self.store_time().await?;
        workers.retain(|worker| {
            worker.liveness == WorkerLiveness::Live
                && worker.heartbeat_at.is_within(worker.ttl, now)
        });
        Ok(LiveWorkers(workers))
    }

    /// Explains that workers run, but none of them takes this run. Returns `None` if one does.
    /// `workers` are the live workers, if they were read before.
    pub(super) async fn unserved_reason(
        &self,
        row: &RunRow,
        workers: &mut Option<LiveWorkers>,
    ) -> Result<Option<String>, Error> {
        // Whether a run is in the queue, for the first time or again.
        if row.reason.as_deref() != Some("worker") {
            return Ok(None);
        }
        let workers = match workers {
            Some(workers) => workers,
            None => workers.insert(self.live_workers().await?),
        };
        Ok(workers.unserved_reason(row))
    }
}

impl LiveWorkers {
    /// Returns whether no worker is live.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether a worker claims runs from this inbox.
    pub(super) fn serve(&self, inbox: &str) -> bool {
        self.serving(inbox).next().is_some()
    }

    fn serving(&self, inbox: &str) -> impl Iterator<Item = &WorkerRow> {
        let serves = move |served: &InboxName| served.as_str() == inbox;
        self.0.iter().filter(move |worker| worker.inboxes.iter().any(serves))
    }

    fn unserved_reason(&self, row: &RunRow) -> Option<String> {
        if self.0.is_empty() {
            return None;
        }
        let inbox = &row.inbox;
        let mut serving = self.serving(inbox.as_str()).peekable();
        if serving.peek().is_none() {
            return Some(format!(
                "No worker serves the inbox `{inbox}`: add it to `[worker] inboxes` in \
                 longhaul.toml, or to the `--inbox` options of the worker, and restart the worker."
            ));
        }
        let takes = |worker: &WorkerRow| {
            worker.types.is_empty()
                || row.kind.as_ref().is_some_and(|kind| worker.types.contains(kind))
        };
        if serving.any(takes) {
            return None;
        }
        let what = match &row.kind {
            Some(kind) => format!("tasks of the type `{kind}`"),
            None => "tasks without a type".to_owned(),
        };
        Some(format!(
            "The workers of the inbox `{inbox}` do not take {what}: restart one with another \
             `--type`, or without it."
        ))
    }
}
