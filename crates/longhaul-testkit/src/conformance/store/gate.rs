//! Gates: answered once, before the deadline, and never after the end of the run. Races are in
//! `race`.

use longhaul_core::change::{GateTransition, RowChange, TimerDueTime, TimerKind, TimerUpdate};
use longhaul_core::id::{CallId, GateId};
use longhaul_core::policy::gate::{
    GateKind, GateRow, GateSpec, GateStatus, GateTimeoutAction, RecordedAnswer,
};
use longhaul_core::port::store::{AppendRefusalReason, AppendResult, GateFilter};
use longhaul_core::status::Status;
use longhaul_core::time::{Clock, Millis};

use crate::conformance::store::batches::{
    BatchExt as _, answer_batch, approval, change_batch, close_gate, end_batch, events_batch,
    expire_batch, fire_timer_batch, gate_spec, park_batch, raise_gate_batch, resumed, spend_timer,
    vote_batch,
};
use crate::conformance::store::fixture::{ClaimedRun, StoreFixture, assert_appended, refused};

const HOUR: Millis = Millis::from_secs(3_600);

/// The first answer wakes the run. The second gets the author and time of the first.
pub async fn a_gate_is_answered_once(fixture: StoreFixture) {
    let (claimed_run, gate) = park_at_gate(&fixture, |_| {}).await;
    fixture.assert_status(claimed_run.run, Status::Waiting, "approval").await;
    fixture.advance(Millis(40));
    let at = fixture.harness.clock.now();
    assert_appended(&fixture.append_outside(claimed_run.run, answer_batch(gate, "cli:anna")).await);
    fixture.assert_status(claimed_run.run, Status::Running, "worker").await;
    let last = fixture.row(claimed_run.run).await.last_seq;
    fixture.advance(Millis(40));
    for batch in [answer_batch(gate, "cli:bert"), vote_batch(gate, "cli:bert"), expire_batch(gate)]
    {
        let first = RecordedAnswer { at, answer: approval("cli:anna") };
        let closed = AppendRefusalReason::GateClosed(GateStatus::Answered, Some(Box::new(first)));
        assert_eq!(refused(fixture.append_outside(claimed_run.run, batch).await), closed);
    }
    assert_eq!(fixture.row(claimed_run.run).await.last_seq, last);
    let row = gate_row(&fixture, gate).await;
    assert_eq!((row.status, row.answers.len()), (GateStatus::Answered, 1));
    assert_eq!((row.run, row.deadline), (claimed_run.run, None));
}

/// Votes are added to an open gate and the run stays parked; the last vote closes the gate.
pub async fn a_quorum_gathers_votes(fixture: StoreFixture) {
    let (claimed_run, gate) = park_at_gate(&fixture, |spec| spec.approvers.count = 3).await;
    for by in ["cli:anna", "cli:bert"] {
        assert_appended(&fixture.append_outside(claimed_run.run, vote_batch(gate, by)).await);
        fixture.assert_status(claimed_run.run, Status::Waiting, "approval").await;
    }
    assert_appended(&fixture.append_outside(claimed_run.run, answer_batch(gate, "cli:cleo")).await);
    fixture.assert_status(claimed_run.run, Status::Running, "worker").await;
    let row = gate_row(&fixture, gate).await;
    let voters: Vec<String> = row.answers.into_iter().map(|recorded| recorded.answer.by).collect();
    assert_eq!(voters, ["cli:anna", "cli:bert", "cli:cleo"]);
}

/// From its deadline on, a gate accepts no answer; it can only expire.
pub async fn a_gate_closes_at_its_deadline(fixture: StoreFixture) {
    let (claimed_run, gate) = park_at_gate(&fixture, |spec| spec.timeout = Some(HOUR)).await;
    fixture.advance(Millis(HOUR.0 - 1));
    assert_appended(&fixture.append_outside(claimed_run.run, vote_batch(gate, "cli:anna")).await);
    fixture.advance(Millis(1));
    for batch in [answer_batch(gate, "cli:bert"), vote_batch(gate, "cli:bert")] {
        let closed = AppendRefusalReason::GateClosed(GateStatus::Expired, None);
        assert_eq!(refused(fixture.append_outside(claimed_run.run, batch).await), closed);
    }
    fixture.assert_status(claimed_run.run, Status::Waiting, "approval").await;
    assert_appended(&fixture.append_outside(claimed_run.run, expire_batch(gate)).await);
    assert_eq!(gate_row(&fixture, gate).await.status, GateStatus::Expired);
    fixture.assert_status(claimed_run.run, Status::Running, "worker").await;
}

/// A message that was accepted before answers the gate, whenever the run reads the message.
pub async fn a_message_answers_a_gate_after_its_deadline(fixture: StoreFixture) {
    let (claimed_run, gate) = park_at_gate(&fixture, |spec| spec.timeout = Some(HOUR)).await;
    fixture.advance(HOUR);
    let by_message = GateTransition::AnsweredByMessage(approval("cli:bert"));
    let batch = events_batch([resumed()]).with_change(close_gate(gate, by_message));
    assert_appended(&fixture.append_outside(claimed_run.run, batch).await);
    let row = gate_row(&fixture, gate).await;
    assert_eq!((row.status, row.answers.len()), (GateStatus::Answered, 1));
}

/// A gate without a deadline can be answered ten years later.
pub async fn a_gate_without_a_deadline_is_answerable_for_ever(fixture: StoreFixture) {
    let (claimed_run, gate) = park_at_gate(&fixture, |_| {}).await;
    fixture.advance(Millis::from_secs(10 * 366 * 24 * 60 * 60));
    assert_appended(&fixture.append_outside(claimed_run.run, answer_batch(gate, "cli:anna")).await);
    fixture.assert_status(claimed_run.run, Status::Running, "worker").await;
}

/// An answer to an ended run is not recorded in the gate either.
pub async fn an_answer_to_an_ended_run_is_rolled_back(fixture: StoreFixture) {
    let (claimed_run, gate) = park_at_gate(&fixture, |_| {}).await;
    assert_appended(
        &fixture.append_as_closer(claimed_run.run, claimed_run.last, end_batch()).await,
    );
    for _ in 0..2 {
        let appended =
            fixture.append_outside(claimed_run.run, answer_batch(gate, "cli:anna")).await;
        assert_eq!(appended, AppendResult::RunEnded);
    }
    let row = gate_row(&fixture, gate).await;
    assert_eq!((row.status, row.answers.len()), (GateStatus::Open, 0));
    // A gate that the closing batch did not withdraw is repaired, once.
    let repairs = fixture.harness.records.repair_inconsistent_rows().await.expect("repair");
    assert_eq!(repairs.gate_of_ended, 1);
    assert_eq!(gate_row(&fixture, gate).await.status, GateStatus::Withdrawn);
}

/// The timer of an answered gate fires later, finds the gate closed, and is consumed without an
/// event.
pub async fn an_answered_gate_leaves_its_timer_to_fire(fixture: StoreFixture) {
    let (claimed_run, gate) = park_at_gate(&fixture, |spec| spec.timeout = Some(HOUR)).await;
    let timer = fixture.ids.timer();
    let arm = RowChange::SetTimer(TimerUpdate::Arm {
        timer,
        run: claimed_run.run,
        due: TimerDueTime::After(HOUR),
        kind: TimerKind::GateDeadline(gate),
    });
    assert_appended(&fixture.append_outside(claimed_run.run, change_batch(arm)).await);
    assert_appended(&fixture.append_outside(claimed_run.run, answer_batch(gate, "cli:anna")).await);
    fixture.advance(HOUR);
    let due = fixture.harness.records.due_timers(9).await.expect("due");
    assert_eq!(due.len(), 1);
    assert_eq!(due[0].kind, TimerKind::GateDeadline(gate));
    assert_eq!(due[0].open_gate, None, "the gate is closed");
    let last = fixture.row(claimed_run.run).await.last_seq;
    let appended = fixture
        .append_outside(claimed_run.run, expire_batch(gate).with_change(spend_timer(timer)))
        .await;
    assert!(matches!(
        refused(appended),
        AppendRefusalReason::GateClosed(GateStatus::Answered, Some(_))
    ));
    assert_eq!(
        fixture.harness.records.due_timers(9).await.expect("due").len(),
        1,
        "the timer still exists"
    );
    assert_appended(
        &fixture.append_outside(claimed_run.run, change_batch(spend_timer(timer))).await,
    );
    assert_eq!(fixture.harness.records.due_timers(9).await.expect("due"), []);
    assert_eq!(fixture.row(claimed_run.run).await.last_seq, last);
    let second_firing = fixture.append_outside(claimed_run.run, fire_timer_batch(timer)).await;
    assert_eq!(refused(second_firing), AppendRefusalReason::TimerConsumed);
}

/// A due timer of an open gate carries the row of the gate, with its timeout action and votes.
pub async fn a_gate_timer_carries_its_gate(fixture: StoreFixture) {
    let (claimed_run, gate) =
        park_at_gate(&fixture, |spec| spec.on_timeout = GateTimeoutAction::Pause).await;
    assert_appended(&fixture.append_outside(claimed_run.run, vote_batch(gate, "cli:anna")).await);
    let row = gate_row(&fixture, gate).await;
    assert_eq!((row.spec.on_timeout, row.answers.len()), (GateTimeoutAction::Pause, 1));
    for (kind, expected) in [
        (TimerKind::GateRemind(gate), Some(&row)),
        (TimerKind::GateDeadline(gate), Some(&row)),
        (TimerKind::Wake, None),
        (TimerKind::GateDeadline(fixture.ids.gate()), None),
    ] {
        let timer = fixture.ids.timer();
        let run = claimed_run.run;
        let due = TimerDueTime::Now;
        let arm = TimerUpdate::Arm { timer, run, due, kind };
        assert_appended(&fixture.append_outside(run, change_batch(RowChange::SetTimer(arm))).await);
        let due = fixture.harness.records.due_timers(9).await.expect("due");
        assert_eq!((due.len(), due[0].open_gate.as_deref()), (1, expected));
        assert_appended(&fixture.append_outside(run, change_batch(spend_timer(timer))).await);
    }
}

/// An answer that was decided before another answer was recorded is refused.
pub async fn an_answer_is_refused_after_another_answer(fixture: StoreFixture) {
    let (claimed_run, gate) = park_at_gate(&fixture, |_| {}).await;
    let vote = |by: &str, seen_answers: usize| {
        let mut batch = vote_batch(gate, by);
        for change in &mut batch.changes {
            if let RowChange::UpdateGate(update) = change {
                update.seen_answers = Some(seen_answers);
            }
        }
        fixture.append_outside(claimed_run.run, batch)
    };
    assert_appended(&vote("cli:anna", 0).await);
    assert_eq!(refused(vote("cli:ben", 0).await), AppendRefusalReason::GateAnswersChanged);
    assert_eq!(gate_row(&fixture, gate).await.answers.len(), 1);
    assert_appended(&vote("cli:ben", 1).await);
}

/// A program may raise a gate for a signal, once, without waking the run.
pub async fn an_outsider_raises_a_signal_gate_once(fixture: StoreFixture) {
    let (claimed_run, _) = park_at_gate(&fixture, |_| {}).await;
    let mut spec = gate_spec(fixture.ids.gate());
    spec.kind = GateKind::Signal;
    let raise = raise_gate_batch(spec.clone());
    assert_appended(&fixture.append_outside(claimed_run.run, raise.clone()).await);
    fixture.assert_status(claimed_run.run, Status::Waiting, "approval").await;
    assert_eq!(gate_row(&fixture, spec.id).await.spec, spec);
    let reason = refused(fixture.append_outside(claimed_run.run, raise).await);
    assert_eq!(reason, AppendRefusalReason::GateExists);
    spec.call = Some(CallId { turn: 1, index: 1 });
    spec.id = fixture.ids.gate();
    let reason = refused(fixture.append_outside(claimed_run.run, raise_gate_batch(spec)).await);
    assert_eq!(reason, AppendRefusalReason::NotAllowedForOutsider("gate.raised"));
}

/// Unknown and withdrawn gates can't be answered.
pub async fn only_open_gates_can_be_answered(fixture: StoreFixture) {
    let (mut claimed_run, gate) = park_at_gate(&fixture, |_| {}).await;
    let result =
        fixture.append_outside(claimed_run.run, answer_batch(fixture.ids.gate(), "cli:anna")).await;
    assert_eq!(refused(result), AppendRefusalReason::GateNotFound);
    fixture.assert_status(claimed_run.run, Status::Waiting, "approval").await;
    assert_appended(&fixture.append_outside(claimed_run.run, events_batch([resumed()])).await);
    claimed_run = fixture.claim_one(claimed_run.worker).await;
    claimed_run.append_ok(change_batch(close_gate(gate, GateTransition::Withdrawn))).await;
    let result = fixture.append_outside(claimed_run.run, answer_batch(gate, "cli:anna")).await;
    let closed = AppendRefusalReason::GateClosed(GateStatus::Withdrawn, None);
    assert_eq!(refused(result), closed);
}

/// Gates are listed newest first, filtered by run, status and tag, in pages.
pub async fn gates_are_listed_newest_first(fixture: StoreFixture) {
    let mut gates = Vec::new();
    let mut runs = Vec::new();
    for index in 0..4 {
        let (claimed_run, gate) = park_at_gate(&fixture, |spec| {
            spec.timeout = Some(HOUR);
            spec.tags = vec!["all".to_owned(), format!("tag {index}")];
        })
        .await;
        runs.push(claimed_run.run);
        gates.push(gate);
    }
    assert_appended(&fixture.append_outside(runs[2], answer_batch(gates[2], "cli:anna")).await);
    let all = GateFilter { limit: 9, ..GateFilter::default() };
    let newest_first: Vec<GateId> = gates.iter().rev().copied().collect();
    assert_eq!(list_gates(&fixture, all.clone()).await, newest_first);
    let open = GateFilter { status: Some(GateStatus::Open), limit: 2, ..all.clone() };
    assert_eq!(list_gates(&fixture, open.clone()).await, [gates[3], gates[1]]);
    let next = GateFilter { after: Some(gates[1]), ..open };
    assert_eq!(list_gates(&fixture, next).await, [gates[0]]);
    for (tag, expected) in
        [("all", newest_first.as_slice()), ("tag 1", &gates[1..2]), ("tag", &[]), ("tag 9", &[])]
    {
        let by_tag = GateFilter { tag: Some(tag.to_owned()), ..all.clone() };
        assert_eq!(list_gates(&fixture, by_tag).await, expected, "{tag}");
    }
    let by_run = GateFilter { run: Some(runs[1]), ..all.clone() };
    assert_eq!(list_gates(&fixture, by_run).await, [gates[1]]);
    let by_gate = GateFilter { gate: Some(gates[0]), ..all };
    let row = &fixture.harness.store.list_gates(by_gate).await.expect("gates")[0];
    assert_eq!(row.submitter.as_deref(), Some("key:ops"));
    let now = fixture.harness.clock.now();
    assert_eq!((row.raised_at, row.deadline), (now, Some(now.plus(HOUR))));
    assert_eq!(row.spec.ask, "may I?");
}

/// Returns a run that is parked at its own gate.
async fn park_at_gate(
    fixture: &StoreFixture,
    change: impl FnOnce(&mut GateSpec),
) -> (ClaimedRun, GateId) {
    let mut claimed_run =
        fixture.open_and_claim(|task| task.submitter = Some("key:ops".to_owned())).await;
    let mut spec = gate_spec(fixture.ids.gate());
    change(&mut spec);
    let gate = spec.id;
    claimed_run.append_ok(raise_gate_batch(spec)).await;
    claimed_run.append_ok(park_batch("approval")).await;
    (claimed_run, gate)
}

async fn gate_row(fixture: &StoreFixture, gate: GateId) -> GateRow {
    let filter = GateFilter { gate: Some(gate), limit: 1, ..GateFilter::default() };
    let rows = fixture.harness.store.list_gates(filter).await.expect("gates");
    rows.into_iter().next().expect("the gate exists")
}

async fn list_gates(fixture: &StoreFixture, filter: GateFilter) -> Vec<GateId> {
    let rows = fixture.harness.store.list_gates(filter).await.expect("gates");
    rows.into_iter().map(|row| row.spec.id).collect()
}
