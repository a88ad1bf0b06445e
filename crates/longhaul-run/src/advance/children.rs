//! Starts child runs, reports the end of a child to its parent, and cancels the children of a run
//! that is cancelled or fails.
//!
//! Invariants: a child run is created in the transaction that records its start. The transaction
//! that ends a child sets a timer of the parent, which reports the end. So a crash neither starts a
//! child twice nor loses its end.

use longhaul_core::change::{RowChange, TimerDueTime, TimerKind, TimerUpdate};
use longhaul_core::event::Event;
use longhaul_core::event::environment::ChildStarted;
use longhaul_core::event::steer::SteerDelivery;
use longhaul_core::id::{CallId, RunId};
use longhaul_core::status::Status;
use longhaul_core::task::OPEN_DESCENDANTS_MAX;

use crate::advance::call_events::{fail_call, record_call_start, record_used_approvals};
use crate::advance::call_order::may_run_with_earlier;
use crate::decision::{Decision, RecordResult};
use crate::input::{NewChildRun, PreparedChildRun};
use crate::policy::control_tool_names::RUN_AGENT;
use crate::state::call::{ToolCallState, TrackedToolCall};
use crate::state::control::ControlState;

/// Maximum depth of a tree of runs below its root.
pub const CHILD_DEPTH_MAX: u32 = 5;

/// Maximum number of open child runs of one run. The store limits the open runs of a root run and
/// all its descendants.
pub const CHILDREN_MAX: usize = OPEN_DESCENDANTS_MAX;

/// Returns the `run_agent` calls that may start their child runs now. Empty if the active time of
/// the run is used up.
pub(crate) fn startable_children(control: &ControlState) -> impl Iterator<Item = &TrackedToolCall> {
    startable_children_ignoring_time(control).filter(|_| control.has_active_time_left())
}

/// Returns the `run_agent` calls that may start their child runs now if the run has active time
/// left.
pub(super) fn startable_children_ignoring_time(
    control: &ControlState,
) -> impl Iterator<Item = &TrackedToolCall> {
    let calls = control.calls();
    calls.iter().enumerate().filter_map(move |(index, call)| {
        let is_new = matches!(call.state, ToolCallState::Unevaluated | ToolCallState::Ready);
        let starts_child =
            is_new && is_run_agent_call(call) && call.classification.problem.is_none();
        (starts_child && may_run_with_earlier(&calls[..index], call)).then_some(call)
    })
}

/// Returns whether the call starts a child run.
pub(super) fn is_run_agent_call(call: &TrackedToolCall) -> bool {
    call.classification.tool.as_str() == RUN_AGENT
}

/// Returns whether the run has child runs that have not started or not ended, and at least one turn
/// left in which its model can read their results.
pub(super) fn must_wait_for_children(control: &ControlState) -> bool {
    let mut calls = control.calls().iter();
    let is_open = !control.children.is_empty()
        || calls.any(|call| is_run_agent_call(call) && !call.is_done());
    is_open && !control.has_used_all_turns()
}

/// Records the starts of prepared child runs, and the errors of those that can't start. Nothing is
/// recorded if the run has to stop or a queued message must be delivered before the next tool call.
pub(crate) fn record_prepared_children(
    decision: &mut Decision<'_>,
    prepared: Vec<PreparedChildRun>,
) -> RecordResult {
    let control = &decision.control;
    let urgent_deliveries = [SteerDelivery::Interrupt, SteerDelivery::BeforeNextTool];
    let is_stopping = control.must_stop()
        || control.people.steers.iter().any(|steer| urgent_deliveries.contains(&steer.delivery));
    for child in prepared.into_iter().filter(|_| !is_stopping) {
        if startable_children(&decision.control).any(|call| call.id == child.call) {
            record_prepared_child(decision, child)?;
        }
    }
    Ok(())
}

fn record_prepared_child(decision: &mut Decision<'_>, prepared: PreparedChildRun) -> RecordResult {
    let call = prepared.call;
    let checked_child = prepared.child.and_then(|child| match child_start_problem(decision) {
        Some(problem) => Err(problem),
        None => Ok(child),
    });
    let child = match checked_child {
        Ok(child) => *child,
        Err(reason) => {
            return fail_call(decision, call, format!("no child run was started: {reason}"));
        }
    };
    if let Some(tracked) = decision.control.call(call).cloned()
        && tracked.state == ToolCallState::Unevaluated
    {
        record_used_approvals(decision, &tracked)?;
    }
    record_child_start(decision, child, Some(call))
}

/// Records the start of a child run for a call, or of the run that grades the result.
pub(super) fn record_child_start(
    decision: &mut Decision<'_>,
    new: NewChildRun,
    call: Option<CallId>,
) -> RecordResult {
    let NewChildRun { run, definition, background } = new;
    let (child, agent) = (run.id, run.task.agent.clone());
    let started = ChildStarted { child, agent, call, background };
    decision.record_event(Event::ChildStarted(started))?;
    decision.add_row_change(RowChange::PutDefinition(definition));
    decision.add_row_change(RowChange::CreateRun(Box::new(run)));
    Ok(())
}

/// Returns the reason why the run may not start another child run. `None` means that it may.
fn child_start_problem(decision: &Decision<'_>) -> Option<String> {
    if decision.run.task.depth >= CHILD_DEPTH_MAX {
        return Some(format!(
            "this run is {CHILD_DEPTH_MAX} levels below the first run, which is the maximum; do the \
             work yourself"
        ));
    }
    if decision.control.children.len() >= CHILDREN_MAX {
        return Some(format!(
            "{CHILDREN_MAX} child runs are open, which is the maximum; wait until one of them ends"
        ));
    }
    let changes = decision.batch.changes.iter();
    let created_runs = changes.filter(|change| matches!(change, RowChange::CreateRun(_))).count();
    decision.ctx.free_children.is_some_and(|free| created_runs >= free).then(|| {
        format!(
            "{OPEN_DESCENDANTS_MAX} runs are open below the first run of this tree, which is the \
             maximum; wait until one of them ends"
        )
    })
}

/// Records that a `wait` call waits for a child run. If the child run is not open, or another call
/// already waits for it, records an error as the result of the call.
pub(super) fn record_wait_for_child(
    decision: &mut Decision<'_>,
    call: &TrackedToolCall,
    child: RunId,
) -> RecordResult {
    let mut open_children = decision.control.children.iter();
    if !open_children.any(|open| open.id == child && open.call.is_some()) {
        let text = format!(
            "{child} is not an open child run of this run: it was never started, or its result has \
             been reported"
        );
        return fail_call(decision, call.id, text);
    }
    let waits_for_child =
        |call: &TrackedToolCall| call.state == ToolCallState::AwaitingChild(child);
    if decision.control.calls().iter().any(waits_for_child) {
        let text = format!("another call of this turn waits for {child}");
        return fail_call(decision, call.id, text);
    }
    record_call_start(decision, call, None, Some(child))
}

/// Sets timers that notify other runs of this run's end: its parent, and the child runs that are
/// cancelled with it.
pub(super) fn notify_relatives(decision: &mut Decision<'_>, status: Status) {
    let id = decision.run.id;
    // A step of a chain is no child: the run before it has ended.
    let task = &decision.run.task;
    if let Some(parent) = task.parent.filter(|_| task.chain.is_none()) {
        set_notify_timer(decision, parent, TimerKind::ChildEnded(id));
    }
    if status == Status::Completed {
        return;
    }
    // Nobody needs the verdict of a grading run any more.
    let cancels_children = decision.control.policy.children_on_cancel.is_cancel();
    let children_to_notify =
        decision.control.children.iter().filter(|open| cancels_children || open.call.is_none());
    let children_to_notify: Vec<RunId> = children_to_notify.map(|open| open.id).collect();
    children_to_notify
        .into_iter()
        .for_each(|child| set_notify_timer(decision, child, TimerKind::ParentEnded(id)));
}

/// Sets a timer for another run, due immediately, in order to notify that run.
pub(super) fn set_notify_timer(decision: &mut Decision<'_>, run: RunId, kind: TimerKind) {
    let timer = decision.new_timer_id(&format!("relative:{run}"));
    let due = TimerDueTime::Now;
    decision.add_row_change(RowChange::SetTimer(TimerUpdate::Arm { timer, run, due, kind }));
}
