//! Facts from outside: which are taken, and whom they wake.
//!
//! Never: gates and timers themselves; they have rooms of their own.

use longhaul_core::change::{Blob, Change, RuleRow};
use longhaul_core::event::gate::{GateAnswer, GateClosed};
use longhaul_core::event::steer::{SteerDelivered, SteerMessage, SteerWithdrawn};
use longhaul_core::event::tool::{ToolOutput, ToolSurfaced};
use longhaul_core::event::world::{BudgetRaised, ChildEnded, RuleAdded, SandboxFact, TimerFired};
use longhaul_core::event::{Event, Wakes};
use longhaul_core::id::{CallId, Epoch, Seq};
use longhaul_core::policy::budget::Raise;
use longhaul_core::policy::gate::Pattern;
use longhaul_core::port::store::{Appended, Refused};
use longhaul_core::status::{Outcome, Status};

use crate::conformance::store::facts::{
    And as _, asked, cancel_requested, ends, gate_spec, only, parks, pauses, progress, raises,
    releases, resumed, says, yes,
};
use crate::conformance::store::kit::{World, refused, stands};

/// What an outsider may not state is refused, alone and in company.
pub async fn only_facts_of_the_list_come_from_outside(world: World) {
    let run = world.open(|_| {}).await;
    let delivered = Event::SteerDelivered(SteerDelivered {
        steer: world.ids.steer(),
        after_turn: 1,
        as_answer: false,
    });
    let mut inside = vec![progress(1), delivered, Event::RunPaused(asked())];
    inside.extend(ends().events);
    inside.extend(parks("child").events);
    inside.extend(raises(gate_spec(world.ids.gate())).events);
    for event in inside {
        let kind = event.kind();
        for batch in [says([event.clone()]), says([resumed(), event.clone()])] {
            let why = refused(world.tell(run, batch).await);
            assert_eq!(why, Refused::NotOutside(kind));
        }
    }
    assert_eq!(world.row(run).await.last, Seq(1));
}

/// A fact wakes a parked run, or a paused one too, or nobody, as its kind says.
pub async fn facts_wake_whom_they_should(world: World) {
    for event in facts(&world) {
        let kind = event.kind();
        let wakes_paused = event.from_outside() == Some(Wakes::Rested);
        let wakes_parked = wakes_paused || event.from_outside() == Some(Wakes::Parked);
        let mut held = world.held(|_| {}).await;
        held.park("child").await;
        assert_at(
            &world.tell(held.run, says([event.clone()])).await,
            held.last.next(),
        );
        let expected = match wakes_parked {
            true => (Status::Running, Some("worker".to_owned())),
            false => (Status::Waiting, Some("child".to_owned())),
        };
        assert_eq!(world.stands(held.run).await, expected, "parked, {kind}");
        let ready = world.try_take(held.worker).await;
        assert_eq!(ready.is_some(), wakes_parked, "parked, {kind}");

        let mut held = world.held(|_| {}).await;
        held.write(pauses()).await;
        stands(&world.tell(held.run, says([event.clone()])).await);
        let expected = match wakes_paused {
            true => (Status::Running, Some("worker".to_owned())),
            false => (Status::Paused, None),
        };
        assert_eq!(world.stands(held.run).await, expected, "paused, {kind}");
        let ready = world.try_take(held.worker).await;
        assert_eq!(ready.is_some(), wakes_paused, "paused, {kind}");
    }
}

/// A run that is driven or ready takes the fact and stays where it is.
pub async fn facts_leave_driven_and_ready_runs_alone(world: World) {
    for event in facts(&world) {
        let mut held = world.held(|_| {}).await;
        stands(&world.tell(held.run, says([event.clone()])).await);
        world.is(held.run, Status::Running, "").await;
        assert_eq!(held.append(releases()).await, Appended::MovedOn);
        held.last = held.last.next();
        held.write(releases()).await;
        stands(&world.tell(held.run, says([event.clone()])).await);
        world.is(held.run, Status::Running, "worker").await;
        let again = world.take(held.worker).await;
        assert_eq!((again.run, again.epoch), (held.run, Epoch(2)));
    }
}

/// The strongest fact of a batch counts, wherever it stands.
pub async fn the_strongest_fact_of_a_batch_counts(world: World) {
    let rule = |world: &World| {
        Event::RuleAdded(RuleAdded {
            rule: world.ids.rule(),
            pattern: pattern(),
            by: "cli:anna".to_owned(),
        })
    };
    for batch in [
        says([rule(&world), resumed(), cancel_requested()]),
        says([resumed(), rule(&world)]),
    ] {
        let mut held = world.held(|_| {}).await;
        held.write(pauses()).await;
        stands(&world.tell(held.run, batch).await);
        world.is(held.run, Status::Running, "worker").await;
        world.take(held.worker).await;
    }
}

/// Rows change without a fact, also beside an ended run, and no head moves.
pub async fn changes_without_facts_leave_the_head_alone(world: World) {
    let mut held = world.held(|_| {}).await;
    held.park("child").await;
    let before = world.row(held.run).await;
    let rule = RuleRow {
        rule: world.ids.rule(),
        pattern: pattern(),
        by: "cli:anna".to_owned(),
        active: true,
    };
    let batch = || only(Change::PutRule(rule.clone()));
    assert_at(&world.tell(held.run, batch()).await, held.last);
    assert_eq!(world.row(held.run).await, before);
    let rules = world.at.shelves.rules(held.run).await.expect("rules");
    assert_eq!(rules, std::slice::from_ref(&rule));
    stands(&world.close(held.run, held.last, ends()).await);
    let blob = Blob::new(b"late".to_vec());
    let late = batch().and(Change::PutBlob(blob.clone()));
    stands(&world.tell(held.run, late).await);
    let kept = world.at.shelves.blob(blob.hash()).await.expect("blob");
    assert_eq!(kept.as_deref(), Some(&b"late"[..]));
    world.is(held.run, Status::Completed, "").await;
}

/// Facts of the list: some that wake whoever rests, some that wake who is
/// parked, some that wake nobody.
fn facts(world: &World) -> Vec<Event> {
    let gate = world.ids.gate();
    let steer = world.ids.steer();
    let by = || "cli:anna".to_owned();
    let answer = GateAnswer {
        gate,
        answer: yes("cli:anna"),
    };
    let queued = SteerMessage {
        steer,
        text: "hello".to_owned(),
        delivery: longhaul_core::event::steer::Delivery::Interrupt,
        by: by(),
    };
    let child = ChildEnded {
        child: world.ids.run(),
        outcome: Outcome::Cancelled("enough".to_owned()),
    };
    let surfaced = ToolSurfaced {
        call: CallId { turn: 1, index: 1 },
        is_error: false,
        output: ToolOutput::text("found"),
    };
    let raised = BudgetRaised {
        raise: Raise::default(),
        by: by(),
    };
    let rule = RuleAdded {
        rule: world.ids.rule(),
        pattern: pattern(),
        by: by(),
    };
    let sandbox = SandboxFact {
        sandbox: world.ids.sandbox(),
        provider: "local".to_owned(),
        handle: String::new(),
        host: None,
    };
    let timer = world.ids.timer();
    let reminded = GateClosed {
        gate,
        why: "please".to_owned(),
    };
    vec![
        Event::GateAnswered(answer.clone()),
        Event::GateVoted(answer),
        Event::GateReminded(reminded),
        Event::SteerQueued(queued),
        Event::SteerWithdrawn(SteerWithdrawn { steer, by: by() }),
        cancel_requested(),
        Event::RunPauseRequested(asked()),
        resumed(),
        Event::TimerFired(TimerFired { timer }),
        Event::ChildEnded(Box::new(child)),
        Event::BudgetRaised(raised),
        Event::ToolSurfaced(surfaced),
        Event::RuleAdded(rule),
        Event::SandboxStopped(sandbox),
    ]
}

fn pattern() -> Pattern {
    Pattern {
        tool: "shell".to_owned(),
        subject: None,
    }
}

fn assert_at(appended: &Appended, at: Seq) {
    assert!(
        matches!(appended, Appended::At { seq, .. } if *seq == at),
        "{appended:?}, expected {at}"
    );
}
