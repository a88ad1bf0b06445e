//! Appends of outsiders: which events are accepted, and which runs they wake. Gates and timers
//! are in their own modules.

use longhaul_core::change::{Blob, RowChange};
use longhaul_core::event::environment::{
    BudgetRaised, ChildEnded, RuleAdded, SandboxEvent, TimerFired,
};
use longhaul_core::event::gate::{GateAnswer, GateNotice};
use longhaul_core::event::steer::{SteerDelivered, SteerMessage, SteerWithdrawn};
use longhaul_core::event::tool::{LateToolResultEvent, ToolOutput};
use longhaul_core::event::{Event, RunsToWake};
use longhaul_core::id::{CallId, Epoch, Seq};
use longhaul_core::policy::budget::BudgetRaise;
use longhaul_core::policy::gate::{AnswerScope, RulePattern};
use longhaul_core::port::store::{AppendRefusalReason, AppendResult};
use longhaul_core::status::{RunOutcome, Status};

use crate::conformance::store::batches::{
    approval, cancel_requested, change_batch, end_batch, events_batch, gate_spec, park_batch,
    pause_batch, progress, raise_gate_batch, release_batch, resumed, run_request,
};
use crate::conformance::store::fixture::{StoreFixture, assert_appended, refused};

/// An event that an outsider must not append is refused, alone and together with others.
pub async fn outsiders_append_only_allowed_events(world: StoreFixture) {
    let run = world.open(|_| {}).await;
    let delivered = Event::SteerDelivered(SteerDelivered {
        steer: world.ids.steer(),
        after_turn: 1,
        as_answer: false,
        answer: None,
    });
    let mut inside = vec![progress(1), delivered, Event::RunPaused(run_request())];
    inside.extend(end_batch().events);
    inside.extend(park_batch("child").events);
    inside.extend(raise_gate_batch(gate_spec(world.ids.gate())).events);
    for event in inside {
        let kind = event.kind();
        for batch in [events_batch([event.clone()]), events_batch([resumed(), event.clone()])] {
            let why = refused(world.append_outside(run, batch).await);
            assert_eq!(why, AppendRefusalReason::NotAllowedForOutsider(kind));
        }
    }
    assert_eq!(world.row(run).await.last_seq, Seq(1));
}

/// An event wakes parked runs, parked and paused runs, or none, depending on its type.
pub async fn events_wake_the_right_states(world: StoreFixture) {
    for event in outsider_events(&world) {
        let kind = event.kind();
        let wakes_paused = event.runs_woken_by_outside_append() == Some(RunsToWake::ParkedOrPaused);
        let wakes_parked =
            wakes_paused || event.runs_woken_by_outside_append() == Some(RunsToWake::Parked);
        let mut held = world.open_and_claim(|_| {}).await;
        held.park("child").await;
        assert_appended_at(
            &world.append_outside(held.run, events_batch([event.clone()])).await,
            held.last.next(),
        );
        let expected = match wakes_parked {
            true => (Status::Running, Some("worker".to_owned())),
            false => (Status::Waiting, Some("child".to_owned())),
        };
        assert_eq!(world.status(held.run).await, expected, "parked, {kind}");
        let ready = world.try_claim_one(held.worker).await;
        assert_eq!(ready.is_some(), wakes_parked, "parked, {kind}");

        let mut held = world.open_and_claim(|_| {}).await;
        held.append_ok(pause_batch()).await;
        assert_appended(&world.append_outside(held.run, events_batch([event.clone()])).await);
        let expected = match wakes_paused {
            true => (Status::Running, Some("worker".to_owned())),
            false => (Status::Paused, None),
        };
        assert_eq!(world.status(held.run).await, expected, "paused, {kind}");
        let ready = world.try_claim_one(held.worker).await;
        assert_eq!(ready.is_some(), wakes_paused, "paused, {kind}");
    }
}

/// A driven or ready run gets the event and keeps its state.
pub async fn events_do_not_move_driven_or_ready_runs(world: StoreFixture) {
    for event in outsider_events(&world) {
        let mut held = world.open_and_claim(|_| {}).await;
        assert_appended(&world.append_outside(held.run, events_batch([event.clone()])).await);
        world.assert_status(held.run, Status::Running, "").await;
        assert_eq!(held.append(release_batch()).await, AppendResult::Conflict);
        held.last = held.last.next();
        held.append_ok(release_batch()).await;
        assert_appended(&world.append_outside(held.run, events_batch([event.clone()])).await);
        world.assert_status(held.run, Status::Running, "worker").await;
        let again = world.claim_one(held.worker).await;
        assert_eq!((again.run, again.epoch), (held.run, Epoch(2)));
    }
}

/// The strongest wake-up of a batch counts, at any position.
pub async fn the_strongest_wake_of_a_batch_counts(world: StoreFixture) {
    let rule = |world: &StoreFixture| {
        Event::RuleAdded(RuleAdded {
            rule: world.ids.rule(),
            pattern: pattern(),
            by: "cli:anna".to_owned(),
            scope: AnswerScope::Run,
        })
    };
    for batch in [
        events_batch([rule(&world), resumed(), cancel_requested()]),
        events_batch([resumed(), rule(&world)]),
    ] {
        let mut held = world.open_and_claim(|_| {}).await;
        held.append_ok(pause_batch()).await;
        assert_appended(&world.append_outside(held.run, batch).await);
        world.assert_status(held.run, Status::Running, "worker").await;
        world.claim_one(held.worker).await;
    }
}

/// Changes without events are applied, also to an ended run, and do not move the head.
pub async fn changes_without_events_do_not_move_the_head(world: StoreFixture) {
    let mut held = world.open_and_claim(|_| {}).await;
    held.park("child").await;
    let before = world.row(held.run).await;
    let put = async |text: &str| {
        let blob = Blob::new(text.as_bytes().to_vec());
        let change = change_batch(RowChange::PutBlob(blob.clone()));
        let appended = world.append_outside(held.run, change).await;
        let kept = world.harness.records.blob(blob.hash()).await.expect("blob");
        assert_eq!(kept.as_deref(), Some(text.as_bytes()));
        appended
    };
    assert_appended_at(&put("early").await, held.last);
    assert_eq!(world.row(held.run).await, before);
    assert_appended(&world.append_as_closer(held.run, held.last, end_batch()).await);
    assert_appended(&put("late").await);
    world.assert_status(held.run, Status::Completed, "").await;
}

/// Returns events that outsiders may append: some wake all idle runs, some only parked runs,
/// some none.
fn outsider_events(world: &StoreFixture) -> Vec<Event> {
    let gate = world.ids.gate();
    let steer = world.ids.steer();
    let by = || "cli:anna".to_owned();
    let answer = GateAnswer { gate, answer: approval("cli:anna"), edit: None };
    let queued = SteerMessage {
        steer,
        text: "hello".to_owned(),
        delivery: longhaul_core::event::steer::SteerDelivery::Interrupt,
        by: by(),
        is_task: false,
    };
    let child = ChildEnded {
        child: world.ids.run(),
        outcome: RunOutcome::Cancelled("enough".to_owned()),
        full: None,
    };
    let surfaced = LateToolResultEvent {
        call: CallId { turn: 1, index: 1 },
        is_error: false,
        output: ToolOutput::text("found"),
    };
    let raised = BudgetRaised { raise: BudgetRaise::default(), by: by() };
    let rule = RuleAdded {
        rule: world.ids.rule(),
        pattern: pattern(),
        by: by(),
        scope: AnswerScope::Project,
    };
    let sandbox = SandboxEvent {
        sandbox: world.ids.sandbox(),
        provider: "local".to_owned(),
        handle: String::new(),
        host: None,
    };
    let timer = world.ids.timer();
    let reminded = GateNotice { gate, reason: "please".to_owned(), to: None };
    vec![
        Event::GateAnswered(answer.clone()),
        Event::GateVoted(answer),
        Event::GateReminded(reminded),
        Event::SteerQueued(queued),
        Event::SteerWithdrawn(SteerWithdrawn { steer, by: by() }),
        cancel_requested(),
        Event::RunPauseRequested(run_request()),
        resumed(),
        Event::TimerFired(TimerFired { timer }),
        Event::ChildEnded(Box::new(child)),
        Event::BudgetRaised(raised),
        Event::ToolSurfaced(surfaced),
        Event::RuleAdded(rule),
        Event::SandboxStopped(sandbox),
    ]
}

fn pattern() -> RulePattern {
    RulePattern { tool: "shell".to_owned(), subject: None }
}

fn assert_appended_at(appended: &AppendResult, at: Seq) {
    assert!(
        matches!(appended, AppendResult::Committed { seq, .. } if *seq == at),
        "{appended:?}, expected {at}"
    );
}
