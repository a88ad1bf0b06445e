//! The calls of a reply: judged together, begun in order, settled one by one.
//!
//! Never: begins a call that a gate before it holds, or one that must stand
//! alone beside another.

use longhaul_core::event::Event;
use longhaul_core::event::steer::Delivery;
use longhaul_core::event::tool::{ToolOutput, ToolStarted};
use longhaul_core::id::{CallId, GateId};
use longhaul_core::policy::effect::InDoubt;
use longhaul_core::policy::gate::{GateKind, GateSpec};
use longhaul_core::status::{Fault, Wait};

use crate::advance::call::conclude_call;
use crate::advance::close;
use crate::advance::gates::{doubt_gate, judge_call};
use crate::advance::go::Go;
use crate::advance::order::nothing_before;
use crate::advance::park::{block, park, park_until};
use crate::advance::steer::answer_with_first;
use crate::draft::Draft;
use crate::judge::doubt;
use crate::judge::names::FINISH;
use crate::refusal::Refusal;
use crate::state::call::{Call, CallState};
use crate::state::control::Control;

/// So many calls of a reply are under way at once.
const PARALLEL_MAX: usize = 8;

/// A call that may be repeated is begun so often at most. One that kills its
/// worker would otherwise be begun for ever.
const STARTS_MAX: u32 = 16;

const WORN_OUT: &str = "not run again: its worker died each of the 16 times that it was begun";
const SKIPPED: &str = "not run: a person wrote before it began";
const SPENT: &str = "not run: the run has made all the turns it may make, and nobody would read it";
const WITHDRAWN: &str = "withdrawn: a person wrote";
const WOKEN: &str = "the wait ended early: a person wrote";
const TIME_CAME: &str = "the time has come";

pub(super) fn act(draft: &mut Draft<'_>) -> Result<Go, Refusal> {
    heed_messages(draft)?;
    spare_what_nobody_reads(draft)?;
    for call in calls(draft, |call| call.state == CallState::Unjudged) {
        judge_call(draft, &call)?;
    }
    settle(draft)?;
    if let Some(gone) = doubts(draft)? {
        return Ok(gone);
    }
    start_ready(draft)?;
    if draft.control.acting().is_none() {
        return Ok(Go::On);
    }
    let has = |wanted: fn(&CallState) -> bool| {
        let mut calls = draft.control.calls().iter();
        calls.any(|call| wanted(&call.state))
    };
    let settling = has(|state| matches!(state, CallState::Settling { .. }));
    let looking = has(|state| matches!(state, CallState::Doubtful { look: true, .. }));
    match (settling, draft.control.is_busy() || looking) {
        (true, _) => Ok(Go::On),
        (false, true) => Ok(Go::Stop),
        (false, false) => rest(draft),
    }
}

/// The calls that `wanted` picks, as they stand now.
fn calls(draft: &Draft<'_>, wanted: impl Fn(&Call) -> bool) -> Vec<Call> {
    let calls = draft.control.calls().iter();
    calls.filter(|call| wanted(call)).cloned().collect()
}

/// What the last turn calls would be done for nobody, unless it ends the run as well.
fn spare_what_nobody_reads(draft: &mut Draft<'_>) -> Result<(), Refusal> {
    let control = &draft.control;
    let is_last = control
        .policy
        .max_turns
        .is_some_and(|max| control.turns >= max);
    let ends =
        |call: &Call| call.appraisal.tool.as_str() == FINISH && call.appraisal.problem.is_none();
    if !is_last || !calls(draft, ends).is_empty() {
        return Ok(());
    }
    let unbegun = |call: &Call| call.state == CallState::Unjudged && call.starts == 0;
    calls(draft, unbegun)
        .iter()
        .try_for_each(|call| conclude_call(draft, call.id, ToolOutput::text(SPENT), true))
}

/// What people wrote changes what is left to do.
fn heed_messages(draft: &mut Draft<'_>) -> Result<(), Refusal> {
    let wants = |delivery| {
        draft
            .control
            .steers
            .iter()
            .any(|steer| steer.delivery == delivery)
    };
    let interrupt = wants(Delivery::Interrupt);
    let before_next = interrupt || wants(Delivery::BeforeNextTool);
    let spoken_to = before_next || wants(Delivery::AfterBatch);
    if !spoken_to {
        return Ok(());
    }
    answer_questions(draft)?;
    for call in calls(draft, |call| !call.is_done()) {
        match call.state {
            CallState::Unjudged | CallState::Waiting if before_next && call.starts == 0 => {
                conclude_call(draft, call.id, ToolOutput::text(SKIPPED), true)?;
            }
            CallState::Gated(gate) if interrupt => {
                draft.withdraw(gate, "a person wrote")?;
                conclude_call(draft, call.id, ToolOutput::text(WITHDRAWN), true)?;
            }
            CallState::Asked(gate) if interrupt && waits_for_signal(draft, gate) => {
                draft.withdraw(gate, "a person wrote")?;
                conclude_call(draft, call.id, ToolOutput::text(WITHDRAWN), true)?;
            }
            CallState::Sleeping(_) => {
                conclude_call(draft, call.id, ToolOutput::text(WOKEN), false)?;
            }
            CallState::Unjudged
            | CallState::Waiting
            | CallState::Gated(_)
            | CallState::Started(_)
            | CallState::Doubtful { .. }
            | CallState::Asked(_)
            | CallState::Child(_)
            | CallState::Settling { .. }
            | CallState::Done { .. } => {}
        }
    }
    Ok(())
}

/// Messages that came while somebody was asked are the answers, in order.
fn answer_questions(draft: &mut Draft<'_>) -> Result<(), Refusal> {
    while let Some(call) = draft.control.question_call() {
        let asked = calls(draft, |asked| asked.id == call);
        if !answer_with_first(draft)? {
            break;
        }
        if let Some(gate) = asked.first().and_then(Call::gate) {
            draft.withdraw(gate, "a person wrote instead")?;
        }
    }
    Ok(())
}

fn waits_for_signal(draft: &Draft<'_>, gate: GateId) -> bool {
    let open = draft.control.open_gate(gate);
    open.is_some_and(|open| open.kind == GateKind::Signal)
}

/// Writes down what is known, and takes back questions that nobody needs answered.
fn settle(draft: &mut Draft<'_>) -> Result<(), Refusal> {
    let settled = calls(draft, |call| {
        matches!(call.state, CallState::Settling { .. })
    });
    for call in &settled {
        let idle = draft
            .control
            .gates
            .iter()
            .find(|gate| gate.call == Some(call.id));
        if let Some(gate) = idle.map(|gate| gate.id) {
            draft.withdraw(gate, "the result came")?;
        }
        if let CallState::Settling { output, is_error } = call.state.clone() {
            conclude_call(draft, call.id, output, is_error)?;
        }
    }
    for call in calls(
        draft,
        |call| matches!(call.state, CallState::Sleeping(sleep) if sleep.fired),
    ) {
        conclude_call(draft, call.id, ToolOutput::text(TIME_CAME), false)?;
    }
    let alive = draft.control.epoch;
    for call in calls(draft, |call| {
        matches!(call.state, CallState::Started(epoch) if epoch < alive)
            && call.starts >= STARTS_MAX
    }) {
        conclude_call(draft, call.id, ToolOutput::text(WORN_OUT), true)?;
    }
    Ok(())
}

/// Does what the policy says about calls whose outcome nobody can find out.
fn doubts(draft: &mut Draft<'_>) -> Result<Option<Go>, Refusal> {
    for call in calls(draft, |call| {
        matches!(call.state, CallState::Doubtful { look: false, .. })
    }) {
        let CallState::Doubtful { then, why, .. } = &call.state else {
            continue;
        };
        let why = why.as_deref();
        match then {
            InDoubt::Tell => {
                let output = ToolOutput::text(doubt::result(why));
                conclude_call(draft, call.id, output, true)?;
            }
            InDoubt::Ask => doubt_gate(draft, &call, why)?,
            InDoubt::Fail if draft.control.is_busy() => return Ok(Some(Go::Stop)),
            InDoubt::Fail => {
                let words = format!(
                    "{} {} was begun, and its outcome is unknown{}",
                    call.appraisal.tool,
                    call.id,
                    doubt::because(why)
                );
                let hint = "look whether it has happened, then retry the run";
                return close::fail(draft, Fault::new("in_doubt", words, hint)).map(Some);
            }
        }
    }
    Ok(None)
}

/// Begins every call whose time has come.
fn start_ready(draft: &mut Draft<'_>) -> Result<(), Refusal> {
    while let Some((call, attempt)) = next_ready(&draft.control) {
        draft.record(Event::ToolStarted(ToolStarted {
            call,
            attempt,
            until: None,
        }))?;
    }
    Ok(())
}

fn next_ready(control: &Control) -> Option<(CallId, u32)> {
    let calls = control.calls();
    let running = calls.iter().filter(|call| call.runs_under(control.epoch));
    if running.count() >= PARALLEL_MAX {
        return None;
    }
    // The rules were asked before: what is left without a gate is allowed.
    let mut places = calls.iter().enumerate();
    let (_, ready) = places.find(|(place, call)| {
        call.may_begin(control.epoch) && nothing_before(&calls[..*place], call)
    })?;
    Some((ready.id, ready.starts + 1))
}

/// Nothing is under way: the run waits for whoever is asked first.
fn rest(draft: &mut Draft<'_>) -> Result<Go, Refusal> {
    let open: Vec<GateSpec> = calls(draft, |call| call.gate().is_some())
        .iter()
        .filter_map(|call| draft.control.open_gate(call.gate()?).cloned())
        .collect();
    let approvals: Vec<_> = open
        .iter()
        .filter(|gate| gate.kind == GateKind::Approval)
        .map(|gate| gate.id)
        .collect();
    if !approvals.is_empty() {
        return park(draft, Wait::Approval(approvals));
    }
    if let Some(gate) = open.first() {
        return match gate.kind {
            GateKind::Blocked => block(draft, gate.id, &gate.ask),
            GateKind::Signal => park(draft, Wait::Signal(gate.id)),
            GateKind::Question | GateKind::InDoubt | GateKind::Approval | GateKind::Result => {
                park(draft, Wait::Question(gate.id))
            }
        };
    }
    for call in calls(draft, |call| !call.is_done()) {
        if let CallState::Child(child) = call.state {
            return park(draft, Wait::Child(child));
        }
        if let CallState::Sleeping(sleep) = call.state {
            return park_until(draft, Wait::Timer(sleep.until), sleep.timer);
        }
    }
    Err(Refusal::OutOfPlace {
        what: "a rest with nothing to wait for",
        stage: "using tools",
    })
}
