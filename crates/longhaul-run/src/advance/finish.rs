//! Ends a run: withdraws its gates, drops its messages and records the outcome of calls that dead
//! drivers (async tasks that executed the run) left unfinished.
//!
//! Invariant: a run never ends while a call is running, and no message disappears without an event.

use std::ops::ControlFlow;

use longhaul_core::change::{
    BudgetHoldSettlement, OutboxRow, RowChange, RunSchedulingUpdate, SteerStatus, SteerUpdate,
    TimerDueTime, TimerKind, TimerUpdate,
};
use longhaul_core::event::Event;
use longhaul_core::event::run::{RunCancelled, RunFailed};
use longhaul_core::event::steer::SteerDropped;
use longhaul_core::event::tool::ToolInDoubt;
use longhaul_core::event::turn::TurnFailed;
use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::id::{Epoch, GateId, SteerId, TimerId};
use longhaul_core::status::{RunError, Status};
use longhaul_core::task::{RunBatchPosition, TaskSource};
use longhaul_core::time::Millis;
use longhaul_core::usage::BudgetAmount;

use crate::advance::chain::creates_next_chain_step;
use crate::advance::children::notify_parent_and_children;
use crate::decision::DecisionBuilder;
use crate::policy::in_doubt;
use crate::policy::rules::in_doubt_policy;
use crate::rejection::Rejection;
use crate::state::call::ToolCallState;
use crate::state::stage::RunStage;

const RUN_ENDED: &str = "the run has ended";

/// Ends the run as failed, with this error.
pub(crate) fn fail_run(
    decision: &mut DecisionBuilder<'_>,
    error: RunError,
) -> Result<ControlFlow<()>, Rejection> {
    withdraw_gates_and_drop_steers(decision)?;
    let code = Some(error.code.clone());
    decision.record_event(Event::RunFailed(RunFailed { error }))?;
    mark_run_ended(decision, Status::Failed, code);
    Ok(ControlFlow::Break(()))
}

/// Ends the run as cancelled.
pub(super) fn cancel_run(decision: &mut DecisionBuilder<'_>) -> Result<ControlFlow<()>, Rejection> {
    withdraw_gates_and_drop_steers(decision)?;
    let reason = decision.control.cancel.clone().unwrap_or_default();
    let output = decision.control.output_while_open().cloned().map(Box::new);
    decision.record_event(Event::RunCancelled(RunCancelled { reason, output }))?;
    mark_run_ended(decision, Status::Cancelled, None);
    Ok(ControlFlow::Break(()))
}

/// Sets the run's scheduling row (its head) to ended, releases the lane of its root if no other run
/// of its tree (the root and its descendants) is open, and notifies related runs and, through the
/// outbox, the external inbox that the task came from. If the run's chain has a next step, the lane
/// is not released, and neither the inbox nor the next run of the batch is notified.
pub(super) fn mark_run_ended(
    decision: &mut DecisionBuilder<'_>,
    status: Status,
    code: Option<String>,
) {
    let is_last = !creates_next_chain_step(decision);
    let task = &decision.run.task;
    if let Some(source) = task.source.as_ref().filter(|_| is_last) {
        decision.add_row_change(RowChange::AddOutbox(OutboxRow {
            endpoint: TaskSource::outbox_endpoint_of_inbox(&source.inbox),
            body: source.id.clone(),
        }));
    }
    decision.add_scheduling_update(RunSchedulingUpdate::End {
        status,
        code,
        releases_lane: is_last,
    });
    if is_last {
        start_or_cancel_next_batch_run(decision, status);
    }
    notify_parent_and_children(decision, status);
}

/// Sets the timer that starts the next run of a batch whose runs are executed one after another. If
/// this run did not complete, the timer cancels the next run instead.
fn start_or_cancel_next_batch_run(decision: &mut DecisionBuilder<'_>, status: Status) {
    let Some(RunBatchPosition { id, next: Some(next), .. }) = decision.run.task.batch else {
        return;
    };
    let kind = match status {
        Status::Completed => TimerKind::BatchNext(id),
        Status::Failed
        | Status::Cancelled
        | Status::Pending
        | Status::Running
        | Status::Waiting
        | Status::Blocked
        | Status::Paused => TimerKind::BatchStopped(id),
    };
    let salt = decision.unique_id_salt("batch");
    let timer = TimerId::derive(decision.run.id.bits(), &salt, decision.ctx.now);
    let timer_update = TimerUpdate::Arm { timer, run: next, due: TimerDueTime::Now, kind };
    decision.add_row_change(RowChange::SetTimer(timer_update));
}

fn withdraw_gates_and_drop_steers(decision: &mut DecisionBuilder<'_>) -> Result<(), Rejection> {
    let gates: Vec<GateId> = decision.control.gates.iter().map(|gate| gate.id).collect();
    for gate in gates {
        decision.withdraw_gate(gate, RUN_ENDED)?;
    }
    let steers: Vec<SteerId> = decision.control.steers.iter().map(|steer| steer.id).collect();
    for steer in steers {
        let reason = format!("{RUN_ENDED} before the message was read");
        decision
            .record_event(Event::SteerDropped(SteerDropped { steer, reason: reason.clone() }))?;
        let status = SteerStatus::Dropped { reason };
        decision.add_row_change(RowChange::UpdateSteer(SteerUpdate { steer, edit: None, status }));
    }
    Ok(())
}

/// Records the outcome of calls that dead drivers (async tasks that executed the run) left
/// unfinished: calls from claims with an epoch before `current_epoch`, or from any claim if
/// `current_epoch` is `None`. A model call without a result is recorded as lost, and the budget
/// reserved for it is charged. A tool call that must not be repeated becomes in doubt (outcome
/// unknown).
pub(crate) fn record_unfinished_work_of_dead_drivers(
    decision: &mut DecisionBuilder<'_>,
    current_epoch: Option<Epoch>,
) -> Result<(), Rejection> {
    let is_from_dead_driver =
        |epoch: Epoch| current_epoch.is_none_or(|current_epoch| epoch < current_epoch);
    if let RunStage::ModelRunning(running) = &decision.control.stage
        && is_from_dead_driver(running.epoch)
    {
        let (turn, attempt, hold) = (running.turn, running.attempt, running.hold);
        let held_caps = running.caps.clone();
        let failure =
            Failure::new(FailureClass::Lost, "the driver died before the reply was recorded");
        decision.record_event(Event::TurnFailed(TurnFailed {
            turn,
            attempt,
            failure,
            active: Millis::ZERO,
            charged: hold,
            cost: None,
            fallback_model: None,
        }))?;
        let settlement =
            BudgetHoldSettlement { held: hold, spent: BudgetAmount::default(), lost: hold };
        decision.settle_holds_of_model_call(settlement, &held_caps);
    }
    let events_in_doubt: Vec<ToolInDoubt> =
        decision.control.running_tools().map_or_else(Vec::new, |tools| {
            let in_doubt_events = tools.calls.iter().filter_map(|call| {
                let ToolCallState::Started(epoch) = call.state else {
                    return None;
                };
                // Without a live driver no call is started again, even if it may be repeated.
                let must_end = current_epoch.is_none() || !call.may_repeat();
                (is_from_dead_driver(epoch) && must_end).then(|| ToolInDoubt {
                    call: call.id,
                    epoch,
                    policy: in_doubt_policy(&decision.control, &call.classification),
                    reason: Some(in_doubt::in_doubt_reason_of_lost_worker(&call.classification)),
                    active: Millis::ZERO,
                })
            });
            in_doubt_events.collect()
        });
    events_in_doubt
        .into_iter()
        .try_for_each(|in_doubt| decision.record_event(Event::ToolInDoubt(in_doubt)))
}
