//! Lanes: one run at a time, in the order in which they entered. Races are in `lane_race`.

use longhaul_core::change::{NewRun, RowChange, RunSchedulingUpdate};
use longhaul_core::id::{RunId, WorkerId};
use longhaul_core::port::records::LaneRow;
use longhaul_core::port::store::{AppendRefusalReason, CreateRunsOutcome, PruneRequest};
use longhaul_core::status::Status;
use longhaul_core::task::EarliestStart;
use longhaul_core::time::{Clock, Millis};

use crate::conformance::store::batches::{
    BatchExt as _, cancel_batch, end_batch, events_batch, fire_timer_batch, park_batch,
    pause_batch, progress, release_batch, resumed,
};
use crate::conformance::store::fixture::{
    ClaimedRun, StoreFixture, assert_appended, lane_key, refused,
};

/// Runs of a lane execute one after another, whatever their priority. Other lanes are
/// independent.
pub async fn a_lane_runs_serially_and_in_order(fixture: StoreFixture) {
    let mut runs = Vec::new();
    for priority in [0, 9, 5] {
        let run = fixture.open(|task| {
            task.lane = Some(lane_key("a"));
            task.priority = priority;
        });
        runs.push(run.await);
    }
    let other_lane = fixture.open_in_lane("b", 1).await;
    fixture.assert_status(runs[0], Status::Pending, "worker").await;
    fixture.assert_status(runs[1], Status::Pending, "lane").await;
    assert_lane(&fixture, "a", Some(runs[0]), 3).await;
    let worker = fixture.worker().await;
    let mut first = claim_run(&fixture, worker, runs[0]).await;
    claim_run(&fixture, worker, other_lane[0]).await;
    assert_nothing_ready(&fixture, worker).await;
    first.end().await;
    fixture.assert_status(runs[0], Status::Completed, "").await;
    assert_lane(&fixture, "a", Some(runs[1]), 2).await;
    for run in &runs[1..] {
        let mut next = claim_run(&fixture, worker, *run).await;
        assert_nothing_ready(&fixture, worker).await;
        next.end().await;
    }
    assert_lane(&fixture, "a", None, 0).await;
    let new_runs = fixture.open_in_lane("a", 1).await;
    claim_run(&fixture, worker, new_runs[0]).await;
}

/// A full lane rejects runs until one has left it.
pub async fn a_lane_has_a_depth(fixture: StoreFixture) {
    let new_run = |fixture: &StoreFixture| NewRun {
        lane_depth_max: 2,
        ..fixture.new_run(|task| task.lane = Some(lane_key("a")))
    };
    let [first, second, third] = [new_run(&fixture), new_run(&fixture), new_run(&fixture)];
    let ids = [first.id, second.id, third.id];
    assert_eq!(
        fixture.open_runs(vec![first, second]).await,
        CreateRunsOutcome::Created(ids[..2].to_vec())
    );
    let full = CreateRunsOutcome::LaneFull(lane_key("a"));
    assert_eq!(fixture.open_runs(vec![third.clone()]).await, full);
    assert_eq!(fixture.harness.store.get_run(ids[2]).await.expect("row"), None);
    let worker = fixture.worker().await;
    let mut claimed_run = claim_run(&fixture, worker, ids[0]).await;
    let create = RowChange::CreateRun(Box::new(third.clone()));
    let last = claimed_run.last;
    assert_eq!(
        refused(claimed_run.change(create).await),
        AppendRefusalReason::LaneFull(lane_key("a"))
    );
    assert_eq!(claimed_run.last, last);
    claimed_run.end().await;
    assert_eq!(fixture.open_runs(vec![third]).await, CreateRunsOutcome::Created(vec![ids[2]]));
    assert_lane(&fixture, "a", Some(ids[1]), 2).await;
}

/// A parked run keeps its lane: no other run overtakes it.
pub async fn a_parked_run_keeps_its_lane(fixture: StoreFixture) {
    let runs = fixture.open_in_lane("a", 2).await;
    let worker = fixture.worker().await;
    let mut claimed_run = claim_run(&fixture, worker, runs[0]).await;
    claimed_run.park("child").await;
    assert_nothing_ready(&fixture, worker).await;
    fixture.assert_status(runs[1], Status::Pending, "lane").await;
    assert_appended(&fixture.append_outside(runs[0], events_batch([resumed()])).await);
    let mut claimed_run = claim_run(&fixture, worker, runs[0]).await;
    claimed_run.append_ok(release_batch()).await;
    claim_run(&fixture, worker, runs[0]).await.end().await;
    claim_run(&fixture, worker, runs[1]).await;
}

/// A run that releases its lane while it is parked queues again when it is woken.
pub async fn a_run_can_release_its_lane_while_it_waits(fixture: StoreFixture) {
    let runs = fixture.open_in_lane("a", 2).await;
    let worker = fixture.worker().await;
    let mut claimed_run = claim_run(&fixture, worker, runs[0]).await;
    claimed_run.append_ok(park_releasing_lane()).await;
    assert_lane(&fixture, "a", Some(runs[1]), 1).await;
    let mut second = claim_run(&fixture, worker, runs[1]).await;
    assert_appended(&fixture.append_outside(runs[0], events_batch([resumed()])).await);
    fixture.assert_status(runs[0], Status::Waiting, "lane").await;
    assert_lane(&fixture, "a", Some(runs[1]), 2).await;
    assert_nothing_ready(&fixture, worker).await;
    // A run that was admitted once is admitted again, whatever the depth of the lane.
    let third = fixture.open_in_lane("a", 1).await;
    second.end().await;
    let mut first = claim_run(&fixture, worker, runs[0]).await;
    first.append_ok(park_releasing_lane()).await;
    claim_run(&fixture, worker, third[0]).await.end().await;
    assert_lane(&fixture, "a", None, 0).await;
    assert_appended(&fixture.append_outside(runs[0], events_batch([resumed()])).await);
    assert_lane(&fixture, "a", Some(runs[0]), 1).await;
    claim_run(&fixture, worker, runs[0]).await.end().await;
    assert_lane(&fixture, "a", None, 0).await;
}

/// A run that ends after it has released its lane does not promote another run.
pub async fn a_run_that_released_its_lane_promotes_nobody_at_its_end(fixture: StoreFixture) {
    let runs = fixture.open_in_lane("a", 3).await;
    let worker = fixture.worker().await;
    let mut claimed_run = claim_run(&fixture, worker, runs[0]).await;
    claimed_run.append_ok(park_releasing_lane()).await;
    claim_run(&fixture, worker, runs[1]).await;
    assert_appended(&fixture.append_as_closer(runs[0], claimed_run.last, cancel_batch()).await);
    assert_lane(&fixture, "a", Some(runs[1]), 2).await;
    assert_nothing_ready(&fixture, worker).await;
}

/// A paused run becomes the holder of its lane in its turn, and stays the holder while it is paused.
pub async fn a_paused_run_keeps_its_lane_position(fixture: StoreFixture) {
    let runs = fixture.open_in_lane("a", 3).await;
    let worker = fixture.worker().await;
    let mut claimed_run = claim_run(&fixture, worker, runs[0]).await;
    assert_appended(
        &fixture.append_as_closer(runs[1], longhaul_core::id::Seq(1), pause_batch()).await,
    );
    fixture.assert_status(runs[1], Status::Paused, "").await;
    claimed_run.end().await;
    assert_lane(&fixture, "a", Some(runs[1]), 2).await;
    fixture.assert_status(runs[1], Status::Paused, "").await;
    assert_nothing_ready(&fixture, worker).await;
    assert_appended(&fixture.append_outside(runs[1], events_batch([resumed()])).await);
    let mut claimed_run = claim_run(&fixture, worker, runs[1]).await;
    claimed_run.append_ok(pause_batch()).await;
    assert_nothing_ready(&fixture, worker).await;
    assert_lane(&fixture, "a", Some(runs[1]), 2).await;
}

/// A run that is resumed before its turn waits for its turn.
pub async fn a_run_resumed_out_of_turn_waits(fixture: StoreFixture) {
    let runs = fixture.open_in_lane("a", 2).await;
    let worker = fixture.worker().await;
    assert_appended(
        &fixture.append_as_closer(runs[1], longhaul_core::id::Seq(1), pause_batch()).await,
    );
    assert_appended(&fixture.append_outside(runs[1], events_batch([resumed()])).await);
    fixture.assert_status(runs[1], Status::Pending, "lane").await;
    claim_run(&fixture, worker, runs[0]).await.end().await;
    claim_run(&fixture, worker, runs[1]).await;
}

/// A queued run that is cancelled leaves its lane without affecting the others.
pub async fn a_queued_run_can_leave_its_lane(fixture: StoreFixture) {
    let runs = fixture.open_in_lane("a", 4).await;
    let worker = fixture.worker().await;
    let cancel = async |run: RunId| {
        let last = fixture.row(run).await.last_seq;
        assert_appended(&fixture.append_as_closer(run, last, cancel_batch()).await);
    };
    cancel(runs[1]).await;
    assert_lane(&fixture, "a", Some(runs[0]), 3).await;
    claim_run(&fixture, worker, runs[0]).await.end().await;
    assert_lane(&fixture, "a", Some(runs[2]), 2).await;
    cancel(runs[2]).await;
    assert_lane(&fixture, "a", Some(runs[3]), 1).await;
    claim_run(&fixture, worker, runs[3]).await;
    assert_nothing_ready(&fixture, worker).await;
}

/// A run with a start time enters its lane at that time, at the end.
pub async fn a_start_time_comes_before_the_lane(fixture: StoreFixture) {
    let at = fixture.harness.clock.now().plus(Millis(50));
    let run = fixture.open(|task| {
        task.lane = Some(lane_key("a"));
        task.start = EarliestStart::At(at);
    });
    let delayed = run.await;
    assert_eq!(lane(&fixture, "a").await.map_or(0, |lane| lane.depth), 0);
    let runs = fixture.open_in_lane("a", 1).await;
    fixture.advance(Millis(50));
    let due = fixture.harness.records.due_timers(9).await.expect("due");
    assert_appended(&fixture.append_outside(delayed, fire_timer_batch(due[0].timer)).await);
    fixture.assert_status(delayed, Status::Pending, "lane").await;
    assert_lane(&fixture, "a", Some(runs[0]), 2).await;
    let worker = fixture.worker().await;
    claim_run(&fixture, worker, runs[0]).await.end().await;
    claim_run(&fixture, worker, delayed).await;
}

/// A chain keeps the lane of its root until its last step has ended. No step is rejected
/// because of the depth limit.
pub async fn a_chain_keeps_its_lane_to_the_end(fixture: StoreFixture) {
    let runs = fixture.open_in_lane("a", 2).await;
    let worker = fixture.worker().await;
    let mut root = claim_run(&fixture, worker, runs[0]).await;
    let step = NewRun {
        lane_depth_max: 1,
        ..fixture.new_run(|task| {
            task.root = runs[0];
            task.parent = Some(runs[0]);
            task.lane = Some(lane_key("a"));
        })
    };
    let step_id = step.id;
    let end_keeping_lane = RowChange::UpdateScheduling(RunSchedulingUpdate::End {
        status: Status::Completed,
        code: None,
        releases_lane: false,
    });
    let events = events_batch(end_batch().events);
    root.append_ok(
        events.with_change(end_keeping_lane).with_change(RowChange::CreateStep(Box::new(step))),
    )
    .await;
    assert_lane(&fixture, "a", Some(runs[0]), 2).await;
    fixture.assert_consistent().await;
    let mut claimed_run = claim_run(&fixture, worker, step_id).await;
    assert_nothing_ready(&fixture, worker).await;
    claimed_run.park("child").await;
    assert_appended(&fixture.append_outside(step_id, events_batch([resumed()])).await);
    let mut claimed_run = claim_run(&fixture, worker, step_id).await;
    assert_nothing_ready(&fixture, worker).await;
    claimed_run.append_ok(events_batch([progress(1)])).await;
    claimed_run.end().await;
    assert_lane(&fixture, "a", Some(runs[1]), 1).await;
    claim_run(&fixture, worker, runs[1]).await;
}

/// A root that has ended keeps its lane while a child run of it works.
pub async fn a_tree_keeps_its_lane_until_its_last_run_ends(fixture: StoreFixture) {
    let runs = fixture.open_in_lane("a", 2).await;
    let worker = fixture.worker().await;
    let mut root = claim_run(&fixture, worker, runs[0]).await;
    let children = [(); 2].map(|()| {
        fixture.new_run(|task| {
            task.root = runs[0];
            task.parent = Some(runs[0]);
        })
    });
    let [first, last] = [children[0].id, children[1].id];
    for child in children {
        assert_appended(&root.change(RowChange::CreateRun(Box::new(child))).await);
    }
    let mut first = claim_run(&fixture, worker, first).await;
    let mut last = claim_run(&fixture, worker, last).await;
    first.end().await;
    assert_lane(&fixture, "a", Some(runs[0]), 2).await;
    root.end().await;
    assert_lane(&fixture, "a", Some(runs[0]), 2).await;
    assert_nothing_ready(&fixture, worker).await;
    fixture.assert_consistent().await;
    last.end().await;
    assert_lane(&fixture, "a", Some(runs[1]), 1).await;
    claim_run(&fixture, worker, runs[1]).await;
}

/// Only lanes with at least one run are listed, ordered by name, in pages.
pub async fn lanes_are_listed_while_used(fixture: StoreFixture) {
    let a = fixture.open_in_lane("a", 2).await;
    fixture.open_in_lane("b", 1).await;
    let worker = fixture.worker().await;
    let list_after = async |after: Option<&str>, limit| {
        let after = after.map(lane_key);
        let rows = fixture.harness.records.list_lanes(after.as_ref(), limit).await;
        let rows = rows.expect("lanes");
        let names = rows.iter().map(|row| row.lane.to_string());
        names.collect::<Vec<_>>()
    };
    let list = async |limit| list_after(None, limit).await;
    assert_eq!(list(9).await, ["a", "b"]);
    assert_eq!(list(1).await, ["a"]);
    // The last lane of a page may have disappeared before the next page is read.
    for (after, expected) in [("0", &["a", "b"][..]), ("a", &["b"]), ("aa", &["b"])] {
        assert_eq!(list_after(Some(after), 9).await, expected, "after {after}");
    }
    assert_eq!(list_after(Some("b"), 9).await, [""; 0]);
    for run in &a {
        let last = fixture.row(*run).await.last_seq;
        assert_appended(&fixture.append_as_closer(*run, last, cancel_batch()).await);
    }
    assert_eq!(list(9).await, ["b"]);
    assert_eq!(lane(&fixture, "none").await, None);
    assert_eq!(fixture.claim(worker).await.len(), 1);
}

/// No run of a paused lane starts, neither a run that is ready nor one that is submitted later. A
/// resumed lane continues in order.
pub async fn a_paused_lane_starts_no_run(fixture: StoreFixture) {
    let worker = fixture.worker().await;
    let runs = fixture.open_in_lane("a", 2).await;
    let paused = set_paused(&fixture, "a", true).await;
    assert_eq!((paused.holder, paused.waiting_run_count(), paused.paused), (None, 2, true));
    fixture.assert_status(runs[0], Status::Pending, "lane").await;
    let later = fixture.open_in_lane("a", 1).await;
    assert_nothing_ready(&fixture, worker).await;
    fixture.assert_consistent().await;
    let resumed = set_paused(&fixture, "a", false).await;
    assert_eq!(
        (resumed.holder, resumed.waiting_run_count(), resumed.paused),
        (Some(runs[0]), 2, false)
    );
    for run in [runs[0], runs[1], later[0]] {
        claim_run(&fixture, worker, run).await.end().await;
    }
    // An empty lane stays paused, also when empty lanes are pruned.
    set_paused(&fixture, "b", true).await;
    let request = PruneRequest {
        runs_older_than: Millis::from_secs(1),
        blobs_older_than: Millis::from_secs(1),
        limit: 9,
    };
    fixture.harness.store.prune_old_data(request).await.expect("prune");
    let listed = fixture.harness.records.list_lanes(None, 9).await.expect("lanes");
    let listed: Vec<_> = listed.iter().map(|row| (row.lane.to_string(), row.paused)).collect();
    assert_eq!(listed, [("b".to_owned(), true)]);
    fixture.open_in_lane("b", 1).await;
    assert_nothing_ready(&fixture, worker).await;
}

/// A paused run whose lane is paused, too, does not start when only the run is resumed.
pub async fn a_paused_lane_does_not_start_a_resumed_run(fixture: StoreFixture) {
    let worker = fixture.worker().await;
    let runs = fixture.open_in_lane("a", 2).await;
    let last = fixture.row(runs[0]).await.last_seq;
    assert_appended(&fixture.append_as_closer(runs[0], last, pause_batch()).await);
    set_paused(&fixture, "a", true).await;
    fixture.assert_status(runs[0], Status::Paused, "").await;
    assert_lane(&fixture, "a", None, 2).await;
    // The paused run keeps its turn.
    set_paused(&fixture, "a", false).await;
    fixture.assert_status(runs[0], Status::Paused, "").await;
    assert_nothing_ready(&fixture, worker).await;
    set_paused(&fixture, "a", true).await;
    assert_appended(&fixture.append_outside(runs[0], events_batch([resumed()])).await);
    fixture.assert_status(runs[0], Status::Pending, "lane").await;
    assert_nothing_ready(&fixture, worker).await;
    fixture.assert_consistent().await;
    set_paused(&fixture, "a", false).await;
    for run in runs {
        claim_run(&fixture, worker, run).await.end().await;
    }
}

/// A run that has started continues while its lane is paused, and its end promotes nobody.
pub async fn a_paused_lane_lets_its_started_run_go_on(fixture: StoreFixture) {
    let worker = fixture.worker().await;
    let runs = fixture.open_in_lane("a", 2).await;
    let mut claimed_run = claim_run(&fixture, worker, runs[0]).await;
    claimed_run.park("child").await;
    let paused = set_paused(&fixture, "a", true).await;
    assert_eq!((paused.holder, paused.waiting_run_count()), (Some(runs[0]), 1));
    assert_appended(&fixture.append_outside(runs[0], events_batch([resumed()])).await);
    claim_run(&fixture, worker, runs[0]).await.end().await;
    assert_lane(&fixture, "a", None, 1).await;
    assert_nothing_ready(&fixture, worker).await;
    fixture.assert_consistent().await;
    set_paused(&fixture, "a", false).await;
    claim_run(&fixture, worker, runs[1]).await;
}

async fn set_paused(fixture: &StoreFixture, key: &str, paused: bool) -> LaneRow {
    fixture.harness.records.set_lane_pause_state(&lane_key(key), paused).await.expect("lane")
}

pub(super) fn park_releasing_lane() -> longhaul_core::change::JournalBatch {
    let park = RowChange::UpdateScheduling(RunSchedulingUpdate::Park {
        reason: "child",
        blocked: false,
        release_lane: true,
    });
    events_batch(park_batch("child").events).with_change(park)
}

async fn claim_run(fixture: &StoreFixture, worker: WorkerId, run: RunId) -> ClaimedRun {
    let claimed_run = fixture.claim_one(worker).await;
    assert_eq!(claimed_run.run, run, "another run was claimed");
    claimed_run
}

async fn assert_nothing_ready(fixture: &StoreFixture, worker: WorkerId) {
    assert_eq!(fixture.claim(worker).await, []);
}

async fn lane(fixture: &StoreFixture, key: &str) -> Option<LaneRow> {
    fixture.harness.records.find_lane(&lane_key(key)).await.expect("lane")
}

async fn assert_lane(fixture: &StoreFixture, key: &str, holder: Option<RunId>, depth: u32) {
    let found = lane(fixture, key).await;
    let found = found.map_or((None, 0), |row| (row.holder, row.depth));
    assert_eq!(found, (holder, depth), "lane {key}");
}
