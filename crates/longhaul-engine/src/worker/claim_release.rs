//! Ends a worker's claim of a run that has not ended: the run is parked, or released to be claimed
//! again.

use longhaul_core::change::{
    JournalBatch, RowChange, RunSchedulingUpdate, TimerDueTime, TimerKind, TimerUpdate,
};
use longhaul_core::id::{TimerId, WorkerId};
use longhaul_core::port::store::{AppendRequest, AppendResult, Claim, JournalAuthor};
use longhaul_core::time::Millis;
use longhaul_core::wait::WaitKind;
use longhaul_run::{DecisionContext, RunInput, decide};

use crate::error::Result;
use crate::replay::replay_run_state;
use crate::services::Services;

/// Delay before a run whose driver (the async task that executes it) failed is claimed again.
const ERROR_DELAY: Millis = Millis::from_secs(30);

/// Parks a run whose driver failed. After a delay the run is claimed again under a new epoch (claim
/// number), so that unfinished calls are in doubt (their outcome is unknown) and are not simply
/// repeated.
pub(crate) async fn park_run_after_error(
    services: &Services,
    worker: WorkerId,
    claimed: &Claim,
) -> Result<()> {
    let run = claimed.run;
    let now = services.records.now().await?;
    let arm = TimerUpdate::Arm {
        timer: TimerId::derive(run.bits(), &format!("retry:{}", claimed.epoch.0), now),
        run,
        due: TimerDueTime::After(ERROR_DELAY),
        kind: TimerKind::Delay(ERROR_DELAY),
    };
    let park = RunSchedulingUpdate::Park {
        reason: WaitKind::Retry.code(),
        blocked: false,
        release_lane: false,
    };
    let changes = vec![RowChange::SetTimer(arm), RowChange::UpdateScheduling(park)];
    change_claimed_run(services, worker, claimed, changes).await
}

/// Releases a claimed run, so that another worker can claim it and restart what may be repeated. A
/// release event is appended where possible, so that the release does not count as a crash.
pub(crate) async fn release_run(
    services: &Services,
    worker: WorkerId,
    claimed: &Claim,
) -> Result<()> {
    let Claim { run, epoch, .. } = *claimed;
    let (folded, now) = replay_run_state(services, run).await?;
    if let Ok(batch) = decide(&folded, RunInput::Release, DecisionContext::new(now)) {
        let author = JournalAuthor::Driver { worker, epoch, after: folded.seq() };
        let appended =
            services.store.append_to_journal(AppendRequest { run, author, batch }).await?;
        if appended != AppendResult::Conflict {
            return Ok(());
        }
    }
    let changes = vec![RowChange::UpdateScheduling(RunSchedulingUpdate::Release)];
    change_claimed_run(services, worker, claimed, changes).await
}

/// Changes rows of a run in the store without appending an event. Does nothing if the claim is no
/// longer valid.
pub(crate) async fn change_claimed_run(
    services: &Services,
    worker: WorkerId,
    claimed: &Claim,
    changes: Vec<RowChange>,
) -> Result<()> {
    let run = claimed.run;
    loop {
        let Some(row) = services.store.get_run(run).await? else { return Ok(()) };
        let author = JournalAuthor::Driver { worker, epoch: claimed.epoch, after: row.last_seq };
        let batch = JournalBatch { events: Vec::new(), changes: changes.clone() };
        // On a conflict the same changes are tried again after the new last entry.
        let appended =
            services.store.append_to_journal(AppendRequest { run, author, batch }).await?;
        if appended != AppendResult::Conflict {
            return Ok(());
        }
    }
}
