//! Gates: answered once, in time, and never after the run's end.
//!
//! Never: races; those are `race`.

use longhaul_core::change::{Change, Due, GateTransition, TimerKind, TimerUpdate};
use longhaul_core::id::GateId;
use longhaul_core::policy::gate::{GateRow, GateSpec, GateStatus, OnTimeout, RecordedAnswer};
use longhaul_core::port::store::{Appended, GateFilter, Refused};
use longhaul_core::status::Status;
use longhaul_core::time::{Clock, Millis};

use crate::conformance::store::batches::{
    BatchExt as _, answer_batch, approval, change_batch, close_gate, end_batch, events_batch,
    expire_batch, fire_timer_batch, gate_spec, park_batch, raise_gate_batch, resumed, spend_timer,
    vote_batch,
};
use crate::conformance::store::fixture::{ClaimedRun, StoreFixture, assert_appended, refused};

const HOUR: Millis = Millis::from_secs(3_600);

/// The first answer wakes the run; the second is told who was first, and when.
pub async fn a_gate_is_answered_once(world: StoreFixture) {
    let (held, gate) = park_at_gate(&world, |_| {}).await;
    world.assert_status(held.run, Status::Waiting, "approval").await;
    world.advance(Millis(40));
    let at = world.harness.clock.now();
    assert_appended(&world.append_outside(held.run, answer_batch(gate, "cli:anna")).await);
    world.assert_status(held.run, Status::Running, "worker").await;
    let last = world.row(held.run).await.last_seq;
    world.advance(Millis(40));
    for late in [answer_batch(gate, "cli:bert"), vote_batch(gate, "cli:bert"), expire_batch(gate)] {
        let first = RecordedAnswer { at, answer: approval("cli:anna") };
        let closed = Refused::GateClosed(GateStatus::Answered, Some(Box::new(first)));
        assert_eq!(refused(world.append_outside(held.run, late).await), closed);
    }
    assert_eq!(world.row(held.run).await.last_seq, last);
    let row = gate_row(&world, gate).await;
    assert_eq!((row.status, row.answers.len()), (GateStatus::Answered, 1));
    assert_eq!((row.run, row.deadline), (held.run, None));
}

/// Votes gather in an open gate and leave the run parked; the last one closes it.
pub async fn a_quorum_gathers_votes(world: StoreFixture) {
    let (held, gate) = park_at_gate(&world, |spec| spec.approvers.count = 3).await;
    for by in ["cli:anna", "cli:bert"] {
        assert_appended(&world.append_outside(held.run, vote_batch(gate, by)).await);
        world.assert_status(held.run, Status::Waiting, "approval").await;
    }
    assert_appended(&world.append_outside(held.run, answer_batch(gate, "cli:cleo")).await);
    world.assert_status(held.run, Status::Running, "worker").await;
    let row = gate_row(&world, gate).await;
    let said: Vec<String> = row.answers.into_iter().map(|given| given.answer.by).collect();
    assert_eq!(said, ["cli:anna", "cli:bert", "cli:cleo"]);
}

/// At its deadline a gate takes no answer any more; only its end can be told.
pub async fn a_gate_closes_at_its_deadline(world: StoreFixture) {
    let (held, gate) = park_at_gate(&world, |spec| spec.timeout = Some(HOUR)).await;
    world.advance(Millis(HOUR.0 - 1));
    assert_appended(&world.append_outside(held.run, vote_batch(gate, "cli:anna")).await);
    world.advance(Millis(1));
    for late in [answer_batch(gate, "cli:bert"), vote_batch(gate, "cli:bert")] {
        let closed = Refused::GateClosed(GateStatus::Expired, None);
        assert_eq!(refused(world.append_outside(held.run, late).await), closed);
    }
    world.assert_status(held.run, Status::Waiting, "approval").await;
    assert_appended(&world.append_outside(held.run, expire_batch(gate)).await);
    assert_eq!(gate_row(&world, gate).await.status, GateStatus::Expired);
    world.assert_status(held.run, Status::Running, "worker").await;
}

/// Ten years later somebody may still answer.
pub async fn a_gate_without_a_deadline_is_answerable_for_ever(world: StoreFixture) {
    let (held, gate) = park_at_gate(&world, |_| {}).await;
    world.advance(Millis::from_secs(10 * 366 * 24 * 60 * 60));
    assert_appended(&world.append_outside(held.run, answer_batch(gate, "cli:anna")).await);
    world.assert_status(held.run, Status::Running, "worker").await;
}

/// An answer that the run can't hear any more is not taken by the gate either.
pub async fn an_answer_to_an_ended_run_is_rolled_back(world: StoreFixture) {
    let (held, gate) = park_at_gate(&world, |_| {}).await;
    assert_appended(&world.append_as_closer(held.run, held.last, end_batch()).await);
    for _ in 0..2 {
        let told = world.append_outside(held.run, answer_batch(gate, "cli:anna")).await;
        assert_eq!(told, Appended::RunEnded);
    }
    let row = gate_row(&world, gate).await;
    assert_eq!((row.status, row.answers.len()), (GateStatus::Open, 0));
    // What the closing batch forgot to withdraw is found by a repair, once.
    let found = world.harness.records.repair().await.expect("repair");
    assert_eq!(found.gate_of_ended, 1);
    assert_eq!(gate_row(&world, gate).await.status, GateStatus::Withdrawn);
}

/// The timer of an answered gate fires later, finds the gate closed, and is
/// spent without a word to the run.
pub async fn an_answered_gate_leaves_its_timer_to_fire(world: StoreFixture) {
    let (held, gate) = park_at_gate(&world, |spec| spec.timeout = Some(HOUR)).await;
    let timer = world.ids.timer();
    let arm = Change::SetTimer(TimerUpdate::Arm {
        timer,
        run: held.run,
        due: Due::After(HOUR),
        kind: TimerKind::GateDeadline(gate),
    });
    assert_appended(&world.append_outside(held.run, change_batch(arm)).await);
    assert_appended(&world.append_outside(held.run, answer_batch(gate, "cli:anna")).await);
    world.advance(HOUR);
    let due = world.harness.records.due_timers(9).await.expect("due");
    assert_eq!(due.len(), 1);
    assert_eq!(due[0].kind, TimerKind::GateDeadline(gate));
    assert_eq!(due[0].gate_on_timeout, None, "nobody is asked any more");
    let last = world.row(held.run).await.last_seq;
    let told =
        world.append_outside(held.run, expire_batch(gate).with_change(spend_timer(timer))).await;
    assert!(matches!(refused(told), Refused::GateClosed(GateStatus::Answered, Some(_))));
    assert_eq!(world.harness.records.due_timers(9).await.expect("due").len(), 1, "still there");
    assert_appended(&world.append_outside(held.run, change_batch(spend_timer(timer))).await);
    assert_eq!(world.harness.records.due_timers(9).await.expect("due"), []);
    assert_eq!(world.row(held.run).await.last_seq, last);
    let twice = world.append_outside(held.run, fire_timer_batch(timer)).await;
    assert_eq!(refused(twice), Refused::TimerConsumed);
}

/// A due timer of a gate says what silence means, as long as the gate is open.
pub async fn a_gate_timer_carries_on_timeout(world: StoreFixture) {
    let (held, gate) = park_at_gate(&world, |spec| spec.on_timeout = OnTimeout::Pause).await;
    for (what, means) in [
        (TimerKind::GateRemind(gate), Some(OnTimeout::Pause)),
        (TimerKind::GateDeadline(gate), Some(OnTimeout::Pause)),
        (TimerKind::Wake, None),
        (TimerKind::GateDeadline(world.ids.gate()), None),
    ] {
        let timer = world.ids.timer();
        let run = held.run;
        let due = Due::Now;
        let arm = TimerUpdate::Arm { timer, run, due, kind: what };
        assert_appended(&world.append_outside(run, change_batch(Change::SetTimer(arm))).await);
        let due = world.harness.records.due_timers(9).await.expect("due");
        assert_eq!((due.len(), due[0].gate_on_timeout), (1, means));
        assert_appended(&world.append_outside(run, change_batch(spend_timer(timer))).await);
    }
}

/// A gate that nobody raised can't be answered, and a withdrawn one neither.
pub async fn only_open_gates_can_be_answered(world: StoreFixture) {
    let (mut held, gate) = park_at_gate(&world, |_| {}).await;
    let none = world.append_outside(held.run, answer_batch(world.ids.gate(), "cli:anna")).await;
    assert_eq!(refused(none), Refused::GateNotFound);
    world.assert_status(held.run, Status::Waiting, "approval").await;
    assert_appended(&world.append_outside(held.run, events_batch([resumed()])).await);
    held = world.claim_one(held.worker).await;
    held.append_ok(change_batch(close_gate(gate, GateTransition::Withdrawn))).await;
    let late = world.append_outside(held.run, answer_batch(gate, "cli:anna")).await;
    let closed = Refused::GateClosed(GateStatus::Withdrawn, None);
    assert_eq!(refused(late), closed);
}

/// Gates are listed newest first, by run and status, in pages.
pub async fn gates_are_listed_newest_first(world: StoreFixture) {
    let mut gates = Vec::new();
    let mut runs = Vec::new();
    for _ in 0..4 {
        let (held, gate) = park_at_gate(&world, |spec| spec.timeout = Some(HOUR)).await;
        runs.push(held.run);
        gates.push(gate);
    }
    assert_appended(&world.append_outside(runs[2], answer_batch(gates[2], "cli:anna")).await);
    let all = GateFilter { limit: 9, ..GateFilter::default() };
    let newest_first: Vec<GateId> = gates.iter().rev().copied().collect();
    assert_eq!(list_gates(&world, all.clone()).await, newest_first);
    let open = GateFilter { status: Some(GateStatus::Open), limit: 2, ..all.clone() };
    assert_eq!(list_gates(&world, open.clone()).await, [gates[3], gates[1]]);
    let next = GateFilter { after: Some(gates[1]), ..open };
    assert_eq!(list_gates(&world, next).await, [gates[0]]);
    let of_run = GateFilter { run: Some(runs[1]), ..all.clone() };
    assert_eq!(list_gates(&world, of_run).await, [gates[1]]);
    let one = GateFilter { gate: Some(gates[0]), ..all };
    let row = &world.harness.store.list_gates(one).await.expect("gates")[0];
    assert_eq!(row.submitter.as_deref(), Some("key:ops"));
    let now = world.harness.clock.now();
    assert_eq!((row.raised_at, row.deadline), (now, Some(now.plus(HOUR))));
    assert_eq!(row.spec.ask, "may I?");
}

/// A run parked at a gate of its own.
async fn park_at_gate(
    world: &StoreFixture,
    change: impl FnOnce(&mut GateSpec),
) -> (ClaimedRun, GateId) {
    let mut held = world.open_and_claim(|task| task.submitter = Some("key:ops".to_owned())).await;
    let mut spec = gate_spec(world.ids.gate());
    change(&mut spec);
    let gate = spec.id;
    held.append_ok(raise_gate_batch(spec)).await;
    held.append_ok(park_batch("approval")).await;
    (held, gate)
}

async fn gate_row(world: &StoreFixture, gate: GateId) -> GateRow {
    let ask = GateFilter { gate: Some(gate), limit: 1, ..GateFilter::default() };
    let rows = world.harness.store.list_gates(ask).await.expect("gates");
    rows.into_iter().next().expect("the gate is there")
}

async fn list_gates(world: &StoreFixture, ask: GateFilter) -> Vec<GateId> {
    let rows = world.harness.store.list_gates(ask).await.expect("gates");
    rows.into_iter().map(|row| row.spec.id).collect()
}
