//! Which calls need a person: the agent's rules, first match wins.
//!
//! Never: a wall. A rule on a shell command is a courtesy; the wall is the sandbox.

use longhaul_core::event::turn::CallClassification;
use longhaul_core::policy::Policy;
use longhaul_core::policy::effect::InDoubtPolicy;
use longhaul_core::policy::gate::{GateRule, OnTimeout, RuleAction, RulePattern};
use wildmatch::WildMatch;

use crate::state::control::Control;

/// What the rules say of a call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PolicyDecision {
    /// It may begin.
    Allow,
    /// It may not, and the model reads why.
    Deny(String),
    /// A person is asked, by this rule.
    Ask(Box<GateRule>),
}

/// Judges a call by each of its subjects: one that is denied denies the call,
/// one that is asked about asks for the call. Where several rules ask, the first
/// one's words are used and the strictest terms of all.
pub(crate) fn evaluate(control: &Control, call: &CallClassification) -> PolicyDecision {
    let rules = &control.policy.rules;
    if call.opaque
        && let Some(why) = opaque_denial_reason(rules, call)
    {
        return PolicyDecision::Deny(why);
    }
    let subjects = call.subjects.iter().map(String::as_str);
    let whole = call.subjects.is_empty().then_some("");
    let mut asking: Vec<&GateRule> = Vec::new();
    for rule in subjects.chain(whole).filter_map(|subject| first_match(rules, call, subject)) {
        match &rule.action {
            RuleAction::Allow => {}
            RuleAction::Deny(why) => return PolicyDecision::Deny(why.clone()),
            RuleAction::Ask(_) if is_approved_for_run(control, rule) => {}
            RuleAction::Ask(_) => asking.push(rule),
        }
    }
    if call.opaque {
        asking.extend(rules.iter().filter(|rule| asks_about_opaque(control, rule, call)));
    }
    let mut asking = asking.into_iter();
    match asking.next().cloned() {
        None => PolicyDecision::Allow,
        Some(first) => PolicyDecision::Ask(Box::new(asking.fold(first, merge_strictest))),
    }
}

/// Why the rules forbid such a call outright, if they do: what a person writes
/// instead of a model's call is held to the same.
pub fn denial_reason(policy: &Policy, call: &CallClassification) -> Option<String> {
    if call.opaque
        && let Some(why) = opaque_denial_reason(&policy.rules, call)
    {
        return Some(why);
    }
    let subjects = call.subjects.iter().map(String::as_str);
    let whole = call.subjects.is_empty().then_some("");
    subjects.chain(whole).find_map(|subject| {
        let rule = first_match(&policy.rules, call, subject)?;
        match &rule.action {
            RuleAction::Deny(why) => Some(why.clone()),
            RuleAction::Allow | RuleAction::Ask(_) => None,
        }
    })
}

/// Why a call that can't be read is forbidden, if it is: any rule that denies may
/// speak of what it hides, unless one before it lets every call of the tool pass or
/// asks a person. An `allow` with a `match` speaks of what was read, and says nothing.
fn opaque_denial_reason(rules: &[GateRule], call: &CallClassification) -> Option<String> {
    for rule in rules.iter().filter(|rule| matches_tool(rule, call)) {
        match &rule.action {
            RuleAction::Deny(why) => {
                return Some(format!("{why} (this line hides what it runs: write it plainly)"));
            }
            RuleAction::Allow | RuleAction::Ask(_) if rule.subject.is_none() => return None,
            RuleAction::Allow | RuleAction::Ask(_) => {}
        }
    }
    None
}

/// Whether this rule asks about a call that can't be read. What was allowed for
/// this run was read, so only a rule about every call of the tool remembers it.
fn asks_about_opaque(control: &Control, rule: &GateRule, call: &CallClassification) -> bool {
    let allowed = rule.subject.is_none() && is_approved_for_run(control, rule);
    matches!(rule.action, RuleAction::Ask(_)) && matches_tool(rule, call) && !allowed
}

/// One rule on the terms of both.
fn merge_strictest(mut rule: GateRule, other: &GateRule) -> GateRule {
    rule.always |= other.always;
    rule.approvers.count = rule.approvers.count.max(other.approvers.count);
    rule.approvers.not_submitter |= other.approvers.not_submitter;
    if rule.on_timeout == OnTimeout::Approve {
        rule.on_timeout = other.on_timeout;
    }
    rule
}

fn matches_tool(rule: &GateRule, call: &CallClassification) -> bool {
    WildMatch::new(&rule.tool).matches(call.tool.as_str())
}

fn first_match<'a>(
    rules: &'a [GateRule],
    call: &CallClassification,
    subject: &str,
) -> Option<&'a GateRule> {
    rules.iter().find(|rule| {
        matches_tool(rule, call)
            && rule.subject.as_ref().is_none_or(|glob| WildMatch::new(glob).matches(subject))
    })
}

/// "For this run" remembers the rule that had asked, by its own globs.
fn is_approved_for_run(control: &Control, rule: &GateRule) -> bool {
    !rule.always && control.approvals.iter().any(|(_, pattern)| *pattern == rule_pattern(rule))
}

/// The globs of a rule.
pub(crate) fn rule_pattern(rule: &GateRule) -> RulePattern {
    RulePattern { tool: rule.tool.clone(), subject: rule.subject.clone() }
}

/// What is done about such a call in doubt: the strictest rule's word, then the agent's,
/// then the tool's own; else a person is asked, because a model that is told
/// "unknown" simply does it again.
pub(crate) fn in_doubt_policy(control: &Control, call: &CallClassification) -> InDoubtPolicy {
    let subjects = call.subjects.iter().map(String::as_str);
    let whole = call.subjects.is_empty().then_some("");
    subjects
        .chain(whole)
        .filter_map(|subject| first_match(&control.policy.rules, call, subject)?.in_doubt)
        .max_by_key(|word| match word {
            InDoubtPolicy::Tell => 0,
            InDoubtPolicy::Ask => 1,
            InDoubtPolicy::Fail => 2,
        })
        .or(control.policy.in_doubt)
        .or(call.in_doubt)
        .unwrap_or_default()
}
