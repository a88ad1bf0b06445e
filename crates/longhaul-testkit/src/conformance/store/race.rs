//! Races. Each check runs a limited number of rounds and then verifies that nothing was lost,
//! duplicated or skipped. A run that was never woken is detected because nothing is ready
//! although it has not ended.

use tokio::task::{JoinSet, yield_now};

use longhaul_core::change::{BudgetHoldSettlement, RowChange};
use longhaul_core::event::Event;
use longhaul_core::event::environment::TimerFired;
use longhaul_core::id::{GateId, RunId, Seq};
use longhaul_core::port::store::{AppendResult, GateFilter, JournalReadRequest};
use longhaul_core::status::Status;
use longhaul_core::time::Millis;
use longhaul_core::usage::{BudgetAmount, MicroUsd};

use crate::conformance::store::batches::{
    BatchExt as _, answer_batch, arm_timer, cancel_batch, events_batch, gate_spec, park_batch,
    progress, raise_gate_batch, release_batch, resumed,
};
use crate::conformance::store::fixture::{ClaimedRun, StoreFixture, TTL, assert_appended};
use crate::conformance::store::rounds::{
    DECISIONS_MAX, fire_due_timers, is_appended, run_concurrently,
};

/// A driver parks while an answer arrives. Either the driver sees the answer, or the answer
/// wakes the run.
pub async fn a_park_racing_an_answer_loses_no_wake_up(fixture: StoreFixture) {
    run_concurrently(&fixture, fixture.harness.rounds, |round| async move {
        let mut claimed_run = round.open_and_claim().await;
        let gate = round.fixture.ids.gate();
        claimed_run.append_ok(raise_gate_batch(gate_spec(gate))).await;
        let run = claimed_run.run;
        let mut tasks = JoinSet::new();
        tasks.spawn(park_unless_answered(claimed_run));
        let outsider = round.fixture.clone();
        tasks.spawn(async move {
            yield_now().await;
            assert_appended(&outsider.append_outside(run, answer_batch(gate, "cli:anna")).await);
        });
        tasks.join_all().await;
        round.end().await;
    })
    .await;
}

/// Of many concurrent answers one is first, and all others get its author.
pub async fn one_of_many_answers_closes_a_gate(fixture: StoreFixture) {
    run_concurrently(&fixture, fixture.harness.rounds / 20, |round| async move {
        let mut claimed_run = round.open_and_claim().await;
        let gate = round.fixture.ids.gate();
        claimed_run.append_ok(raise_gate_batch(gate_spec(gate))).await;
        claimed_run.park("approval").await;
        let mut tasks = JoinSet::new();
        for number in 0..4 {
            let fixture = round.fixture.clone();
            let run = claimed_run.run;
            tasks.spawn(async move {
                let by = format!("cli:{number}");
                (by.clone(), fixture.append_outside(run, answer_batch(gate, &by)).await)
            });
        }
        let outcomes = tasks.join_all().await;
        let accepted = outcomes.iter().filter(|(_, appended)| is_appended(appended));
        let accepted: Vec<&str> = accepted.map(|(by, _)| by.as_str()).collect();
        assert_eq!(accepted.len(), 1, "{outcomes:?}");
        assert_eq!(answered_by(&round.fixture, gate).await, accepted);
        let events = round.fixture.kinds(claimed_run.run).await;
        let answered = events.iter().filter(|kind| **kind == "gate.answered");
        assert_eq!(answered.count(), 1);
        round.end().await;
    })
    .await;
}

/// A run is cancelled while a worker claims it. One of the two is first, and the run is neither
/// driven after its end nor left in the queue.
pub async fn a_claim_racing_a_cancel_leaves_no_stuck_run(fixture: StoreFixture) {
    run_concurrently(&fixture, fixture.harness.rounds / 10, |round| async move {
        let run = round.open().await;
        let mut tasks = JoinSet::new();
        let claimer = round.clone();
        tasks.spawn(async move { claimer.claim_one().await.is_some() });
        let outsider = round.fixture.clone();
        tasks.spawn(async move {
            yield_now().await;
            is_appended(&outsider.append_as_closer(run, Seq(1), cancel_batch()).await)
        });
        let successes = tasks.join_all().await.into_iter().filter(|succeeded| *succeeded);
        assert_eq!(successes.count(), 1, "{run} went to both or to neither");
        let row = round.fixture.row(run).await;
        assert!(row.worker.is_some() || row.status == Status::Cancelled, "{row:?}");
    })
    .await;
}

/// Events that arrive while a ready run is claimed are in its journal, and the run is driven.
pub async fn an_event_racing_a_claim_is_not_lost(fixture: StoreFixture) {
    run_concurrently(&fixture, fixture.harness.rounds / 10, |round| async move {
        let mut claimed_run = round.open_and_claim().await;
        claimed_run.park("child").await;
        let run = claimed_run.run;
        round.wake(run).await;
        let mut tasks = JoinSet::new();
        let claimer = round.clone();
        tasks.spawn(async move { claimer.claim_one().await.is_some() });
        let outsider = round.fixture.clone();
        tasks.spawn(async move {
            is_appended(&outsider.append_outside(run, events_batch([resumed()])).await)
        });
        assert_eq!(tasks.join_all().await, [true, true]);
        assert!(round.claim_one().await.is_none(), "{run} was claimed twice");
        assert_eq!(round.fixture.row(run).await.last_seq, Seq(6));
    })
    .await;
}

/// Concurrent reapers release each run of a dead worker once, while the dead workers try to
/// claim more.
pub async fn concurrent_reapers_release_each_run_once(fixture: StoreFixture) {
    let count = (fixture.harness.rounds / 40).clamp(4, 50);
    let mut reapers = Vec::new();
    for _ in 0..3 {
        reapers.push(fixture.worker().await);
    }
    let mut dead_workers = Vec::new();
    for _ in 0..count {
        dead_workers.push(fixture.open_and_claim(|_| {}).await.worker);
    }
    for _ in 0..3 {
        fixture.advance(Millis(TTL.0 / 3));
        for reaper in &reapers {
            fixture.heartbeat(*reaper).await;
        }
    }
    fixture.advance(Millis(1));
    let mut tasks = JoinSet::new();
    for reaper in reapers.clone() {
        let fixture = fixture.clone();
        tasks.spawn(async move { fixture.heartbeat(reaper).await.reaped });
    }
    for worker in dead_workers {
        let fixture = fixture.clone();
        tasks.spawn(async move { fixture.claim(worker).await.len() });
    }
    let released: usize = tasks.join_all().await.into_iter().sum();
    assert_eq!(released, count, "released twice, or claimed by a dead worker");
    assert_eq!(fixture.claim(reapers[0]).await.len(), count);
}

/// Concurrent sweeps fire each timer once.
pub async fn a_timer_is_fired_by_one_of_many_sweeps(fixture: StoreFixture) {
    let worker = fixture.worker().await;
    let rounds = fixture.harness.rounds / 40;
    for _ in 0..rounds {
        let mut claimed_run = fixture.open_and_claim(|_| {}).await;
        let timer = arm_timer(fixture.ids.timer(), claimed_run.run, Millis(5));
        claimed_run.append_ok(park_batch("timer").with_change(timer)).await;
    }
    fixture.advance(Millis(5));
    let mut sweeps = JoinSet::new();
    for _ in 0..4 {
        sweeps.spawn(fire_due_timers(fixture.clone()));
    }
    let appended: usize = sweeps.join_all().await.into_iter().sum();
    assert_eq!(appended, rounds);
    assert_eq!(fixture.harness.records.next_timer_due().await.expect("next due"), None);
    assert_eq!(fixture.claim(worker).await.len(), rounds);
}

/// Concurrent holds of the runs of a tree never exceed the cap.
pub async fn holds_of_a_tree_never_pass_its_cap(fixture: StoreFixture) {
    let worker = fixture.worker().await;
    let root = fixture.open(|task| task.policy.budget.micro_usd = Some(MicroUsd(300))).await;
    for _ in 0..5 {
        let child = fixture.new_run(|task| {
            task.root = root;
            task.parent = Some(root);
        });
        fixture.open_runs(vec![child]).await;
    }
    let mut drivers = JoinSet::new();
    for claimed in fixture.claim(worker).await {
        let claimed_run = ClaimedRun::new(&fixture, worker, &claimed);
        drivers.spawn(hold_and_settle(claimed_run, root, fixture.harness.rounds / 40));
    }
    let spent: u64 = drivers.join_all().await.into_iter().sum();
    let account = fixture.harness.records.budget_account(root).await.expect("account");
    let account = account.expect("a root has an account");
    assert_eq!(account.held, BudgetAmount::default());
    assert_eq!(account.spent.micro_usd, MicroUsd(spent));
    assert!(spent <= 300, "{account:?}");
}

/// A journal with concurrent appends of a driver and outsiders has no gaps and no duplicates.
pub async fn a_journal_has_no_gap_under_concurrent_writers(fixture: StoreFixture) {
    let claimed_run = fixture.open_and_claim(|_| {}).await;
    let run = claimed_run.run;
    let rounds = fixture.harness.rounds / 20;
    let mut writers = JoinSet::new();
    writers.spawn(append_events(claimed_run, rounds));
    for _ in 0..2 {
        let fixture = fixture.clone();
        writers.spawn(async move {
            for _ in 0..rounds {
                let timer = fixture.ids.timer();
                let event = Event::TimerFired(TimerFired { timer });
                assert_appended(&fixture.append_outside(run, events_batch([event])).await);
                yield_now().await;
            }
        });
    }
    writers.join_all().await;
    let entries = read_all(&fixture, run, Seq::START).await;
    let is_gapless = entries.iter().zip(1..).all(|((seq, _), count)| seq.0 == count);
    assert!(is_gapless, "a gap in {run}");
    let count = |kind| entries.iter().filter(|(_, event)| event.kind() == kind).count();
    assert_eq!((count("progress.reported"), count("timer.fired")), (rounds, 2 * rounds));
    assert_eq!(fixture.row(run).await.last_seq.0 as usize, entries.len());
}

/// Acts as a driver at a gate: reads, and parks if there is no answer.
async fn park_unless_answered(mut claimed_run: ClaimedRun) {
    for _ in 0..DECISIONS_MAX {
        let entries = read_all(&claimed_run.fixture, claimed_run.run, claimed_run.last).await;
        claimed_run.last = entries.last().map_or(claimed_run.last, |(seq, _)| *seq);
        let batch = if entries.iter().any(|(_, event)| event.kind() == "gate.answered") {
            release_batch()
        } else {
            park_batch("approval")
        };
        yield_now().await;
        match claimed_run.append(batch).await {
            AppendResult::Committed { .. } => return,
            AppendResult::Conflict => {}
            other @ (AppendResult::Fenced
            | AppendResult::RunEnded
            | AppendResult::RunNotFound
            | AppendResult::Refused(_)) => panic!("{other:?}"),
        }
    }
    panic!("{}: append conflicted {DECISIONS_MAX} times", claimed_run.run);
}

/// Holds and settles `rounds` times and returns the amount spent.
async fn hold_and_settle(mut claimed_run: ClaimedRun, root: RunId, rounds: usize) -> u64 {
    let hold = BudgetAmount { micro_usd: MicroUsd(70), tokens: 7 };
    let used = BudgetAmount { micro_usd: MicroUsd(1), tokens: 1 };
    let mut spent = 0;
    for _ in 0..rounds {
        if !is_appended(&claimed_run.change(RowChange::Hold(hold.into())).await) {
            yield_now().await;
            continue;
        }
        let account =
            claimed_run.fixture.harness.records.budget_account(root).await.expect("account");
        let account = account.expect("a root has an account");
        let total = account.held.micro_usd.0 + account.spent.micro_usd.0 + account.lost.micro_usd.0;
        assert!(total <= 300, "{account:?}");
        yield_now().await;
        let settlement =
            BudgetHoldSettlement { held: hold, spent: used, lost: BudgetAmount::default() };
        assert_appended(&claimed_run.change(RowChange::Settle(settlement)).await);
        spent += 1;
    }
    spent
}

/// Appends this number of events, and reads again after each conflict.
async fn append_events(mut claimed_run: ClaimedRun, count: usize) {
    let mut written = 0;
    // Outsiders append a limited number of events, and each invalidates one decision.
    for _ in 0..=3 * count {
        if written == count {
            return;
        }
        match claimed_run.append(events_batch([progress(1)])).await {
            AppendResult::Committed { .. } => written += 1,
            AppendResult::Conflict => {
                let entries =
                    read_all(&claimed_run.fixture, claimed_run.run, claimed_run.last).await;
                claimed_run.last = entries.last().map_or(claimed_run.last, |(seq, _)| *seq);
            }
            other @ (AppendResult::Fenced
            | AppendResult::RunEnded
            | AppendResult::RunNotFound
            | AppendResult::Refused(_)) => panic!("{other:?}"),
        }
    }
    assert_eq!(written, count);
}

async fn read_all(fixture: &StoreFixture, run: RunId, after: Seq) -> Vec<(Seq, Event)> {
    let request = JournalReadRequest { run, after, limit: usize::MAX };
    let page = fixture.harness.store.read_journal(request).await.expect("read");
    let entries = page.entries.into_iter();
    entries.map(|entry| (entry.seq, entry.event)).collect()
}

async fn answered_by(fixture: &StoreFixture, gate: GateId) -> Vec<String> {
    let filter = GateFilter { gate: Some(gate), limit: 1, ..GateFilter::default() };
    let rows = fixture.harness.store.list_gates(filter).await.expect("gates");
    let answers = rows.into_iter().flat_map(|row| row.answers);
    answers.map(|recorded| recorded.answer.by).collect()
}
