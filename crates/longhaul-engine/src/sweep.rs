//! Tells timers that are due, mends rows that crossed each other, and forgets
//! what is past its keep.
//!
//! Never: decides what a timer means. It is an outsider like any other.

use longhaul_core::port::shelves::DueTimer;
use longhaul_core::port::store::{Append, Appended, Author, PruneAsk, Watch};
use longhaul_core::status::Status;
use longhaul_core::time::Millis;
use longhaul_run::Moment;
use longhaul_run::outside::{View, Word, tell};

use crate::error::Error;
use crate::ports::Ports;

/// So many timers are told at once.
const PAGE: usize = 500;

/// Changes are heard at most this often.
const HEAR_EVERY: Millis = Millis(20);

/// Without a change it is looked this often.
const LOOK_EVERY: Millis = Millis::from_secs(1);

const REPAIR_EVERY: Millis = Millis::from_secs(30);
const PRUNE_EVERY: Millis = Millis::from_secs(60 * 60);

/// Maximum number of runs that are forgotten before writers get a pause.
const PRUNED_MAX: usize = 1_000;

/// Number of forgotten contents or keys from which on there may be more.
const LOT: usize = 1_000;

/// Shortest pause between two lots of forgotten runs. A longer one is as long as the lot
/// before it took: forgetting takes half of the time at most.
const PRUNE_PAUSE: Millis = Millis(10);

/// A blob that nobody names is kept for a day: a writer may be about to.
const BLOB_KEEP: Millis = Millis::from_secs(24 * 60 * 60);

/// A thousand years: longer than any run is kept.
const FOR_EVER: Millis = Millis::from_secs(1_000 * 366 * 24 * 60 * 60);

/// How long ended runs are kept.
#[derive(Debug, Clone, Copy)]
pub struct Retention {
    /// None: for ever.
    pub runs: Option<Millis>,
}

/// Sweeps until the store is gone.
pub(crate) async fn sweep(ports: &Ports, retention: Retention) -> Result<(), Error> {
    let mut watch = ports.store.watch();
    let clock = &*ports.clock;
    let mut repair_at = clock.monotonic();
    let mut prune_at = repair_at;
    loop {
        let told = tell_due(ports).await?;
        let now = clock.monotonic();
        if repair_at <= now {
            repair_at = now.plus(REPAIR_EVERY);
            repair(ports).await?;
        }
        if prune_at <= now {
            let has_more = prune(ports, retention).await?;
            let done = clock.monotonic();
            prune_at = done.plus(match has_more {
                true => done.minus(now).max(PRUNE_PAUSE),
                false => PRUNE_EVERY,
            });
        }
        match told {
            Told::All => wait(ports, &mut *watch, prune_at).await?,
            Told::Some => {}
            Told::None => clock.sleep(LOOK_EVERY).await,
        }
    }
}

/// Waits until a timer may be due, and at most until the monotonic clock is at `latest`.
async fn wait(ports: &Ports, watch: &mut dyn Watch, latest: Millis) -> Result<(), Error> {
    let clock = &*ports.clock;
    let begun = clock.monotonic();
    let next = ports.shelves.next_due().await?;
    let now = clock.now();
    let span = next.map_or(LOOK_EVERY, |due| {
        let span = due.since(now);
        // Rounded up: a wait that ends too early would be repeated at once.
        span.plus(Millis(u64::from(now.plus(span) < due)))
    });
    tokio::select! {
        biased;
        () = clock.sleep(span.min(LOOK_EVERY).min(latest.minus(begun))) => {}
        changed = watch.changed() => {
            changed?;
            let passed = clock.monotonic().minus(begun);
            clock.sleep(HEAR_EVERY.minus(passed)).await;
        }
    }
    Ok(())
}

/// What came of telling timers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    /// All that were due.
    All,
    /// A page of them: there may be more.
    Some,
    /// None of those that are due: another look at once would find the same.
    None,
}

/// Tells a page of timers.
async fn tell_due(ports: &Ports) -> Result<Told, Error> {
    let due = ports.shelves.due(PAGE).await?;
    let count = due.len();
    let mut told = 0;
    for timer in due {
        told += usize::from(tell_one(ports, timer).await?);
    }
    Ok(match (count, told) {
        (0, _) => Told::All,
        (_, 0) => Told::None,
        (PAGE.., _) => Told::Some,
        (_, _) => Told::All,
    })
}

/// Tells one timer; whether it is spent.
async fn tell_one(ports: &Ports, due: DueTimer) -> Result<bool, Error> {
    let run = due.run;
    let now = ports.shelves.now().await?;
    // A timer is spent whatever the run's state; whether it has ended stands in its row.
    let view = View {
        run,
        status: Status::Running,
    };
    let Ok(batch) = tell(&view, Word::Timer(Box::new(due)), Moment::at(now)) else {
        return Ok(false);
    };
    let author = Author::Outsider;
    let appended = ports.store.append(Append { run, author, batch }).await?;
    let spent = matches!(appended, Appended::At { .. });
    if spent {
        ports.nudges.wrote(run);
    }
    Ok(spent)
}

async fn repair(ports: &Ports) -> Result<(), Error> {
    let repairs = ports.shelves.repair().await?;
    if !repairs.is_clean() {
        tracing::error!(?repairs, "rows crossed each other and were mended");
        ports.nudges.may_be_ready();
    }
    Ok(())
}

/// Forgets some of what is past its keep; whether there may be more.
async fn prune(ports: &Ports, retention: Retention) -> Result<bool, Error> {
    // Blobs that nobody names go also where runs are kept for ever.
    let runs_older = retention.runs.unwrap_or(FOR_EVER);
    let pruned = ports
        .store
        .prune(PruneAsk {
            runs_older,
            blobs_older: BLOB_KEEP,
            limit: PRUNED_MAX,
        })
        .await?;
    Ok(pruned.runs >= PRUNED_MAX || pruned.blobs.max(pruned.keys) >= LOT)
}
