//! Checks an answer to a gate and decides its effect, using only the gate's row in the store.
//!
//! Invariant: an approval is accepted only with the digest of the content that was shown.

use std::collections::BTreeSet;

use longhaul_core::change::{GateTransition, GateUpdate, JournalBatch, RowChange};
use longhaul_core::event::Event;
use longhaul_core::event::environment::RuleAdded;
use longhaul_core::event::gate::{EditedValue, GateAnswer, GateEdit};
use longhaul_core::id::{AgentName, RuleId};
use longhaul_core::policy::gate::{
    Answer, AnswerScope, GateDecision, GateKind, GateRow, GateSpec, GateStatus, RecordedAnswer,
};
use longhaul_core::policy::rule::{RememberedApprovalRow, RememberedApprovalScope};
use longhaul_core::raw::{Hash, RawJson};
use longhaul_core::time::Timestamp;
use serde_json::Value;

use crate::decision::DecisionContext;
use crate::policy::check_question_answer;
use crate::policy::digest::edited_content_digest;
use crate::rejection::Rejection;
use crate::state::submitters::is_submitter;

/// Decides the effect of an answer to a gate: it is recorded as one of several votes, or it closes
/// the gate. `rule` is the scope of the rule that an approval adds. `None` means that it adds none.
pub(super) fn decide_gate_answer(
    gate: &GateRow,
    answer: Answer,
    rule: Option<RememberedApprovalScope>,
    ctx: DecisionContext,
) -> Result<JournalBatch, Rejection> {
    check_gate_open(gate, ctx.now)?;
    check_decision_allowed(&gate.spec.kind, &answer.decision)?;
    check_answer_digest(gate, &answer)?;
    check_answer_permission(gate, &answer, &ctx)?;
    let answer = check_answer_content(gate, answer)?;
    let id = gate.spec.id;
    let batch_for_answer =
        |event: fn(GateAnswer) -> Event, end: fn(Answer) -> GateTransition, answer: Answer| {
            let (transition, seen_answers) = (end(answer.clone()), Some(gate.answers.len()));
            let update = GateUpdate { gate: id, seen_answers, transition };
            let edit = edit_made_by_answer(&gate.spec, &answer);
            JournalBatch {
                events: vec![event(GateAnswer { gate: id, answer, edit })],
                changes: vec![RowChange::UpdateGate(update)],
            }
        };
    if !answer_closes_gate(gate, &answer, &ctx) {
        return Ok(batch_for_answer(Event::GateVoted, GateTransition::Voted, answer));
    }
    let final_answer = answer_with_approved_edit(gate, answer.clone());
    let mut batch = batch_for_answer(Event::GateAnswered, GateTransition::Answered, final_answer);
    if let (Some(scope), Some(pattern)) = (rule, gate.spec.pattern.clone()) {
        let rule = RuleId::derive(id.bits(), scope.answer_scope().as_str(), ctx.now);
        let other_voters: Vec<String> =
            current_approvers(gate, &ctx).into_iter().map(str::to_owned).collect();
        let added = RuleAdded {
            rule,
            pattern: pattern.clone(),
            by: answer.by.clone(),
            other_voters: other_voters.clone(),
            scope: scope.answer_scope(),
        };
        let row = RememberedApprovalRow {
            rule,
            scope,
            pattern,
            other_voters,
            by: answer.by,
            at: ctx.now,
            run: gate.run,
            gate: id,
            used: 0,
            last_used: None,
            revoked: None,
        };
        // The rule precedes the answer, so that a run woken by the answer already has the rule.
        batch.events.insert(0, Event::RuleAdded(added));
        batch.changes.push(RowChange::AddRule(Box::new(row)));
    }
    Ok(batch)
}

/// Returns what an answer changes in the content that the gate was raised with. `None` means that
/// the answer is no edit.
fn edit_made_by_answer(gate: &GateSpec, answer: &Answer) -> Option<GateEdit> {
    let (edited, original) = (answer.decision.edit()?, gate.input.as_ref()?);
    let digest = gate.digest.map(|digest| edited_content_digest(digest, edited));
    Some(GateEdit { digest, diff: diff_json(original, edited) })
}

/// Returns an error if the gate is closed, or its deadline has passed.
pub fn check_gate_open(gate: &GateRow, now: Timestamp) -> Result<(), Rejection> {
    let id = gate.spec.id;
    match gate.status {
        GateStatus::Open if !gate.is_overdue(now) => Ok(()),
        GateStatus::Open | GateStatus::Expired => Err(Rejection::GateExpired(id)),
        status @ (GateStatus::Answered | GateStatus::Withdrawn) => {
            let by = gate.answers.last();
            let by = by.map(|recorded| (recorded.answer.by.clone(), recorded.at));
            Err(Rejection::GateClosed { gate: id, status, by })
        }
    }
}

fn check_decision_allowed(kind: &GateKind, decision: &GateDecision) -> Result<(), Rejection> {
    let (decision, allowed) = (decision.as_str(), allowed_decisions(kind));
    match allowed.contains(&decision) {
        true => Ok(()),
        false => Err(Rejection::InvalidDecision { decision, allowed }),
    }
}

/// Checks the answer to a question and returns it with the text to record: the chosen option, the
/// completed form, or the unchanged text. Answers to other gates are returned unchanged.
fn check_answer_content(gate: &GateRow, mut answer: Answer) -> Result<Answer, Rejection> {
    if let (GateKind::Question, GateDecision::Answer(text)) = (&gate.spec.kind, &answer.decision) {
        let checked_text =
            check_question_answer(&gate.spec, text).map_err(Rejection::InvalidAnswer)?;
        answer.decision = GateDecision::Answer(checked_text);
    }
    Ok(answer)
}

/// Returns the digest that an approval of this gate must include: that of the content that the gate
/// was raised with, or of the newest edit among the votes. `None` means that the gate has no
/// digest.
pub fn current_gate_digest(gate: &GateRow) -> Option<Hash> {
    let original = gate.spec.digest?;
    let edited = newest_edited_input(gate);
    Some(edited.map_or(original, |edited| edited_content_digest(original, edited)))
}

/// Returns the newest edit of the gate's content among the votes. `None` means that nobody edited
/// it.
pub(super) fn newest_edited_input(gate: &GateRow) -> Option<&RawJson> {
    gate.answers.iter().rev().find_map(|recorded| recorded.answer.decision.edit())
}

/// Returns the content that an approval of this gate now applies to: the newest edit among the
/// votes, or else the content that the gate was raised with. `None` means that the gate has no
/// content.
pub fn current_gate_input(gate: &GateRow) -> Option<&RawJson> {
    newest_edited_input(gate).or(gate.spec.input.as_ref())
}

/// Returns the decisions that an answer to this kind of gate may contain, such as `approve`.
pub const fn allowed_decisions(kind: &GateKind) -> &'static [&'static str] {
    match kind {
        GateKind::Approval | GateKind::Result => &["approve", "edit", "reject"],
        GateKind::Question | GateKind::Blocked => &["answer", "reject"],
        GateKind::InDoubt => &["approve", "reject", "answer", "complete"],
        GateKind::Signal => &["complete", "answer", "reject"],
    }
}

fn check_answer_digest(gate: &GateRow, answer: &Answer) -> Result<(), Rejection> {
    let Some(current) = current_gate_digest(gate) else { return Ok(()) };
    match answer.digest {
        None if is_approval(answer) => Err(Rejection::DigestMissing),
        Some(digest) if digest != current => Err(Rejection::DigestChanged),
        None | Some(_) => Ok(()),
    }
}

fn check_answer_permission(
    gate: &GateRow,
    answer: &Answer,
    ctx: &DecisionContext,
) -> Result<(), Rejection> {
    let is_excluded = gate.spec.approvers.not_submitter && is_submitter(gate, &answer.by);
    if is_approval(answer) && is_excluded {
        return Err(Rejection::SelfApproval);
    }
    check_answer_scope_offered(&gate.spec, answer)?;
    if answer.decision == GateDecision::Approve
        && current_approvers(gate, ctx).contains(answer.by.as_str())
    {
        return Err(Rejection::AlreadyVoted(answer.by.clone()));
    }
    Ok(())
}

const fn is_approval(answer: &Answer) -> bool {
    matches!(answer.decision, GateDecision::Approve | GateDecision::Edit(_))
}

/// Returns an error if the gate does not offer the scope of an answer, such as all later calls of
/// the run. Only an approval without changes can apply to later calls.
fn check_answer_scope_offered(gate: &GateSpec, answer: &Answer) -> Result<(), Rejection> {
    let reason = if answer.scope == AnswerScope::Once {
        return Ok(());
    } else if answer.decision != GateDecision::Approve {
        "only an approval without changes can apply to later calls"
    } else if gate.pattern.is_none() {
        "every call needs its own approval here"
    } else if answer.scope > gate.approvers.widest_scope() {
        "the rule needs several approvers or others than the submitter, in each run"
    } else {
        return Ok(());
    };
    let is_approval = answer.decision == GateDecision::Approve;
    let offered = if is_approval { gate.scopes() } else { vec![AnswerScope::Once] };
    Err(Rejection::ScopeNotOffered { scope: answer.scope, offered, reason })
}

/// Returns the people who have approved the gate's current content. An edit restarts the count. The
/// vote of a revoked key does not count.
fn current_approvers<'a>(gate: &'a GateRow, ctx: &DecisionContext) -> BTreeSet<&'a str> {
    let is_edit = |recorded: &RecordedAnswer| recorded.answer.decision.edit().is_some();
    let from = gate.answers.iter().rposition(is_edit).unwrap_or(0);
    let current = gate.answers.iter().enumerate().skip(from);
    let valid = current.filter(|(index, _)| !ctx.revoked_votes.contains(index));
    valid.map(|(_, recorded)| recorded.answer.by.as_str()).collect()
}

/// Returns the scope of the remembered approval that an answer adds if it closes its gate: the
/// narrowest scope of all votes. `None` means that the answer adds none.
pub fn remembered_scope(
    gate: &GateRow,
    answer: &Answer,
    agent: AgentName,
) -> Option<RememberedApprovalScope> {
    let vote_scopes = gate.answers.iter().map(|recorded| recorded.answer.scope);
    let narrowest_scope = vote_scopes.fold(answer.scope, AnswerScope::min);
    match narrowest_scope {
        _ if answer.decision != GateDecision::Approve => None,
        AnswerScope::Once => None,
        AnswerScope::Run => Some(RememberedApprovalScope::Run(gate.run)),
        AnswerScope::Agent => Some(RememberedApprovalScope::Agent(agent)),
        AnswerScope::Project => Some(RememberedApprovalScope::Project),
    }
}

/// Returns whether this answer closes the gate. One rejection is enough to close it.
fn answer_closes_gate(gate: &GateRow, answer: &Answer, ctx: &DecisionContext) -> bool {
    let needed = usize::from(gate.spec.approvers.count);
    match &answer.decision {
        GateDecision::Edit(_) => needed <= 1,
        GateDecision::Approve => current_approvers(gate, ctx).len() + 1 >= needed,
        GateDecision::Reject | GateDecision::Answer(_) | GateDecision::Complete => true,
    }
}

/// Returns the answer to record when the gate closes. If people have approved an edit of the
/// content, the decision of the answer becomes that edit.
fn answer_with_approved_edit(gate: &GateRow, mut answer: Answer) -> Answer {
    if let (GateDecision::Approve, Some(edited)) = (&answer.decision, newest_edited_input(gate)) {
        answer.decision = GateDecision::Edit(edited.clone());
    }
    answer
}

/// Returns the values that differ between two JSON texts. Objects are compared field by field.
/// Other values, and texts that are nested too deeply to parse, are compared as a whole.
fn diff_json(before: &RawJson, after: &RawJson) -> Vec<EditedValue> {
    let parse = |json: &RawJson| serde_json::from_str::<Value>(json.as_str());
    let (Ok(old), Ok(new)) = (parse(before), parse(after)) else {
        let (before, after) = (Some(before.clone()), Some(after.clone()));
        return vec![EditedValue { path: String::new(), before, after }];
    };
    let mut diff = Vec::new();
    add_differences(String::new(), (&old, &new), &mut diff);
    diff
}

fn add_differences(path: String, (before, after): (&Value, &Value), diff: &mut Vec<EditedValue>) {
    if before == after {
        return;
    }
    let (Value::Object(old), Value::Object(new)) = (before, after) else {
        diff.push(edited_value(path, Some(before), Some(after)));
        return;
    };
    for (name, value) in old {
        let path = format!("{path}/{}", escape_json_pointer_token(name));
        match new.get(name) {
            Some(after) => add_differences(path, (value, after), diff),
            None => diff.push(edited_value(path, Some(value), None)),
        }
    }
    for (name, value) in new.iter().filter(|(name, _)| !old.contains_key(*name)) {
        let path = format!("{path}/{}", escape_json_pointer_token(name));
        diff.push(edited_value(path, None, Some(value)));
    }
}

fn edited_value(path: String, before: Option<&Value>, after: Option<&Value>) -> EditedValue {
    let raw = |value: Option<&Value>| value.map(RawJson::from_serialize);
    EditedValue { path, before: raw(before), after: raw(after) }
}

fn escape_json_pointer_token(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn changed_added_and_removed_values_are_listed() {
        let before = json!({ "a": 1, "b": { "c": [1, 2], "d/e": "x" }, "gone": null, "same": {} });
        let after = json!({ "same": {}, "a": 2, "b": { "c": [1], "d/e": "x", "new": true } });
        let diff = diff_json(&RawJson::from_serialize(&before), &RawJson::from_serialize(&after));
        let expected = json!([
            { "path": "/a", "before": 1, "after": 2 },
            { "path": "/b/c", "before": [1, 2], "after": [1] },
            { "path": "/b/new", "after": true },
            { "path": "/gone", "before": null },
        ]);
        assert_eq!(serde_json::to_value(&diff).unwrap(), expected);
        assert_eq!(serde_json::from_value::<Vec<EditedValue>>(expected).unwrap(), diff);
        let slash = diff_json(
            &RawJson::from_serialize(&json!({ "d/e~": 1 })),
            &RawJson::from_serialize(&json!("all")),
        );
        assert_eq!(slash[0].path, "");
    }
}
