//! The background sweep of a worker: fires due timers, repairs inconsistent rows of the store and
//! prunes expired data. It also reports the end of a child run to its parent.
//!
//! It finds runs whose driver (the async task that executes a run) has stalled: their worker is alive,
//! but nothing was appended to their journals for a long time although no call is running. Such a
//! run is released, so that it is claimed again. The old driver is stopped, so that another run can
//! use its permit. The store refuses appends of the old driver, because the new claim has a higher
//! epoch.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use longhaul_core::change::{
    Blob, JournalBatch, RowChange, RunSchedulingUpdate, TimerKind, TimerUpdate,
};
use longhaul_core::event::environment::ChildEnded;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::id::{CallId, RunId, Seq, WorkerId};
use longhaul_core::port::records::DueTimer;
use longhaul_core::port::store::{
    AppendRequest, AppendResult, JournalAuthor, PruneRequest, StoreWatcher, WorkerLiveness,
};
use longhaul_core::port::tool::RunClaimId;
use longhaul_core::status::{RunError, RunOutcome, RunOutput, Status};
use longhaul_core::time::Millis;
use longhaul_run::commands::{RunCommand, cancel_request_of_timer, decide_command};
use longhaul_run::state::control::OpenChildRun;
use longhaul_run::{DecisionContext, RunInput, decide};

use crate::drive::truncate::truncate_output;
use crate::error::{Error, Result};
use crate::replay::{replay_run, replay_run_state};
use crate::services::Services;

/// Maximum number of timers fired per batch.
const PAGE_SIZE: usize = 500;

/// Minimum time between two wakeups of the sweep (the background maintenance of a worker) by
/// changes of the store.
const MIN_WAKE_INTERVAL: Millis = Millis(20);

/// Interval at which the store is polled when it reports no change.
const POLL_INTERVAL: Millis = Millis::from_secs(1);

const REPAIR_INTERVAL: Millis = Millis::from_secs(30);
const PRUNE_INTERVAL: Millis = Millis::from_secs(60 * 60);

/// Maximum number of runs pruned per batch. Other writers get a turn between batches.
const PRUNED_RUNS_MAX: usize = 1_000;

/// Number of pruned blobs or keys from which a batch counts as full. After a full batch, more of
/// them may remain to be pruned.
const FULL_BATCH: usize = 1_000;

/// Minimum pause between two prune batches. The pause is at least as long as the last batch took,
/// so that pruning takes at most half of the time.
const PRUNE_PAUSE_MIN: Millis = Millis(10);

/// Minimum age at which unreferenced blobs are pruned. A younger blob may be about to be
/// referenced.
const UNREFERENCED_BLOB_TTL: Millis = Millis::from_secs(24 * 60 * 60);

/// A thousand years, used as the retention time if runs are kept forever.
const FOREVER: Millis = Millis::from_secs(1_000 * 366 * 24 * 60 * 60);

/// Settings of how long ended runs are kept.
#[derive(Debug, Clone, Copy)]
pub struct RunRetention {
    /// How long ended runs are kept. `None` means forever.
    pub runs: Option<Millis>,
}

/// Maximum size in bytes of a child's structured result. A larger one is not copied to the parent.
const DATA_BYTES_MAX: usize = 16 * 1024;

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

/// Fires due timers, repairs inconsistent rows of the store and prunes expired data in a loop,
/// until the store fails.
pub(crate) async fn run_maintenance(
    services: &Services,
    retention: RunRetention,
    stalled_runs: &mut StalledRunDetector,
) -> Result<()> {
    let mut watch = services.store.watch_for_changes();
    let clock = &*services.clock;
    let mut repair_at = clock.monotonic_time();
    let mut prune_at = repair_at;
    let mut checked_at = None;
    loop {
        let wall_time = clock.now();
        if checked_at.is_none_or(|checked_at| wall_time < checked_at) {
            // Delays that began before the clock was set back would last too long.
            let count = services.records.move_delays_set_by_later_clock().await?;
            if count > 0 {
                tracing::warn!(count, "the clock was set back: delays of runs were shortened");
            }
        }
        checked_at = Some(wall_time);
        let fire_outcome = fire_due_timers(services).await?;
        let now = clock.monotonic_time();
        if repair_at <= now {
            repair_at = now.plus(REPAIR_INTERVAL);
            repair_store_rows(services).await?;
            stalled_runs.release_stalled_runs(services).await?;
        }
        if prune_at <= now {
            let has_more = prune_expired_data(services, retention).await?;
            let finished_at = clock.monotonic_time();
            prune_at = finished_at.plus(match has_more {
                true => finished_at.minus(now).max(PRUNE_PAUSE_MIN),
                false => PRUNE_INTERVAL,
            });
        }
        match fire_outcome {
            TimerBatch::All => wait_for_due_timer(services, &mut *watch, prune_at).await?,
            TimerBatch::Some => {}
            TimerBatch::None => clock.sleep(POLL_INTERVAL).await,
        }
    }
}

/// Waits until a timer may be due, at most until the monotonic clock reaches `latest`.
async fn wait_for_due_timer(
    services: &Services,
    watch: &mut dyn StoreWatcher,
    latest: Millis,
) -> Result<()> {
    let clock = &*services.clock;
    let started = clock.monotonic_time();
    let next = services.records.next_timer_due().await?;
    let now = clock.now();
    let delay = next.map_or(POLL_INTERVAL, |due| {
        let delay = due.duration_since(now);
        // Rounded up: a wait that ends too early would be repeated at once.
        delay.plus(Millis(u64::from(now.plus(delay) < due)))
    });
    tokio::select! {
        biased;
        () = clock.sleep(delay.min(POLL_INTERVAL).min(latest.minus(started))) => {}
        changed = watch.wait_for_change() => {
            changed?;
            let elapsed = clock.monotonic_time().minus(started);
            clock.sleep(MIN_WAKE_INTERVAL.minus(elapsed)).await;
        }
    }
    Ok(())
}

/// Outcome of firing a batch of due timers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimerBatch {
    /// All due timers were fired.
    All,
    /// One batch was fired; more timers may be due.
    Some,
    /// None of the due timers could be fired. Trying again at once would find the same timers.
    None,
}

async fn fire_due_timers(services: &Services) -> Result<TimerBatch> {
    let due = services.records.due_timers(PAGE_SIZE).await?;
    let count = due.len();
    let mut fired_count = 0;
    for timer in due {
        fired_count += usize::from(try_fire_timer(services, timer).await?);
    }
    Ok(match (count, fired_count) {
        (0, _) => TimerBatch::All,
        (_, 0) => TimerBatch::None,
        (PAGE_SIZE.., _) => TimerBatch::Some,
        (_, _) => TimerBatch::All,
    })
}

/// Fires one timer. Returns `false` if the timer could not be fired.
async fn try_fire_timer(services: &Services, due: DueTimer) -> Result<bool> {
    if cancel_run_if_no_driver(services, &due).await? {
        return Ok(true);
    }
    let run = due.run;
    let now = services.records.now().await?;
    let Some((status, author)) = run_status_and_author(services, &due).await? else {
        return Ok(false);
    };
    let command = if let (TimerKind::ChildEnded(child), false) = (&due.kind, due.run_ended) {
        match child_end_command(services, &due, *child).await {
            // Other timers must fire all the same.
            Err(Error::InvalidJournal(error)) => {
                tracing::warn!(%run, %child, %error, "the journal of a parent run can't be read");
                return Ok(false);
            }
            report => report?,
        }
    } else {
        RunCommand::Timer(Box::new(due))
    };
    let Ok(batch) = decide_command(run, status, command, DecisionContext::new(now)) else {
        return Ok(false);
    };
    let appended = services.append_and_notify(AppendRequest { run, author, batch }).await?;
    Ok(matches!(appended, AppendResult::Committed { .. }))
}

/// Returns what is needed to append the events of a timer: the status of the timer's run, and the
/// author of the append. For a timer that approves a gate automatically, the author is such that
/// the append fails if the run's journal has grown meanwhile. `None` means that the run does not
/// exist.
async fn run_status_and_author(
    services: &Services,
    due: &DueTimer,
) -> Result<Option<(Status, JournalAuthor)>> {
    if !matches!(due.kind, TimerKind::GateAutoApprove(_)) || due.open_gate.is_none() {
        // The timer is fired whatever the status of the run; the store checks in the row whether the
        // run has ended.
        return Ok(Some((Status::Running, JournalAuthor::Outsider)));
    }
    // A person may answer or pause the run in the meantime, so the approval names the last event.
    let row = services.store.get_run(due.run).await?;
    Ok(row.map(|row| (row.status, JournalAuthor::Closer { after: row.last_seq })))
}

/// Cancels the run of a timer if the timer was set to cancel the run and no worker drives the run.
/// The run then ends even if no worker serves its inbox. Returns `false` if nothing was changed.
async fn cancel_run_if_no_driver(services: &Services, due: &DueTimer) -> Result<bool> {
    let Some(request) = cancel_request_of_timer(due) else { return Ok(false) };
    let run = due.run;
    // A journal that can't be replayed gets the request to cancel as an event.
    let Ok((folded, now)) = replay_run(services, run).await else { return Ok(false) };
    let Ok(mut batch) = decide(&folded, RunInput::CancelNow(request), DecisionContext::new(now))
    else {
        return Ok(false);
    };
    batch.changes.push(RowChange::SetTimer(TimerUpdate::Consume(due.timer)));
    let author = JournalAuthor::Closer { after: folded.seq() };
    let appended = services.append_and_notify(AppendRequest { run, author, batch }).await?;
    Ok(matches!(appended, AppendResult::Committed { .. }))
}

async fn repair_store_rows(services: &Services) -> Result<()> {
    let repairs = services.records.repair_inconsistent_rows().await?;
    if !repairs.is_all_zero() {
        tracing::error!(?repairs, "repaired inconsistent rows of the store");
        services.notifier.notify_runs_ready();
    }
    Ok(services.records.wake_runs_waiting_at_caps().await?)
}

/// Prunes one batch of expired data. Returns whether more expired data may remain.
async fn prune_expired_data(services: &Services, retention: RunRetention) -> Result<bool> {
    // Unreferenced blobs are pruned even if runs are kept forever.
    let request = PruneRequest {
        runs_older_than: retention.runs.unwrap_or(FOREVER),
        blobs_older_than: UNREFERENCED_BLOB_TTL,
        limit: PRUNED_RUNS_MAX,
    };
    let outcome = services.store.prune_old_data(request).await?;
    Ok(outcome.runs >= PRUNED_RUNS_MAX || outcome.blobs.max(outcome.idempotency_keys) >= FULL_BATCH)
}

/// Returns the command that reports the outcome of the run `child` to its parent, whose timer `due`
/// has fired. A child whose journal was deleted or can't be read counts as failed, so that the
/// parent continues.
pub(crate) async fn child_end_command(
    services: &Services,
    due: &DueTimer,
    child: RunId,
) -> Result<RunCommand> {
    let failed = |code, message| RunOutcome::Failed(RunError::new(code, message, ""));
    let deleted =
        || failed("run_deleted", "its journal has been deleted, so its result is unknown");
    let mut submitters = Vec::new();
    let outcome = match replay_run_state(services, child).await {
        Ok((run, _)) => {
            submitters = run.submitters().names_except(None);
            run.outcome().cloned().unwrap_or_else(deleted)
        }
        Err(Error::RunNotFound(_)) => deleted(),
        Err(Error::InvalidJournal(_)) => {
            failed("invalid_journal", "its journal can't be read, so its result is unknown")
        }
        Err(error) => return Err(error),
    };
    let (parent, _) = replay_run_state(services, due.run).await?;
    let known = parent.submitters().names_except(None);
    submitters.retain(|name| !known.contains(name));
    let open = parent.control().children.iter().find(|open| open.id == child);
    let (outcome, full) = match (outcome, open) {
        (RunOutcome::Completed(output), Some(OpenChildRun { call: Some(call), .. })) => {
            truncate_child_output(*call, output)
        }
        // The result of a grading run is bounded by its schema.
        (outcome, _) => (outcome, None),
    };
    let full_ref = full.as_ref().map(|blob| blob.blob_ref);
    let ended = Box::new(ChildEnded { child, outcome, full: full_ref, submitters });
    Ok(RunCommand::ChildEnded { ended, full, timer: due.timer })
}

/// Returns the outcome of a completed child with a long text truncated, and the full text as a blob
/// to be stored. `None` means that the text was not truncated.
fn truncate_child_output(call: CallId, output: RunOutput) -> (RunOutcome, Option<Blob>) {
    let data = output.data.filter(|data| data.as_str().len() <= DATA_BYTES_MAX);
    let (shown, full) = truncate_output(call, ToolOutput::text(output.text));
    let text = shown.joined_text();
    (RunOutcome::Completed(RunOutput { text, data, ..RunOutput::default() }), full)
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
                let first_check = LastCheckedRun { worker, last_seq, since: now };
                current.insert(run, before.filter(is_same).unwrap_or(first_check));
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
        services.counters.stalled_runs.fetch_add(1, Ordering::Relaxed);
        tracing::error!(
            %run, worker = %last_check.worker,
            "released a run: its driver has written nothing for 10 minutes and no call is running"
        );
        services.notifier.stop_driver(RunClaimId { run, epoch });
        services.notifier.notify_runs_ready();
    }
    Ok(())
}
