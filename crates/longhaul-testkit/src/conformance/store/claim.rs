//! Claims: in queue order, each run by one worker, and only by live workers.

use std::collections::BTreeMap;

use tokio::task::JoinSet;

use longhaul_core::event::run::RunClaimed;
use longhaul_core::event::{EVENT_FORMAT, Event};
use longhaul_core::id::{Epoch, RunId, Seq, WorkerId};
use longhaul_core::port::queue::{PeekRequest, QueuePosition, RunsToClaim};
use longhaul_core::port::store::{Claim, Heartbeat, RunClaimRequest};
use longhaul_core::status::Status;
use longhaul_core::time::{Clock, Millis};

use crate::conformance::store::fixture::{
    StoreFixture, TTL, claim_request, heartbeat, inbox, run_ids,
};

/// A claim increments the epoch, is journaled, and is visible in the row.
pub async fn a_claim_is_journaled(fixture: StoreFixture) {
    let run = fixture.open(|_| {}).await;
    let opened_at = fixture.harness.clock.now();
    let worker = fixture.worker().await;
    fixture.advance(Millis(7));
    let claimed = fixture.claim(worker).await;
    let epoch = Epoch(1);
    let last = Seq(2);
    assert_eq!(claimed, [Claim { run, epoch, last_seq: last }]);
    let event = Event::RunClaimed(RunClaimed { worker, epoch });
    assert_eq!(fixture.journal(run).await[1], event);
    let row = fixture.row(run).await;
    assert_eq!((row.status, row.reason), (Status::Running, None));
    assert_eq!((row.epoch, row.worker, row.last_seq), (epoch, Some(worker), last));
    let times = (opened_at, Some(opened_at.plus(Millis(7))));
    assert_eq!((row.created_at, row.started_at), times);
    assert_eq!(fixture.claim(worker).await, [], "a run is claimed once");
}

/// Runs are claimed by priority, then by age, up to the limit.
pub async fn claims_go_by_priority_then_by_age(fixture: StoreFixture) {
    let mut runs = Vec::new();
    for priority in [0, 5, -3, 5, 0] {
        let run = fixture.open(|task| task.priority = priority).await;
        runs.push((-priority, run));
    }
    runs.sort_unstable();
    let expected: Vec<RunId> = runs.into_iter().map(|(_, run)| run).collect();
    let worker = fixture.worker().await;
    let mut claim_order = Vec::new();
    for limit in [2, 0, 2, 9] {
        let request = RunClaimRequest { limit, ..claim_request(worker) };
        let claimed = fixture.claim_with(request).await;
        assert!(claimed.len() <= limit);
        claim_order.extend(run_ids(&claimed));
    }
    assert_eq!(claim_order, expected);
}

/// A worker claims from its inboxes in the order of its request, and from no others.
pub async fn claims_go_through_the_inboxes_in_order(fixture: StoreFixture) {
    let mut runs = BTreeMap::new();
    for name in ["a", "b", "c"] {
        runs.insert(name, fixture.open(|task| task.inbox = inbox(name)).await);
    }
    let request = RunClaimRequest {
        inboxes: vec![inbox("c"), inbox("none"), inbox("a")],
        ..claim_request(fixture.worker().await)
    };
    assert_eq!(run_ids(&fixture.claim_with(request).await), [runs["c"], runs["a"]]);
    fixture.assert_status(runs["b"], Status::Pending, "worker").await;
}

/// A claim takes the same number from each inbox, as long as each has runs; the first inboxes get
/// the rest.
pub async fn a_claim_is_shared_evenly_by_the_inboxes(fixture: StoreFixture) {
    let mut runs: BTreeMap<&str, Vec<RunId>> = BTreeMap::new();
    for (name, count) in [("a", 6), ("b", 2), ("c", 1)] {
        for _ in 0..count {
            let run = fixture.open(|task| task.inbox = inbox(name)).await;
            runs.entry(name).or_default().push(run);
        }
    }
    let worker = fixture.worker().await;
    let claim = async |limit| {
        let inboxes = vec![inbox("a"), inbox("b"), inbox("c")];
        let request = RunClaimRequest { inboxes, limit, ..claim_request(worker) };
        run_ids(&fixture.claim_with(request).await)
    };
    let (a, b, c) = (&runs["a"], &runs["b"], &runs["c"]);
    assert_eq!(claim(4).await, [a[0], b[0], c[0], a[1]]);
    assert_eq!(claim(4).await, [a[2], b[1], a[3], a[4]]);
    assert_eq!(claim(4).await, [a[5]]);
}

/// Runs of several types are claimed in queue order, whatever their types.
pub async fn several_types_are_claimed_in_queue_order(fixture: StoreFixture) {
    let mut runs = Vec::new();
    for (kind, priority) in [("x", 0), ("y", 0), ("z", 9), ("x", 0), ("y", 5), ("x", 5)] {
        let open = fixture.open(|task| {
            task.kind = Some(kind.to_owned());
            task.priority = priority;
        });
        runs.push(open.await);
    }
    let types = ["y", "x", "y"].map(str::to_owned).to_vec();
    let request = RunClaimRequest { types, limit: 4, ..claim_request(fixture.worker().await) };
    let expected = [runs[4], runs[5], runs[0], runs[1]];
    assert_eq!(run_ids(&fixture.claim_with(request).await), expected);
}

/// A peek lists ready runs behind a position in queue order and claims nothing.
pub async fn a_peek_lists_ready_runs_in_pages(fixture: StoreFixture) {
    let mut runs = Vec::new();
    for (priority, kind) in [(0, "x"), (5, "y"), (0, "x"), (0, "y")] {
        let open = fixture.open(|task| {
            task.priority = priority;
            task.kind = Some(kind.to_owned());
        });
        runs.push(open.await);
    }
    fixture.open(|task| task.inbox = inbox("other")).await;
    let peek = async |types: &[&str], after, limit| {
        let request = PeekRequest {
            inbox: inbox("main"),
            types: types.iter().map(|kind| (*kind).to_owned()).collect(),
            format: EVENT_FORMAT,
            host: None,
            after,
            limit,
        };
        fixture.harness.store.peek_queue(request).await.expect("peek")
    };
    let ids = |page: &[QueuePosition]| page.iter().map(|ready| ready.run).collect::<Vec<_>>();
    let first = peek(&[], None, 2).await;
    assert_eq!(ids(&first), [runs[1], runs[0]]);
    let second = peek(&[], first.last().copied(), 2).await;
    assert_eq!(ids(&second), [runs[2], runs[3]]);
    assert_eq!(ids(&peek(&[], second.last().copied(), 2).await), []);
    assert_eq!(ids(&peek(&["y"], None, 9).await), [runs[1], runs[3]]);
    assert_eq!(ids(&peek(&["y"], first.first().copied(), 9).await), [runs[3]]);
    for run in runs {
        fixture.assert_status(run, Status::Pending, "worker").await;
    }
}

/// A claim of given runs takes these runs only, and skips those that are not ready.
pub async fn given_runs_are_claimed_if_they_are_ready(fixture: StoreFixture) {
    let mut runs = Vec::new();
    for _ in 0..4 {
        runs.push(fixture.open(|_| {}).await);
    }
    let worker = fixture.worker().await;
    let claim = async |runs: Vec<RunId>, limit| {
        let only = Some(RunsToClaim::Runs(runs));
        let request = RunClaimRequest { only, limit, ..claim_request(worker) };
        run_ids(&fixture.claim_with(request).await)
    };
    assert_eq!(claim(vec![runs[2]], 9).await, [runs[2]]);
    let unknown = RunId::from_bits(7);
    assert_eq!(claim(vec![runs[2], unknown, runs[1], runs[1]], 9).await, [runs[1]]);
    assert_eq!(claim(vec![runs[0], runs[3]], 1).await, [runs[0]]);
    assert_eq!(claim(Vec::new(), 9).await, []);
    fixture.assert_status(runs[3], Status::Pending, "worker").await;
}

/// A claim of a tree takes the root and its descendants, whatever their inbox, and no other run.
pub async fn a_tree_is_claimed_without_other_runs(fixture: StoreFixture) {
    let other = fixture.open(|_| {}).await;
    let root = fixture.open(|task| task.inbox = inbox("mail")).await;
    let worker = fixture.worker().await;
    let claim = async |limit| {
        let only = Some(RunsToClaim::Tree(root));
        run_ids(&fixture.claim_with(RunClaimRequest { only, limit, ..claim_request(worker) }).await)
    };
    assert_eq!(claim(9).await, [root]);
    let mut children = Vec::new();
    for _ in 0..2 {
        let child = fixture.open(|task| {
            task.root = root;
            task.parent = Some(root);
        });
        children.push(child.await);
    }
    assert_eq!(claim(1).await, children[..1]);
    assert_eq!(claim(9).await, children[1..]);
    assert_eq!(claim(9).await, []);
    fixture.assert_status(other, Status::Pending, "worker").await;
}

/// Runs of other types are skipped and stay in the queue.
pub async fn claims_filter_by_type(fixture: StoreFixture) {
    let kinds = [None, Some("letter"), Some("call")];
    let mut runs = Vec::new();
    for kind in kinds {
        runs.push(fixture.open(|task| task.kind = kind.map(str::to_owned)).await);
    }
    let worker = fixture.worker().await;
    let request = |types: &[&str]| RunClaimRequest {
        types: types.iter().map(|kind| (*kind).to_owned()).collect(),
        limit: 1,
        ..claim_request(worker)
    };
    assert_eq!(run_ids(&fixture.claim_with(request(&["none"])).await), []);
    assert_eq!(run_ids(&fixture.claim_with(request(&["x", "call"])).await), [runs[2]]);
    assert_eq!(run_ids(&fixture.claim_with(request(&[])).await), [runs[0]]);
    assert_eq!(run_ids(&fixture.claim_with(request(&[])).await), [runs[1]]);
}

/// A worker never gets a journal with a format that it can't read.
pub async fn claims_filter_by_format(fixture: StoreFixture) {
    let run = fixture.open(|_| {}).await;
    let worker = fixture.worker().await;
    let old_format = RunClaimRequest { format: 0, ..claim_request(worker) };
    assert_eq!(fixture.claim_with(old_format).await, []);
    let other_host = RunClaimRequest { host: Some("there".to_owned()), ..claim_request(worker) };
    assert_eq!(
        run_ids(&fixture.claim_with(other_host).await),
        [run],
        "the run is not bound to a host"
    );
}

/// Unknown, draining, silent and dead workers claim nothing and change nothing.
pub async fn workers_that_are_not_live_claim_nothing(fixture: StoreFixture) {
    let run = fixture.open(|_| {}).await;
    let unknown = fixture.ids.worker();
    let draining = fixture.ids.worker();
    fixture.heartbeat_with(Heartbeat { draining: true, ..heartbeat(draining) }).await;
    let silent = fixture.worker().await;
    fixture.advance(Millis(TTL.0 + 1));
    let live = fixture.worker().await;
    for worker in [unknown, draining, silent] {
        assert_eq!(fixture.claim(worker).await, [], "{worker}");
    }
    fixture.assert_status(run, Status::Pending, "worker").await;
    assert_eq!(run_ids(&fixture.claim(live).await), [run]);
}

/// With any number of concurrent claims, each run goes to exactly one worker, with epoch 1.
pub async fn a_run_is_claimed_by_one_worker_only(fixture: StoreFixture) {
    let count = 60;
    for _ in 0..count {
        fixture.open(|_| {}).await;
    }
    let mut tasks = JoinSet::new();
    for _ in 0..6 {
        let worker = fixture.worker().await;
        tasks.spawn(claim_all(fixture.clone(), worker));
    }
    let mut owners: BTreeMap<RunId, WorkerId> = BTreeMap::new();
    for (worker, claimed) in tasks.join_all().await {
        for claim in claimed {
            assert_eq!((claim.epoch, claim.last_seq), (Epoch(1), Seq(2)));
            let before = owners.insert(claim.run, worker);
            assert_eq!(before, None, "{} was claimed by two workers", claim.run);
        }
    }
    assert_eq!(owners.len(), count);
    for (run, worker) in owners {
        assert_eq!(fixture.row(run).await.worker, Some(worker));
    }
}

async fn claim_all(fixture: StoreFixture, worker: WorkerId) -> (WorkerId, Vec<Claim>) {
    let mut claims = Vec::new();
    loop {
        let request = RunClaimRequest { limit: 2, ..claim_request(worker) };
        let claimed = fixture.claim_with(request).await;
        if claimed.is_empty() {
            return (worker, claims);
        }
        claims.extend(claimed);
        tokio::task::yield_now().await;
    }
}
