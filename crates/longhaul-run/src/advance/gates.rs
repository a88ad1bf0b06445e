//! Raises the gates of a run, at which it waits for a person: approvals of calls, questions, calls
//! in doubt (outcome unknown), approvals of the result and missing dependencies.

use longhaul_core::event::Event;
use longhaul_core::event::environment::ProgressReported;
use longhaul_core::policy::gate::{
    GateKind, GateRule, GateRuleAction, GateSpec, ResultApprovalGate,
};
use longhaul_core::raw::RawJson;

use crate::advance::call_events::{complete_call, fail_call, record_call_start};
use crate::advance::children::{must_wait_for_children, record_wait_for_child};
use crate::decision::{Decision, RecordResult};
use crate::policy::control_tool::{ControlToolCall, control_tool_call};
use crate::policy::digest::gate_content_digest;
use crate::policy::in_doubt::in_doubt_question;
use crate::policy::rules::{RuleDecision, apply_rules, approval_pattern, required_approvals};
use crate::policy::wait_timer_id;
use crate::state::call::TrackedCall;

/// Evaluates the approval rules for a tool call: the call is denied, waits at a gate, or is allowed
/// to start. A call of a control tool, such as `ask_human` or `wait`, is handled here.
pub(super) fn evaluate_call(decision: &mut Decision<'_>, call: &TrackedCall) -> RecordResult {
    if let Some(problem) = &call.classification.problem {
        return fail_call(decision, call.id, problem.as_str());
    }
    if let Some(control_call) = control_tool_call(call, decision.ctx.now) {
        return handle_control_tool_call(decision, call, control_call);
    }
    match apply_rules(&decision.control, &call.classification) {
        RuleDecision::Allow(_) => Ok(()),
        RuleDecision::Deny(reason) => {
            fail_call(decision, call.id, format!("the call was denied: {reason}"))
        }
        RuleDecision::Ask(rule) => raise_approval_gate(decision, call, &rule),
    }
}

fn handle_control_tool_call(
    decision: &mut Decision<'_>,
    call: &TrackedCall,
    control_call: ControlToolCall,
) -> RecordResult {
    match control_call {
        ControlToolCall::Question { ask, options, schema } => {
            let gate = new_call_gate(decision, call, GateKind::Question, ask);
            decision.raise_gate(GateSpec { options, schema, ..gate })
        }
        ControlToolCall::Blocked(reason) => {
            let gate = new_call_gate(decision, call, GateKind::Blocked, reason);
            decision.raise_gate(gate)
        }
        ControlToolCall::WaitForSignal(name) => {
            let ask = format!("the run waits for the signal `{name}`");
            let gate = new_call_gate(decision, call, GateKind::Signal, ask);
            decision.raise_gate(GateSpec { tags: vec![name], ..gate })
        }
        ControlToolCall::Progress { percent, message } => {
            let reported = ProgressReported { percent, message };
            decision.record_event(Event::ProgressReported(reported))?;
            complete_call(decision, call.id, "noted")
        }
        ControlToolCall::WaitFor(delay) => {
            decision.set_delay_timer(wait_timer_id(decision.run.id, call.id), delay);
            record_call_start(decision, call, Some(decision.ctx.now.plus(delay)), None)
        }
        ControlToolCall::WaitUntil(until) => {
            decision.set_wake_timer_at(wait_timer_id(decision.run.id, call.id), until);
            record_call_start(decision, call, Some(until), None)
        }
        ControlToolCall::WaitForChild(child) => record_wait_for_child(decision, call, child),
        ControlToolCall::Finish(_) if must_wait_for_children(&decision.control) => {
            let text = "child runs of this run are open, and their results would be lost: `wait` for \
                        each of them or cancel it, then finish";
            fail_call(decision, call.id, text)
        }
        ControlToolCall::Finish(_) => complete_call(
            decision,
            call.id,
            "the run ends with this output, unless another call of this turn failed",
        ),
        ControlToolCall::Invalid(reason) => fail_call(decision, call.id, reason),
    }
}

/// Returns a gate for a tool call, with the deadline of questions. It has no digest, so an answer need
/// not prove which content was shown.
pub(super) fn new_call_gate(
    decision: &Decision<'_>,
    call: &TrackedCall,
    kind: GateKind,
    question: String,
) -> GateSpec {
    let id = decision.new_gate_id(&call.id.to_string());
    GateSpec {
        call: Some(call.id),
        tool: Some(call.classification.tool.to_string()),
        key: call.classification.key.as_ref().map(|key| key.text.clone()),
        timeout: decision.control.policy.question_timeout.unwrap_or_default().duration(),
        ..GateSpec::new(id, kind, question)
    }
}

/// Returns a gate for a tool call, with the digest of what the gate shows: the call, its arguments
/// and its effects. An approval must include this digest, so that it applies to nothing else.
fn new_call_gate_with_digest(
    decision: &Decision<'_>,
    call: &TrackedCall,
    kind: GateKind,
    question: String,
) -> GateSpec {
    let mut gate = new_call_gate(decision, call, kind, question);
    // A call in doubt may have changed the world, so its facts don't hold any more.
    let facts = call.classification.facts.as_ref();
    gate.facts = facts.filter(|_| gate.kind == GateKind::Approval).cloned();
    // An edit adds no references, but it may have removed some.
    let input = call.arguments().to_value();
    let outputs = call.classification.outputs.iter();
    gate.outputs = outputs.filter(|output| output.is_still_in_input(&input)).cloned().collect();
    gate.input = Some(call.arguments().clone());
    gate.injected_rule_match_texts.clone_from(&call.classification.injected_rule_match_texts);
    gate.digest = Some(gate_content_digest(decision.run, &gate));
    gate
}

fn raise_approval_gate(
    decision: &mut Decision<'_>,
    call: &TrackedCall,
    rule: &GateRule,
) -> RecordResult {
    let question = match &rule.action {
        GateRuleAction::Ask(text) => text.clone(),
        GateRuleAction::Allow | GateRuleAction::Deny(_) => String::new(),
    };
    let mut gate = new_call_gate_with_digest(decision, call, GateKind::Approval, question);
    gate.pattern = approval_pattern(rule);
    gate.approvers = rule.approvers;
    gate.timeout = rule.timeout.unwrap_or_default().duration();
    gate.on_timeout = rule.on_timeout;
    gate.remind = rule.remind;
    gate.escalation.clone_from(&rule.escalation);
    gate.tags.clone_from(&rule.tags);
    decision.raise_gate(gate)
}

/// Raises a gate that asks a person about the outcome of a call in doubt (a call whose outcome is
/// unknown).
pub(super) fn raise_in_doubt_gate(
    decision: &mut Decision<'_>,
    call: &TrackedCall,
    reason: Option<&str>,
) -> RecordResult {
    let question = in_doubt_question(call, reason);
    let mut gate = new_call_gate_with_digest(decision, call, GateKind::InDoubt, question);
    // No timeout: nobody may decide by silence whether money was sent or not.
    gate.timeout = None;
    // To run the call again needs the same approvals as to run it.
    gate.approvers = required_approvals(&decision.control.policy.rules, &call.classification);
    decision.raise_gate(gate)
}

/// Raises a gate that asks a person to approve the run's output.
pub(super) fn raise_result_gate(
    decision: &mut Decision<'_>,
    policy: &ResultApprovalGate,
) -> RecordResult {
    let Some(concluding) = decision.control.concluding() else { return Ok(()) };
    let input = RawJson::from_serialize(&concluding.output);
    let id = decision.new_gate_id("result");
    let auto_approve = policy.auto_approve.clone();
    let mut gate = GateSpec {
        input: Some(input),
        auto_approve: auto_approve.filter(|_| !decision.control.result_rejected),
        timeout: policy.timeout.unwrap_or_default().duration(),
        on_timeout: policy.on_timeout,
        approvers: policy.approvers,
        tags: policy.tags.clone(),
        ..GateSpec::new(id, GateKind::Result, policy.ask.as_str())
    };
    gate.digest = Some(gate_content_digest(decision.run, &gate));
    decision.raise_gate(gate)
}

/// Raises a gate that asks a person for a missing dependency, and blocks the run until the gate is
/// answered.
pub(crate) fn raise_dependency_gate(
    decision: &mut Decision<'_>,
    message: &str,
    tags: &[&str],
) -> RecordResult {
    let id = decision.new_gate_id("missing");
    decision.raise_gate(GateSpec {
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        ..GateSpec::new(id, GateKind::Blocked, message)
    })?;
    crate::advance::park::block_run(decision, id, message).map(|_| ())
}
