//! A worker that dies in the middle: another takes its runs after the lease,
//! and each call is treated by its class.

use std::time::Duration;

use longhaul_core::policy::effect::EffectClass::{self, Keyed, Once, Pure};
use longhaul_core::policy::effect::InDoubt;
use longhaul_core::time::Millis;
use serde_json::json;

use crate::suite::house::model::Line;
use crate::suite::house::stock::Stock;
use crate::suite::house::tool::{Deeds, Hand};
use crate::suite::house::{House, PATIENCE, count, end, kinds, plan};
use longhaul_testkit::door::Door;

fn short(options: &mut longhaul_engine::worker::WorkerOptions) {
    options.lease = Millis(300);
}

/// A house whose only worker died in the middle of a call.
async fn dead(class: EffectClass, deeds: &Deeds) -> (House, longhaul_core::id::RunId, Door) {
    let door = Door::shut();
    let hand = Hand::new("act", class, deeds)
        .behind(&door)
        .in_doubt(InDoubt::Tell);
    let mut house = plan([Line::call("act", json!({}))]).hands([hand]).open();
    house.hire(short);
    let run = house.submit().await;
    door.reached(1).await;
    house.workers.abort_all();
    while house.workers.join_next().await.is_some() {}
    (house, run, door)
}

#[tokio::test]
async fn what_a_dead_worker_had_begun_is_made_again_or_in_doubt() {
    for (class, made, doubts) in [(Pure, 2, 0), (Keyed, 2, 0), (Once, 1, 1)] {
        let deeds = Deeds::default();
        let (mut house, run, door) = dead(class, &deeds).await;
        door.open();
        house.hire(short);
        let journal = house.ended(run).await;
        assert_eq!(end(&journal), "done");
        assert_eq!(count(&journal, "run.recovered"), 1);
        assert_eq!(deeds.count("act begins"), made, "{class:?}");
        assert_eq!(
            count(&journal, "tool.in_doubt"),
            doubts,
            "{:?}",
            kinds(&journal)
        );
    }
}

#[tokio::test]
async fn a_question_that_a_dead_worker_had_put_is_put_again() {
    let door = Door::shut();
    let mut house = plan([Line::Text("never").behind(&door)]).open();
    house.hire(short);
    let run = house.submit().await;
    door.reached(1).await;
    house.workers.abort_all();
    while house.workers.join_next().await.is_some() {}
    house.hire(short);
    let journal = house.ended(run).await;
    assert_eq!(end(&journal), "done");
    let asked = house.actor.asked();
    assert_eq!((asked[0].attempt, asked[1].attempt), (1, 2));
    assert_eq!(count(&journal, "turn.failed"), 1, "the first is lost");
}

#[tokio::test]
async fn a_cancel_leaves_nothing_open_also_where_a_part_is_missing() {
    let deeds = Deeds::default();
    let (mut house, run, _door) = dead(Once, &deeds).await;
    house
        .longhaul
        .cancel(run, "cli:anna", "enough")
        .await
        .unwrap();
    *house.models.gone.lock().unwrap() = Some("No model is configured.");
    house.hire(short);
    let journal = house.ended(run).await;
    assert_eq!(end(&journal), "run.cancelled");
    assert_eq!(count(&journal, "tool.in_doubt"), 1, "{:?}", kinds(&journal));
}

/// Counts as dead when time passes: the clock stands until then.
fn mortal(options: &mut longhaul_engine::worker::WorkerOptions) {
    options.lease = Millis::from_secs(15);
}

/// The process of all workers dies.
async fn die(house: &mut House) {
    house.workers.abort_all();
    while house.workers.join_next().await.is_some() {}
}

/// Lets time pass, second by second, until the runs of the dead were claimed again and
/// so many have come to a door.
async fn pass_until_reached(house: &House, door: &Door, count: usize) {
    let clock = house.clock.as_ref().unwrap();
    let passing = async {
        while door.came() < count {
            let waited = tokio::time::timeout(Duration::from_millis(2), door.reached(count));
            if waited.await.is_err() {
                _ = clock.advance(Millis::from_secs(1));
            }
        }
    };
    let passed = tokio::time::timeout(PATIENCE, passing).await;
    assert!(passed.is_ok(), "{} of {count} came to a door", door.came());
}

#[tokio::test]
async fn a_run_that_kills_its_worker_before_it_begins_is_blocked() {
    let (stock, door) = (Stock::default(), Door::shut());
    stock.brings(Some(vec!["mcp:shop/buy"]));
    stock.behind(&door);
    let mut house = plan([]).supplied(&stock).at_standing_clock().open();
    let run = house.submit().await;
    for deaths in 1..=3 {
        house.hire(mortal);
        pass_until_reached(&house, &door, deaths).await;
        die(&mut house).await;
    }
    house.hire(mortal);
    house.pass_until(run, "run.blocked").await;
    assert_eq!(door.came(), 3);
    let ask = house.gate(run).await.spec.ask;
    let place = "died 3 times in a row at the same place, before its first turn";
    assert!(ask.contains(place), "{ask}");
}

#[tokio::test]
async fn runs_that_wait_for_a_trial_leave_their_slots_to_others() {
    let door = Door::shut();
    let hand = Hand::new("act", Pure, &Deeds::default()).behind(&door);
    let plan = plan([Line::call("act", json!({}))]).hands([hand]);
    let mut house = plan.at_standing_clock().open();
    let three = |options: &mut longhaul_engine::worker::WorkerOptions| {
        mortal(options);
        options.concurrency = 3;
    };
    let [on_trial, cancelled, waiting] = [
        house.submit().await,
        house.submit().await,
        house.submit().await,
    ];
    for deaths in 1..=2 {
        house.hire(three);
        pass_until_reached(&house, &door, deaths * 3).await;
        die(&mut house).await;
    }
    house.hire(three);
    pass_until_reached(&house, &door, 7).await;
    let fresh = [house.submit().await, house.submit().await];
    door.reached(9).await;
    // It needs no slot to come to its end.
    let cancel = house.longhaul.cancel(cancelled, "cli:anna", "enough");
    cancel.await.unwrap();
    assert_eq!(end(&house.ended(cancelled).await), "run.cancelled");
    assert_eq!(door.came(), 9, "nobody else has begun");
    door.open();
    for run in [on_trial, waiting, fresh[0], fresh[1]] {
        assert_eq!(end(&house.ended(run).await), "done");
    }
}
