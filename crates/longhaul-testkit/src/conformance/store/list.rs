//! Lists of runs, and the signal that something has changed.
//!
//! Never: the order of claims; that is `claim`.

use std::time::Duration;

use longhaul_core::change::{Change, HeadMove, NewRun};
use longhaul_core::id::{RunId, Seq};
use longhaul_core::port::store::{RowsAsk, RunRow, Watch};
use longhaul_core::status::Status;
use longhaul_core::time::{Clock, Millis};

use crate::conformance::store::facts::{
    And as _, cancels, ends, only, park_head, pauses, progress, releases, resumed, says,
};
use crate::conformance::store::kit::{World, agent, lane_key, stands};

/// How long a signal may take that should come at once.
const PATIENCE: Duration = Duration::from_secs(20);

/// Each state of a head shows as the word that people know.
pub async fn rows_say_how_a_run_stands(world: World) {
    let mut held = world.held(|_| {}).await;
    world.is(held.run, Status::Running, "").await;
    let blocked = HeadMove::Park {
        reason: "child",
        blocked: true,
        release_lane: false,
    };
    held.write(says([progress(1)]).and(Change::SetHead(blocked)))
        .await;
    world.is(held.run, Status::Blocked, "child").await;
    stands(&world.tell(held.run, says([resumed()])).await);
    world.is(held.run, Status::Running, "worker").await;
    let mut held = world.take(held.worker).await;
    held.write(pauses()).await;
    world.is(held.run, Status::Paused, "").await;
    stands(
        &world
            .close(held.run, held.last, only(park_head("budget")))
            .await,
    );
    world.is(held.run, Status::Waiting, "budget").await;
    world.pass(Millis(9));
    let failed = HeadMove::End {
        status: Status::Failed,
        code: Some("turn_limit".to_owned()),
        frees_lane: true,
    };
    let batch = says(ends().events).and(Change::SetHead(failed));
    stands(&world.close(held.run, held.last, batch).await);
    let row = world.row(held.run).await;
    assert_eq!((row.status, row.reason), (Status::Failed, None));
    assert_eq!(row.code.as_deref(), Some("turn_limit"));
    assert_eq!(row.finished_at, Some(world.at.clock.now()));
}

/// Filters are joined by "and", and the newest comes first.
pub async fn rows_are_filtered(world: World) {
    let plain = world.open(|_| {}).await;
    let other = world.open(|task| task.agent = agent("planner")).await;
    let in_lane = world.open_in_lane("a", 2).await;
    let child = world.new_run(|task| {
        task.root = plain;
        task.parent = Some(plain);
    });
    let child_id = child.id;
    world.ask(vec![child]).await;
    stands(&world.close(in_lane[1], Seq(1), cancels()).await);
    let everything = [child_id, in_lane[1], in_lane[0], other, plain];
    assert_eq!(ids(&world, all()).await, everything);
    let by_agent = RowsAsk {
        agent: Some(agent("planner")),
        ..all()
    };
    assert_eq!(ids(&world, by_agent.clone()).await, [other]);
    let by_lane = RowsAsk {
        lane: Some(lane_key("a")),
        ..all()
    };
    assert_eq!(ids(&world, by_lane.clone()).await, [in_lane[1], in_lane[0]]);
    let by_root = RowsAsk {
        root: Some(plain),
        ..all()
    };
    assert_eq!(ids(&world, by_root).await, [child_id, plain]);
    let cancelled = RowsAsk {
        statuses: vec![Status::Cancelled, Status::Failed],
        ..by_lane
    };
    assert_eq!(ids(&world, cancelled).await, [in_lane[1]]);
    let none = RowsAsk {
        statuses: vec![Status::Completed],
        ..by_agent
    };
    assert_eq!(ids(&world, none).await, []);
    for status in Status::ALL {
        let ask = RowsAsk {
            statuses: vec![status],
            ..all()
        };
        let rows = world.at.store.rows(ask).await.expect("rows");
        assert!(rows.iter().all(|row| row.status == status));
    }
}

/// A row in a list is the row itself.
pub async fn a_list_shows_the_rows(world: World) {
    let mut held = world.held(|task| task.lane = Some(lane_key("a"))).await;
    held.park("child").await;
    let rows: Vec<RunRow> = world.at.store.rows(all()).await.expect("rows");
    assert_eq!(rows, [world.row(held.run).await]);
}

/// Pages neither repeat nor skip what was there, though rows come and change.
pub async fn pages_stand_still_while_rows_are_added(world: World) {
    let mut expected = Vec::new();
    for _ in 0..10 {
        expected.push(world.open(|_| {}).await);
    }
    expected.reverse();
    let worker = world.worker().await;
    let mut seen = Vec::new();
    let mut after = None;
    for _ in 0..4 {
        let ask = RowsAsk {
            after,
            limit: 3,
            ..all()
        };
        let page = ids(&world, ask).await;
        after = page.last().copied();
        seen.extend(page);
        world.open(|_| {}).await;
        let mut held = world.take(worker).await;
        held.write(releases()).await;
    }
    assert_eq!(seen, expected);
}

/// Whoever waits hears of each run that was opened, claimed, parked or woken.
/// A sign of life is no news.
pub async fn a_change_is_signalled(world: World) {
    let worker = world.worker().await;
    let mut watch = world.at.store.watch();
    let run = world.open(|_| {}).await;
    heard(&mut *watch).await;
    let mut held = world.take(worker).await;
    heard(&mut *watch).await;
    held.park("child").await;
    heard(&mut *watch).await;
    let mut second = world.at.store.watch();
    stands(&world.tell(run, says([resumed()])).await);
    heard(&mut *watch).await;
    heard(&mut *second).await;
}

/// Waits for a signal that has been given. A store that gives none would hang
/// here, so there is an end to it.
async fn heard(watch: &mut dyn Watch) {
    let heard = tokio::time::timeout(PATIENCE, watch.changed()).await;
    heard.expect("a change is signalled").expect("watch");
}

/// Runs of one request are listed like others.
pub async fn runs_of_one_request_are_listed(world: World) {
    let new: Vec<NewRun> = (0..3).map(|_| world.new_run(|_| {})).collect();
    let mut expected: Vec<RunId> = new.iter().map(|run| run.id).collect();
    world.ask(new).await;
    expected.reverse();
    assert_eq!(ids(&world, all()).await, expected);
    let nothing = RowsAsk { limit: 0, ..all() };
    assert_eq!(ids(&world, nothing).await, []);
}

fn all() -> RowsAsk {
    RowsAsk {
        limit: 100,
        ..RowsAsk::default()
    }
}

async fn ids(world: &World, ask: RowsAsk) -> Vec<RunId> {
    let rows = world.at.store.rows(ask).await.expect("rows");
    rows.into_iter().map(|row| row.id).collect()
}
