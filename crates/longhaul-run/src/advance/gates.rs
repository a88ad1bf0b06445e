//! Raises the gates of a run, at which it waits for a person: approvals of calls, questions, calls
//! in doubt (outcome unknown), approvals of the result and missing dependencies.

use longhaul_core::event::Event;
use longhaul_core::event::environment::ProgressReported;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::policy::gate::{GateKind, GateRule, GateSpec};
use longhaul_core::policy::gate::{GateRuleAction, ResultApprovalGate};
use longhaul_core::raw::RawJson;

use crate::advance::call_events::{record_call_result, record_wait_tool_call_start};
use crate::advance::children::{has_children_to_wait_for, record_wait_for_child};
use crate::decision::DecisionBuilder;
use crate::policy::control_tool::{ControlToolCall, parse_control_tool_call};
use crate::policy::control_tool_names::wait_timer_id;
use crate::policy::digest::{GateContent, gate_content_digest};
use crate::policy::in_doubt::in_doubt_question;
use crate::policy::rules::{
    ApprovalRuleDecision, evaluate_approval_rules, remembered_approval_pattern, required_approvals,
};
use crate::rejection::Rejection;
use crate::state::call::TrackedToolCall;

/// Evaluates the approval rules for a tool call: the call is denied, waits at a gate, or is allowed
/// to start. A call of a control tool, such as `ask_human` or `wait`, is handled here.
pub(super) fn apply_approval_rules_to_call(
    decision: &mut DecisionBuilder<'_>,
    call: &TrackedToolCall,
) -> Result<(), Rejection> {
    if let Some(problem) = &call.classification.problem {
        return record_call_result(decision, call.id, ToolOutput::text(problem.as_str()), true);
    }
    if let Some(control_call) = parse_control_tool_call(call, decision.ctx.now) {
        return handle_control_tool_call(decision, call, control_call);
    }
    match evaluate_approval_rules(&decision.control, &call.classification) {
        ApprovalRuleDecision::Allow(_) => Ok(()),
        ApprovalRuleDecision::Deny(reason) => record_call_result(
            decision,
            call.id,
            ToolOutput::text(format!("the call was denied: {reason}")),
            true,
        ),
        ApprovalRuleDecision::Ask(rule) => raise_approval_gate(decision, call, &rule),
    }
}

fn handle_control_tool_call(
    decision: &mut DecisionBuilder<'_>,
    call: &TrackedToolCall,
    control_call: ControlToolCall,
) -> Result<(), Rejection> {
    match control_call {
        ControlToolCall::Question { ask, options, schema } => {
            let gate = new_tool_call_gate(decision, call, GateKind::Question, ask);
            decision.raise_gate(GateSpec { options, schema, ..gate })
        }
        ControlToolCall::Blocked(reason) => {
            let gate = new_tool_call_gate(decision, call, GateKind::Blocked, reason);
            decision.raise_gate(gate)
        }
        ControlToolCall::WaitForSignal(name) => {
            let mut gate = new_tool_call_gate(
                decision,
                call,
                GateKind::Signal,
                format!("the run waits for the signal `{name}`"),
            );
            gate.tags = vec![name];
            decision.raise_gate(gate)
        }
        ControlToolCall::Progress { percent, message } => {
            decision
                .record_event(Event::ProgressReported(ProgressReported { percent, message }))?;
            record_call_result(decision, call.id, ToolOutput::text("noted"), false)
        }
        ControlToolCall::WaitFor(delay) => {
            decision.set_delay_timer(wait_timer_id(decision.run.id, call.id), delay);
            record_wait_tool_call_start(decision, call, decision.ctx.now.plus(delay))
        }
        ControlToolCall::WaitUntil(until) => {
            decision.set_wake_timer_at(wait_timer_id(decision.run.id, call.id), until);
            record_wait_tool_call_start(decision, call, until)
        }
        ControlToolCall::WaitForChild(child) => record_wait_for_child(decision, call, child),
        ControlToolCall::Finish(_) if has_children_to_wait_for(&decision.control) => {
            let text = "child runs of this run are open, and their results would be lost: `wait` for \
                        each of them or cancel it, then finish";
            record_call_result(decision, call.id, ToolOutput::text(text), true)
        }
        ControlToolCall::Finish(_) => record_call_result(
            decision,
            call.id,
            ToolOutput::text(
                "the run ends with this output, unless another call of this turn failed",
            ),
            false,
        ),
        ControlToolCall::Invalid(reason) => {
            record_call_result(decision, call.id, ToolOutput::text(reason), true)
        }
    }
}

/// Returns a gate for a tool call, with the deadline of questions. It has no digest, so an answer need
/// not prove which content was shown.
pub(super) fn new_tool_call_gate(
    decision: &DecisionBuilder<'_>,
    call: &TrackedToolCall,
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
fn new_tool_call_gate_with_digest(
    decision: &DecisionBuilder<'_>,
    call: &TrackedToolCall,
    kind: GateKind,
    question: String,
) -> GateSpec {
    let mut gate = new_tool_call_gate(decision, call, kind, question);
    // A call in doubt may have changed the world, so its facts don't hold any more.
    let facts = call.classification.facts.as_ref();
    gate.facts = facts.filter(|_| gate.kind == GateKind::Approval).cloned();
    // An edit adds no references, but it may have removed some.
    let input = call.arguments().to_value();
    let outputs = call.classification.outputs.iter();
    gate.outputs = outputs.filter(|output| output.is_still_in_input(&input)).cloned().collect();
    let content = GateContent {
        gate: gate.id,
        call: gate.call,
        tool: gate.tool.as_deref(),
        input: call.arguments(),
        injected_rule_match_texts: &call.classification.injected_rule_match_texts,
        outputs: &gate.outputs,
        facts: gate.facts.as_deref(),
    };
    gate.digest = Some(gate_content_digest(decision.run, &content));
    gate.input = Some(call.arguments().clone());
    gate.injected_rule_match_texts.clone_from(&call.classification.injected_rule_match_texts);
    gate
}

fn raise_approval_gate(
    decision: &mut DecisionBuilder<'_>,
    call: &TrackedToolCall,
    rule: &GateRule,
) -> Result<(), Rejection> {
    let question = match &rule.action {
        GateRuleAction::Ask(text) => text.clone(),
        GateRuleAction::Allow | GateRuleAction::Deny(_) => String::new(),
    };
    let mut gate = new_tool_call_gate_with_digest(decision, call, GateKind::Approval, question);
    gate.pattern = remembered_approval_pattern(rule);
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
pub(super) fn raise_gate_for_call_in_doubt(
    decision: &mut DecisionBuilder<'_>,
    call: &TrackedToolCall,
    reason: Option<&str>,
) -> Result<(), Rejection> {
    let question = in_doubt_question(call, reason);
    let mut gate = new_tool_call_gate_with_digest(decision, call, GateKind::InDoubt, question);
    // No timeout: nobody may decide by silence whether money was sent or not.
    gate.timeout = None;
    // To run the call again needs the same approvals as to run it.
    gate.approvers = required_approvals(&decision.control.policy.rules, &call.classification);
    decision.raise_gate(gate)
}

/// Raises a gate that asks a person to approve the run's output.
pub(super) fn raise_result_approval_gate(
    decision: &mut DecisionBuilder<'_>,
    policy: &ResultApprovalGate,
) -> Result<(), Rejection> {
    let crate::state::stage::RunStage::Concluding(concluding) = &decision.control.stage else {
        return Ok(());
    };
    let input = RawJson::from_serialize(&concluding.output);
    let id = decision.new_gate_id("result");
    let content = GateContent {
        gate: id,
        call: None,
        tool: None,
        input: &input,
        injected_rule_match_texts: &[],
        outputs: &[],
        facts: None,
    };
    let digest = gate_content_digest(decision.run, &content);
    let auto_approve = policy.auto_approve.clone();
    let auto_approve = auto_approve.filter(|_| !decision.control.result_rejected);
    decision.raise_gate(GateSpec {
        input: Some(input),
        digest: Some(digest),
        timeout: policy.timeout.unwrap_or_default().duration(),
        on_timeout: policy.on_timeout,
        auto_approve,
        approvers: policy.approvers,
        tags: policy.tags.clone(),
        ..GateSpec::new(id, GateKind::Result, policy.ask.as_str())
    })
}

/// Raises a gate that asks a person for a missing dependency, and blocks the run until the gate is
/// answered.
pub(crate) fn raise_gate_for_missing_dependency(
    decision: &mut DecisionBuilder<'_>,
    message: &str,
    tags: &[&str],
) -> Result<(), Rejection> {
    let id = decision.new_gate_id("missing");
    decision.raise_gate(GateSpec {
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        ..GateSpec::new(id, GateKind::Blocked, message)
    })?;
    crate::advance::park::block_run_at_gate(decision, id, message).map(|_| ())
}
