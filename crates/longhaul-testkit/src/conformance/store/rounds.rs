//! Rounds of a race: a run each, some of them at the same time.
//!
//! Never: a check.

use tokio::task::{JoinSet, yield_now};

use longhaul_core::id::{InboxName, RunId, WorkerId};
use longhaul_core::port::store::{Appended, ClaimRequest};

use crate::conformance::store::batches::{
    change_batch, end_batch, events_batch, fire_timer_batch, resumed, spend_timer,
};
use crate::conformance::store::fixture::{
    ClaimedRun, StoreFixture, assert_appended, claim_request, inbox,
};

/// How often a driver decides again before the check gives up on it.
pub(crate) const DECISIONS_MAX: usize = 20;

/// How many rounds go on at the same time.
const CONCURRENCY: usize = 16;

/// Runs so many rounds, some of them at the same time.
pub(crate) async fn run_concurrently<F, R>(world: &StoreFixture, rounds: usize, round: F)
where
    F: Fn(Round) -> R,
    R: Future<Output = ()> + Send + 'static,
{
    let worker = world.worker().await;
    let mut going = JoinSet::new();
    for number in 0..rounds {
        if going.len() >= CONCURRENCY {
            assert_joined(going.join_next().await);
        }
        going.spawn(round(Round { fixture: world.clone(), worker, number }));
    }
    while let Some(done) = going.join_next().await {
        assert_joined(Some(done));
    }
}

/// Hands a failed assertion of a round on to the check.
fn assert_joined(done: Option<Result<(), tokio::task::JoinError>>) {
    if let Some(Err(failed)) = done {
        match failed.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(failed) => panic!("{failed}"),
        }
    }
}

/// One round of a race: a run in an inbox of its own, so that rounds which go
/// on at the same time don't take each other's.
#[derive(Debug, Clone)]
pub(crate) struct Round {
    pub(crate) fixture: StoreFixture,
    worker: WorkerId,
    number: usize,
}

impl Round {
    /// The round's run, ready and in nobody's hands.
    pub(crate) async fn open(&self) -> RunId {
        self.fixture.open(|task| task.inbox = self.inbox()).await
    }

    /// The round's run in a driver's hands.
    pub(crate) async fn open_and_claim(&self) -> ClaimedRun {
        self.open().await;
        self.claim_one().await.expect("a run was opened")
    }

    /// Wakes the round's run from outside.
    pub(crate) async fn wake(&self, run: RunId) {
        assert_appended(&self.fixture.append_outside(run, events_batch([resumed()])).await);
    }

    /// The run is ready, or it sleeps for ever.
    pub(crate) async fn end(&self) {
        let mut held = self.claim_one().await.expect("the run was woken");
        held.append_ok(end_batch()).await;
    }

    /// The round's run, if it is ready.
    pub(crate) async fn claim_one(&self) -> Option<ClaimedRun> {
        let ask = ClaimRequest { inboxes: vec![self.inbox()], ..claim_request(self.worker) };
        let claimed = self.fixture.claim_with(ask).await.pop()?;
        Some(ClaimedRun::new(&self.fixture, self.worker, &claimed))
    }

    fn inbox(&self) -> InboxName {
        inbox(&format!("round{}", self.number))
    }
}

/// Tells every timer that is due, as a sweep does, and says how many it told.
pub(crate) async fn fire_due_timers(world: StoreFixture) -> usize {
    let mut told = 0;
    loop {
        let due = world.harness.records.due_timers(8).await.expect("due");
        if due.is_empty() {
            return told;
        }
        for row in due {
            let heard = world.append_outside(row.run, fire_timer_batch(row.timer)).await;
            told += usize::from(is_appended(&heard));
            if heard == Appended::RunEnded {
                world.append_outside(row.run, change_batch(spend_timer(row.timer))).await;
            }
            yield_now().await;
        }
    }
}

/// Whether an append stands.
pub(crate) fn is_appended(appended: &Appended) -> bool {
    matches!(appended, Appended::At { .. })
}
