//! Which calls need a person: the agent's rules, first match wins.
//!
//! Never: a wall. A rule on a shell command is a courtesy; the wall is the sandbox.

use longhaul_core::event::turn::Appraisal;
use longhaul_core::policy::Policy;
use longhaul_core::policy::effect::InDoubt;
use longhaul_core::policy::gate::{GateRule, OnTimeout, Pattern, Verdict};
use wildmatch::WildMatch;

use crate::state::control::Control;

/// What the rules say of a call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
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
pub(crate) fn judge(control: &Control, call: &Appraisal) -> Judgement {
    let rules = &control.policy.rules;
    if call.opaque
        && let Some(why) = denied_unread(rules, call)
    {
        return Judgement::Deny(why);
    }
    let subjects = call.subjects.iter().map(String::as_str);
    let whole = call.subjects.is_empty().then_some("");
    let mut asking: Vec<&GateRule> = Vec::new();
    for rule in subjects
        .chain(whole)
        .filter_map(|subject| first_match(rules, call, subject))
    {
        match &rule.verdict {
            Verdict::Allow => {}
            Verdict::Deny(why) => return Judgement::Deny(why.clone()),
            Verdict::Ask(_) if remembered(control, rule) => {}
            Verdict::Ask(_) => asking.push(rule),
        }
    }
    if call.opaque {
        asking.extend(
            rules
                .iter()
                .filter(|rule| is_due_unread(control, rule, call)),
        );
    }
    let mut asking = asking.into_iter();
    match asking.next().cloned() {
        None => Judgement::Allow,
        Some(first) => Judgement::Ask(Box::new(asking.fold(first, strictest))),
    }
}

/// Why the rules forbid such a call outright, if they do: what a person writes
/// instead of a model's call is held to the same.
pub fn denied(policy: &Policy, call: &Appraisal) -> Option<String> {
    if call.opaque
        && let Some(why) = denied_unread(&policy.rules, call)
    {
        return Some(why);
    }
    let subjects = call.subjects.iter().map(String::as_str);
    let whole = call.subjects.is_empty().then_some("");
    subjects.chain(whole).find_map(|subject| {
        let rule = first_match(&policy.rules, call, subject)?;
        match &rule.verdict {
            Verdict::Deny(why) => Some(why.clone()),
            Verdict::Allow | Verdict::Ask(_) => None,
        }
    })
}

/// Why a call that can't be read is forbidden, if it is: any rule that denies may
/// speak of what it hides, unless one before it lets every call of the tool pass or
/// asks a person. An `allow` with a `match` speaks of what was read, and says nothing.
fn denied_unread(rules: &[GateRule], call: &Appraisal) -> Option<String> {
    for rule in rules.iter().filter(|rule| matches_tool(rule, call)) {
        match &rule.verdict {
            Verdict::Deny(why) => {
                return Some(format!(
                    "{why} (this line hides what it runs: write it plainly)"
                ));
            }
            Verdict::Allow | Verdict::Ask(_) if rule.subject.is_none() => return None,
            Verdict::Allow | Verdict::Ask(_) => {}
        }
    }
    None
}

/// Whether this rule asks about a call that can't be read. What was allowed for
/// this run was read, so only a rule about every call of the tool remembers it.
fn is_due_unread(control: &Control, rule: &GateRule, call: &Appraisal) -> bool {
    let allowed = rule.subject.is_none() && remembered(control, rule);
    matches!(rule.verdict, Verdict::Ask(_)) && matches_tool(rule, call) && !allowed
}

/// One rule on the terms of both.
fn strictest(mut rule: GateRule, other: &GateRule) -> GateRule {
    rule.always |= other.always;
    rule.approvers.count = rule.approvers.count.max(other.approvers.count);
    rule.approvers.not_submitter |= other.approvers.not_submitter;
    if rule.on_timeout == OnTimeout::Approve {
        rule.on_timeout = other.on_timeout;
    }
    rule
}

fn matches_tool(rule: &GateRule, call: &Appraisal) -> bool {
    WildMatch::new(&rule.tool).matches(call.tool.as_str())
}

fn first_match<'a>(rules: &'a [GateRule], call: &Appraisal, subject: &str) -> Option<&'a GateRule> {
    rules.iter().find(|rule| {
        matches_tool(rule, call)
            && rule
                .subject
                .as_ref()
                .is_none_or(|glob| WildMatch::new(glob).matches(subject))
    })
}

/// "For this run" remembers the rule that had asked, by its own globs.
fn remembered(control: &Control, rule: &GateRule) -> bool {
    !rule.always
        && control
            .allowed
            .iter()
            .any(|(_, pattern)| *pattern == pattern_of(rule))
}

/// The globs of a rule.
pub(crate) fn pattern_of(rule: &GateRule) -> Pattern {
    Pattern {
        tool: rule.tool.clone(),
        subject: rule.subject.clone(),
    }
}

/// What is done about such a call in doubt: the strictest rule's word, then the agent's,
/// then the tool's own; else a person is asked, because a model that is told
/// "unknown" simply does it again.
pub(crate) fn in_doubt(control: &Control, call: &Appraisal) -> InDoubt {
    let subjects = call.subjects.iter().map(String::as_str);
    let whole = call.subjects.is_empty().then_some("");
    subjects
        .chain(whole)
        .filter_map(|subject| first_match(&control.policy.rules, call, subject)?.in_doubt)
        .max_by_key(|word| match word {
            InDoubt::Tell => 0,
            InDoubt::Ask => 1,
            InDoubt::Fail => 2,
        })
        .or(control.policy.in_doubt)
        .or(call.in_doubt)
        .unwrap_or_default()
}
