//! Lists of runs, and the signal that something has changed.
//!
//! Never: the order of claims; that is `claim`.

use std::time::Duration;

use longhaul_core::change::{Change, HeadUpdate, NewRun};
use longhaul_core::id::{RunId, Seq};
use longhaul_core::port::store::{RunFilter, RunRow, Watch};
use longhaul_core::status::Status;
use longhaul_core::time::{Clock, Millis};

use crate::conformance::store::batches::{
    BatchExt as _, cancel_batch, change_batch, end_batch, events_batch, park_head, pause_batch,
    progress, release_batch, resumed,
};
use crate::conformance::store::fixture::{StoreFixture, agent, assert_appended, lane_key};

/// How long a signal may take that should come at once.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Each state of a head shows as the word that people know.
pub async fn rows_have_the_status_of_a_run(world: StoreFixture) {
    let mut held = world.open_and_claim(|_| {}).await;
    world.assert_status(held.run, Status::Running, "").await;
    let blocked = HeadUpdate::Park { reason: "child", blocked: true, release_lane: false };
    held.append_ok(events_batch([progress(1)]).with_change(Change::SetHead(blocked))).await;
    world.assert_status(held.run, Status::Blocked, "child").await;
    assert_appended(&world.append_outside(held.run, events_batch([resumed()])).await);
    world.assert_status(held.run, Status::Running, "worker").await;
    let mut held = world.claim_one(held.worker).await;
    held.append_ok(pause_batch()).await;
    world.assert_status(held.run, Status::Paused, "").await;
    assert_appended(
        &world.append_as_closer(held.run, held.last, change_batch(park_head("budget"))).await,
    );
    world.assert_status(held.run, Status::Waiting, "budget").await;
    world.advance(Millis(9));
    let failed = HeadUpdate::End {
        status: Status::Failed,
        code: Some("turn_limit".to_owned()),
        releases_lane: true,
    };
    let batch = events_batch(end_batch().events).with_change(Change::SetHead(failed));
    assert_appended(&world.append_as_closer(held.run, held.last, batch).await);
    let row = world.row(held.run).await;
    assert_eq!((row.status, row.reason), (Status::Failed, None));
    assert_eq!(row.code.as_deref(), Some("turn_limit"));
    assert_eq!(row.finished_at, Some(world.harness.clock.now()));
}

/// Filters are joined by "and", and the newest comes first.
pub async fn rows_are_filtered(world: StoreFixture) {
    let plain = world.open(|_| {}).await;
    let other = world.open(|task| task.agent = agent("planner")).await;
    let in_lane = world.open_in_lane("a", 2).await;
    let child = world.new_run(|task| {
        task.root = plain;
        task.parent = Some(plain);
    });
    let child_id = child.id;
    world.open_runs(vec![child]).await;
    assert_appended(&world.append_as_closer(in_lane[1], Seq(1), cancel_batch()).await);
    let everything = [child_id, in_lane[1], in_lane[0], other, plain];
    assert_eq!(ids(&world, all()).await, everything);
    let by_agent = RunFilter { agent: Some(agent("planner")), ..all() };
    assert_eq!(ids(&world, by_agent.clone()).await, [other]);
    let by_lane = RunFilter { lane: Some(lane_key("a")), ..all() };
    assert_eq!(ids(&world, by_lane.clone()).await, [in_lane[1], in_lane[0]]);
    let by_root = RunFilter { root: Some(plain), ..all() };
    assert_eq!(ids(&world, by_root).await, [child_id, plain]);
    let cancelled = RunFilter { statuses: vec![Status::Cancelled, Status::Failed], ..by_lane };
    assert_eq!(ids(&world, cancelled).await, [in_lane[1]]);
    let none = RunFilter { statuses: vec![Status::Completed], ..by_agent };
    assert_eq!(ids(&world, none).await, []);
    for status in Status::ALL {
        let ask = RunFilter { statuses: vec![status], ..all() };
        let rows = world.harness.store.list_runs(ask).await.expect("rows");
        assert!(rows.iter().all(|row| row.status == status));
    }
}

/// A row in a list is the row itself.
pub async fn a_list_shows_the_rows(world: StoreFixture) {
    let mut held = world.open_and_claim(|task| task.lane = Some(lane_key("a"))).await;
    held.park("child").await;
    let rows: Vec<RunRow> = world.harness.store.list_runs(all()).await.expect("rows");
    assert_eq!(rows, [world.row(held.run).await]);
}

/// Pages neither repeat nor skip what was there, though rows come and change.
pub async fn pages_are_stable_while_rows_are_added(world: StoreFixture) {
    let mut expected = Vec::new();
    for _ in 0..10 {
        expected.push(world.open(|_| {}).await);
    }
    expected.reverse();
    let worker = world.worker().await;
    let mut seen = Vec::new();
    let mut after = None;
    for _ in 0..4 {
        let ask = RunFilter { after, limit: 3, ..all() };
        let page = ids(&world, ask).await;
        after = page.last().copied();
        seen.extend(page);
        world.open(|_| {}).await;
        let mut held = world.claim_one(worker).await;
        held.append_ok(release_batch()).await;
    }
    assert_eq!(seen, expected);
}

/// Whoever waits hears of each run that was opened, claimed, parked or woken.
/// A sign of life is no news.
pub async fn a_change_is_signalled(world: StoreFixture) {
    let worker = world.worker().await;
    let mut watch = world.harness.store.watch();
    let run = world.open(|_| {}).await;
    assert_signalled(&mut *watch).await;
    let mut held = world.claim_one(worker).await;
    assert_signalled(&mut *watch).await;
    held.park("child").await;
    assert_signalled(&mut *watch).await;
    let mut second = world.harness.store.watch();
    assert_appended(&world.append_outside(run, events_batch([resumed()])).await);
    assert_signalled(&mut *watch).await;
    assert_signalled(&mut *second).await;
}

/// Waits for a signal that has been given. A store that gives none would hang
/// here, so there is an end to it.
async fn assert_signalled(watch: &mut dyn Watch) {
    let heard = tokio::time::timeout(TIMEOUT, watch.changed()).await;
    heard.expect("a change is signalled").expect("watch");
}

/// Runs of one request are listed like others.
pub async fn runs_of_one_request_are_listed(world: StoreFixture) {
    let new: Vec<NewRun> = (0..3).map(|_| world.new_run(|_| {})).collect();
    let mut expected: Vec<RunId> = new.iter().map(|run| run.id).collect();
    world.open_runs(new).await;
    expected.reverse();
    assert_eq!(ids(&world, all()).await, expected);
    let nothing = RunFilter { limit: 0, ..all() };
    assert_eq!(ids(&world, nothing).await, []);
}

fn all() -> RunFilter {
    RunFilter { limit: 100, ..RunFilter::default() }
}

async fn ids(world: &StoreFixture, ask: RunFilter) -> Vec<RunId> {
    let rows = world.harness.store.list_runs(ask).await.expect("rows");
    rows.into_iter().map(|row| row.id).collect()
}
