//! Starts child runs, reports the end of a child to its parent, and cancels the children of a run
//! that is cancelled or fails.
//!
//! Invariants: a child run is created in the transaction that records its start. The transaction
//! that ends a child sets a timer of the parent, which reports the end. So a crash neither starts a
//! child twice nor loses its end.
//!
//! Also decides which tool calls of a reply may run in parallel and which must run in the model's order.
//! This uses only the effect classes and the rule match texts (such as paths) of the calls.

use longhaul_core::change::{RowChange, TimerDueTime, TimerKind, TimerUpdate};
use longhaul_core::event::Event;
use longhaul_core::event::environment::ChildStarted;
use longhaul_core::event::steer::SteerDelivery;
use longhaul_core::id::{CallId, RunId};
use longhaul_core::policy::ChildCancelPolicy;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::status::Status;
use longhaul_core::task::OPEN_DESCENDANTS_MAX;

use crate::advance::call_events::{fail_call, record_call_start, use_approvals};
use crate::decision::{Decision, RecordResult};
use crate::input::{NewChildRun, PreparedChildRun};
use crate::policy::RUN_AGENT;
use crate::state::call::{ToolCallState, TrackedCall};
use crate::state::control::ControlState;

/// Maximum depth of a tree of runs below its root.
pub const CHILD_DEPTH_MAX: u32 = 5;

/// Maximum number of open child runs of one run. The store limits the open runs of a root run and
/// all its descendants.
pub const CHILDREN_MAX: usize = OPEN_DESCENDANTS_MAX;

/// Returns the `run_agent` calls that may start their child runs now. Empty if the active time of
/// the run is used up.
pub(crate) fn startable_children(control: &ControlState) -> impl Iterator<Item = &TrackedCall> {
    children_to_start(control).filter(|_| control.has_active_time_left())
}

/// Returns the `run_agent` calls that may start their child runs now if the run has active time
/// left.
pub(super) fn children_to_start(control: &ControlState) -> impl Iterator<Item = &TrackedCall> {
    let calls = control.calls();
    calls.iter().enumerate().filter_map(move |(index, call)| {
        let is_new = matches!(call.state, ToolCallState::Unevaluated | ToolCallState::Ready);
        let starts_child =
            is_new && is_run_agent_call(call) && call.classification.problem.is_none();
        (starts_child && may_run_with_earlier(&calls[..index], call)).then_some(call)
    })
}

/// Returns whether the call starts a child run.
pub(super) fn is_run_agent_call(call: &TrackedCall) -> bool {
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
    let child = match (prepared.child, child_start_problem(decision)) {
        (Ok(child), None) => *child,
        (Ok(_), Some(reason)) | (Err(reason), _) => {
            return fail_call(decision, call, format!("no child run was started: {reason}"));
        }
    };
    if let Some(tracked) = decision.control.call(call).cloned()
        && tracked.state == ToolCallState::Unevaluated
    {
        use_approvals(decision, &tracked)?;
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
    call: &TrackedCall,
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
    let waits_for_child = |call: &TrackedCall| call.state == ToolCallState::AwaitingChild(child);
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
    let cancels_children = decision.control.policy.children_on_cancel == ChildCancelPolicy::Cancel;
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

/// Returns whether a call may start while earlier calls of the same reply are not done. A call
/// waits for the gates of earlier calls. A call that must run alone waits for all earlier calls,
/// and all later calls wait for it. Calls with a common rule match text, such as a path, run in
/// order if one of them changes it: with two parallel writes either text could win, and both would be
/// reported as done. Calls with the same effect key run in order, too.
pub(super) fn may_run_with_earlier(earlier: &[TrackedCall], call: &TrackedCall) -> bool {
    earlier.iter().all(|before| {
        before.is_done()
            || (!call.is_exclusive()
                && !before.is_exclusive()
                && !matches!(
                    before.state,
                    ToolCallState::Gated(_) | ToolCallState::AwaitingAnswer(_)
                )
                && !must_calls_run_in_order(before, call))
    })
}

/// Returns whether two tool calls must run in order: they have the same effect key (name of an
/// effect that must happen at most once), or a common rule match text, such as a path, that one of
/// them changes.
fn must_calls_run_in_order(first: &TrackedCall, second: &TrackedCall) -> bool {
    let has_effect = |call: &TrackedCall| call.classification.class != EffectClass::Pure;
    // The second of two calls with one effect key gets the result of the first.
    if let Some(key) = &first.classification.key
        && second.has_effect_key(key.hash)
    {
        return true;
    }
    if !has_effect(first) && !has_effect(second) {
        return false;
    }
    let second_texts = &second.classification.rule_match_texts;
    let mut first_texts = first.classification.rule_match_texts.iter();
    first_texts
        .any(|first| second_texts.iter().any(|second| rule_match_texts_overlap(first, second)))
}

/// Returns whether two texts that approval rules match, such as paths, are equal or one
/// path contains the other. A text that is the whole input as JSON never overlaps another.
fn rule_match_texts_overlap(first: &str, second: &str) -> bool {
    if [first, second].iter().any(|value| value.is_empty() || value.starts_with('{')) {
        return false;
    }
    let contains_path = |folder: &str, path: &str| {
        let relative_path = path.strip_prefix(folder);
        matches!(folder, "." | "/")
            || relative_path.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    contains_path(first, second) || contains_path(second, first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_overlaps_with_the_files_in_it() {
        for (one, other, expect) in [
            ("a.txt", "a.txt", true),
            ("a.txt", "a.txt.bak", false),
            ("a", "a/b.txt", true),
            ("a", "ab/b.txt", false),
            (".", "a/b.txt", true),
            ("/", "Tasks/Milk", true),
            ("", "", false),
            ("", "a", false),
            (".", "{}", false),
            ("{}", "{}", false),
        ] {
            assert_eq!(rule_match_texts_overlap(one, other), expect, "{one} {other}");
            assert_eq!(rule_match_texts_overlap(other, one), expect, "{other} {one}");
        }
    }
}
