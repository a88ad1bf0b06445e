//! Gates that a run raises: before a call, for words, in doubt, for its result.
//!
//! Never: awaits one.

use longhaul_core::event::Event;
use longhaul_core::event::environment::ProgressReported;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::policy::gate::{GATE_TIMEOUT, GateKind, GateRule, GateSpec};
use longhaul_core::policy::gate::{ResultGate, RuleAction};
use longhaul_core::raw::RawJson;

use crate::advance::call_events::{record_call_result, start_wait};
use crate::decision::DecisionBuilder;
use crate::policy::control_tool::{ControlCall, parse_control_call};
use crate::policy::digest::{FrozenContent, digest};
use crate::policy::in_doubt::in_doubt_question;
use crate::policy::rules::{PolicyDecision, evaluate, rule_pattern};
use crate::rejection::Rejection;
use crate::state::call::Call;

/// Judges one call: it is denied, asked about, granted as a wish, or left to begin.
pub(super) fn evaluate_call(draft: &mut DecisionBuilder<'_>, call: &Call) -> Result<(), Rejection> {
    if let Some(problem) = &call.classification.problem {
        return record_call_result(draft, call.id, ToolOutput::text(problem.as_str()), true);
    }
    if let Some(wish) = parse_control_call(call, draft.ctx.now) {
        return handle_control_call(draft, call, wish);
    }
    match evaluate(&draft.control, &call.classification) {
        PolicyDecision::Allow => Ok(()),
        PolicyDecision::Deny(why) => {
            record_call_result(draft, call.id, ToolOutput::text(format!("denied: {why}")), true)
        }
        PolicyDecision::Ask(rule) => raise_approval_gate(draft, call, &rule),
    }
}

fn handle_control_call(
    draft: &mut DecisionBuilder<'_>,
    call: &Call,
    wish: ControlCall,
) -> Result<(), Rejection> {
    match wish {
        ControlCall::Question { ask, options } => {
            let gate = GateSpec { options, ..gate_for_call(draft, call, GateKind::Question, ask) };
            draft.raise(gate)
        }
        ControlCall::Blocked(reason) => {
            let gate = gate_for_call(draft, call, GateKind::Blocked, reason);
            draft.raise(gate)
        }
        ControlCall::WaitForSignal(name) => {
            let mut gate =
                gate_for_call(draft, call, GateKind::Signal, format!("the signal `{name}`"));
            gate.tags = vec![name];
            draft.raise(gate)
        }
        ControlCall::Progress { percent, message } => {
            draft.record(Event::ProgressReported(ProgressReported { percent, message }))?;
            record_call_result(draft, call.id, ToolOutput::text("noted"), false)
        }
        ControlCall::WaitUntil(until) => start_wait(draft, call, until),
        ControlCall::Finish(_) => record_call_result(
            draft,
            call.id,
            ToolOutput::text("the run ends with this, unless a call beside it failed"),
            false,
        ),
        ControlCall::Invalid(why) => {
            record_call_result(draft, call.id, ToolOutput::text(why), true)
        }
    }
}

/// A gate that stands for a call, with nothing special about it.
fn gate_for_call(
    draft: &DecisionBuilder<'_>,
    call: &Call,
    kind: GateKind,
    ask: String,
) -> GateSpec {
    let id = draft.new_gate_id(&call.id.to_string());
    GateSpec {
        call: Some(call.id),
        tool: Some(call.classification.tool.to_string()),
        timeout: Some(GATE_TIMEOUT),
        ..GateSpec::new(id, kind, ask)
    }
}

/// A gate at which a call is frozen: a yes names its digest.
fn gate_with_digest(
    draft: &DecisionBuilder<'_>,
    call: &Call,
    kind: GateKind,
    ask: String,
) -> GateSpec {
    let mut gate = gate_for_call(draft, call, kind, ask);
    let frozen = FrozenContent {
        gate: gate.id,
        call: gate.call,
        tool: gate.tool.as_deref(),
        input: call.arguments(),
        injected_subjects: &call.classification.injected_subjects,
    };
    gate.digest = Some(digest(draft.run, &frozen));
    gate.input = Some(call.arguments().clone());
    gate.injected_subjects.clone_from(&call.classification.injected_subjects);
    gate
}

fn raise_approval_gate(
    draft: &mut DecisionBuilder<'_>,
    call: &Call,
    rule: &GateRule,
) -> Result<(), Rejection> {
    let ask = match &rule.action {
        RuleAction::Ask(words) => words.clone(),
        RuleAction::Allow | RuleAction::Deny(_) => String::new(),
    };
    let mut gate = gate_with_digest(draft, call, GateKind::Approval, ask);
    gate.pattern = (!rule.always).then(|| rule_pattern(rule));
    gate.approvers = rule.approvers;
    gate.timeout = Some(rule.timeout.unwrap_or(GATE_TIMEOUT));
    gate.on_timeout = rule.on_timeout;
    gate.remind = rule.remind;
    draft.raise(gate)
}

/// Asks a person what came of a call that was cut off.
pub(super) fn raise_in_doubt_gate(
    draft: &mut DecisionBuilder<'_>,
    call: &Call,
    why: Option<&str>,
) -> Result<(), Rejection> {
    let ask = in_doubt_question(&call.classification, why);
    let mut gate = gate_with_digest(draft, call, GateKind::InDoubt, ask);
    // Nobody may decide by silence that money was sent or not: it waits.
    gate.timeout = None;
    draft.raise(gate)
}

/// Asks whether the run's result is good.
pub(super) fn raise_result_gate(
    draft: &mut DecisionBuilder<'_>,
    policy: &ResultGate,
) -> Result<(), Rejection> {
    let crate::state::stage::Stage::Concluding(concluding) = &draft.control.stage else {
        return Ok(());
    };
    let input = RawJson::from_serialize(&concluding.output);
    let id = draft.new_gate_id("result");
    let frozen =
        FrozenContent { gate: id, call: None, tool: None, input: &input, injected_subjects: &[] };
    let digest = digest(draft.run, &frozen);
    draft.raise(GateSpec {
        input: Some(input),
        digest: Some(digest),
        timeout: Some(policy.timeout),
        on_timeout: policy.on_timeout,
        ..GateSpec::new(id, GateKind::Result, policy.ask.as_str())
    })
}

/// Asks for a part that is missing.
pub(crate) fn raise_blocked_gate(
    draft: &mut DecisionBuilder<'_>,
    sentence: &str,
    tags: &[&str],
) -> Result<(), Rejection> {
    let id = draft.new_gate_id("missing");
    draft.raise(GateSpec {
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        ..GateSpec::new(id, GateKind::Blocked, sentence)
    })?;
    crate::advance::park::park_blocked(draft, id, sentence).map(|_| ())
}
