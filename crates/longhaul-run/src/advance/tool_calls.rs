//! The calls of a reply: judged together, begun in order, settled one by one.
//!
//! Never: begins a call that a gate before it holds, or one that must stand
//! alone beside another.

use std::ops::ControlFlow;

use longhaul_core::event::Event;
use longhaul_core::event::steer::Delivery;
use longhaul_core::event::tool::{ToolOutput, ToolStarted};
use longhaul_core::id::{CallId, GateId};
use longhaul_core::policy::effect::InDoubtPolicy;
use longhaul_core::policy::gate::{GateKind, GateSpec};
use longhaul_core::status::{RunError, Wait};

use crate::advance::call_events::record_call_result;
use crate::advance::call_order::may_start_after;
use crate::advance::finish;
use crate::advance::gates::{evaluate_call, raise_in_doubt_gate};
use crate::advance::park::{park, park_blocked, park_until};
use crate::advance::steer::answer_with_oldest;
use crate::decision::DecisionBuilder;
use crate::policy::control_tool_names::FINISH;
use crate::policy::in_doubt;
use crate::rejection::Rejection;
use crate::state::call::{Call, CallState};
use crate::state::control::Control;

/// So many calls of a reply are under way at once.
const PARALLEL_CALLS_MAX: usize = 8;

/// A call that may be repeated is begun so often at most. One that kills its
/// worker would otherwise be begun for ever.
const STARTS_MAX: u32 = 16;

const TOO_MANY_STARTS: &str =
    "not run again: its worker died each of the 16 times that it was begun";
const SKIPPED: &str = "not run: a person wrote before it began";
const TURN_LIMIT_REACHED: &str =
    "not run: the run has made all the turns it may make, and nobody would read it";
const WITHDRAWN: &str = "withdrawn: a person wrote";
const WAIT_INTERRUPTED: &str = "the wait ended early: a person wrote";
const WAIT_ELAPSED: &str = "the time has come";

pub(super) fn advance_tools(draft: &mut DecisionBuilder<'_>) -> Result<ControlFlow<()>, Rejection> {
    apply_steers(draft)?;
    skip_calls_of_last_turn(draft)?;
    for call in select_calls(draft, |call| call.state == CallState::Unevaluated) {
        evaluate_call(draft, &call)?;
    }
    settle_calls(draft)?;
    if let Some(gone) = handle_in_doubt(draft)? {
        return Ok(gone);
    }
    start_ready(draft)?;
    if draft.control.running_tools().is_none() {
        return Ok(ControlFlow::Continue(()));
    }
    let has = |wanted: fn(&CallState) -> bool| {
        let mut calls = draft.control.calls().iter();
        calls.any(|call| wanted(&call.state))
    };
    let settling = has(|state| matches!(state, CallState::ResultReady { .. }));
    let looking = has(|state| matches!(state, CallState::InDoubt { can_verify: true, .. }));
    match (settling, draft.control.is_busy() || looking) {
        (true, _) => Ok(ControlFlow::Continue(())),
        (false, true) => Ok(ControlFlow::Break(())),
        (false, false) => park_for_calls(draft),
    }
}

/// The calls that `wanted` picks, as they stand now.
fn select_calls(draft: &DecisionBuilder<'_>, wanted: impl Fn(&Call) -> bool) -> Vec<Call> {
    let calls = draft.control.calls().iter();
    calls.filter(|call| wanted(call)).cloned().collect()
}

/// What the last turn calls would be done for nobody, unless it ends the run as well.
fn skip_calls_of_last_turn(draft: &mut DecisionBuilder<'_>) -> Result<(), Rejection> {
    let control = &draft.control;
    let is_last = control.policy.max_turns.is_some_and(|max| control.turns >= max);
    let ends = |call: &Call| {
        call.classification.tool.as_str() == FINISH && call.classification.problem.is_none()
    };
    if !is_last || !select_calls(draft, ends).is_empty() {
        return Ok(());
    }
    let unbegun = |call: &Call| call.state == CallState::Unevaluated && call.starts == 0;
    select_calls(draft, unbegun).iter().try_for_each(|call| {
        record_call_result(draft, call.id, ToolOutput::text(TURN_LIMIT_REACHED), true)
    })
}

/// What people wrote changes what is left to do.
fn apply_steers(draft: &mut DecisionBuilder<'_>) -> Result<(), Rejection> {
    let wants = |delivery| draft.control.steers.iter().any(|steer| steer.delivery == delivery);
    let interrupt = wants(Delivery::Interrupt);
    let before_next = interrupt || wants(Delivery::BeforeNextTool);
    let spoken_to = before_next || wants(Delivery::AfterBatch);
    if !spoken_to {
        return Ok(());
    }
    answer_questions(draft)?;
    for call in select_calls(draft, |call| !call.is_done()) {
        match call.state {
            CallState::Unevaluated | CallState::Ready if before_next && call.starts == 0 => {
                record_call_result(draft, call.id, ToolOutput::text(SKIPPED), true)?;
            }
            CallState::Gated(gate) if interrupt => {
                draft.withdraw(gate, "a person wrote")?;
                record_call_result(draft, call.id, ToolOutput::text(WITHDRAWN), true)?;
            }
            CallState::AwaitingAnswer(gate) if interrupt && waits_for_signal(draft, gate) => {
                draft.withdraw(gate, "a person wrote")?;
                record_call_result(draft, call.id, ToolOutput::text(WITHDRAWN), true)?;
            }
            CallState::Sleeping(_) => {
                record_call_result(draft, call.id, ToolOutput::text(WAIT_INTERRUPTED), false)?;
            }
            CallState::Unevaluated
            | CallState::Ready
            | CallState::Gated(_)
            | CallState::Started(_)
            | CallState::InDoubt { .. }
            | CallState::AwaitingAnswer(_)
            | CallState::AwaitingChild(_)
            | CallState::ResultReady { .. }
            | CallState::Done { .. } => {}
        }
    }
    Ok(())
}

/// Messages that came while somebody was asked are the answers, in order.
fn answer_questions(draft: &mut DecisionBuilder<'_>) -> Result<(), Rejection> {
    while let Some(call) = draft.control.question_call() {
        let asked = select_calls(draft, |asked| asked.id == call);
        if !answer_with_oldest(draft)? {
            break;
        }
        if let Some(gate) = asked.first().and_then(Call::gate) {
            draft.withdraw(gate, "a person wrote instead")?;
        }
    }
    Ok(())
}

fn waits_for_signal(draft: &DecisionBuilder<'_>, gate: GateId) -> bool {
    let open = draft.control.open_gate(gate);
    open.is_some_and(|open| open.kind == GateKind::Signal)
}

/// Writes down what is known, and takes back questions that nobody needs answered.
fn settle_calls(draft: &mut DecisionBuilder<'_>) -> Result<(), Rejection> {
    let settled = select_calls(draft, |call| matches!(call.state, CallState::ResultReady { .. }));
    for call in &settled {
        let idle = draft.control.gates.iter().find(|gate| gate.call == Some(call.id));
        if let Some(gate) = idle.map(|gate| gate.id) {
            draft.withdraw(gate, "the result came")?;
        }
        if let CallState::ResultReady { output, is_error } = call.state.clone() {
            record_call_result(draft, call.id, output, is_error)?;
        }
    }
    for call in
        select_calls(draft, |call| matches!(call.state, CallState::Sleeping(sleep) if sleep.fired))
    {
        record_call_result(draft, call.id, ToolOutput::text(WAIT_ELAPSED), false)?;
    }
    let alive = draft.control.epoch;
    for call in select_calls(draft, |call| {
        matches!(call.state, CallState::Started(epoch) if epoch < alive)
            && call.starts >= STARTS_MAX
    }) {
        record_call_result(draft, call.id, ToolOutput::text(TOO_MANY_STARTS), true)?;
    }
    Ok(())
}

/// Does what the policy says about calls whose outcome nobody can find out.
fn handle_in_doubt(draft: &mut DecisionBuilder<'_>) -> Result<Option<ControlFlow<()>>, Rejection> {
    for call in select_calls(draft, |call| {
        matches!(call.state, CallState::InDoubt { can_verify: false, .. })
    }) {
        let CallState::InDoubt { policy: then, reason: why, .. } = &call.state else {
            continue;
        };
        let why = why.as_deref();
        match then {
            InDoubtPolicy::Tell => {
                let output = ToolOutput::text(in_doubt::in_doubt_result(why));
                record_call_result(draft, call.id, output, true)?;
            }
            InDoubtPolicy::Ask => raise_in_doubt_gate(draft, &call, why)?,
            InDoubtPolicy::Fail if draft.control.is_busy() => {
                return Ok(Some(ControlFlow::Break(())));
            }
            InDoubtPolicy::Fail => {
                let words = format!(
                    "{} {} was begun, and its outcome is unknown{}",
                    call.classification.tool,
                    call.id,
                    in_doubt::reason_suffix(why)
                );
                let hint = "look whether it has happened, then retry the run";
                return finish::fail(draft, RunError::new("in_doubt", words, hint)).map(Some);
            }
        }
    }
    Ok(None)
}

/// Begins every call whose time has come.
fn start_ready(draft: &mut DecisionBuilder<'_>) -> Result<(), Rejection> {
    while let Some((call, attempt)) = next_ready(&draft.control) {
        draft.record(Event::ToolStarted(ToolStarted { call, attempt, until: None }))?;
    }
    Ok(())
}

fn next_ready(control: &Control) -> Option<(CallId, u32)> {
    let calls = control.calls();
    let running = calls.iter().filter(|call| call.is_running_in(control.epoch));
    if running.count() >= PARALLEL_CALLS_MAX {
        return None;
    }
    // The rules were asked before: what is left without a gate is allowed.
    let mut places = calls.iter().enumerate();
    let (_, ready) = places.find(|(place, call)| {
        call.may_begin(control.epoch) && may_start_after(&calls[..*place], call)
    })?;
    Some((ready.id, ready.starts + 1))
}

/// Nothing is under way: the run waits for whoever is asked first.
fn park_for_calls(draft: &mut DecisionBuilder<'_>) -> Result<ControlFlow<()>, Rejection> {
    let open: Vec<GateSpec> = select_calls(draft, |call| call.gate().is_some())
        .iter()
        .filter_map(|call| draft.control.open_gate(call.gate()?).cloned())
        .collect();
    let approvals: Vec<_> =
        open.iter().filter(|gate| gate.kind == GateKind::Approval).map(|gate| gate.id).collect();
    if !approvals.is_empty() {
        return park(draft, Wait::Approval(approvals));
    }
    if let Some(gate) = open.first() {
        return match gate.kind {
            GateKind::Blocked => park_blocked(draft, gate.id, &gate.ask),
            GateKind::Signal => park(draft, Wait::Signal(gate.id)),
            GateKind::Question | GateKind::InDoubt | GateKind::Approval | GateKind::Result => {
                park(draft, Wait::Question(gate.id))
            }
        };
    }
    for call in select_calls(draft, |call| !call.is_done()) {
        if let CallState::AwaitingChild(child) = call.state {
            return park(draft, Wait::Child(child));
        }
        if let CallState::Sleeping(sleep) = call.state {
            return park_until(draft, Wait::Timer(sleep.until), sleep.timer);
        }
    }
    Err(Rejection::InvalidState { what: "a rest with nothing to wait for", stage: "using tools" })
}
