//! Functions that record common events about tool calls, shared by the `advance` modules.

use std::sync::Arc;

use longhaul_core::change::{RowChange, UsageRow};
use longhaul_core::event::Event;
use longhaul_core::event::environment::RuleUsed;
use longhaul_core::event::tool::{ToolEnded, ToolOutput, ToolStarted};
use longhaul_core::id::{CallId, RunId};
use longhaul_core::policy::rule::RememberedApproval;
use longhaul_core::time::{Millis, Timestamp};

use crate::decision::{Decision, RecordResult};
use crate::policy::rules::{RuleDecision, apply_rules};
use crate::state::call::TrackedCall;

/// Records that a tool call failed with this text, without running a tool.
pub(crate) fn fail_call(
    decision: &mut Decision<'_>,
    call: CallId,
    text: impl Into<Arc<str>>,
) -> RecordResult {
    record_call_result(decision, call, ToolOutput::text(text), true)
}

/// Records that a tool call completed with this text, without running a tool.
pub(crate) fn complete_call(
    decision: &mut Decision<'_>,
    call: CallId,
    text: impl Into<Arc<str>>,
) -> RecordResult {
    record_call_result(decision, call, ToolOutput::text(text), false)
}

/// Records the result of a tool call that was handled without running a tool.
pub(crate) fn record_call_result(
    decision: &mut Decision<'_>,
    call: CallId,
    output: ToolOutput,
    is_error: bool,
) -> RecordResult {
    let ended = ToolEnded { call, output, active: Millis::ZERO };
    decision.record_event(if is_error {
        Event::ToolFailed(ended)
    } else {
        Event::ToolCompleted(ended)
    })
}

/// Records which remembered approvals allow a tool call to start without asking a person.
pub(crate) fn use_approvals(decision: &mut Decision<'_>, call: &TrackedCall) -> RecordResult {
    let RuleDecision::Allow(approvals) = apply_rules(&decision.control, &call.classification)
    else {
        return Ok(());
    };
    for RememberedApproval { rule, scope, by, .. } in approvals {
        decision.record_event(Event::RuleUsed(RuleUsed { rule, call: call.id, by, scope }))?;
        decision.add_row_change(RowChange::UseRule(rule));
    }
    Ok(())
}

/// Records the start of a tool call. A `wait` call ends at the time `until`, or with the run `child`.
pub(crate) fn record_call_start(
    decision: &mut Decision<'_>,
    call: &TrackedCall,
    until: Option<Timestamp>,
    child: Option<RunId>,
) -> RecordResult {
    let (call, attempt) = (call.id, call.starts + 1);
    decision.record_event(Event::ToolStarted(ToolStarted { call, attempt, until, child }))
}

/// Adds active time (time that workers spend on the run) to the run's usage without naming a model,
/// because no model was called.
pub(crate) fn add_active_time(decision: &mut Decision<'_>, active: Millis) {
    if active > Millis::ZERO {
        let row = UsageRow { active, ..UsageRow::default() };
        decision.add_row_change(RowChange::AddUsage(row));
    }
}
