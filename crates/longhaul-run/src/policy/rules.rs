//! Evaluates the agent's approval rules for a tool call. The first rule that matches the call wins.
//!
//! Rules on shell commands are not a security boundary; the sandbox is.

use std::iter::repeat;

use longhaul_core::event::turn::ToolCallClassification;
use longhaul_core::glob;
use longhaul_core::policy::RunPolicy;
use longhaul_core::policy::effect::InDoubtPolicy;
use longhaul_core::policy::gate::{
    AnswerScope, ApprovalRequirement, GateRule, GateRuleAction, GateTimeoutAction, RulePattern,
};
use longhaul_core::policy::rule::RememberedApproval;
use longhaul_core::time::Millis;

use crate::state::control::ControlState;

/// Result of evaluating the approval rules for a tool call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RuleDecision {
    /// The tool call may start. The list has the remembered approvals that satisfy its rules; it
    /// is empty if no rule requires an approval.
    Allow(Vec<RememberedApproval>),
    /// The tool call is denied, with this reason for the model.
    Deny(String),
    /// The tool call needs an approval according to this rule.
    Ask(Box<GateRule>),
}

/// Evaluates the approval rules for each text of a tool call that rules match, such as a path.
/// The call is denied if one text is denied, and needs an approval if one text does.
/// If several rules ask, the question of the first rule and the strictest conditions of all are used.
pub(crate) fn apply_rules(control: &ControlState, call: &ToolCallClassification) -> RuleDecision {
    let rules = &control.policy.rules;
    if is_opaque(call)
        && let Some(reason) = opaque_call_denial(rules, call)
    {
        return RuleDecision::Deny(reason);
    }
    let mut ask_rules: Vec<&GateRule> = Vec::new();
    let mut approvals: Vec<RememberedApproval> = Vec::new();
    for (rule, is_visible) in rules_of_call(rules, call) {
        match &rule.action {
            GateRuleAction::Allow => {}
            GateRuleAction::Deny(reason) => return RuleDecision::Deny(reason.clone()),
            // Every asking rule may apply to the hidden part of an opaque call. An approval covers
            // that part only if its rule applies to every call of the tool.
            GateRuleAction::Ask(_) => match find_approval(control, rule, call) {
                Some(approval) if is_visible || rule.match_glob.is_none() => {
                    push_missing_elements(&mut approvals, std::slice::from_ref(approval));
                }
                Some(_) | None => ask_rules.push(rule),
            },
        }
    }
    let mut ask_rules = ask_rules.into_iter();
    match ask_rules.next().cloned() {
        None => RuleDecision::Allow(approvals),
        Some(first) => RuleDecision::Ask(Box::new(ask_rules.fold(first, merge_strictest_rules))),
    }
}

/// Returns the approvals that the rules of a tool call require, whatever approvals are remembered.
pub(crate) fn required_approvals(
    rules: &[GateRule],
    call: &ToolCallClassification,
) -> ApprovalRequirement {
    let rules = rules_of_call(rules, call).map(|(rule, _)| rule);
    let asking = rules.filter(|rule| matches!(rule.action, GateRuleAction::Ask(_)));
    asking.fold(ApprovalRequirement::default(), |strictest, rule| ApprovalRequirement {
        count: strictest.count.max(rule.approvers.count),
        not_submitter: strictest.not_submitter || rule.approvers.not_submitter,
    })
}

/// Returns the rule for each text of a tool call that rules match, and each rule that may apply to
/// the hidden part of an opaque call. The flag says whether the rule matches a visible text.
fn rules_of_call<'a>(
    rules: &'a [GateRule],
    call: &'a ToolCallClassification,
) -> impl Iterator<Item = (&'a GateRule, bool)> {
    let matching = match_texts(call).filter_map(|text| first_matching_rule(rules, call, text));
    let rules_about_hidden_part =
        rules.iter().filter(|rule| is_opaque(call) && requires_approval_of_tool(rule, call));
    matching.zip(repeat(true)).chain(rules_about_hidden_part.zip(repeat(false)))
}

/// Returns whether a person has to approve the tool call before it starts.
pub fn needs_approval(control: &ControlState, call: &ToolCallClassification) -> bool {
    let decision = apply_rules(control, call);
    call.problem.is_none() && matches!(decision, RuleDecision::Ask(_))
}

/// Returns why a person may not edit a waiting call so that it becomes the call `edited`: a rule
/// denies that call, or it needs more approvals than the waiting call's gate requires. `None` means
/// that the edit is allowed.
pub fn edit_refusal_reason(
    control: &ControlState,
    edited: &ToolCallClassification,
    gate: ApprovalRequirement,
) -> Option<String> {
    let rule = match apply_rules(control, edited) {
        RuleDecision::Allow(_) => return None,
        RuleDecision::Deny(reason) => {
            return Some(format!("a rule forbids this call: {reason}"));
        }
        RuleDecision::Ask(rule) => rule,
    };
    let needed = rule.approvers;
    let approvers = if needed.count > gate.count {
        format!("{} people", needed.count)
    } else if needed.not_submitter && !gate.not_submitter {
        "somebody other than the submitter of the run".to_owned()
    } else {
        return None;
    };
    Some(format!(
        "{approvers} must approve the edited call, which this gate does not ask for: reject the \
         call with a note that says what to do"
    ))
}

/// Returns whether the call has a part that rules can't inspect, such as a nested command, or a text
/// that is too long to be matched.
fn is_opaque(call: &ToolCallClassification) -> bool {
    let mut texts = call.rule_match_texts.iter();
    call.opaque || texts.any(|text| text.len() > glob::TEXT_BYTES_MAX)
}

/// Returns the reason if an opaque call (one with a part that can't be inspected) is denied. Any deny
/// rule of the tool may apply to the hidden part, unless an earlier rule allows or asks about every
/// call of the tool. A rule with a `match` only covers the visible part, so it can't allow an opaque
/// call.
fn opaque_call_denial(rules: &[GateRule], call: &ToolCallClassification) -> Option<String> {
    for rule in rules.iter().filter(|rule| rule_matches_tool(rule, call)) {
        match &rule.action {
            GateRuleAction::Deny(reason) => {
                return Some(format!(
                    "{reason} (the call can't be inspected: write it shorter, without nested commands)"
                ));
            }
            GateRuleAction::Allow | GateRuleAction::Ask(_) if rule.match_glob.is_none() => {
                return None;
            }
            GateRuleAction::Allow | GateRuleAction::Ask(_) => {}
        }
    }
    None
}

/// Returns whether this rule requires an approval and applies to the tool of this call.
fn requires_approval_of_tool(rule: &GateRule, call: &ToolCallClassification) -> bool {
    matches!(rule.action, GateRuleAction::Ask(_)) && rule_matches_tool(rule, call)
}

/// Returns the first rule, changed to the strictest conditions of both rules.
fn merge_strictest_rules(mut rule: GateRule, other: &GateRule) -> GateRule {
    rule.always |= other.always;
    rule.approvers.count = rule.approvers.count.max(other.approvers.count);
    rule.approvers.not_submitter |= other.approvers.not_submitter;
    if rule.on_timeout == GateTimeoutAction::Approve {
        rule.on_timeout = other.on_timeout;
    }
    let timeouts = [rule.timeout, other.timeout].map(|timeout| timeout.unwrap_or_default());
    // A timeout of `never` is the longest one.
    rule.timeout = timeouts
        .into_iter()
        .min_by_key(|timeout| timeout.duration().map_or((1, Millis::ZERO), |after| (0, after)));
    rule.remind = rule.remind.into_iter().chain(other.remind).min();
    push_missing_elements(&mut rule.escalation, &other.escalation);
    push_missing_elements(&mut rule.tags, &other.tags);
    rule
}

/// Adds the elements of the second list that the first one lacks.
fn push_missing_elements<T: Clone + PartialEq>(list: &mut Vec<T>, other: &[T]) {
    for element in other {
        if !list.contains(element) {
            list.push(element.clone());
        }
    }
}

/// Returns the texts of a call that rules match, or an empty text if there are none.
fn match_texts(call: &ToolCallClassification) -> impl Iterator<Item = &str> {
    let empty_text = call.rule_match_texts.is_empty().then_some("");
    call.rule_match_texts.iter().map(String::as_str).chain(empty_text)
}

fn rule_matches_tool(rule: &GateRule, call: &ToolCallClassification) -> bool {
    rule.matches_glob(&rule.tool, call.tool.as_str())
}

fn first_matching_rule<'a>(
    rules: &'a [GateRule],
    call: &ToolCallClassification,
    text: &str,
) -> Option<&'a GateRule> {
    rules.iter().find(|rule| rule_matches_tool(rule, call) && rule.matches_text(text))
}

/// Returns the remembered approval that covers all calls that match this rule. `None` if there is
/// none. Its pattern must equal that of the rule, so a rule that was changed since asks again. If the
/// submitter may not approve, an approval ends when its giver adds work to the run.
fn find_approval<'a>(
    control: &'a ControlState,
    rule: &GateRule,
    call: &'a ToolCallClassification,
) -> Option<&'a RememberedApproval> {
    let max_scope = widest_scope(rule);
    let mut approvals = control.people.approvals.iter().chain(&call.approvals);
    let is_of_submitter = |approval: &RememberedApproval| {
        let mut voters = [&approval.by].into_iter().chain(&approval.other_voters);
        rule.approvers.not_submitter && voters.any(|voter| control.submitters.contains(voter))
    };
    approvals.find(|approval| {
        approval.scope <= max_scope
            && approval.pattern == rule_pattern(rule)
            && !is_of_submitter(approval)
    })
}

/// Returns the widest scope of an approval that this rule accepts.
fn widest_scope(rule: &GateRule) -> AnswerScope {
    if accepts_approvals(rule) { rule.approvers.widest_scope() } else { AnswerScope::Once }
}

/// Returns the patterns of the rules that require an approval for the tool of this call and that
/// accept remembered approvals which apply to all runs of the agent or of the project.
pub fn shared_patterns(policy: &RunPolicy, call: &ToolCallClassification) -> Vec<RulePattern> {
    let rules = policy.rules.iter();
    let rules_beyond_one_run = rules.filter(|rule| {
        widest_scope(rule) > AnswerScope::Run && requires_approval_of_tool(rule, call)
    });
    rules_beyond_one_run.map(rule_pattern).collect()
}

/// Returns whether an approval may cover later calls that match this rule. A rule with a glob that is
/// too long to be matched asks about every call.
fn accepts_approvals(rule: &GateRule) -> bool {
    let mut globs = std::iter::once(&rule.tool).chain(&rule.match_glob);
    !rule.always && globs.all(|glob| glob::check_length(glob).is_ok())
}

/// Returns the pattern of the later calls that an approval may cover too. `None` if each call needs
/// its own approval.
pub(crate) fn approval_pattern(rule: &GateRule) -> Option<RulePattern> {
    accepts_approvals(rule).then(|| rule_pattern(rule))
}

/// Returns the pattern of a rule: the tools, and the rule match texts of their calls, that it
/// matches.
fn rule_pattern(rule: &GateRule) -> RulePattern {
    RulePattern { tool: rule.tool.clone(), match_glob: rule.match_glob.clone() }
}

/// Returns what to do if the call becomes in doubt (started, outcome unknown): the policy of the
/// strictest matching rule, else the agent's, else the tool's. The default is to ask a person,
/// because a model that is told "unknown" usually repeats the call.
pub(crate) fn in_doubt_policy(
    control: &ControlState,
    call: &ToolCallClassification,
) -> InDoubtPolicy {
    match_texts(call)
        .filter_map(|text| first_matching_rule(&control.policy.rules, call, text)?.in_doubt)
        .max()
        .or(control.policy.in_doubt)
        .or(call.in_doubt)
        .unwrap_or_default()
}
