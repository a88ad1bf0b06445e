//! Rounds of a race: a run each, some of them at the same time.
//!
//! Never: a check.

use tokio::task::{JoinSet, yield_now};

use longhaul_core::id::{InboxName, RunId, WorkerId};
use longhaul_core::port::store::{Appended, ClaimAsk};

use crate::conformance::store::facts::{ends, fires, only, resumed, says, spends};
use crate::conformance::store::kit::{Held, World, claim_ask, inbox, stands};

/// How often a driver decides again before the check gives up on it.
pub(crate) const DECISIONS_MAX: usize = 20;

/// How many rounds go on at the same time.
const ABREAST: usize = 16;

/// Runs so many rounds, some of them at the same time.
pub(crate) async fn abreast<F, R>(world: &World, rounds: usize, round: F)
where
    F: Fn(Round) -> R,
    R: Future<Output = ()> + Send + 'static,
{
    let worker = world.worker().await;
    let mut going = JoinSet::new();
    for number in 0..rounds {
        if going.len() >= ABREAST {
            joined(going.join_next().await);
        }
        going.spawn(round(Round {
            world: world.clone(),
            worker,
            number,
        }));
    }
    while let Some(done) = going.join_next().await {
        joined(Some(done));
    }
}

/// Hands a failed assertion of a round on to the check.
fn joined(done: Option<Result<(), tokio::task::JoinError>>) {
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
    pub(crate) world: World,
    worker: WorkerId,
    number: usize,
}

impl Round {
    /// The round's run, ready and in nobody's hands.
    pub(crate) async fn open(&self) -> RunId {
        self.world.open(|task| task.inbox = self.inbox()).await
    }

    /// The round's run in a driver's hands.
    pub(crate) async fn begin(&self) -> Held {
        self.open().await;
        self.take().await.expect("a run was opened")
    }

    /// Wakes the round's run from outside.
    pub(crate) async fn wake(&self, run: RunId) {
        stands(&self.world.tell(run, says([resumed()])).await);
    }

    /// The run is ready, or it sleeps for ever.
    pub(crate) async fn end(&self) {
        let mut held = self.take().await.expect("the run was woken");
        held.write(ends()).await;
    }

    /// The round's run, if it is ready.
    pub(crate) async fn take(&self) -> Option<Held> {
        let ask = ClaimAsk {
            inboxes: vec![self.inbox()],
            ..claim_ask(self.worker)
        };
        let claimed = self.world.claim_as(ask).await.pop()?;
        Some(Held::new(&self.world, self.worker, &claimed))
    }

    fn inbox(&self) -> InboxName {
        inbox(&format!("round{}", self.number))
    }
}

/// Tells every timer that is due, as a sweep does, and says how many it told.
pub(crate) async fn sweep(world: World) -> usize {
    let mut told = 0;
    loop {
        let due = world.at.shelves.due(8).await.expect("due");
        if due.is_empty() {
            return told;
        }
        for row in due {
            let heard = world.tell(row.run, fires(row.timer)).await;
            told += usize::from(is_at(&heard));
            if heard == Appended::RunEnded {
                world.tell(row.run, only(spends(row.timer))).await;
            }
            yield_now().await;
        }
    }
}

/// Whether an append stands.
pub(crate) fn is_at(appended: &Appended) -> bool {
    matches!(appended, Appended::At { .. })
}
