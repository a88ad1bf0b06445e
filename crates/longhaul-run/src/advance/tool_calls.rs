//! Advances the tool calls of a reply: evaluates the approval rules, starts calls and records
//! results.
//!
//! Invariant: no call starts while a gate of an earlier call is open, and a call that must run
//! alone never runs beside another one.

use longhaul_core::event::Event;
use longhaul_core::event::environment::BudgetReached;
use longhaul_core::event::steer::SteerDelivery;
use longhaul_core::id::GateId;
use longhaul_core::policy::budget::BudgetCap;
use longhaul_core::policy::effect::InDoubtPolicy;
use longhaul_core::policy::gate::{GateKind, GateSpec};
use longhaul_core::wait::WaitReason;

use crate::advance::call_events::{
    complete_call, fail_call, record_call_result, record_call_start, use_approvals,
};
use crate::advance::children::{
    children_to_start, is_run_agent_call, may_run_with_earlier, startable_children,
};
use crate::advance::effect_keys::{claim_key, handle_claimed_key, may_claim_key, wait_for_keys};
use crate::advance::finish;
use crate::advance::gates::{evaluate_call, raise_in_doubt_gate};
use crate::advance::park::{block_run, park_run, park_with_timer};
use crate::advance::sandbox::{
    has_call_waiting_for_sandbox, must_open_sandbox, must_save_workspace, waits_for_sandbox,
};
use crate::advance::steer::answer_question_with_steer;
use crate::advance::suspension::{raise_question_gates, record_call_resumption};
use crate::decision::{AdvanceResult, BREAK, CONTINUE, Decision, RecordResult, StepResult};
use crate::policy::{FINISH, in_doubt};
use crate::rejection::Rejection;
use crate::state::call::{ToolCallState, TrackedCall};

/// Maximum number of tool calls of a run that are executed in parallel.
const PARALLEL_CALLS_MAX: usize = 8;

/// Maximum number of times that a tool call that may be repeated is started, or continued if it is
/// suspended. Without a limit, a call that kills its worker would be started forever.
const STARTS_MAX: u32 = 16;

const TOO_MANY_STARTS: &str =
    "not run again: its worker died each of the 16 times that it was started";
const SKIPPED: &str = "not run: a person sent a message before it started";
const TURN_LIMIT_REACHED: &str =
    "not run: this was the last allowed turn, so the result could not be used";
const WITHDRAWN: &str = "withdrawn: a person sent a message";
const WAIT_INTERRUPTED: &str = "the wait ended early: a person sent a message";
const WAIT_ELAPSED: &str = "the wait is over";

pub(super) fn advance_tool_calls(decision: &mut Decision<'_>) -> AdvanceResult {
    apply_steers_to_calls(decision)?;
    skip_calls_of_last_turn(decision)?;
    for call in calls_where(decision, |call| call.state == ToolCallState::Unevaluated) {
        evaluate_call(decision, &call)?;
    }
    record_ready_call_results(decision)?;
    raise_question_gates(decision)?;
    if let Some(flow) = apply_in_doubt(decision)? {
        return Ok(flow);
    }
    start_ready_tool_calls(decision)?;
    if decision.control.running_tools().is_none() {
        return CONTINUE;
    }
    let has_call = |predicate: fn(&ToolCallState) -> bool| {
        let mut calls = decision.control.calls().iter();
        calls.any(|call| predicate(&call.state))
    };
    // A call whose key belongs to a call in doubt is in doubt since it was about to start.
    let has_result_to_record = has_call(|state| {
        let in_doubt = matches!(state, ToolCallState::InDoubt { can_verify: false, .. });
        in_doubt || matches!(state, ToolCallState::ResultReady { .. })
    });
    let has_call_to_verify =
        has_call(|state| matches!(state, ToolCallState::InDoubt { can_verify: true, .. }));
    let has_call_for_engine = must_open_sandbox(&decision.control)
        || startable_children(&decision.control).next().is_some()
        || decision.control.calls_to_give_up().next().is_some();
    match (
        has_result_to_record,
        decision.control.has_running_call() || has_call_to_verify || has_call_for_engine,
    ) {
        (true, _) => CONTINUE,
        (false, true) => BREAK,
        (false, false) if must_save_workspace(&decision.control) => BREAK,
        (false, false)
            if next_startable_tool_call(decision).is_some()
                || children_to_start(&decision.control).next().is_some()
                || has_call_waiting_for_sandbox(&decision.control) =>
        {
            park_until_budget_is_raised(decision)
        }
        (false, false) => park_waiting_calls(decision),
    }
}

/// Returns copies of the current reply's tool calls that match `predicate`.
fn calls_where(
    decision: &Decision<'_>,
    predicate: impl Fn(&TrackedCall) -> bool,
) -> Vec<TrackedCall> {
    let calls = decision.control.calls().iter();
    calls.filter(|call| predicate(call)).cloned().collect()
}

/// Skips the tool calls of the last allowed turn, because no model would read their results. No
/// call is skipped if one of them is `finish`.
fn skip_calls_of_last_turn(decision: &mut Decision<'_>) -> RecordResult {
    let control = &decision.control;
    let is_last_turn = control.has_used_all_turns();
    let is_valid_finish = |call: &TrackedCall| {
        call.classification.tool.as_str() == FINISH && call.classification.problem.is_none()
    };
    if !is_last_turn || !calls_where(decision, is_valid_finish).is_empty() {
        return Ok(());
    }
    let is_unstarted =
        |call: &TrackedCall| call.state == ToolCallState::Unevaluated && call.starts == 0;
    calls_where(decision, is_unstarted)
        .iter()
        .try_for_each(|call| fail_call(decision, call.id, TURN_LIMIT_REACHED))
}

/// Applies queued messages to the tool calls that are not done: a message may answer a question,
/// skip calls, withdraw gates or end a wait.
#[expect(clippy::wildcard_enum_match_arm, reason = "a message does not change calls at work")]
fn apply_steers_to_calls(decision: &mut Decision<'_>) -> RecordResult {
    let has_steer =
        |delivery| decision.control.people.steers.iter().any(|steer| steer.delivery == delivery);
    let is_interrupted = has_steer(SteerDelivery::Interrupt);
    let skips_calls = is_interrupted || has_steer(SteerDelivery::BeforeNextTool);
    let has_new_message = skips_calls || has_steer(SteerDelivery::AfterBatch);
    if !has_new_message {
        return Ok(());
    }
    // The oldest messages that arrived after open questions answer them.
    while answer_question_with_steer(decision)? {}
    // The tool of a call that another system works for is told first that the run gives it up.
    for call in calls_where(decision, |call| !call.is_done() && !call.must_cancel_remote()) {
        match call.state {
            ToolCallState::Unevaluated
            | ToolCallState::Ready
            | ToolCallState::AwaitingKey { .. }
                if skips_calls && call.starts == 0 =>
            {
                fail_call(decision, call.id, SKIPPED)?;
            }
            ToolCallState::Gated(gate) if is_interrupted => {
                decision.withdraw_gate(gate, "a person sent a message")?;
                fail_call(decision, call.id, WITHDRAWN)?;
            }
            ToolCallState::AwaitingAnswer(gate)
                if is_interrupted && is_gate_withdrawn_by_message(decision, gate) =>
            {
                decision.withdraw_gate(gate, "a person sent a message")?;
                fail_call(decision, call.id, WITHDRAWN)?;
            }
            ToolCallState::Sleeping(_) => {
                complete_call(decision, call.id, WAIT_INTERRUPTED)?;
            }
            ToolCallState::AwaitingChild(child) if is_interrupted => {
                let text =
                    format!("{WAIT_INTERRUPTED}; {child} continues, and you are told when it ends");
                complete_call(decision, call.id, text)?;
            }
            ToolCallState::Pending(_) | ToolCallState::InputRequired if is_interrupted => {
                fail_call(decision, call.id, WITHDRAWN)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns whether an interrupting message withdraws the gate: a wait for a signal (an outside
/// event), or a question that the message does not answer.
fn is_gate_withdrawn_by_message(decision: &Decision<'_>, gate: GateId) -> bool {
    let open = decision.control.find_open_gate(gate);
    open.is_some_and(|open| matches!(open.kind, GateKind::Signal | GateKind::Question))
}

/// Records the results of tool calls that are known but not in the journal yet: results that have
/// arrived, elapsed waits, and errors of calls that were started too often. Withdraws the gates of
/// calls whose result has arrived.
fn record_ready_call_results(decision: &mut Decision<'_>) -> RecordResult {
    let calls_with_result =
        calls_where(decision, |call| matches!(call.state, ToolCallState::ResultReady { .. }));
    for call in &calls_with_result {
        let open_gate =
            decision.control.people.gates.iter().find(|gate| gate.call == Some(call.id));
        if let Some(gate) = open_gate.map(|gate| gate.id) {
            decision.withdraw_gate(gate, "the result has arrived")?;
        }
        if let ToolCallState::ResultReady { output, is_error } = call.state.clone() {
            record_call_result(decision, call.id, output, is_error)?;
        }
    }
    for call in calls_where(
        decision,
        |call| matches!(call.state, ToolCallState::Sleeping(sleep) if sleep.fired),
    ) {
        complete_call(decision, call.id, WAIT_ELAPSED)?;
    }
    let current_epoch = decision.control.driver.epoch;
    for call in calls_where(decision, |call| {
        matches!(call.state, ToolCallState::Started(epoch) if epoch < current_epoch)
            && call.suspended.as_ref().map_or(call.starts, |call| call.resumes) >= STARTS_MAX
    }) {
        fail_call(decision, call.id, TOO_MANY_STARTS)?;
    }
    Ok(())
}

/// Applies the in-doubt policy to calls in doubt (outcome unknown) whose tool can't verify whether
/// they took effect. Returns a `ControlFlow` if the run must fail, now or after its running calls.
/// `None` means that the run continues.
fn apply_in_doubt(decision: &mut Decision<'_>) -> StepResult {
    for call in calls_where(decision, |call| {
        matches!(call.state, ToolCallState::InDoubt { can_verify: false, .. })
    }) {
        let ToolCallState::InDoubt { policy, reason, .. } = &call.state else { continue };
        let reason = reason.as_deref();
        match policy {
            InDoubtPolicy::Tell => {
                let text = match call.starts {
                    0 => in_doubt::result_text_not_started(reason),
                    _ => in_doubt::result_text_in_doubt(reason),
                };
                fail_call(decision, call.id, text)?;
            }
            InDoubtPolicy::Ask => raise_in_doubt_gate(decision, &call, reason)?,
            InDoubtPolicy::Fail if decision.control.has_running_call() => {
                return BREAK.map(Some);
            }
            InDoubtPolicy::Fail => {
                let error = in_doubt::in_doubt_error(&call, reason);
                return finish::fail_run(decision, error).map(Some);
            }
        }
    }
    Ok(None)
}

/// Parks a run whose active time is used up, until its budget is raised. Calls that have not
/// started are kept.
fn park_until_budget_is_raised(decision: &mut Decision<'_>) -> AdvanceResult {
    let cap = BudgetCap::ActiveTime;
    if !decision.control.budget.is_active_time_used_up() {
        decision.record_event(Event::BudgetReached(BudgetReached::of_run(cap)))?;
    }
    park_run(decision, WaitReason::Budget(cap))
}

/// Starts every tool call that may start now. No call starts once the active time is used up.
fn start_ready_tool_calls(decision: &mut Decision<'_>) -> RecordResult {
    while decision.control.has_active_time_left()
        && let Some(call) = next_startable_tool_call(decision)
    {
        if handle_claimed_key(decision, &call)? {
            continue;
        }
        claim_key(decision, &call);
        if record_call_resumption(decision, &call)? {
            continue;
        }
        let has_approvals = !decision.control.people.approvals.is_empty();
        let is_covered = has_approvals || !call.classification.approvals.is_empty();
        if is_covered && call.state == ToolCallState::Unevaluated {
            use_approvals(decision, &call)?;
        }
        record_call_start(decision, &call, None, None)?;
    }
    Ok(())
}

fn next_startable_tool_call(decision: &Decision<'_>) -> Option<TrackedCall> {
    let control = &decision.control;
    let calls = control.calls();
    let running = calls.iter().filter(|call| call.is_running_under_claim(control.driver.epoch));
    if running.count() >= PARALLEL_CALLS_MAX {
        return None;
    }
    // The rules have been evaluated: a call without a gate is allowed.
    let mut indexed = calls.iter().enumerate();
    let (_, ready) = indexed.find(|(index, call)| {
        call.may_start_under_claim(control.driver.epoch)
            && !is_run_agent_call(call)
            && !waits_for_sandbox(control, call)
            && may_claim_key(decision, call)
            && !control.calls_to_give_up().any(|abandoned| abandoned.id == call.id)
            && may_run_with_earlier(&calls[..*index], call)
    })?;
    Some(ready.clone())
}

/// Parks the run while no tool call is running. The run waits for all open approvals, or else for
/// the first other gate, child run, timer or effect key.
fn park_waiting_calls(decision: &mut Decision<'_>) -> AdvanceResult {
    let holder = wait_for_keys(decision);
    let open: Vec<GateSpec> = calls_where(decision, |call| call.gate().is_some())
        .iter()
        .filter_map(|call| decision.control.find_open_gate(call.gate()?).cloned())
        .collect();
    let approvals: Vec<_> =
        open.iter().filter(|gate| gate.kind == GateKind::Approval).map(|gate| gate.id).collect();
    if !approvals.is_empty() {
        return park_run(decision, WaitReason::Approval(approvals));
    }
    if let Some(gate) = open.first() {
        return match gate.kind {
            GateKind::Blocked => block_run(decision, gate.id, &gate.ask),
            GateKind::Signal => park_run(decision, WaitReason::Signal(gate.id)),
            GateKind::Question | GateKind::InDoubt | GateKind::Approval | GateKind::Result => {
                park_run(decision, WaitReason::Question(gate.id))
            }
        };
    }
    for call in calls_where(decision, |call| !call.is_done()) {
        if let ToolCallState::AwaitingChild(child) = call.state {
            return park_run(decision, WaitReason::Child(child));
        }
        if let ToolCallState::Sleeping(sleep) = call.state {
            return park_with_timer(decision, WaitReason::Timer(sleep.until), sleep.timer);
        }
        if let ToolCallState::Pending(poll) = call.state {
            return park_with_timer(decision, WaitReason::Tool(poll.until), poll.timer);
        }
    }
    if let Some(holder) = holder {
        return park_run(decision, WaitReason::Key(holder));
    }
    Err(Rejection::InvalidState { input: "a wait without a reason", stage: "running tools" })
}
