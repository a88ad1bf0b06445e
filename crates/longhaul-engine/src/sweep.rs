//! Tells timers that are due, mends rows that crossed each other, and forgets
//! what is past its keep.
//!
//! Never: decides what a timer means. It is an outsider like any other.

use longhaul_core::port::records::DueTimer;
use longhaul_core::port::store::{AppendRequest, Appended, Author, PruneRequest, Watch};
use longhaul_core::status::Status;
use longhaul_core::time::Millis;
use longhaul_run::DecideContext;
use longhaul_run::commands::{RunCommand, RunSnapshot, decide_command};

use crate::error::Error;
use crate::services::EngineServices;

/// So many timers are told at once.
const PAGE_SIZE: usize = 500;

/// Changes are heard at most this often.
const MIN_WAKE_INTERVAL: Millis = Millis(20);

/// Without a change it is looked this often.
const POLL_INTERVAL: Millis = Millis::from_secs(1);

const REPAIR_INTERVAL: Millis = Millis::from_secs(30);
const PRUNE_INTERVAL: Millis = Millis::from_secs(60 * 60);

/// Maximum number of runs that are forgotten before writers get a pause.
const PRUNED_RUNS_MAX: usize = 1_000;

/// Number of forgotten contents or keys from which on there may be more.
const FULL_BATCH: usize = 1_000;

/// Shortest pause between two lots of forgotten runs. A longer one is as long as the lot
/// before it took: forgetting takes half of the time at most.
const PRUNE_PAUSE_MIN: Millis = Millis(10);

/// A blob that nobody names is kept for a day: a writer may be about to.
const UNREFERENCED_BLOB_TTL: Millis = Millis::from_secs(24 * 60 * 60);

/// A thousand years: longer than any run is kept.
const FOREVER: Millis = Millis::from_secs(1_000 * 366 * 24 * 60 * 60);

/// How long ended runs are kept.
#[derive(Debug, Clone, Copy)]
pub struct Retention {
    /// None: for ever.
    pub runs: Option<Millis>,
}

/// Sweeps until the store is gone.
pub(crate) async fn sweep(ports: &EngineServices, retention: Retention) -> Result<(), Error> {
    let mut watch = ports.store.watch();
    let clock = &*ports.clock;
    let mut repair_at = clock.monotonic();
    let mut prune_at = repair_at;
    loop {
        let told = fire_due_timers(ports).await?;
        let now = clock.monotonic();
        if repair_at <= now {
            repair_at = now.plus(REPAIR_INTERVAL);
            repair(ports).await?;
        }
        if prune_at <= now {
            let has_more = prune(ports, retention).await?;
            let done = clock.monotonic();
            prune_at = done.plus(match has_more {
                true => done.minus(now).max(PRUNE_PAUSE_MIN),
                false => PRUNE_INTERVAL,
            });
        }
        match told {
            FiredTimers::All => wait(ports, &mut *watch, prune_at).await?,
            FiredTimers::Some => {}
            FiredTimers::None => clock.sleep(POLL_INTERVAL).await,
        }
    }
}

/// Waits until a timer may be due, and at most until the monotonic clock is at `latest`.
async fn wait(ports: &EngineServices, watch: &mut dyn Watch, latest: Millis) -> Result<(), Error> {
    let clock = &*ports.clock;
    let begun = clock.monotonic();
    let next = ports.records.next_timer_due().await?;
    let now = clock.now();
    let span = next.map_or(POLL_INTERVAL, |due| {
        let span = due.since(now);
        // Rounded up: a wait that ends too early would be repeated at once.
        span.plus(Millis(u64::from(now.plus(span) < due)))
    });
    tokio::select! {
        biased;
        () = clock.sleep(span.min(POLL_INTERVAL).min(latest.minus(begun))) => {}
        changed = watch.changed() => {
            changed?;
            let passed = clock.monotonic().minus(begun);
            clock.sleep(MIN_WAKE_INTERVAL.minus(passed)).await;
        }
    }
    Ok(())
}

/// What came of telling timers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FiredTimers {
    /// All that were due.
    All,
    /// A page of them: there may be more.
    Some,
    /// None of those that are due: another look at once would find the same.
    None,
}

/// Tells a page of timers.
async fn fire_due_timers(ports: &EngineServices) -> Result<FiredTimers, Error> {
    let due = ports.records.due_timers(PAGE_SIZE).await?;
    let count = due.len();
    let mut told = 0;
    for timer in due {
        told += usize::from(fire_timer(ports, timer).await?);
    }
    Ok(match (count, told) {
        (0, _) => FiredTimers::All,
        (_, 0) => FiredTimers::None,
        (PAGE_SIZE.., _) => FiredTimers::Some,
        (_, _) => FiredTimers::All,
    })
}

/// Tells one timer; whether it is spent.
async fn fire_timer(ports: &EngineServices, due: DueTimer) -> Result<bool, Error> {
    let run = due.run;
    let now = ports.records.now().await?;
    // A timer is spent whatever the run's state; whether it has ended stands in its row.
    let view = RunSnapshot { run, status: Status::Running };
    let Ok(batch) =
        decide_command(&view, RunCommand::Timer(Box::new(due)), DecideContext::new(now))
    else {
        return Ok(false);
    };
    let author = Author::Outsider;
    let appended = ports.store.append(AppendRequest { run, author, batch }).await?;
    let spent = matches!(appended, Appended::At { .. });
    if spent {
        ports.notifier.run_changed(run);
    }
    Ok(spent)
}

async fn repair(ports: &EngineServices) -> Result<(), Error> {
    let repairs = ports.records.repair().await?;
    if !repairs.is_clean() {
        tracing::error!(?repairs, "rows crossed each other and were mended");
        ports.notifier.work_available();
    }
    Ok(())
}

/// Forgets some of what is past its keep; whether there may be more.
async fn prune(ports: &EngineServices, retention: Retention) -> Result<bool, Error> {
    // Blobs that nobody names go also where runs are kept for ever.
    let runs_older = retention.runs.unwrap_or(FOREVER);
    let pruned = ports
        .store
        .prune(PruneRequest {
            runs_older_than: runs_older,
            blobs_older_than: UNREFERENCED_BLOB_TTL,
            limit: PRUNED_RUNS_MAX,
        })
        .await?;
    Ok(pruned.runs >= PRUNED_RUNS_MAX || pruned.blobs.max(pruned.idempotency_keys) >= FULL_BATCH)
}
