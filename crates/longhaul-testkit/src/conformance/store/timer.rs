//! Timers: due in order, fired once. Deadlines of gates are in `gate`.

use longhaul_core::chain::AUTO_APPROVE_DELAY;
use longhaul_core::change::{RowChange, TimerDueTime, TimerKind, TimerUpdate};
use longhaul_core::id::{RunId, TimerId};
use longhaul_core::policy::gate::{AutoApproval, GateRow, GateSpec};
use longhaul_core::port::store::{AppendRefusalReason, AppendResult, GateFilter};
use longhaul_core::status::Status;
use longhaul_core::task::{EarliestStart, RunBatchMode, RunBatchPosition};
use longhaul_core::time::{Clock, Millis, Timestamp};

use crate::conformance::store::batches::{
    BatchExt as _, arm_timer, change_batch, end_batch, events_batch, fire_timer_batch, gate_spec,
    park_batch, progress, raise_gate_batch, spend_timer,
};
use crate::conformance::store::fixture::{StoreFixture, assert_appended, refused};

/// No timer is due before its time. Due timers come longest due first, in pages.
pub async fn timers_come_due_in_order(fixture: StoreFixture) {
    let mut claimed_run = fixture.open_and_claim(|_| {}).await;
    assert_eq!(fixture.harness.records.next_timer_due().await.expect("next"), None);
    let start = fixture.harness.clock.now();
    let timers: Vec<TimerId> = (0..4).map(|_| fixture.ids.timer()).collect();
    let at = RowChange::SetTimer(TimerUpdate::Arm {
        timer: timers[3],
        run: claimed_run.run,
        due: TimerDueTime::At(start.plus(Millis(15))),
        kind: TimerKind::ChildEnded(claimed_run.run),
    });
    let batch = events_batch([progress(1)])
        .with_change(arm_timer(timers[0], claimed_run.run, Millis(30)))
        .with_change(arm_timer(timers[1], claimed_run.run, Millis(10)))
        .with_change(arm_timer(timers[2], claimed_run.run, Millis(20)))
        .with_change(at);
    claimed_run.append_ok(batch).await;
    assert_eq!(due(&fixture, 9).await, []);
    assert_eq!(next_due(&fixture).await, Some(start.plus(Millis(10))));
    fixture.advance(Millis(10));
    assert_eq!(due(&fixture, 9).await, [timers[1]], "due exactly at its time");
    fixture.advance(Millis(10));
    assert_eq!(due(&fixture, 9).await, [timers[1], timers[3], timers[2]]);
    assert_eq!(due(&fixture, 2).await, [timers[1], timers[3]]);
    let rows = fixture.harness.records.due_timers(9).await.expect("due");
    assert_eq!(rows[1].kind, TimerKind::ChildEnded(claimed_run.run));
    assert_eq!((rows[1].run, rows[1].due), (claimed_run.run, start.plus(Millis(15))));
    assert!(!rows[1].run_ended);
    assert_eq!(next_due(&fixture).await, Some(start.plus(Millis(10))));
}

/// Firing a timer consumes it and wakes the run, once.
pub async fn a_timer_fires_once(fixture: StoreFixture) {
    let mut claimed_run = fixture.open_and_claim(|_| {}).await;
    let timer = fixture.ids.timer();
    claimed_run
        .append_ok(park_batch("timer").with_change(arm_timer(timer, claimed_run.run, Millis(10))))
        .await;
    fixture.advance(Millis(10));
    assert_appended(&fixture.append_outside(claimed_run.run, fire_timer_batch(timer)).await);
    fixture.assert_status(claimed_run.run, Status::Running, "worker").await;
    let last = fixture.row(claimed_run.run).await.last_seq;
    let result = fixture.append_outside(claimed_run.run, fire_timer_batch(timer)).await;
    assert_eq!(refused(result), AppendRefusalReason::TimerConsumed);
    assert_eq!(fixture.row(claimed_run.run).await.last_seq, last);
    assert_eq!(next_due(&fixture).await, None);
}

/// A cancelled timer does not fire. Cancelling it again is no error.
pub async fn a_timer_can_be_cancelled(fixture: StoreFixture) {
    let mut claimed_run = fixture.open_and_claim(|_| {}).await;
    let [cancelled, other] = [fixture.ids.timer(), fixture.ids.timer()];
    let batch = events_batch([progress(1)])
        .with_change(arm_timer(cancelled, claimed_run.run, Millis(10)))
        .with_change(arm_timer(other, claimed_run.run, Millis(20)));
    claimed_run.append_ok(batch).await;
    for percent in [2, 3] {
        let cancel = RowChange::SetTimer(TimerUpdate::Cancel(cancelled));
        claimed_run.append_ok(events_batch([progress(percent)]).with_change(cancel)).await;
    }
    fixture.advance(Millis(20));
    assert_eq!(due(&fixture, 9).await, [other]);
}

/// After the clock was set back, a delay lasts no longer than its length. Other timers keep their
/// time.
pub async fn a_delay_is_shortened_after_the_clock_was_set_back(fixture: StoreFixture) {
    let mut claimed_run = fixture.open_and_claim(|_| {}).await;
    let run = claimed_run.run;
    let [short, long, date, approval] = [(); 4].map(|()| fixture.ids.timer());
    let approve = TimerKind::GateAutoApprove(fixture.ids.gate());
    let (short_delay, long_delay) = (Millis::from_secs(10), Millis::from_secs(100_000));
    let arm = |timer, delay, kind| {
        let due = TimerDueTime::After(delay);
        RowChange::SetTimer(TimerUpdate::Arm { timer, run, due, kind })
    };
    // The clock of these tests can't be set back, so a due time that is too late stands for it.
    let batch = events_batch([progress(1)])
        .with_change(arm(short, Millis::from_secs(3_610), TimerKind::Delay(short_delay)))
        .with_change(arm(long, Millis::from_secs(3_600), TimerKind::Delay(long_delay)))
        .with_change(arm(date, Millis::from_secs(3_620), TimerKind::Wake))
        .with_change(arm(approval, Millis::from_secs(3_630), approve));
    claimed_run.append_ok(batch).await;
    let move_delays = || fixture.harness.records.move_delays_set_by_later_clock();
    assert_eq!(move_delays().await.expect("move"), 2);
    assert_eq!(move_delays().await.expect("move"), 0);
    fixture.advance(AUTO_APPROVE_DELAY);
    assert_eq!(due(&fixture, 9).await, [approval]);
    let spent = RowChange::SetTimer(TimerUpdate::Cancel(approval));
    claimed_run.append_ok(events_batch([progress(2)]).with_change(spent)).await;
    fixture.advance(short_delay);
    assert_eq!(due(&fixture, 9).await, [short]);
    let rows = fixture.harness.records.due_timers(9).await.expect("due");
    assert_eq!(rows[0].kind, TimerKind::Delay(short_delay));
    fixture.advance(Millis::from_secs(3_610));
    assert_eq!(due(&fixture, 9).await, [short, long, date]);
}

/// Only the timers of automatic approvals are deleted. The gate then waits for a person.
pub async fn automatic_approvals_can_be_stopped(fixture: StoreFixture) {
    let mut claimed_run = fixture.open_and_claim(|_| {}).await;
    let [approval, other] = [fixture.ids.timer(), fixture.ids.timer()];
    let arm = |timer, kind| {
        RowChange::SetTimer(TimerUpdate::Arm {
            timer,
            run: claimed_run.run,
            due: TimerDueTime::Now,
            kind,
        })
    };
    let gate = fixture.ids.gate();
    let auto = AutoApproval { after: Millis(10), by: "chain".to_owned() };
    let spec = GateSpec { auto_approve: Some(auto), ..gate_spec(gate) };
    let batch = raise_gate_batch(spec)
        .with_change(arm(approval, TimerKind::GateAutoApprove(gate)))
        .with_change(arm(other, TimerKind::GateDeadline(gate)));
    let stop = change_batch(RowChange::SetTimer(TimerUpdate::StopAutoApproval(claimed_run.run)));
    let approves_at = async || {
        let filter = GateFilter { gate: Some(gate), limit: 1, ..GateFilter::default() };
        let gates = fixture.harness.store.list_gates(filter).await.expect("gates");
        gates.first().and_then(GateRow::auto_approves_at)
    };
    claimed_run.append_ok(batch).await;
    assert_eq!(due(&fixture, 9).await.len(), 2);
    assert_eq!(approves_at().await, Some(fixture.harness.clock.now().plus(Millis(10))));
    assert_appended(&fixture.append_outside(claimed_run.run, stop).await);
    assert_eq!(due(&fixture, 9).await, [other]);
    assert_eq!(approves_at().await, None);
}

/// A timer that is armed again is moved; there are never two with the same id.
pub async fn a_timer_set_again_moves(fixture: StoreFixture) {
    let mut claimed_run = fixture.open_and_claim(|_| {}).await;
    let timer = fixture.ids.timer();
    let start = fixture.harness.clock.now();
    for delay in [30, 10, 20] {
        claimed_run.change(arm_timer(timer, claimed_run.run, Millis(delay))).await;
    }
    assert_eq!(next_due(&fixture).await, Some(start.plus(Millis(20))));
    fixture.advance(Millis(40));
    assert_eq!(due(&fixture, 9).await, [timer]);
    claimed_run.change(spend_timer(timer)).await;
    assert_eq!(due(&fixture, 9).await, []);
    let now = RowChange::SetTimer(TimerUpdate::Arm {
        timer,
        run: claimed_run.run,
        due: TimerDueTime::Now,
        kind: TimerKind::Wake,
    });
    assert_appended(&claimed_run.change(now).await);
    assert_eq!(due(&fixture, 9).await, [timer]);
}

/// A due timer of an ended or unknown run says so.
pub async fn a_timer_of_an_ended_run_says_so(fixture: StoreFixture) {
    let mut claimed_run = fixture.open_and_claim(|_| {}).await;
    let unknown = fixture.ids.run();
    let [own, others] = [fixture.ids.timer(), fixture.ids.timer()];
    let batch = end_batch()
        .with_change(arm_timer(own, claimed_run.run, Millis(1)))
        .with_change(arm_timer(others, unknown, Millis(2)));
    claimed_run.append_ok(batch).await;
    fixture.advance(Millis(2));
    let rows = fixture.harness.records.due_timers(9).await.expect("due");
    let targets: Vec<(RunId, bool)> = rows.iter().map(|row| (row.run, row.run_ended)).collect();
    assert_eq!(targets, [(claimed_run.run, true), (unknown, true)]);
    // The sweep consumes the timer of the ended run without an event.
    assert_appended(&fixture.append_outside(claimed_run.run, change_batch(spend_timer(own))).await);
    assert_eq!(due(&fixture, 9).await, [others]);
    // So does it with the timer of a run that was deleted. Nothing else can be appended to it.
    let result = fixture.append_outside(unknown, fire_timer_batch(others)).await;
    assert_eq!(result, AppendResult::RunNotFound);
    assert_appended(&fixture.append_outside(unknown, change_batch(spend_timer(others))).await);
    assert_eq!(due(&fixture, 9).await, []);
    let result = fixture.append_outside(unknown, change_batch(spend_timer(others))).await;
    assert_eq!(refused(result), AppendRefusalReason::TimerConsumed);
}

/// A run with a start time is parked until its timer fires.
pub async fn a_run_with_a_start_time_waits_for_it(fixture: StoreFixture) {
    let worker = fixture.worker().await;
    let at = fixture.harness.clock.now().plus(Millis(50));
    let run = fixture.open(|task| task.start = EarliestStart::At(at)).await;
    fixture.assert_status(run, Status::Pending, "start_at").await;
    assert!(fixture.try_claim_one(worker).await.is_none());
    assert_eq!(next_due(&fixture).await, Some(at));
    fixture.advance(Millis(50));
    let rows = fixture.harness.records.due_timers(9).await.expect("due");
    assert_eq!((rows[0].run, &rows[0].kind), (run, &TimerKind::Start));
    assert_appended(&fixture.append_outside(run, fire_timer_batch(rows[0].timer)).await);
    fixture.assert_status(run, Status::Pending, "worker").await;
    assert_eq!(fixture.claim_one(worker).await.run, run);
}

/// A run of a sequential batch is parked until the previous run ends and its turn timer fires.
pub async fn a_run_of_a_batch_waits_for_its_turn(fixture: StoreFixture) {
    let worker = fixture.worker().await;
    let batch = fixture.ids.batch();
    let in_batch = |start| {
        move |task: &mut longhaul_core::task::TaskSpec| {
            task.batch =
                Some(RunBatchPosition { id: batch, mode: RunBatchMode::Sequential, next: None });
            task.start = start;
        }
    };
    let first = fixture.open(in_batch(EarliestStart::Now)).await;
    let second = fixture.open(in_batch(EarliestStart::AfterBatch)).await;
    fixture.assert_status(second, Status::Pending, "batch").await;
    fixture.assert_consistent().await;
    let mut claimed_run = fixture.claim_one(worker).await;
    assert_eq!(claimed_run.run, first);
    assert!(fixture.try_claim_one(worker).await.is_none());
    let timer = fixture.ids.timer();
    let arm = RowChange::SetTimer(TimerUpdate::Arm {
        timer,
        run: second,
        due: TimerDueTime::Now,
        kind: TimerKind::BatchNext(batch),
    });
    claimed_run.append_ok(end_batch().with_change(arm)).await;
    assert_eq!(due(&fixture, 9).await, [timer]);
    assert_appended(&fixture.append_outside(second, fire_timer_batch(timer)).await);
    assert_eq!(fixture.claim_one(worker).await.run, second);
    let list = async |batch| fixture.harness.records.runs_of_batch(batch).await.expect("runs");
    assert_eq!(list(batch).await, [first, second]);
    assert_eq!(list(fixture.ids.batch()).await, []);
}

async fn due(fixture: &StoreFixture, limit: usize) -> Vec<TimerId> {
    let rows = fixture.harness.records.due_timers(limit).await.expect("due");
    rows.into_iter().map(|row| row.timer).collect()
}

async fn next_due(fixture: &StoreFixture) -> Option<Timestamp> {
    fixture.harness.records.next_timer_due().await.expect("next due")
}
