//! Taking runs: in order, by one worker each, by live workers only.
//!
//! Never: what a driver may write; that is `fence`.

use std::collections::BTreeMap;

use tokio::task::JoinSet;

use longhaul_core::event::Event;
use longhaul_core::event::run::RunClaimed;
use longhaul_core::id::{Epoch, RunId, Seq, WorkerId};
use longhaul_core::port::store::{Claim, ClaimRequest, Heartbeat};
use longhaul_core::status::Status;
use longhaul_core::time::{Clock, Millis};

use crate::conformance::store::fixture::{
    StoreFixture, TTL, claim_request, heartbeat, inbox, run_ids,
};

/// A claim raises the epoch, is journaled, and shows in the row.
pub async fn a_claim_is_journaled(world: StoreFixture) {
    let run = world.open(|_| {}).await;
    let opened = world.harness.clock.now();
    let worker = world.worker().await;
    world.advance(Millis(7));
    let claimed = world.claim(worker).await;
    let epoch = Epoch(1);
    let last = Seq(2);
    assert_eq!(claimed, [Claim { run, epoch, last_seq: last }]);
    let fact = Event::RunClaimed(RunClaimed { worker, epoch });
    assert_eq!(world.journal(run).await[1], fact);
    let row = world.row(run).await;
    assert_eq!((row.status, row.reason), (Status::Running, None));
    assert_eq!((row.epoch, row.worker, row.last_seq), (epoch, Some(worker), last));
    let times = (opened, Some(opened.plus(Millis(7))));
    assert_eq!((row.created_at, row.started_at), times);
    assert_eq!(world.claim(worker).await, [], "a run is claimed once");
}

/// The highest priority first, then the oldest; the limit cuts, nothing else.
pub async fn claims_go_by_priority_then_by_age(world: StoreFixture) {
    let mut opened = Vec::new();
    for priority in [0, 5, -3, 5, 0] {
        let run = world.open(|task| task.priority = priority).await;
        opened.push((-priority, run));
    }
    opened.sort_unstable();
    let expected: Vec<RunId> = opened.into_iter().map(|(_, run)| run).collect();
    let worker = world.worker().await;
    let mut got = Vec::new();
    for limit in [2, 0, 2, 9] {
        let ask = ClaimRequest { limit, ..claim_request(worker) };
        let claimed = world.claim_with(ask).await;
        assert!(claimed.len() <= limit);
        got.extend(run_ids(&claimed));
    }
    assert_eq!(got, expected);
}

/// A worker takes from its inboxes in the order it names them, and from no other.
pub async fn claims_go_through_the_inboxes_in_order(world: StoreFixture) {
    let mut opened = BTreeMap::new();
    for name in ["a", "b", "c"] {
        opened.insert(name, world.open(|task| task.inbox = inbox(name)).await);
    }
    let ask = ClaimRequest {
        inboxes: vec![inbox("c"), inbox("none"), inbox("a")],
        ..claim_request(world.worker().await)
    };
    assert_eq!(run_ids(&world.claim_with(ask).await), [opened["c"], opened["a"]]);
    world.assert_status(opened["b"], Status::Pending, "worker").await;
}

/// What is not of a wanted type is passed over and stays where it is.
pub async fn claims_filter_by_type(world: StoreFixture) {
    let kinds = [None, Some("letter"), Some("call")];
    let mut opened = Vec::new();
    for kind in kinds {
        opened.push(world.open(|task| task.kind = kind.map(str::to_owned)).await);
    }
    let worker = world.worker().await;
    let wants = |types: &[&str]| ClaimRequest {
        types: types.iter().map(|kind| (*kind).to_owned()).collect(),
        limit: 1,
        ..claim_request(worker)
    };
    assert_eq!(run_ids(&world.claim_with(wants(&["none"])).await), []);
    assert_eq!(run_ids(&world.claim_with(wants(&["x", "call"])).await), [opened[2]]);
    assert_eq!(run_ids(&world.claim_with(wants(&[])).await), [opened[0]]);
    assert_eq!(run_ids(&world.claim_with(wants(&[])).await), [opened[1]]);
}

/// A worker never gets a journal that it could not read.
pub async fn claims_filter_by_format(world: StoreFixture) {
    let run = world.open(|_| {}).await;
    let worker = world.worker().await;
    let old = ClaimRequest { format: 0, ..claim_request(worker) };
    assert_eq!(world.claim_with(old).await, []);
    let somewhere = ClaimRequest { host: Some("there".to_owned()), ..claim_request(worker) };
    assert_eq!(run_ids(&world.claim_with(somewhere).await), [run], "it is bound to no host");
}

/// Unknown, draining, silent and dead workers get nothing, and take nothing away.
pub async fn workers_that_are_not_live_claim_nothing(world: StoreFixture) {
    let run = world.open(|_| {}).await;
    let unknown = world.ids.worker();
    let draining = world.ids.worker();
    world.heartbeat_with(Heartbeat { draining: true, ..heartbeat(draining) }).await;
    let silent = world.worker().await;
    world.advance(Millis(TTL.0 + 1));
    let live = world.worker().await;
    for worker in [unknown, draining, silent] {
        assert_eq!(world.claim(worker).await, [], "{worker}");
    }
    world.assert_status(run, Status::Pending, "worker").await;
    assert_eq!(run_ids(&world.claim(live).await), [run]);
}

/// However many ask at once, each run goes to one of them, with epoch 1.
pub async fn a_run_is_claimed_by_one_worker_only(world: StoreFixture) {
    let count = 60;
    for _ in 0..count {
        world.open(|_| {}).await;
    }
    let mut crew = JoinSet::new();
    for _ in 0..6 {
        let worker = world.worker().await;
        crew.spawn(claim_all(world.clone(), worker));
    }
    let mut owners: BTreeMap<RunId, WorkerId> = BTreeMap::new();
    for (worker, claimed) in crew.join_all().await {
        for claim in claimed {
            assert_eq!((claim.epoch, claim.last_seq), (Epoch(1), Seq(2)));
            let before = owners.insert(claim.run, worker);
            assert_eq!(before, None, "{} went to two", claim.run);
        }
    }
    assert_eq!(owners.len(), count);
    for (run, worker) in owners {
        assert_eq!(world.row(run).await.worker, Some(worker));
    }
}

async fn claim_all(world: StoreFixture, worker: WorkerId) -> (WorkerId, Vec<Claim>) {
    let mut got = Vec::new();
    loop {
        let ask = ClaimRequest { limit: 2, ..claim_request(worker) };
        let claimed = world.claim_with(ask).await;
        if claimed.is_empty() {
            return (worker, got);
        }
        got.extend(claimed);
        tokio::task::yield_now().await;
    }
}
