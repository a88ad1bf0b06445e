//! Gates: answered once, in time, and never after the run's end.
//!
//! Never: races; those are `race`.

use longhaul_core::change::{Change, Due, GateEnd, TimerKind, TimerMove};
use longhaul_core::id::GateId;
use longhaul_core::policy::gate::{GateRow, GateSpec, GateStatus, GivenAnswer, OnTimeout};
use longhaul_core::port::store::{Appended, GatesAsk, Refused};
use longhaul_core::status::Status;
use longhaul_core::time::{Clock, Millis};

use crate::conformance::store::facts::{
    And as _, answers, close_gate, ends, expires, fires, gate_spec, only, parks, raises, resumed,
    says, spends, votes, yes,
};
use crate::conformance::store::kit::{Held, World, refused, stands};

const HOUR: Millis = Millis::from_secs(3_600);

/// The first answer wakes the run; the second is told who was first, and when.
pub async fn a_gate_is_answered_once(world: World) {
    let (held, gate) = waits_at(&world, |_| {}).await;
    world.is(held.run, Status::Waiting, "approval").await;
    world.pass(Millis(40));
    let at = world.at.clock.now();
    stands(&world.tell(held.run, answers(gate, "cli:anna")).await);
    world.is(held.run, Status::Running, "worker").await;
    let last = world.row(held.run).await.last;
    world.pass(Millis(40));
    for late in [
        answers(gate, "cli:bert"),
        votes(gate, "cli:bert"),
        expires(gate),
    ] {
        let first = GivenAnswer {
            at,
            answer: yes("cli:anna"),
        };
        let closed = Refused::GateClosed(GateStatus::Answered, Some(Box::new(first)));
        assert_eq!(refused(world.tell(held.run, late).await), closed);
    }
    assert_eq!(world.row(held.run).await.last, last);
    let row = gate_row(&world, gate).await;
    assert_eq!((row.status, row.answers.len()), (GateStatus::Answered, 1));
    assert_eq!((row.run, row.deadline), (held.run, None));
}

/// Votes gather in an open gate and leave the run parked; the last one closes it.
pub async fn a_quorum_gathers_votes(world: World) {
    let (held, gate) = waits_at(&world, |spec| spec.approvers.count = 3).await;
    for by in ["cli:anna", "cli:bert"] {
        stands(&world.tell(held.run, votes(gate, by)).await);
        world.is(held.run, Status::Waiting, "approval").await;
    }
    stands(&world.tell(held.run, answers(gate, "cli:cleo")).await);
    world.is(held.run, Status::Running, "worker").await;
    let row = gate_row(&world, gate).await;
    let said: Vec<String> = row
        .answers
        .into_iter()
        .map(|given| given.answer.by)
        .collect();
    assert_eq!(said, ["cli:anna", "cli:bert", "cli:cleo"]);
}

/// At its deadline a gate takes no answer any more; only its end can be told.
pub async fn a_gate_closes_at_its_deadline(world: World) {
    let (held, gate) = waits_at(&world, |spec| spec.timeout = Some(HOUR)).await;
    world.pass(Millis(HOUR.0 - 1));
    stands(&world.tell(held.run, votes(gate, "cli:anna")).await);
    world.pass(Millis(1));
    for late in [answers(gate, "cli:bert"), votes(gate, "cli:bert")] {
        let closed = Refused::GateClosed(GateStatus::Expired, None);
        assert_eq!(refused(world.tell(held.run, late).await), closed);
    }
    world.is(held.run, Status::Waiting, "approval").await;
    stands(&world.tell(held.run, expires(gate)).await);
    assert_eq!(gate_row(&world, gate).await.status, GateStatus::Expired);
    world.is(held.run, Status::Running, "worker").await;
}

/// Ten years later somebody may still answer.
pub async fn a_gate_without_a_deadline_is_answerable_for_ever(world: World) {
    let (held, gate) = waits_at(&world, |_| {}).await;
    world.pass(Millis::from_secs(10 * 366 * 24 * 60 * 60));
    stands(&world.tell(held.run, answers(gate, "cli:anna")).await);
    world.is(held.run, Status::Running, "worker").await;
}

/// An answer that the run can't hear any more is not taken by the gate either.
pub async fn an_answer_to_an_ended_run_is_rolled_back(world: World) {
    let (held, gate) = waits_at(&world, |_| {}).await;
    stands(&world.close(held.run, held.last, ends()).await);
    for _ in 0..2 {
        let told = world.tell(held.run, answers(gate, "cli:anna")).await;
        assert_eq!(told, Appended::RunEnded);
    }
    let row = gate_row(&world, gate).await;
    assert_eq!((row.status, row.answers.len()), (GateStatus::Open, 0));
    // What the closing batch forgot to withdraw is found by a repair, once.
    let found = world.at.shelves.repair().await.expect("repair");
    assert_eq!(found.gate_of_ended, 1);
    assert_eq!(gate_row(&world, gate).await.status, GateStatus::Withdrawn);
}

/// The timer of an answered gate fires later, finds the gate closed, and is
/// spent without a word to the run.
pub async fn an_answered_gate_leaves_its_timer_to_fire(world: World) {
    let (held, gate) = waits_at(&world, |spec| spec.timeout = Some(HOUR)).await;
    let timer = world.ids.timer();
    let arm = Change::SetTimer(TimerMove::Arm {
        timer,
        run: held.run,
        due: Due::After(HOUR),
        what: TimerKind::GateDeadline(gate),
    });
    stands(&world.tell(held.run, only(arm)).await);
    stands(&world.tell(held.run, answers(gate, "cli:anna")).await);
    world.pass(HOUR);
    let due = world.at.shelves.due(9).await.expect("due");
    assert_eq!(due.len(), 1);
    assert_eq!(due[0].what, TimerKind::GateDeadline(gate));
    assert_eq!(due[0].gate, None, "nobody is asked any more");
    let last = world.row(held.run).await.last;
    let told = world.tell(held.run, expires(gate).and(spends(timer))).await;
    assert!(matches!(
        refused(told),
        Refused::GateClosed(GateStatus::Answered, Some(_))
    ));
    assert_eq!(
        world.at.shelves.due(9).await.expect("due").len(),
        1,
        "still there"
    );
    stands(&world.tell(held.run, only(spends(timer))).await);
    assert_eq!(world.at.shelves.due(9).await.expect("due"), []);
    assert_eq!(world.row(held.run).await.last, last);
    let twice = world.tell(held.run, fires(timer)).await;
    assert_eq!(refused(twice), Refused::TimerSpent);
}

/// A due timer of a gate says what silence means, as long as the gate is open.
pub async fn a_gate_s_timer_says_what_silence_means(world: World) {
    let (held, gate) = waits_at(&world, |spec| spec.on_timeout = OnTimeout::Pause).await;
    for (what, means) in [
        (TimerKind::GateRemind(gate), Some(OnTimeout::Pause)),
        (TimerKind::GateDeadline(gate), Some(OnTimeout::Pause)),
        (TimerKind::Wake, None),
        (TimerKind::GateDeadline(world.ids.gate()), None),
    ] {
        let timer = world.ids.timer();
        let run = held.run;
        let due = Due::Now;
        let arm = TimerMove::Arm {
            timer,
            run,
            due,
            what,
        };
        stands(&world.tell(run, only(Change::SetTimer(arm))).await);
        let due = world.at.shelves.due(9).await.expect("due");
        assert_eq!((due.len(), due[0].gate), (1, means));
        stands(&world.tell(run, only(spends(timer))).await);
    }
}

/// A gate that nobody raised can't be answered, and a withdrawn one neither.
pub async fn only_open_gates_can_be_answered(world: World) {
    let (mut held, gate) = waits_at(&world, |_| {}).await;
    let none = world
        .tell(held.run, answers(world.ids.gate(), "cli:anna"))
        .await;
    assert_eq!(refused(none), Refused::NoGate);
    world.is(held.run, Status::Waiting, "approval").await;
    stands(&world.tell(held.run, says([resumed()])).await);
    held = world.take(held.worker).await;
    held.write(only(close_gate(gate, GateEnd::Withdrawn))).await;
    let late = world.tell(held.run, answers(gate, "cli:anna")).await;
    let closed = Refused::GateClosed(GateStatus::Withdrawn, None);
    assert_eq!(refused(late), closed);
}

/// Gates are listed newest first, by run and status, in pages.
pub async fn gates_are_listed_newest_first(world: World) {
    let mut gates = Vec::new();
    let mut runs = Vec::new();
    for _ in 0..4 {
        let (held, gate) = waits_at(&world, |spec| spec.timeout = Some(HOUR)).await;
        runs.push(held.run);
        gates.push(gate);
    }
    stands(&world.tell(runs[2], answers(gates[2], "cli:anna")).await);
    let all = GatesAsk {
        limit: 9,
        ..GatesAsk::default()
    };
    let newest_first: Vec<GateId> = gates.iter().rev().copied().collect();
    assert_eq!(listed(&world, all.clone()).await, newest_first);
    let open = GatesAsk {
        status: Some(GateStatus::Open),
        limit: 2,
        ..all.clone()
    };
    assert_eq!(listed(&world, open.clone()).await, [gates[3], gates[1]]);
    let next = GatesAsk {
        after: Some(gates[1]),
        ..open
    };
    assert_eq!(listed(&world, next).await, [gates[0]]);
    let of_run = GatesAsk {
        run: Some(runs[1]),
        ..all.clone()
    };
    assert_eq!(listed(&world, of_run).await, [gates[1]]);
    let one = GatesAsk {
        gate: Some(gates[0]),
        ..all
    };
    let row = &world.at.store.gates(one).await.expect("gates")[0];
    assert_eq!(row.submitter.as_deref(), Some("key:ops"));
    let now = world.at.clock.now();
    assert_eq!((row.raised_at, row.deadline), (now, Some(now.plus(HOUR))));
    assert_eq!(row.spec.ask, "may I?");
}

/// A run parked at a gate of its own.
async fn waits_at(world: &World, change: impl FnOnce(&mut GateSpec)) -> (Held, GateId) {
    let mut held = world
        .held(|task| task.submitter = Some("key:ops".to_owned()))
        .await;
    let mut spec = gate_spec(world.ids.gate());
    change(&mut spec);
    let gate = spec.id;
    held.write(raises(spec)).await;
    held.write(parks("approval")).await;
    (held, gate)
}

async fn gate_row(world: &World, gate: GateId) -> GateRow {
    let ask = GatesAsk {
        gate: Some(gate),
        limit: 1,
        ..GatesAsk::default()
    };
    let rows = world.at.store.gates(ask).await.expect("gates");
    rows.into_iter().next().expect("the gate is there")
}

async fn listed(world: &World, ask: GatesAsk) -> Vec<GateId> {
    let rows = world.at.store.gates(ask).await.expect("gates");
    rows.into_iter().map(|row| row.spec.id).collect()
}
