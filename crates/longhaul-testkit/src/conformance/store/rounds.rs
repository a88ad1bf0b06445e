//! Rounds of a race: one run each, several rounds concurrently.

use tokio::task::{JoinSet, yield_now};

use longhaul_core::id::{InboxName, RunId, WorkerId};
use longhaul_core::port::store::{AppendResult, RunClaimRequest};

use crate::conformance::store::batches::{
    change_batch, end_batch, events_batch, fire_timer_batch, resumed, spend_timer,
};
use crate::conformance::store::fixture::{
    ClaimedRun, StoreFixture, assert_appended, claim_request, inbox,
};

/// Maximum number of decisions of a driver before the check fails.
pub(crate) const DECISIONS_MAX: usize = 20;

/// Number of concurrent rounds.
const CONCURRENCY: usize = 16;

/// Runs this number of rounds, several of them concurrently.
pub(crate) async fn run_concurrently<F, R>(fixture: &StoreFixture, rounds: usize, round: F)
where
    F: Fn(Round) -> R,
    R: Future<Output = ()> + Send + 'static,
{
    let worker = fixture.worker().await;
    let mut tasks = JoinSet::new();
    for number in 0..rounds {
        if tasks.len() >= CONCURRENCY {
            assert_joined(tasks.join_next().await);
        }
        tasks.spawn(round(Round { fixture: fixture.clone(), worker, number }));
    }
    while let Some(result) = tasks.join_next().await {
        assert_joined(Some(result));
    }
}

/// Propagates the panic of a round.
fn assert_joined(result: Option<Result<(), tokio::task::JoinError>>) {
    if let Some(Err(error)) = result {
        match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(error) => panic!("{error}"),
        }
    }
}

/// One round of a race. Its run has its own inbox, so that concurrent rounds do not claim each
/// other's runs.
#[derive(Debug, Clone)]
pub(crate) struct Round {
    pub(crate) fixture: StoreFixture,
    worker: WorkerId,
    number: usize,
}

impl Round {
    pub(crate) async fn open(&self) -> RunId {
        self.fixture.open(|task| task.inbox = self.inbox()).await
    }

    pub(crate) async fn open_and_claim(&self) -> ClaimedRun {
        self.open().await;
        self.claim_one().await.expect("a run was opened")
    }

    /// Wakes the run of the round as an outsider.
    pub(crate) async fn wake(&self, run: RunId) {
        assert_appended(&self.fixture.append_outside(run, events_batch([resumed()])).await);
    }

    /// Claims and completes the run. Panics if the run was never woken.
    pub(crate) async fn end(&self) {
        let mut claimed_run = self.claim_one().await.expect("the run was woken");
        claimed_run.append_ok(end_batch()).await;
    }

    /// Claims the run of the round, if it is ready.
    pub(crate) async fn claim_one(&self) -> Option<ClaimedRun> {
        let request = RunClaimRequest { inboxes: vec![self.inbox()], ..claim_request(self.worker) };
        let claimed = self.fixture.claim_with(request).await.pop()?;
        Some(ClaimedRun::new(&self.fixture, self.worker, &claimed))
    }

    fn inbox(&self) -> InboxName {
        inbox(&format!("round{}", self.number))
    }
}

/// Fires all due timers, as a sweep does, and returns their number.
pub(crate) async fn fire_due_timers(fixture: StoreFixture) -> usize {
    let mut fired = 0;
    loop {
        let due = fixture.harness.records.due_timers(8).await.expect("due");
        if due.is_empty() {
            return fired;
        }
        for row in due {
            let appended = fixture.append_outside(row.run, fire_timer_batch(row.timer)).await;
            fired += usize::from(is_appended(&appended));
            if appended == AppendResult::RunEnded {
                fixture.append_outside(row.run, change_batch(spend_timer(row.timer))).await;
            }
            yield_now().await;
        }
    }
}

/// Returns whether an append was accepted.
pub(crate) fn is_appended(appended: &AppendResult) -> bool {
    matches!(appended, AppendResult::Committed { .. })
}
