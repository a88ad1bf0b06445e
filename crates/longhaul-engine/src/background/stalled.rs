//! Finds runs whose driver (the async task that executes a run) has stalled: their worker is alive,
//! but nothing was appended to their journals for a long time although no call is running. Such a
//! run is released, so that it is claimed again. The old driver is stopped, so that another run can
//! use its permit. The store refuses appends of the old driver, because the new claim has a higher
//! epoch.

use std::collections::BTreeMap;

use longhaul_core::change::{JournalBatch, RowChange, RunSchedulingUpdate};
use longhaul_core::id::{RunId, Seq, WorkerId};
use longhaul_core::port::store::{AppendRequest, AppendResult, JournalAuthor, WorkerLiveness};
use longhaul_core::port::tool::RunClaimId;
use longhaul_core::time::Millis;

use crate::error::Result;
use crate::replay::replay_run_state;
use crate::services::Services;

/// Time without a journal entry after which a driver without a running call counts as stalled. Longer
/// than everything that a driver waits for without a call, such as external tools.
const STALL_TIMEOUT: Millis = Millis::from_secs(10 * 60);

/// Finds and releases runs whose driver (the async task that executes a run) has stalled.
#[derive(Debug, Default)]
pub(crate) struct StalledRunDetector {
    seen: BTreeMap<RunId, LastCheckedRun>,
}

/// Worker and last journal entry of a claimed run, as the last check for stalled drivers found
/// them.
#[derive(Debug, Clone, Copy)]
struct LastCheckedRun {
    worker: WorkerId,
    last_seq: Seq,
    /// Time of the monotonic clock at which the run was first seen with this worker and this last
    /// journal entry.
    since: Millis,
}

impl StalledRunDetector {
    /// Looks at all claimed runs and releases those whose driver has stalled.
    pub(crate) async fn release_stalled_runs(&mut self, services: &Services) -> Result<()> {
        let now = services.clock.monotonic_time();
        let mut current = BTreeMap::new();
        for row in services.records.list_workers().await? {
            if row.liveness == WorkerLiveness::Dead || row.runs == 0 {
                continue;
            }
            let worker = row.worker;
            for (run, last_seq) in services.records.claimed_runs_with_last_seq(worker).await? {
                let before = self.seen.get(&run).copied();
                let is_same = |last_check: &LastCheckedRun| {
                    last_check.worker == worker && last_check.last_seq == last_seq
                };
                let last_check = before.filter(is_same);
                current.insert(
                    run,
                    last_check.unwrap_or(LastCheckedRun { worker, last_seq, since: now }),
                );
            }
        }
        self.seen = current;
        for (run, last_check) in &self.seen {
            if now.minus(last_check.since) < STALL_TIMEOUT {
                continue;
            }
            // An error concerns one run, for example its journal; the others are still released.
            if let Err(error) = release_run_if_stalled(services, *run, *last_check).await {
                tracing::warn!(%run, %error, "could not check whether the driver of the run has stalled");
            }
        }
        Ok(())
    }
}

/// Releases a claimed run whose journal has not grown for too long, unless a call is running.
async fn release_run_if_stalled(
    services: &Services,
    run: RunId,
    last_check: LastCheckedRun,
) -> Result<()> {
    let (folded, _) = replay_run_state(services, run).await?;
    if folded.seq() != last_check.last_seq || !folded.expects_events_from_driver() {
        return Ok(());
    }
    // Without an event: like a crash, the takeover counts towards the crash limit of the run. The
    // store refuses the release if the driver has appended something meanwhile.
    let epoch = folded.control().driver.epoch;
    let author =
        JournalAuthor::Driver { worker: last_check.worker, epoch, after: last_check.last_seq };
    let changes = vec![RowChange::UpdateScheduling(RunSchedulingUpdate::Release)];
    let batch = JournalBatch { events: Vec::new(), changes };
    let appended = services.store.append_to_journal(AppendRequest { run, author, batch }).await?;
    if let AppendResult::Committed { .. } = appended {
        services.counters.count_stalled_run();
        tracing::error!(
            %run, worker = %last_check.worker,
            "released a run: its driver has written nothing for 10 minutes and no call is running"
        );
        services.notifier.stop_driver(RunClaimId { run, epoch });
        services.notifier.notify_runs_ready();
    }
    Ok(())
}
