//! The sandbox of a run: when the engine must open it, how its changes are recorded, and who may
//! stop it.
//!
//! Invariant: no tool call starts in a sandbox before the journal says that the sandbox runs under
//! the same claim.

use longhaul_core::change::{Blob, JournalBatch, RowChange, SandboxRow, SandboxSlot, SandboxState};
use longhaul_core::event::Event;
use longhaul_core::event::environment::{SandboxEvent, SavedFiles, WorkspaceSaved};
use longhaul_core::id::SandboxId;
use longhaul_core::policy::retry::with_jitter;
use longhaul_core::port::sandbox::SandboxError;
use longhaul_core::time::{Millis, Timestamp};
use longhaul_core::wait::WaitReason;

use crate::advance::children::{is_run_agent_call, may_run_with_earlier};
use crate::advance::gates::raise_dependency_gate;
use crate::advance::park::{park_run, park_with_timer};
use crate::decision::{Decision, RecordResult};
use crate::input::{SandboxChange, SandboxPlan};
use crate::state::call::{ToolCallState, TrackedCall};
use crate::state::control::ControlState;
use crate::state::sandbox::{RunSandbox, WorkspaceChanges};
use crate::state::stage::RunStage;

/// Delay before a sandbox is opened again after its provider has failed. Doubles with each failure.
const RETRY_DELAY_MIN: Millis = Millis::from_secs(2);
const RETRY_DELAY_MAX: Millis = Millis::from_secs(5 * 60);

/// Maximum number of failed attempts to open a sandbox before a person is asked for help.
const FAILURES_MAX: u32 = 12;

/// Returns whether the call must wait until the engine has opened the sandbox of the run.
pub(super) fn waits_for_sandbox(control: &ControlState, call: &TrackedCall) -> bool {
    let epoch = control.driver.epoch;
    let is_open = || control.sandbox.as_ref().is_some_and(|sandbox| sandbox.is_open(epoch));
    call.classification.sandboxed && call.classification.problem.is_none() && !is_open()
}

/// Returns whether the engine must open the sandbox of the run now: no call is running, and a call
/// could otherwise be started or verified.
pub(crate) fn must_open_sandbox(control: &ControlState) -> bool {
    if control.must_stop() || control.has_running_call() {
        return false;
    }
    let must_verify = control.calls().iter().any(|call| {
        matches!(call.state, ToolCallState::InDoubt { can_verify: true, .. })
            && waits_for_sandbox(control, call)
    });
    must_verify || (control.has_active_time_left() && has_call_waiting_for_sandbox(control))
}

/// Returns whether the engine must save the files of the sandbox before the run starts its next
/// turn, waits or ends.
pub(crate) fn must_save_workspace(control: &ControlState) -> bool {
    let is_open = |sandbox: &RunSandbox| sandbox.is_open(control.driver.epoch);
    control.workspace.changes == WorkspaceChanges::Unsaved
        && !control.has_running_call()
        && !control.must_stop()
        && control.sandbox.as_deref().is_some_and(is_open)
}

/// Returns whether a call could start if the sandbox of the run was open.
pub(super) fn has_call_waiting_for_sandbox(control: &ControlState) -> bool {
    let calls = control.calls();
    calls.iter().enumerate().any(|(index, call)| {
        call.may_start_under_claim(control.driver.epoch)
            && !is_run_agent_call(call)
            && waits_for_sandbox(control, call)
            && may_run_with_earlier(&calls[..index], call)
    })
}

/// Records that the sandbox is about to be created or started, or parks the run until a slot of the
/// provider is free.
pub(crate) fn open_sandbox(decision: &mut Decision<'_>, plan: SandboxPlan) -> RecordResult {
    let stopped = decision.control.sandbox.as_ref();
    let stopped = stopped.filter(|sandbox| sandbox.state == SandboxState::Stopped);
    if decision.ctx.no_sandbox_slot {
        let provider = &stopped.map_or(&plan.event, |sandbox| &sandbox.event).provider;
        decision.add_row_change(RowChange::QueueForSlot(provider.clone()));
        return park_run(decision, WaitReason::SandboxSlot).map(|_| ());
    }
    let (event, state) = match stopped {
        Some(sandbox) => {
            (SandboxEvent { reason: None, ..sandbox.event.clone() }, SandboxState::Starting)
        }
        None => {
            let salt = decision.unique_id_salt("sandbox");
            let sandbox = SandboxId::derive(decision.run.id.bits(), &salt, decision.ctx.now);
            (SandboxEvent { sandbox, ..plan.event }, SandboxState::Creating)
        }
    };
    let (sandbox, provider) = (event.sandbox, event.provider.clone());
    record_sandbox_state(decision, event, state)?;
    let capacity = plan.capacity;
    decision.add_row_change(RowChange::AcquireSlot(SandboxSlot { sandbox, provider, capacity }));
    Ok(())
}

/// Records what the engine has found out about the sandbox.
pub(crate) fn record_sandbox_change(
    decision: &mut Decision<'_>,
    change: SandboxChange,
) -> RecordResult {
    let sandbox = decision.control.sandbox.as_deref().cloned();
    let sandbox = sandbox.filter(|sandbox| sandbox.state.holds_slot());
    let Some(RunSandbox { event, state, .. }) = sandbox else {
        return Err(decision.invalid_state("a change of a sandbox"));
    };
    let with_reason = |reason| SandboxEvent { reason, ..event.clone() };
    match change {
        SandboxChange::Running { handle, isolation } => {
            let (isolation, event) = (Some(isolation), with_reason(None));
            let event = SandboxEvent { handle, isolation, ..event };
            record_sandbox_state(decision, event, SandboxState::Running)
        }
        SandboxChange::Stopped => {
            record_sandbox_state(decision, with_reason(event.reason.clone()), SandboxState::Stopped)
        }
        SandboxChange::Failed(error) => {
            let new_state = match (&error, state) {
                (SandboxError::NotFound, _) => Some(SandboxState::Lost),
                // The request may have had an effect, so the slot is kept.
                (SandboxError::Unavailable(_), _) => None,
                (_, SandboxState::Creating) => Some(SandboxState::Lost),
                (_, SandboxState::Starting) => Some(SandboxState::Stopped),
                (_, _) => None,
            };
            if let Some(state) = new_state {
                record_sandbox_state(decision, with_reason(Some(error.to_string())), state)?;
            }
            // Creating a sandbox again at once would probably fail again.
            let is_replaced = error == SandboxError::NotFound && state != SandboxState::Creating;
            if is_replaced { Ok(()) } else { wait_after_failure(decision, &error) }
        }
    }
}

/// Records what was saved of the files of the sandbox after the last turn.
pub(crate) fn record_saved_workspace(
    decision: &mut Decision<'_>,
    files: SavedFiles,
    blobs: Vec<Blob>,
) -> RecordResult {
    let turn = decision.control.turn;
    decision.add_blob_changes(blobs);
    decision.record_event(Event::WorkspaceSaved(WorkspaceSaved { turn, files }))
}

/// Parks a run whose sandbox could not be opened, until a timer or a person wakes it.
fn wait_after_failure(decision: &mut Decision<'_>, error: &SandboxError) -> RecordResult {
    let control = &decision.control;
    let failures = control.sandbox.as_ref().map_or(0, |sandbox| sandbox.failures);
    if control.must_stop() || control.has_running_call() {
        return Ok(());
    }
    let message = format!("The sandbox of the run can't be opened: {error}");
    let is_full = matches!(error, SandboxError::NoCapacity(_));
    if matches!(error, SandboxError::Refused(_)) || failures >= FAILURES_MAX && !is_full {
        return raise_dependency_gate(decision, &message, &[]);
    }
    let delay = Millis(RETRY_DELAY_MIN.0 << failures.min(16)).min(RETRY_DELAY_MAX);
    let delay = with_jitter(delay, decision.run.id, failures);
    let timer = decision.set_wake_timer("sandbox", delay);
    park_with_timer(decision, WaitReason::SandboxSlot, timer).map(|_| ())
}

/// Records a new state of the sandbox, in the journal and in its row. A state without a slot
/// releases the slot.
fn record_sandbox_state(
    decision: &mut Decision<'_>,
    event: SandboxEvent,
    state: SandboxState,
) -> RecordResult {
    let sandbox = event.sandbox;
    decision.record_event(sandbox_event(event, state))?;
    if let Some(row) = row_in_use(decision) {
        decision.add_row_change(RowChange::SetSandbox(row));
    }
    if !state.holds_slot() {
        decision.add_row_change(RowChange::ReleaseSlot(sandbox));
    }
    Ok(())
}

fn row_in_use(decision: &Decision<'_>) -> Option<SandboxRow> {
    let sandbox = decision.control.sandbox.as_ref()?;
    Some(sandbox.row(decision.run.id, decision.ctx.now))
}

/// Marks the sandbox of a run that was just parked, paused or ended as idle, so that the runtime may
/// stop it. Does nothing if a next step of the chain continues in the sandbox.
pub(crate) fn mark_idle_sandbox(decision: &mut Decision<'_>) {
    let has_ended = matches!(decision.control.stage, RunStage::Ended(_));
    let was_idle = decision.run.control.driver.is_idle();
    let was_marked = |sandbox: &RunSandbox| sandbox.is_marked_idle;
    let is_changed = |change: &RowChange| matches!(change, RowChange::SetSandbox(_));
    // A run that waits again without having used its sandbox does not restart the idle time.
    let is_unused = decision.run.control.sandbox.as_deref().is_some_and(was_marked)
        && !decision.batch.changes.iter().any(is_changed);
    if !has_ended && (was_idle || is_unused || !decision.control.driver.is_idle()) {
        return;
    }
    let is_handed_over =
        decision.batch.changes.iter().any(
            |change| matches!(change, RowChange::CreateStep(step) if step.task.sandbox.is_some()),
        );
    let now = decision.ctx.now;
    if let Some(row) = row_in_use(decision).filter(|row| !row.state.is_gone() && !is_handed_over) {
        let row = SandboxRow { idle_since: Some(now), owner_ended: has_ended, ..row };
        decision.batch.changes.retain(|change| !matches!(change, RowChange::SetSandbox(_)));
        decision.add_row_change(RowChange::SetSandbox(row));
    }
}

/// Returns the row of an idle sandbox that has reached a new state for this reason, and the changes
/// to record if the owner has not ended. The process that records them does not drive the owner.
pub fn change_idle_sandbox(
    row: &SandboxRow,
    state: SandboxState,
    (now, reason): (Timestamp, Option<String>),
) -> (SandboxRow, JournalBatch) {
    let event = SandboxEvent { reason, ..row.event.clone() };
    let row = SandboxRow { event: event.clone(), state, since: now, ..row.clone() };
    let mut changes = vec![RowChange::SetSandbox(row.clone())];
    if !state.holds_slot() {
        changes.push(RowChange::ReleaseSlot(event.sandbox));
    }
    (row, JournalBatch { events: vec![sandbox_event(event, state)], changes })
}

/// Returns the event that tells that a sandbox has reached a state.
fn sandbox_event(event: SandboxEvent, state: SandboxState) -> Event {
    match state {
        SandboxState::Creating => Event::SandboxCreating(event),
        SandboxState::Starting => Event::SandboxStarting(event),
        SandboxState::Running => Event::SandboxRunning(event),
        SandboxState::Stopping => Event::SandboxStopping(event),
        SandboxState::Stopped => Event::SandboxStopped(event),
        SandboxState::Deleted => Event::SandboxDeleted(event),
        SandboxState::Lost => Event::SandboxLost(event),
    }
}
