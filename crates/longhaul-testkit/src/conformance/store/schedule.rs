//! Schedules: they are stored by name, and each firing happens once.

use tokio::task::JoinSet;

use longhaul_core::id::{RunId, ScheduleName};
use longhaul_core::port::schedules::{
    NewSchedule, ScheduleFiring, ScheduleFiringAction, ScheduleFiringOutcome, ScheduleUpdate,
};
use longhaul_core::port::store::{CreateRunsRequest, IdempotencyRecord, RunFilter};
use longhaul_core::raw::{Hash, RawJson};
use longhaul_core::schedule::{CatchUp, Overlap, ScheduleRow, ScheduleSpec, ScheduleTiming};
use longhaul_core::task::TaskSpec;
use longhaul_core::time::{Clock, Millis, Timestamp};

use crate::conformance::store::fixture::{StoreFixture, agent, lane_key};

/// A schedule can be read back, and its name is taken.
pub async fn a_schedule_is_stored_once(fixture: StoreFixture) {
    let due = create(&fixture, "daily", 60).await;
    let row = find(&fixture, "daily").await.expect("the schedule exists");
    let expected = ScheduleRow {
        name: name("daily"),
        spec: spec(),
        due: Some(due),
        last_run: None,
        last_fired_at: None,
        last_error: None,
    };
    assert_eq!(row, expected);
    let other = NewSchedule {
        name: name("daily"),
        spec: ScheduleSpec { overlap: Overlap::Allow, ..spec() },
        due: due.plus(Millis(1)),
    };
    assert!(!fixture.harness.schedules.create_schedule(other).await.expect("create"));
    assert_eq!(find(&fixture, "daily").await, Some(expected));
    assert_eq!(find(&fixture, "weekly").await, None);
}

/// A change of a schedule is refused if the schedule has fired meanwhile. It keeps the last run.
pub async fn a_schedule_is_updated(fixture: StoreFixture) {
    let due = create(&fixture, "daily", 60).await;
    let paused = ScheduleUpdate {
        name: name("daily"),
        due: Some(due),
        spec: ScheduleSpec { paused: true, ..spec() },
        next_due: None,
    };
    let schedules = &fixture.harness.schedules;
    let before = find(&fixture, "daily").await.expect("the schedule exists");
    let outdated = ScheduleUpdate { due: Some(due.plus(Millis(1))), ..paused.clone() };
    assert!(!schedules.update_schedule(outdated).await.expect("update"));
    assert_eq!(find(&fixture, "daily").await, Some(before.clone()));
    let missing = ScheduleUpdate { name: name("weekly"), ..paused.clone() };
    assert!(!schedules.update_schedule(missing).await.expect("update"));
    assert!(schedules.update_schedule(paused.clone()).await.expect("update"));
    let expected = ScheduleRow { spec: paused.spec.clone(), due: None, ..before.clone() };
    assert_eq!(find(&fixture, "daily").await, Some(expected));
    assert_eq!(schedules.next_schedule_due().await.expect("next"), None);
    let resumed = ScheduleUpdate { due: None, spec: spec(), next_due: Some(due), ..paused };
    assert!(schedules.update_schedule(resumed).await.expect("update"));
    assert_eq!(find(&fixture, "daily").await, Some(before));
}

/// A deleted schedule is gone and its name is free.
pub async fn a_schedule_is_deleted(fixture: StoreFixture) {
    create(&fixture, "daily", 60).await;
    for existed in [true, false] {
        let deleted = fixture.harness.schedules.delete_schedule(&name("daily")).await;
        assert_eq!(deleted.expect("delete"), existed);
    }
    assert_eq!(fixture.harness.schedules.list_schedules(9).await.expect("list"), []);
    assert_eq!(fixture.harness.schedules.next_schedule_due().await.expect("next"), None);
    create(&fixture, "daily", 60).await;
}

/// Lists are ordered by name, due schedules by their due time.
pub async fn due_schedules_are_listed_in_order(fixture: StoreFixture) {
    create(&fixture, "c", 10).await;
    let first = create(&fixture, "b", 5).await;
    create(&fixture, "a", 20).await;
    let names = |rows: Vec<ScheduleRow>| -> Vec<String> {
        rows.iter().map(|row| row.name.to_string()).collect()
    };
    let schedules = &fixture.harness.schedules;
    assert_eq!(names(schedules.list_schedules(2).await.expect("list")), ["a", "b"]);
    assert_eq!(schedules.next_schedule_due().await.expect("next"), Some(first));
    for (seconds, due) in [(4, &[][..]), (1, &["b"]), (5, &["b", "c"]), (10, &["b", "c", "a"])] {
        fixture.advance(Millis::from_secs(seconds));
        assert_eq!(names(schedules.due_schedules(9).await.expect("due")), due);
    }
    assert_eq!(names(schedules.due_schedules(1).await.expect("due")), ["b"]);
}

/// A firing creates its run, which is ready, and the schedule has its next due time.
pub async fn a_firing_creates_its_run_and_moves_the_due_time(fixture: StoreFixture) {
    let due = create(&fixture, "daily", 60).await;
    let next = due.plus(Millis::from_secs(60));
    fixture.advance(Millis::from_secs(61));
    let (firing, run) = firing(&fixture, Some(due), Some(next), |_| {});
    let created = ScheduleFiringOutcome::Created(run);
    assert_eq!(fire(&fixture, firing.clone()).await, created);
    assert_eq!(fixture.row(run).await.id, run);
    let row = find(&fixture, "daily").await.expect("the schedule exists");
    assert_eq!((row.due, row.last_run), (Some(next), Some(run)));
    assert_eq!(row.last_fired_at, Some(fixture.harness.clock.now()));
    // The same firing again has no effect.
    assert_eq!(fire(&fixture, firing).await, ScheduleFiringOutcome::Outdated);
    let worker = fixture.worker().await;
    assert_eq!(fixture.claim_one(worker).await.run, run);
    // A last firing leaves a schedule that is never due.
    let (last, second) = self::firing(&fixture, Some(next), None, |_| {});
    assert_eq!(fire(&fixture, last).await, ScheduleFiringOutcome::Created(second));
    assert_eq!(fixture.harness.schedules.next_schedule_due().await.expect("next"), None);
    let (manual, third) = self::firing(&fixture, None, None, |_| {});
    assert_eq!(fire(&fixture, manual).await, ScheduleFiringOutcome::Created(third));
}

/// A skipped firing records its reason and keeps the last run, and the next run clears the reason.
pub async fn a_skipped_firing_keeps_the_last_run(fixture: StoreFixture) {
    let due = Some(create(&fixture, "daily", 60).await);
    let (first, run) = firing(&fixture, due, due, |_| {});
    fire(&fixture, first).await;
    let skip = ScheduleFiring {
        name: name("daily"),
        due,
        next_due: due,
        action: ScheduleFiringAction::Skip("busy".to_owned()),
    };
    assert_eq!(fire(&fixture, skip).await, ScheduleFiringOutcome::Skipped);
    let row = find(&fixture, "daily").await.expect("the schedule exists");
    assert_eq!((row.last_run, row.last_error.as_deref()), (Some(run), Some("busy")));
    let (second, run) = firing(&fixture, due, due, |_| {});
    fire(&fixture, second).await;
    let row = find(&fixture, "daily").await.expect("the schedule exists");
    assert_eq!((row.last_run, row.last_error), (Some(run), None));
}

/// If the lane is full, neither the run nor the new due time is stored.
pub async fn a_firing_into_a_full_lane_changes_nothing(fixture: StoreFixture) {
    let due = Some(create(&fixture, "daily", 60).await);
    let (mut firing, run) = firing(&fixture, due, None, |task| task.lane = Some(lane_key("l")));
    if let ScheduleFiringAction::Create(request) = &mut firing.action {
        request.runs[0].lane_depth_max = 0;
    }
    assert_eq!(fire(&fixture, firing).await, ScheduleFiringOutcome::LaneFull(lane_key("l")));
    let row = find(&fixture, "daily").await.expect("the schedule exists");
    assert_eq!((row.due, row.last_run), (due, None));
    assert_eq!(fixture.harness.store.get_run(run).await.expect("row"), None);
}

/// A firing with the idempotency key of an earlier one returns its run, unless the requests differ.
pub async fn a_firing_with_a_used_key_changes_nothing(fixture: StoreFixture) {
    let due = Some(create(&fixture, "daily", 60).await);
    let with_key = |body: &str| {
        let (mut firing, run) = firing(&fixture, due, due, |_| {});
        if let ScheduleFiringAction::Create(request) = &mut firing.action {
            request.idempotency = Some(IdempotencyRecord {
                principal: "ops".to_owned(),
                key: "k".to_owned(),
                body_hash: Hash::digest(body.as_bytes()),
                ttl: Some(Millis::from_secs(60)),
            });
        }
        (firing, run)
    };
    let (first, run) = with_key("daily");
    assert_eq!(fire(&fixture, first).await, ScheduleFiringOutcome::Created(run));
    let before = find(&fixture, "daily").await;
    fixture.advance(Millis::from_secs(1));
    for (body, outcome) in [
        ("daily", ScheduleFiringOutcome::Existing(run)),
        ("weekly", ScheduleFiringOutcome::KeyReused),
    ] {
        let (firing, new) = with_key(body);
        assert_eq!(fire(&fixture, firing).await, outcome);
        assert_eq!(fixture.harness.store.get_run(new).await.expect("row"), None);
    }
    assert_eq!(find(&fixture, "daily").await, before);
}

/// Of many workers that fire at once, one creates a run.
pub async fn a_firing_happens_once(fixture: StoreFixture) {
    let mut due = create(&fixture, "daily", 60).await;
    let rounds = 20;
    for _ in 0..rounds {
        let next = due.plus(Millis::from_secs(60));
        let mut workers = JoinSet::new();
        for _ in 0..8 {
            let (firing, _) = firing(&fixture, Some(due), Some(next), |_| {});
            let schedules = fixture.harness.schedules.clone();
            workers.spawn(async move { schedules.fire_schedule(firing).await.expect("fire") });
        }
        let outcomes = workers.join_all().await;
        let created = outcomes.iter();
        let created = created.filter(|one| matches!(one, ScheduleFiringOutcome::Created(_)));
        assert_eq!(created.count(), 1, "{outcomes:?}");
        due = next;
    }
    let filter = RunFilter { limit: 1_000, ..RunFilter::default() };
    assert_eq!(fixture.harness.store.list_runs(filter).await.expect("list").len(), rounds);
}

fn name(text: &str) -> ScheduleName {
    ScheduleName::new(text).expect("a valid name")
}

fn spec() -> ScheduleSpec {
    ScheduleSpec {
        timing: ScheduleTiming::Cron {
            cron: "0 9 * * *".to_owned(),
            tz: "Europe/Berlin".to_owned(),
        },
        agent: agent("writer"),
        chain: None,
        input: RawJson::from_serialize(&"Write."),
        event: Some("idle_tick".to_owned()),
        lane: Some(lane_key("l")),
        thread: None,
        resource: None,
        catch_up: CatchUp::All,
        overlap: Overlap::Queue,
        created_by: Some("key:ops".to_owned()),
        earlier_authors: vec!["key:dev".to_owned()],
        paused: false,
    }
}

/// Creates a schedule that is due after some seconds, and returns that time.
async fn create(fixture: &StoreFixture, text: &str, seconds: u64) -> Timestamp {
    let due = fixture.harness.clock.now().plus(Millis::from_secs(seconds));
    let new = NewSchedule { name: name(text), spec: spec(), due };
    assert!(fixture.harness.schedules.create_schedule(new).await.expect("create"));
    due
}

async fn find(fixture: &StoreFixture, text: &str) -> Option<ScheduleRow> {
    fixture.harness.schedules.find_schedule(&name(text)).await.expect("find")
}

/// Returns a firing of the schedule `daily` and the id of its run.
fn firing(
    fixture: &StoreFixture,
    due: Option<Timestamp>,
    next_due: Option<Timestamp>,
    change: impl FnOnce(&mut TaskSpec),
) -> (ScheduleFiring, RunId) {
    let new = fixture.new_run(change);
    let run = new.id;
    let request = CreateRunsRequest { runs: vec![new], blobs: Vec::new(), idempotency: None };
    let action = ScheduleFiringAction::Create(Box::new(request));
    (ScheduleFiring { name: name("daily"), due, next_due, action }, run)
}

async fn fire(fixture: &StoreFixture, firing: ScheduleFiring) -> ScheduleFiringOutcome {
    fixture.harness.schedules.fire_schedule(firing).await.expect("fire")
}
