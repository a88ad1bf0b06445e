//! Which calls need a person: the agent's rules, first match wins.
//!
//! Never: a wall. A rule on a shell command is a courtesy; the wall is the sandbox.

use longhaul_core::event::turn::Appraisal;
use longhaul_core::policy::effect::InDoubt;
use longhaul_core::policy::gate::{GateRule, Pattern, Verdict};
use wildmatch::WildMatch;

use crate::state::control::Control;

/// What the rules say of a call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Judgement<'a> {
    /// It may begin.
    Allow,
    /// It may not, and the model reads why.
    Deny(&'a str),
    /// A person is asked, by this rule.
    Ask(&'a GateRule),
}

/// Judges a call by each of its subjects: one that is denied denies the call,
/// one that is asked about asks for the call.
pub(crate) fn judge<'a>(control: &'a Control, call: &Appraisal) -> Judgement<'a> {
    let subjects = call.subjects.iter().map(String::as_str);
    let whole = call.subjects.is_empty().then_some("");
    let mut judgement = Judgement::Allow;
    for subject in subjects.chain(whole) {
        match verdict(control, call, subject) {
            Judgement::Deny(why) => return Judgement::Deny(why),
            Judgement::Ask(rule) if judgement == Judgement::Allow => {
                judgement = Judgement::Ask(rule);
            }
            Judgement::Ask(_) | Judgement::Allow => {}
        }
    }
    judgement
}

fn verdict<'a>(control: &'a Control, call: &Appraisal, subject: &str) -> Judgement<'a> {
    let Some(rule) = first_match(&control.policy.rules, call, subject) else {
        return Judgement::Allow;
    };
    match &rule.verdict {
        Verdict::Allow => Judgement::Allow,
        Verdict::Deny(why) => Judgement::Deny(why),
        Verdict::Ask(_) if remembered(control, rule) => Judgement::Allow,
        Verdict::Ask(_) => Judgement::Ask(rule),
    }
}

fn first_match<'a>(rules: &'a [GateRule], call: &Appraisal, subject: &str) -> Option<&'a GateRule> {
    rules.iter().find(|rule| {
        WildMatch::new(&rule.tool).matches(call.tool.as_str())
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

/// What is done about such a call in doubt: the rule's word, then the tool's,
/// then the agent's; else a person is asked, because a model that is told
/// "unknown" simply does it again.
pub(crate) fn in_doubt(control: &Control, call: &Appraisal) -> InDoubt {
    let subject = call.subjects.first().map_or("", String::as_str);
    first_match(&control.policy.rules, call, subject)
        .and_then(|rule| rule.in_doubt)
        .or(call.in_doubt)
        .or(control.policy.in_doubt)
        .unwrap_or_default()
}
