//! Lists of runs, and the change signal.

use std::time::Duration;

use longhaul_core::change::{JournalBatch, NewRun, RowChange, RunSchedulingUpdate};
use longhaul_core::id::{RunId, Seq};
use longhaul_core::port::records::InboxRunCounts;
use longhaul_core::port::store::{RunFilter, RunRow, StoreWatcher};
use longhaul_core::status::Status;
use longhaul_core::task::{RetriedRun, TaskSpec};
use longhaul_core::time::{Clock, Millis};

use crate::conformance::store::batches::{
    BatchExt as _, cancel_batch, change_batch, end_batch, events_batch, park_head, pause_batch,
    progress, release_batch, resumed,
};
use crate::conformance::store::fixture::{StoreFixture, agent, assert_appended, inbox, lane_key};

/// Timeout for a change signal.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Each state of a head has its public status in the row.
pub async fn rows_have_the_status_of_a_run(fixture: StoreFixture) {
    let mut claimed_run = fixture.open_and_claim(|_| {}).await;
    fixture.assert_status(claimed_run.run, Status::Running, "").await;
    let blocked = RunSchedulingUpdate::Park { reason: "child", blocked: true, release_lane: false };
    claimed_run
        .append_ok(events_batch([progress(1)]).with_change(RowChange::UpdateScheduling(blocked)))
        .await;
    fixture.assert_status(claimed_run.run, Status::Blocked, "child").await;
    assert_appended(&fixture.append_outside(claimed_run.run, events_batch([resumed()])).await);
    fixture.assert_status(claimed_run.run, Status::Running, "worker").await;
    let mut claimed_run = fixture.claim_one(claimed_run.worker).await;
    claimed_run.append_ok(pause_batch()).await;
    fixture.assert_status(claimed_run.run, Status::Paused, "").await;
    assert_appended(
        &fixture
            .append_as_closer(claimed_run.run, claimed_run.last, change_batch(park_head("budget")))
            .await,
    );
    fixture.assert_status(claimed_run.run, Status::Waiting, "budget").await;
    fixture.advance(Millis(9));
    assert_appended(
        &fixture.append_as_closer(claimed_run.run, claimed_run.last, failed_batch()).await,
    );
    let row = fixture.row(claimed_run.run).await;
    assert_eq!((row.status, row.reason), (Status::Failed, None));
    assert_eq!(row.code.as_deref(), Some("turn_limit"));
    assert_eq!(row.finished_at, Some(fixture.harness.clock.now()));
}

/// Filters are combined with "and", and the newest run comes first.
pub async fn rows_are_filtered(fixture: StoreFixture) {
    let plain = fixture.open(|_| {}).await;
    let other = fixture.open(|task| task.agent = agent("planner")).await;
    let in_lane = fixture.open_in_lane("a", 2).await;
    let child = fixture.new_run(|task| {
        task.root = plain;
        task.parent = Some(plain);
    });
    let child_id = child.id;
    fixture.open_runs(vec![child]).await;
    assert_appended(&fixture.append_as_closer(in_lane[1], Seq(1), cancel_batch()).await);
    let all_runs = [child_id, in_lane[1], in_lane[0], other, plain];
    assert_eq!(ids(&fixture, all()).await, all_runs);
    let by_agent = RunFilter { agent: Some(agent("planner")), ..all() };
    assert_eq!(ids(&fixture, by_agent.clone()).await, [other]);
    let by_lane = RunFilter { lane: Some(lane_key("a")), ..all() };
    assert_eq!(ids(&fixture, by_lane.clone()).await, [in_lane[1], in_lane[0]]);
    let by_root = RunFilter { root: Some(plain), ..all() };
    assert_eq!(ids(&fixture, by_root.clone()).await, [child_id, plain]);
    let by_parent = RunFilter { parent: Some(plain), ..by_root };
    assert_eq!(ids(&fixture, by_parent).await, [child_id]);
    let by_child = RunFilter { parent: Some(child_id), ..all() };
    assert_eq!(ids(&fixture, by_child).await, []);
    let cancelled = RunFilter { statuses: vec![Status::Cancelled, Status::Failed], ..by_lane };
    assert_eq!(ids(&fixture, cancelled).await, [in_lane[1]]);
    let completed = RunFilter { statuses: vec![Status::Completed], ..by_agent };
    assert_eq!(ids(&fixture, completed).await, []);
    for status in Status::ALL {
        let filter = RunFilter { statuses: vec![status], ..all() };
        let rows = fixture.harness.store.list_runs(filter).await.expect("rows");
        assert!(rows.iter().all(|row| row.status == status));
    }
}

/// A failed run is left out of the list of dead letters as soon as a later run retries it.
pub async fn retried_runs_can_be_left_out(fixture: StoreFixture) {
    let mut failed = Vec::new();
    for _ in 0..2 {
        let mut claimed_run = fixture.open_and_claim(|_| {}).await;
        claimed_run.append_ok(failed_batch()).await;
        failed.push(claimed_run.run);
    }
    fixture
        .open(|task| task.retry_of = Some(RetriedRun { run: failed[1], attempts: 1, first: None }))
        .await;
    let filter = RunFilter { statuses: vec![Status::Failed], ..all() };
    let not_retried = RunFilter { not_retried: true, ..filter.clone() };
    assert_eq!(ids(&fixture, filter.clone()).await, [failed[1], failed[0]]);
    assert_eq!(ids(&fixture, not_retried.clone()).await, [failed[0]]);
    let by_inbox = RunFilter { inbox: Some(inbox("main")), ..not_retried.clone() };
    assert_eq!(ids(&fixture, by_inbox).await, [failed[0]]);
    let older = RunFilter { after: Some(failed[0]), ..not_retried };
    assert_eq!(ids(&fixture, older).await, []);
}

/// Open runs and failed runs that are not retried are counted by inbox.
pub async fn runs_are_counted_by_inbox(fixture: StoreFixture) {
    let in_inbox = |name: &'static str| move |task: &mut TaskSpec| task.inbox = inbox(name);
    let count = async |filter: Option<&str>| {
        let filter = filter.map(inbox);
        fixture.harness.records.count_runs_by_inbox(filter.as_ref()).await.expect("counts")
    };
    assert_eq!(count(None).await, []);
    for _ in 0..4 {
        fixture.open(|_| {}).await;
    }
    fixture.open(in_inbox("mail")).await;
    let worker = fixture.worker().await;
    let mut claimed_runs = Vec::new();
    for _ in 0..4 {
        claimed_runs.push(fixture.claim_one(worker).await);
    }
    claimed_runs[0].end().await;
    claimed_runs[1].append_ok(failed_batch()).await;
    claimed_runs[2].park("child").await;
    let counts = |inbox_name: &str, [pending, running, waiting, failed]: [u64; 4]| InboxRunCounts {
        inbox: inbox(inbox_name),
        pending,
        running,
        waiting,
        failed,
    };
    let mail = counts("mail", [1, 0, 0, 0]);
    assert_eq!(count(None).await, [mail.clone(), counts("main", [0, 1, 1, 1])]);
    assert_eq!(count(Some("mail")).await, std::slice::from_ref(&mail));
    assert_eq!(count(Some("other")).await, []);
    let retried = RetriedRun { run: claimed_runs[1].run, attempts: 1, first: None };
    fixture.open(|task| task.retry_of = Some(retried)).await;
    assert_eq!(count(None).await, [mail, counts("main", [1, 1, 1, 0])]);
}

/// Returns a batch that ends a run as failed.
pub(crate) fn failed_batch() -> JournalBatch {
    let failed = RunSchedulingUpdate::End {
        status: Status::Failed,
        code: Some("turn_limit".to_owned()),
        releases_lane: true,
    };
    events_batch(end_batch().events).with_change(RowChange::UpdateScheduling(failed))
}

/// A list contains the same row as a single lookup.
pub async fn a_list_shows_the_rows(fixture: StoreFixture) {
    let mut claimed_run = fixture.open_and_claim(|task| task.lane = Some(lane_key("a"))).await;
    claimed_run.park("child").await;
    let rows: Vec<RunRow> = fixture.harness.store.list_runs(all()).await.expect("rows");
    assert_eq!(rows, [fixture.row(claimed_run.run).await]);
}

/// Pages neither repeat nor skip existing rows while rows are added and changed.
pub async fn pages_are_stable_while_rows_are_added(fixture: StoreFixture) {
    let mut expected = Vec::new();
    for _ in 0..10 {
        expected.push(fixture.open(|_| {}).await);
    }
    expected.reverse();
    let worker = fixture.worker().await;
    let mut observed = Vec::new();
    let mut after = None;
    for _ in 0..4 {
        let filter = RunFilter { after, limit: 3, ..all() };
        let page = ids(&fixture, filter).await;
        after = page.last().copied();
        observed.extend(page);
        fixture.open(|_| {}).await;
        let mut claimed_run = fixture.claim_one(worker).await;
        claimed_run.append_ok(release_batch()).await;
    }
    assert_eq!(observed, expected);
}

/// A watcher is notified of each run that is opened, claimed, parked or woken, but not of
/// heartbeats.
pub async fn a_change_is_signalled(fixture: StoreFixture) {
    let worker = fixture.worker().await;
    let mut watcher = fixture.harness.store.watch_for_changes();
    let run = fixture.open(|_| {}).await;
    assert_signalled(&mut *watcher).await;
    let mut claimed_run = fixture.claim_one(worker).await;
    assert_signalled(&mut *watcher).await;
    claimed_run.park("child").await;
    assert_signalled(&mut *watcher).await;
    let mut second = fixture.harness.store.watch_for_changes();
    assert_appended(&fixture.append_outside(run, events_batch([resumed()])).await);
    assert_signalled(&mut *watcher).await;
    assert_signalled(&mut *second).await;
}

/// Waits for a signal, with a timeout so that a store without signals does not block the check.
async fn assert_signalled(watcher: &mut dyn StoreWatcher) {
    let signalled = tokio::time::timeout(TIMEOUT, watcher.wait_for_change()).await;
    signalled.expect("a change is signalled").expect("watch");
}

/// Runs that were opened by one request are listed like others.
pub async fn runs_of_one_request_are_listed(fixture: StoreFixture) {
    let new: Vec<NewRun> = (0..3).map(|_| fixture.new_run(|_| {})).collect();
    let mut expected: Vec<RunId> = new.iter().map(|run| run.id).collect();
    fixture.open_runs(new).await;
    expected.reverse();
    assert_eq!(ids(&fixture, all()).await, expected);
    let empty_page = RunFilter { limit: 0, ..all() };
    assert_eq!(ids(&fixture, empty_page).await, []);
}

pub(crate) fn all() -> RunFilter {
    RunFilter { limit: 100, ..RunFilter::default() }
}

pub(crate) async fn ids(fixture: &StoreFixture, filter: RunFilter) -> Vec<RunId> {
    let rows = fixture.harness.store.list_runs(filter).await.expect("rows");
    rows.into_iter().map(|row| row.id).collect()
}
