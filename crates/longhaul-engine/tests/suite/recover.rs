//! A worker that dies in the middle: another takes its runs after the lease,
//! and each call is treated by its class.

use longhaul_core::policy::effect::EffectClass::{self, Keyed, Once, Pure};
use longhaul_core::policy::effect::InDoubt;
use longhaul_core::time::Millis;
use serde_json::json;

use crate::suite::house::model::Line;
use crate::suite::house::tool::{Deeds, Hand};
use crate::suite::house::{House, count, end, kinds, plan};
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
