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
pub async fn outsiders_append_only_allowed_events(fixture: StoreFixture) {
    let run = fixture.open(|_| {}).await;
    let delivered = Event::SteerDelivered(SteerDelivered {
        steer: fixture.ids.steer(),
        after_turn: 1,
        as_answer: false,
        answer: None,
    });
    let mut driver_events = vec![progress(1), delivered, Event::RunPaused(run_request())];
    driver_events.extend(end_batch().events);
    driver_events.extend(park_batch("child").events);
    driver_events.extend(raise_gate_batch(gate_spec(fixture.ids.gate())).events);
    for event in driver_events {
        let kind = event.kind();
        for batch in [events_batch([event.clone()]), events_batch([resumed(), event.clone()])] {
            let reason = refused(fixture.append_outside(run, batch).await);
            assert_eq!(reason, AppendRefusalReason::NotAllowedForOutsider(kind));
        }
    }
    assert_eq!(fixture.row(run).await.last_seq, Seq(1));
}

/// An event wakes parked runs, parked and paused runs, or none, depending on its type.
pub async fn events_wake_the_right_states(fixture: StoreFixture) {
    for event in outsider_events(&fixture) {
        let kind = event.kind();
        let wakes_paused = event.runs_woken_by_outside_append() == Some(RunsToWake::ParkedOrPaused);
        let wakes_parked =
            wakes_paused || event.runs_woken_by_outside_append() == Some(RunsToWake::Parked);
        let mut claimed_run = fixture.open_and_claim(|_| {}).await;
        claimed_run.park("child").await;
        assert_appended_at(
            &fixture.append_outside(claimed_run.run, events_batch([event.clone()])).await,
            claimed_run.last.next(),
        );
        let expected = match wakes_parked {
            true => (Status::Running, Some("worker".to_owned())),
            false => (Status::Waiting, Some("child".to_owned())),
        };
        assert_eq!(fixture.status(claimed_run.run).await, expected, "parked, {kind}");
        let ready = fixture.try_claim_one(claimed_run.worker).await;
        assert_eq!(ready.is_some(), wakes_parked, "parked, {kind}");

        let mut claimed_run = fixture.open_and_claim(|_| {}).await;
        claimed_run.append_ok(pause_batch()).await;
        assert_appended(
            &fixture.append_outside(claimed_run.run, events_batch([event.clone()])).await,
        );
        let expected = match wakes_paused {
            true => (Status::Running, Some("worker".to_owned())),
            false => (Status::Paused, None),
        };
        assert_eq!(fixture.status(claimed_run.run).await, expected, "paused, {kind}");
        let ready = fixture.try_claim_one(claimed_run.worker).await;
        assert_eq!(ready.is_some(), wakes_paused, "paused, {kind}");
    }
}

/// A driven or ready run gets the event and keeps its state.
pub async fn events_do_not_move_driven_or_ready_runs(fixture: StoreFixture) {
    for event in outsider_events(&fixture) {
        let mut claimed_run = fixture.open_and_claim(|_| {}).await;
        assert_appended(
            &fixture.append_outside(claimed_run.run, events_batch([event.clone()])).await,
        );
        fixture.assert_status(claimed_run.run, Status::Running, "").await;
        assert_eq!(claimed_run.append(release_batch()).await, AppendResult::Conflict);
        claimed_run.last = claimed_run.last.next();
        claimed_run.append_ok(release_batch()).await;
        assert_appended(
            &fixture.append_outside(claimed_run.run, events_batch([event.clone()])).await,
        );
        fixture.assert_status(claimed_run.run, Status::Running, "worker").await;
        let claimed = fixture.claim_one(claimed_run.worker).await;
        assert_eq!((claimed.run, claimed.epoch), (claimed_run.run, Epoch(2)));
    }
}

/// The strongest wake-up of a batch counts, at any position.
pub async fn the_strongest_wake_of_a_batch_counts(fixture: StoreFixture) {
    let rule = |fixture: &StoreFixture| {
        Event::RuleAdded(RuleAdded {
            rule: fixture.ids.rule(),
            pattern: pattern(),
            by: "cli:anna".to_owned(),
            other_voters: Vec::new(),
            scope: AnswerScope::Run,
        })
    };
    for batch in [
        events_batch([rule(&fixture), resumed(), cancel_requested()]),
        events_batch([resumed(), rule(&fixture)]),
    ] {
        let mut claimed_run = fixture.open_and_claim(|_| {}).await;
        claimed_run.append_ok(pause_batch()).await;
        assert_appended(&fixture.append_outside(claimed_run.run, batch).await);
        fixture.assert_status(claimed_run.run, Status::Running, "worker").await;
        fixture.claim_one(claimed_run.worker).await;
    }
}

/// Changes without events are applied, also to an ended run, and do not move the head.
pub async fn changes_without_events_do_not_move_the_head(fixture: StoreFixture) {
    let mut claimed_run = fixture.open_and_claim(|_| {}).await;
    claimed_run.park("child").await;
    let before = fixture.row(claimed_run.run).await;
    let put_blob = async |text: &str| {
        let blob = Blob::new(text.as_bytes().to_vec());
        let change = change_batch(RowChange::PutBlob(blob.clone()));
        let appended = fixture.append_outside(claimed_run.run, change).await;
        let stored = fixture.harness.records.blob(blob.hash()).await.expect("blob");
        assert_eq!(stored.as_deref(), Some(text.as_bytes()));
        appended
    };
    assert_appended_at(&put_blob("early").await, claimed_run.last);
    assert_eq!(fixture.row(claimed_run.run).await, before);
    assert_appended(
        &fixture.append_as_closer(claimed_run.run, claimed_run.last, end_batch()).await,
    );
    assert_appended(&put_blob("late").await);
    fixture.assert_status(claimed_run.run, Status::Completed, "").await;
}

/// Returns events that outsiders may append: some wake all idle runs, some only parked runs,
/// some none.
fn outsider_events(fixture: &StoreFixture) -> Vec<Event> {
    let gate = fixture.ids.gate();
    let steer = fixture.ids.steer();
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
        child: fixture.ids.run(),
        outcome: RunOutcome::Cancelled("enough".to_owned()),
        full: None,
        submitters: Vec::new(),
    };
    let late_result = LateToolResultEvent {
        call: CallId { turn: 1, index: 1 },
        is_error: false,
        output: ToolOutput::text("found"),
    };
    let raised = BudgetRaised { raise: BudgetRaise::default(), by: by() };
    let rule = RuleAdded {
        rule: fixture.ids.rule(),
        pattern: pattern(),
        by: by(),
        other_voters: Vec::new(),
        scope: AnswerScope::Project,
    };
    let sandbox = SandboxEvent {
        sandbox: fixture.ids.sandbox(),
        provider: "local".to_owned(),
        ..SandboxEvent::default()
    };
    let timer = fixture.ids.timer();
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
        Event::ToolSurfaced(late_result),
        Event::RuleAdded(rule),
        Event::SandboxStopped(sandbox),
    ]
}

fn pattern() -> RulePattern {
    RulePattern { tool: "shell".to_owned(), match_glob: None }
}

fn assert_appended_at(appended: &AppendResult, at: Seq) {
    assert!(
        matches!(appended, AppendResult::Committed { seq, .. } if *seq == at),
        "{appended:?}, expected {at}"
    );
}
