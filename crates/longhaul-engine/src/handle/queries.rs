//! Looks at runs: one whole, many by their rows, one with its reason.
//!
//! Never: changes anything.

use std::collections::BTreeMap;

use longhaul_core::event::entry::Entry;
use longhaul_core::id::{LaneKey, RunId, Seq};
use longhaul_core::policy::gate::{GateRow, GateStatus};
use longhaul_core::port::records::{GlobalPage, GlobalSeq, WorkerRow};
use longhaul_core::port::store::{GateFilter, ReadRequest, RunFilter, RunRow, WorkerLiveness};
use longhaul_core::status::Status;
use longhaul_core::time::Timestamp;
use longhaul_run::Run;
use longhaul_run::explain::explain;

use crate::error::Error;
use crate::handle::Longhaul;
use crate::run_session::{fold, fold_outline};
use crate::view::run_view;
use longhaul_api::lane::LaneView;
use longhaul_api::run::{RunBriefView, RunView};
use longhaul_api::why::WhyView;

/// So many open gates are looked at for a list.
const GATES_MAX: usize = 1_000;

impl Longhaul {
    /// One run, whole.
    pub async fn show(&self, run: RunId) -> Result<RunView, Error> {
        let row = self.run_row(run).await?;
        let (folded, now) = fold_outline(&self.services, run).await?;
        Ok(run_view(&row, &folded, now))
    }

    /// One run, folded.
    pub async fn fold(&self, run: RunId) -> Result<Run, Error> {
        Ok(fold(&self.services, run).await?.0)
    }

    /// Runs, newest first, as briefly as lists show them.
    pub async fn list_brief(&self, ask: RunFilter) -> Result<Vec<RunBriefView>, Error> {
        let rows = self.services.store.list_runs(ask).await?;
        let waits = rows.iter().any(|row| matches!(row.status, Status::Waiting | Status::Blocked));
        let mut asks: BTreeMap<RunId, GateRow> = BTreeMap::new();
        if waits {
            let ask = GateFilter {
                status: Some(GateStatus::Open),
                limit: GATES_MAX,
                ..GateFilter::default()
            };
            let open = self.services.store.list_gates(ask).await?;
            // Newest first, so that the oldest of a run is what it waits for.
            asks.extend(open.into_iter().map(|gate| (gate.run, gate)));
        }
        let brief = |row: &RunRow| RunBriefView::new(row, activity(row, asks.get(&row.id)));
        Ok(rows.iter().map(brief).collect())
    }

    /// The lanes with anybody in them, by name.
    pub async fn lanes(
        &self,
        after: Option<&LaneKey>,
        limit: usize,
    ) -> Result<Vec<LaneView>, Error> {
        let rows = self.services.records.lanes(after, limit).await?;
        Ok(rows.iter().map(LaneView::from).collect())
    }

    /// What was written to all journals after a place, in the order of writing.
    pub async fn read_all(&self, after: GlobalSeq, limit: usize) -> Result<GlobalPage, Error> {
        Ok(self.services.records.read_all(after, limit).await?)
    }

    /// The place of what was written last.
    pub async fn last_global_seq(&self) -> Result<GlobalSeq, Error> {
        Ok(self.services.records.last_global_seq().await?)
    }

    /// Whether somebody drives now.
    pub async fn has_driver(&self) -> Result<bool, Error> {
        Ok(self.services.records.has_driver().await?)
    }

    /// Whether a worker has given a sign of life just now, which it can only do
    /// by writing to the store.
    pub async fn has_live_worker(&self) -> Result<bool, Error> {
        let workers = self.services.records.workers().await?;
        let now = self.store_time().await?;
        let live = |worker: &WorkerRow| {
            worker.liveness == WorkerLiveness::Live
                && worker.heartbeat_at.is_within(worker.ttl, now)
        };
        Ok(workers.iter().any(live))
    }

    /// One run's row.
    pub async fn run_row(&self, run: RunId) -> Result<RunRow, Error> {
        self.services.store.get_run(run).await?.ok_or(Error::RunNotFound(run))
    }

    /// Why a run stands as it does, as answers show it.
    pub async fn why_view(&self, run: RunId) -> Result<WhyView, Error> {
        let (folded, _) = fold_outline(&self.services, run).await?;
        let said = explain(&folded);
        let row = self.run_row(run).await?;
        // What the journal can't know stands in its row: a lane, a batch, a start.
        let sentence = queue_reason(&row).unwrap_or(said.message);
        Ok(WhyView {
            run,
            status: row.status,
            reason: row.reason,
            message: sentence,
            command: said.command,
        })
    }

    /// A part of a run's journal.
    pub async fn events(&self, run: RunId, after: Seq, limit: usize) -> Result<Vec<Entry>, Error> {
        let page = self.services.store.read(ReadRequest { run, after, limit }).await?;
        if page.last_seq == Seq::START {
            return Err(Error::RunNotFound(run));
        }
        Ok(page.entries)
    }

    /// The store's time.
    pub async fn store_time(&self) -> Result<Timestamp, Error> {
        Ok(self.services.records.now().await?)
    }
}

/// What a run waits for that only its row knows.
fn queue_reason(row: &RunRow) -> Option<String> {
    let lane = row.lane.as_ref().map(ToString::to_string);
    match row.reason.as_deref()? {
        "lane" => Some(format!(
            "It waits for the run before it in the lane `{}`.",
            lane.unwrap_or_default()
        )),
        "start_at" => Some("It waits for its start time.".to_owned()),
        "batch" => Some("It waits for the run before it in its batch.".to_owned()),
        _ => None,
    }
}

/// A few words for a list.
fn activity(row: &RunRow, gate: Option<&GateRow>) -> String {
    match (row.status, gate) {
        (Status::Waiting | Status::Blocked, Some(gate)) => gate.spec.ask.clone(),
        (Status::Pending | Status::Waiting, None) => {
            queue_reason(row).unwrap_or_else(|| match row.reason.as_deref() {
                Some("worker") | None => "waits for a worker".to_owned(),
                Some(reason) => format!("waits: {}", reason.replace('_', " ")),
            })
        }
        (Status::Pending, Some(_)) => "waits for a worker".to_owned(),
        (Status::Running, _) => format!("turn {}", row.turns + 1),
        (Status::Blocked, None) => "a part is missing".to_owned(),
        (Status::Paused, _) => "a person has paused it".to_owned(),
        (Status::Completed, _) => "done".to_owned(),
        (Status::Failed, _) => row.code.clone().unwrap_or_else(|| "failed".to_owned()),
        (Status::Cancelled, _) => "cancelled".to_owned(),
    }
}
