//! Many hands at once. Each check runs a bounded number of rounds, and looks
//! afterwards whether anything was lost, doubled or passed over.
//!
//! Never: waits for what may not come. A run that sleeps for ever is seen
//! because nothing is left to do while it is not ended.

use tokio::task::{JoinSet, yield_now};

use longhaul_core::change::{Change, Settlement};
use longhaul_core::event::Event;
use longhaul_core::event::environment::TimerFired;
use longhaul_core::id::{GateId, RunId, Seq};
use longhaul_core::port::store::{Appended, GateFilter, ReadRequest};
use longhaul_core::status::Status;
use longhaul_core::time::Millis;
use longhaul_core::usage::{Hold, MicroUsd};

use crate::conformance::store::batches::{
    BatchExt as _, answer_batch, arm_timer, cancel_batch, events_batch, gate_spec, park_batch,
    progress, raise_gate_batch, release_batch, resumed,
};
use crate::conformance::store::fixture::{ClaimedRun, StoreFixture, TTL, assert_appended};
use crate::conformance::store::rounds::{
    DECISIONS_MAX, fire_due_timers, is_appended, run_concurrently,
};

/// A driver parks while somebody answers. Either the driver sees the answer, or
/// the answer wakes the run: it never sleeps for ever.
pub async fn a_park_racing_an_answer_loses_no_wake_up(world: StoreFixture) {
    run_concurrently(&world, world.harness.rounds, |round| async move {
        let mut held = round.open_and_claim().await;
        let gate = round.fixture.ids.gate();
        held.append_ok(raise_gate_batch(gate_spec(gate))).await;
        let run = held.run;
        let mut sides = JoinSet::new();
        sides.spawn(park_unless_answered(held));
        let outside = round.fixture.clone();
        sides.spawn(async move {
            yield_now().await;
            assert_appended(&outside.append_outside(run, answer_batch(gate, "cli:anna")).await);
        });
        sides.join_all().await;
        round.end().await;
    })
    .await;
}

/// Of many who answer at once one is first, and all the others learn who.
pub async fn one_of_many_answers_closes_a_gate(world: StoreFixture) {
    run_concurrently(&world, world.harness.rounds / 20, |round| async move {
        let mut held = round.open_and_claim().await;
        let gate = round.fixture.ids.gate();
        held.append_ok(raise_gate_batch(gate_spec(gate))).await;
        held.park("approval").await;
        let mut voices = JoinSet::new();
        for voice in 0..4 {
            let world = round.fixture.clone();
            let run = held.run;
            voices.spawn(async move {
                let by = format!("cli:{voice}");
                (by.clone(), world.append_outside(run, answer_batch(gate, &by)).await)
            });
        }
        let said = voices.join_all().await;
        let heard = said.iter().filter(|(_, told)| is_appended(told));
        let heard: Vec<&str> = heard.map(|(by, _)| by.as_str()).collect();
        assert_eq!(heard.len(), 1, "{said:?}");
        assert_eq!(answered_by(&round.fixture, gate).await, heard);
        let facts = round.fixture.kinds(held.run).await;
        let answered = facts.iter().filter(|kind| **kind == "gate.answered");
        assert_eq!(answered.count(), 1);
        round.end().await;
    })
    .await;
}

/// A run is cancelled while a worker claims it: one of the two is first, and
/// the run is neither driven behind its end nor left lying.
pub async fn a_claim_racing_a_cancel_leaves_no_stuck_run(world: StoreFixture) {
    run_concurrently(&world, world.harness.rounds / 10, |round| async move {
        let run = round.open().await;
        let mut sides = JoinSet::new();
        let claimer = round.clone();
        sides.spawn(async move { claimer.claim_one().await.is_some() });
        let outside = round.fixture.clone();
        sides.spawn(async move {
            yield_now().await;
            is_appended(&outside.append_as_closer(run, Seq(1), cancel_batch()).await)
        });
        let done = sides.join_all().await.into_iter().filter(|won| *won);
        assert_eq!(done.count(), 1, "{run} went to both or to nobody");
        let row = round.fixture.row(run).await;
        assert!(row.worker.is_some() || row.status == Status::Cancelled, "{row:?}");
    })
    .await;
}

/// Facts that come while a ready run is claimed are in its journal, and the run
/// is in its driver's hands.
pub async fn an_event_racing_a_claim_is_not_lost(world: StoreFixture) {
    run_concurrently(&world, world.harness.rounds / 10, |round| async move {
        let mut held = round.open_and_claim().await;
        held.park("child").await;
        let run = held.run;
        round.wake(run).await;
        let mut sides = JoinSet::new();
        let claimer = round.clone();
        sides.spawn(async move { claimer.claim_one().await.is_some() });
        let outside = round.fixture.clone();
        sides.spawn(async move {
            is_appended(&outside.append_outside(run, events_batch([resumed()])).await)
        });
        assert_eq!(sides.join_all().await, [true, true]);
        assert!(round.claim_one().await.is_none(), "{run} went twice");
        assert_eq!(round.fixture.row(run).await.last_seq, Seq(6));
    })
    .await;
}

/// Many reapers at once free each run of the dead once, while the dead still
/// ask for more.
pub async fn concurrent_reapers_release_each_run_once(world: StoreFixture) {
    let count = (world.harness.rounds / 40).clamp(4, 50);
    let mut reapers = Vec::new();
    for _ in 0..3 {
        reapers.push(world.worker().await);
    }
    let mut dead = Vec::new();
    for _ in 0..count {
        dead.push(world.open_and_claim(|_| {}).await.worker);
    }
    for _ in 0..3 {
        world.advance(Millis(TTL.0 / 3));
        for reaper in &reapers {
            world.heartbeat(*reaper).await;
        }
    }
    world.advance(Millis(1));
    let mut crowd = JoinSet::new();
    for reaper in reapers.clone() {
        let world = world.clone();
        crowd.spawn(async move { world.heartbeat(reaper).await.reaped });
    }
    for worker in dead {
        let world = world.clone();
        crowd.spawn(async move { world.claim(worker).await.len() });
    }
    let freed: usize = crowd.join_all().await.into_iter().sum();
    assert_eq!(freed, count, "freed twice, or taken by the dead");
    assert_eq!(world.claim(reapers[0]).await.len(), count);
}

/// Many sweeps at once tell each timer once.
pub async fn a_timer_is_fired_by_one_of_many_sweeps(world: StoreFixture) {
    let worker = world.worker().await;
    let rounds = world.harness.rounds / 40;
    for _ in 0..rounds {
        let mut held = world.open_and_claim(|_| {}).await;
        let timer = arm_timer(world.ids.timer(), held.run, Millis(5));
        held.append_ok(park_batch("timer").with_change(timer)).await;
    }
    world.advance(Millis(5));
    let mut sweeps = JoinSet::new();
    for _ in 0..4 {
        sweeps.spawn(fire_due_timers(world.clone()));
    }
    let told: usize = sweeps.join_all().await.into_iter().sum();
    assert_eq!(told, rounds);
    assert_eq!(world.harness.records.next_timer_due().await.expect("next due"), None);
    assert_eq!(world.claim(worker).await.len(), rounds);
}

/// However many runs of a tree hold at once, the cap is never passed.
pub async fn holds_of_a_tree_never_pass_its_cap(world: StoreFixture) {
    let worker = world.worker().await;
    let root = world.open(|task| task.policy.budget.micro_usd = Some(MicroUsd(300))).await;
    for _ in 0..5 {
        let child = world.new_run(|task| {
            task.root = root;
            task.parent = Some(root);
        });
        world.open_runs(vec![child]).await;
    }
    let mut drivers = JoinSet::new();
    for claimed in world.claim(worker).await {
        let held = ClaimedRun::new(&world, worker, &claimed);
        drivers.spawn(hold_and_settle(held, root, world.harness.rounds / 40));
    }
    let spent: u64 = drivers.join_all().await.into_iter().sum();
    let account = world.harness.records.budget_account(root).await.expect("account");
    let account = account.expect("a root has an account");
    assert_eq!(account.held, Hold::default());
    assert_eq!(account.spent.micro_usd, MicroUsd(spent));
    assert!(spent <= 300, "{account:?}");
}

/// A journal that a driver and outsiders write to at once has no gap and no
/// fact twice.
pub async fn a_journal_has_no_gap_under_concurrent_writers(world: StoreFixture) {
    let held = world.open_and_claim(|_| {}).await;
    let run = held.run;
    let rounds = world.harness.rounds / 20;
    let mut pens = JoinSet::new();
    pens.spawn(append_events(held, rounds));
    for _ in 0..2 {
        let world = world.clone();
        pens.spawn(async move {
            for _ in 0..rounds {
                let timer = world.ids.timer();
                let fact = Event::TimerFired(TimerFired { timer });
                assert_appended(&world.append_outside(run, events_batch([fact])).await);
                yield_now().await;
            }
        });
    }
    pens.join_all().await;
    let entries = read_all(&world, run, Seq::START).await;
    let gapless = entries.iter().zip(1..).all(|((seq, _), count)| seq.0 == count);
    assert!(gapless, "a gap in {run}");
    let count = |kind| entries.iter().filter(|(_, event)| event.kind() == kind).count();
    assert_eq!((count("progress.reported"), count("timer.fired")), (rounds, 2 * rounds));
    assert_eq!(world.row(run).await.last_seq.0 as usize, entries.len());
}

/// What a driver does at a gate: it reads, and parks if nobody has answered.
async fn park_unless_answered(mut held: ClaimedRun) {
    for _ in 0..DECISIONS_MAX {
        let tail = read_all(&held.fixture, held.run, held.last).await;
        held.last = tail.last().map_or(held.last, |(seq, _)| *seq);
        let batch = if tail.iter().any(|(_, event)| event.kind() == "gate.answered") {
            release_batch()
        } else {
            park_batch("approval")
        };
        yield_now().await;
        match held.append(batch).await {
            Appended::At { .. } => return,
            Appended::Conflict => {}
            other @ (Appended::Fenced
            | Appended::RunEnded
            | Appended::RunNotFound
            | Appended::Refused(_)) => panic!("{other:?}"),
        }
    }
    panic!("{} moved on {DECISIONS_MAX} times", held.run);
}

/// Holds and settles so often, and says what it spent.
async fn hold_and_settle(mut held: ClaimedRun, root: RunId, rounds: usize) -> u64 {
    let hold = Hold { micro_usd: MicroUsd(70), tokens: 7 };
    let used = Hold { micro_usd: MicroUsd(1), tokens: 1 };
    let mut spent = 0;
    for _ in 0..rounds {
        if !is_appended(&held.change(Change::Hold(hold)).await) {
            yield_now().await;
            continue;
        }
        let account = held.fixture.harness.records.budget_account(root).await.expect("account");
        let account = account.expect("a root has an account");
        let total = account.held.micro_usd.0 + account.spent.micro_usd.0 + account.lost.micro_usd.0;
        assert!(total <= 300, "{account:?}");
        yield_now().await;
        let settlement = Settlement { held: hold, spent: used, lost: Hold::default() };
        assert_appended(&held.change(Change::Settle(settlement)).await);
        spent += 1;
    }
    spent
}

/// Writes so many facts, reading on whenever others were faster.
async fn append_events(mut held: ClaimedRun, facts: usize) {
    let mut written = 0;
    // Outsiders write so much and no more, and each makes one decision void.
    for _ in 0..=3 * facts {
        if written == facts {
            return;
        }
        match held.append(events_batch([progress(1)])).await {
            Appended::At { .. } => written += 1,
            Appended::Conflict => {
                let tail = read_all(&held.fixture, held.run, held.last).await;
                held.last = tail.last().map_or(held.last, |(seq, _)| *seq);
            }
            other @ (Appended::Fenced
            | Appended::RunEnded
            | Appended::RunNotFound
            | Appended::Refused(_)) => panic!("{other:?}"),
        }
    }
    assert_eq!(written, facts);
}

async fn read_all(world: &StoreFixture, run: RunId, after: Seq) -> Vec<(Seq, Event)> {
    let ask = ReadRequest { run, after, limit: usize::MAX };
    let page = world.harness.store.read(ask).await.expect("read");
    let entries = page.entries.into_iter();
    entries.map(|entry| (entry.seq, entry.event)).collect()
}

async fn answered_by(world: &StoreFixture, gate: GateId) -> Vec<String> {
    let ask = GateFilter { gate: Some(gate), limit: 1, ..GateFilter::default() };
    let rows = world.harness.store.list_gates(ask).await.expect("gates");
    let answers = rows.into_iter().flat_map(|row| row.answers);
    answers.map(|given| given.answer.by).collect()
}
