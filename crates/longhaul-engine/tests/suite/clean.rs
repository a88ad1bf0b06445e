//! Tools that say more of themselves: that they end when they are let go of,
//! that a call can't be read, that they act without walls.

use futures_util::FutureExt as _;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::policy::effect::EffectClass::{Once, Pure};
use longhaul_core::policy::gate::{Approvers, Decision, GateRule, OnTimeout, Verdict};
use longhaul_core::port::tool::SoFar;
use longhaul_core::time::Millis;
use longhaul_engine::agent::EffectRule;
use longhaul_engine::agent::wish::{Isolation, Sandboxed};
use serde_json::json;

use crate::suite::house::model::Line;
use crate::suite::house::tool::{Deeds, Hand, Ways};
use crate::suite::house::{Plan, answer, count, end, kinds, plan};
use longhaul_testkit::door::Door;

/// Leaves word when it is dropped, as a command does that is killed.
struct Leaving(SoFar);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.leave("half of it".to_owned());
    }
}

/// A `once` call that never ends by itself and leaves what it has.
fn endless(door: &Door, deeds: &Deeds) -> Hand {
    let ways = Ways {
        stops_cleanly: true,
        ..Ways::default()
    };
    let door = door.clone();
    let hand = Hand::new("act", Once, deeds).special(ways);
    hand.doing(move |_, around| {
        let door = door.clone();
        async move {
            let _leaving = Leaving(around.so_far.clone());
            door.pass().await;
            Ok(ToolOutput::text("done"))
        }
        .boxed()
    })
}

fn calling(hand: Hand) -> Plan {
    plan([Line::call("act", json!({}))]).hands([hand])
}

#[tokio::test]
async fn a_cancel_ends_it_at_once_and_keeps_what_it_said() {
    let (never, deeds) = (Door::shut(), Deeds::default());
    let house = calling(endless(&never, &deeds)).at_standing_clock();
    let house = house.at_work();
    let run = house.submit().await;
    never.reached(1).await;
    let cancelled = house.longhaul.cancel(run, "cli:anna", "enough").await;
    cancelled.unwrap();
    // The clock stands: nobody waits for a grace.
    let journal = house.ended(run).await;
    assert_eq!(end(&journal), "run.cancelled");
    let counts = ["tool.interrupted", "tool.in_doubt"].map(|kind| count(&journal, kind));
    assert_eq!(counts, [1, 0], "{:?}", kinds(&journal));
    let said = format!("{journal:?}");
    assert!(said.contains("stopped: the run was cancelled"), "{said}");
    assert!(said.contains("half of it"), "{said}");
}

#[tokio::test]
async fn its_time_is_over_and_the_model_reads_what_it_said() {
    let (never, deeds) = (Door::shut(), Deeds::default());
    let house = calling(endless(&never, &deeds).within(Millis(20))).at_work();
    let run = house.submit().await;
    let journal = house.ended(run).await;
    assert_eq!(end(&journal), "done");
    let counts = ["tool.interrupted", "tool.in_doubt"].map(|kind| count(&journal, kind));
    assert_eq!(counts, [1, 0], "{:?}", kinds(&journal));
    let text =
        "it took longer than 20 ms and was stopped\nWhat it had said until then:\nhalf of it";
    assert_eq!(house.results(), [(text.to_owned(), true)]);
}

#[tokio::test]
async fn a_worker_that_goes_stops_it_after_the_grace() {
    let (never, deeds) = (Door::shut(), Deeds::default());
    let plan = calling(endless(&never, &deeds)).at_standing_clock();
    let mut house = plan.open();
    let stop = house.hire(|_| {});
    let run = house.submit().await;
    never.reached(1).await;
    stop.cut();
    let journal = house.pass_until(run, "tool.interrupted").await;
    assert_eq!(count(&journal, "tool.in_doubt"), 0, "{:?}", kinds(&journal));
    house.gone_home().await;
    // The next worker does not begin it again.
    house.hire(|_| {});
    let journal = house.ended(run).await;
    assert_eq!(end(&journal), "done");
    assert_eq!(deeds.count("act begins"), 1);
    let (text, is_error) = house.results().remove(0);
    assert!(is_error && text.contains("the worker had to go"), "{text}");
}

#[tokio::test]
async fn what_cant_be_read_is_asked_about_and_never_called_harmless() {
    let (door, deeds) = (Door::shut(), Deeds::default());
    let ways = Ways {
        opaque: true,
        ..Ways::default()
    };
    let rule = GateRule {
        tool: "act".into(),
        subject: Some("rm *".into()),
        verdict: Verdict::Ask("May it?".into()),
        always: false,
        timeout: None,
        on_timeout: OnTimeout::Reject,
        in_doubt: None,
        approvers: Approvers::default(),
        remind: None,
    };
    let harmless = EffectRule {
        tool: "act".into(),
        subject: Some("ls*".into()),
        class: Pure,
    };
    let hand = Hand::new("act", Once, &deeds).behind(&door).special(ways);
    let calls = ["ls $(a)", "ls $(b)"].map(|text| ("act", json!({ "text": text })));
    let house = plan([Line::Calls(calls.to_vec())])
        .hands([hand])
        .agent(|agent| {
            agent.rules = vec![rule];
            agent.effects = vec![harmless];
        })
        .at_work();
    let run = house.submit().await;
    house.until(run, "run.waiting").await;
    for gate in house.open_gates(run).await {
        let yes = answer(&gate, Decision::Approve);
        house.longhaul.answer(gate.spec.id, yes).await.unwrap();
    }
    door.reached(1).await;
    assert_eq!(deeds.count("act begins"), 1, "one after the other");
    door.open();
    let journal = house.ended(run).await;
    assert_eq!(count(&journal, "gate.raised"), 2, "{:?}", kinds(&journal));
}

#[tokio::test]
async fn what_has_no_walls_is_for_those_who_spell_it_out() {
    for (isolation, may) in [
        (None, false),
        (Some(Isolation::Walled), false),
        (Some(Isolation::None), true),
    ] {
        let deeds = Deeds::default();
        let ways = Ways {
            unwalled: true,
            ..Ways::default()
        };
        let plan = calling(Hand::new("act", Once, &deeds).special(ways));
        let sandbox = isolation.map(|isolation| Sandboxed {
            isolation,
            ..Sandboxed::default()
        });
        let house = plan.agent(|agent| agent.sandbox = sandbox).at_work();
        let run = house.submit().await;
        if may {
            assert_eq!(end(&house.ended(run).await), "done");
        } else {
            let journal = house.until(run, "run.blocked").await;
            let said = format!("{:?}", journal.last().unwrap().event);
            assert!(said.contains("`sandbox: { isolation: none }`"), "{said}");
            assert_eq!(deeds.all(), Vec::<String>::new());
        }
    }
}
