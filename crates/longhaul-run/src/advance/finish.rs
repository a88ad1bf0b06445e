//! Ends a run: withdraws its gates, drops its messages, creates the run of the next step of its chain,
//! and records the outcome of calls that dead drivers (async tasks that executed the run) left
//! unfinished.
//!
//! Invariants: a run never ends while a call is running, and no message disappears without an event.
//! The run of the next step is created in the transaction that ends this run, so a crash neither loses
//! a step nor starts it twice, and no other run gets the lane in between.

use longhaul_core::change::{
    BudgetHoldSettlement, OutboxRow, RowChange, RunSchedulingUpdate, SandboxRow, SteerStatus,
    SteerUpdate, TimerKind,
};
use longhaul_core::event::Event;
use longhaul_core::event::environment::{ChainStepStarted, SandboxEvent};
use longhaul_core::event::run::{RunCancelled, RunFailed};
use longhaul_core::event::steer::SteerDropped;
use longhaul_core::event::tool::ToolInDoubt;
use longhaul_core::event::turn::TurnFailed;
use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::id::{Epoch, GateId, RunId, SteerId};
use longhaul_core::policy::budget::Budget;
use longhaul_core::status::{RunError, RunOutput, Status};
use longhaul_core::task::{
    EarliestStart, InheritedSandbox, RunBatchPosition, TaskSource, TaskSpec,
};
use longhaul_core::time::Millis;
use longhaul_core::usage::BudgetAmount;

use crate::advance::children::{notify_relatives, set_notify_timer};
use crate::decision::{AdvanceResult, BREAK, Decision, RecordResult};
use crate::policy::in_doubt;
use crate::policy::rules::in_doubt_policy;
use crate::state::call::ToolCallState;
use crate::state::control::ControlState;
use crate::state::sandbox::RunSandbox;
use crate::state::stage::RunStage;
use crate::submit::new_run_from_task;

const RUN_ENDED: &str = "the run has ended";

/// Ends the run as failed, with this error.
pub(crate) fn fail_run(decision: &mut Decision<'_>, error: RunError) -> AdvanceResult {
    close_gates_and_steers(decision)?;
    let code = Some(error.code.clone());
    decision.record_event(Event::RunFailed(RunFailed { error }))?;
    mark_run_ended(decision, Status::Failed, code);
    BREAK
}

/// Ends the run as cancelled.
pub(super) fn cancel_run(decision: &mut Decision<'_>) -> AdvanceResult {
    close_gates_and_steers(decision)?;
    let cancel = decision.control.stop.cancel.as_ref();
    let reason = cancel.map(|cancel| cancel.reason.clone()).unwrap_or_default();
    let output = decision.control.output_while_open().cloned().map(Box::new);
    decision.record_event(Event::RunCancelled(RunCancelled { reason, output }))?;
    mark_run_ended(decision, Status::Cancelled, None);
    BREAK
}

/// Sets the run's scheduling row (its head) to ended, releases the lane of its root if no other run
/// of its tree (the root and its descendants) is open, and notifies related runs and, through the
/// outbox, the external inbox that the task came from. If the run's chain has a next step, the lane
/// is not released, and neither the inbox nor the next run of the batch is notified.
pub(super) fn mark_run_ended(decision: &mut Decision<'_>, status: Status, code: Option<String>) {
    let is_step = |change: &RowChange| matches!(change, RowChange::CreateStep(_));
    let is_last = !decision.batch.changes.iter().any(is_step);
    let task = &decision.run.task;
    if let Some(source) = task.source.as_ref().filter(|_| is_last) {
        decision.add_row_change(RowChange::AddOutbox(OutboxRow {
            endpoint: TaskSource::outbox_endpoint_of_inbox(&source.inbox),
            body: source.id.clone(),
        }));
    }
    let end = RunSchedulingUpdate::End { status, code, releases_lane: is_last };
    decision.add_scheduling_update(end);
    // The next run of a batch whose runs are executed one after another starts, or is cancelled if
    // this run did not complete.
    if let Some(RunBatchPosition { id, next: Some(next), .. }) = decision.run.task.batch
        && is_last
    {
        let is_completed = status == Status::Completed;
        let kind =
            if is_completed { TimerKind::BatchNext(id) } else { TimerKind::BatchStopped(id) };
        set_notify_timer(decision, next, kind);
    }
    notify_relatives(decision, status);
}

fn close_gates_and_steers(decision: &mut Decision<'_>) -> RecordResult {
    let gates: Vec<GateId> = decision.control.people.gates.iter().map(|gate| gate.id).collect();
    for gate in gates {
        decision.withdraw_gate(gate, RUN_ENDED)?;
    }
    let steers: Vec<SteerId> =
        decision.control.people.steers.iter().map(|steer| steer.id).collect();
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
pub(crate) fn record_dead_drivers_work(
    decision: &mut Decision<'_>,
    current_epoch: Option<Epoch>,
) -> RecordResult {
    let is_from_dead_driver =
        |epoch: Epoch| current_epoch.is_none_or(|current_epoch| epoch < current_epoch);
    if let RunStage::ModelRunning(running) = &decision.control.stage
        && is_from_dead_driver(running.epoch)
    {
        let (turn, attempt, hold) = (running.number, running.attempt, running.hold);
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
        decision.settle_holds(settlement, &held_caps);
    }
    let events_in_doubt = decision.control.calls().iter().filter_map(|call| {
        let ToolCallState::Started(epoch) = call.state else { return None };
        // Without a live driver no call is started again, even if it may be repeated.
        let must_end = current_epoch.is_none() || !call.may_repeat();
        (is_from_dead_driver(epoch) && must_end).then(|| ToolInDoubt {
            call: call.id,
            epoch,
            policy: in_doubt_policy(&decision.control, &call.classification),
            reason: Some(in_doubt::reason_of_lost_worker(&call.classification)),
            active: Millis::ZERO,
        })
    });
    let events_in_doubt: Vec<ToolInDoubt> = events_in_doubt.collect();
    events_in_doubt
        .into_iter()
        .try_for_each(|in_doubt| decision.record_event(Event::ToolInDoubt(in_doubt)))
}

/// Creates the run of the next step of the chain that the current run belongs to. The current run
/// is about to complete with `output`. Does nothing if the run is in no chain or is the last step.
pub(super) fn create_next_step(decision: &mut Decision<'_>, output: &RunOutput) -> RecordResult {
    let (id, task) = (decision.run.id, &decision.run.task);
    let next_position =
        task.chain.as_ref().and_then(|position| position.position_of_next_run(id, output));
    let Some((position, step)) = next_position.as_ref().and_then(|position| {
        let step = position.current_step()?;
        Some((position, step))
    }) else {
        return Ok(());
    };
    let run = RunId::derive(id.bits(), &decision.unique_id_salt("step"), decision.ctx.now);
    let mut policy = step.policy.clone();
    // The steps share a budget account, whose caps may have been raised through this run.
    let Budget { micro_usd, tokens, .. } = decision.control.budget.caps;
    policy.budget = Budget { micro_usd, tokens, ..policy.budget };
    let next = TaskSpec {
        agent: step.agent.clone(),
        definition: step.definition,
        policy,
        history: Vec::new(),
        start: EarliestStart::Now,
        parent: Some(task.root),
        retry_of: None,
        sandbox: handed_over_sandbox(&decision.control),
        chain: Some(Box::new(position.clone())),
        earlier_submitters: decision.control.submitters.names_except(task.submitter.as_deref()),
        ..TaskSpec::clone(task)
    };
    let handed_over = next.sandbox.clone();
    let started = ChainStepStarted { step: position.step, agent: step.agent.clone(), run };
    let new = new_run_from_task(run, next)?;
    decision.record_event(Event::ChainStepStarted(started))?;
    decision.add_row_change(RowChange::CreateStep(Box::new(new)));
    if let Some(sandbox) = handed_over {
        let now = decision.ctx.now;
        let row = RunSandbox::inherited(&sandbox).row(run, now);
        let row = SandboxRow { idle_since: Some(now), ..row };
        decision.add_row_change(RowChange::SetSandbox(row));
    }
    Ok(())
}

/// Returns the sandbox of the run for the next step of its chain. Commands of the next step have
/// higher epochs than those of this run.
fn handed_over_sandbox(control: &ControlState) -> Option<Box<InheritedSandbox>> {
    let RunSandbox { event, state, .. } = control.sandbox.as_deref()?.clone();
    let earlier_epochs = event.earlier_epochs.saturating_add(control.driver.epoch.0);
    let event = SandboxEvent { earlier_epochs, ..event };
    (!state.is_gone()).then(|| Box::new(InheritedSandbox { event, state }))
}
