//! Checks an answer to a gate and decides its effect, using only the gate's row in the store.
//!
//! Invariant: an approval is accepted only with the digest of the content that was shown.

use std::collections::BTreeSet;

use longhaul_core::change::{ApprovalRuleRow, Batch, Change, GateTransition, GateUpdate};
use longhaul_core::event::Event;
use longhaul_core::event::environment::RuleAdded;
use longhaul_core::event::gate::{GateAnswer, GateEdit};
use longhaul_core::id::RuleId;
use longhaul_core::policy::gate::{
    Answer, AnswerScope, GateDecision, GateKind, GateRow, GateSpec, GateStatus, RecordedAnswer,
};
use longhaul_core::raw::{Hash, RawJson};

use crate::context::DecideContext;
use crate::policy::digest::edited_content_digest;
use crate::policy::edit_diff::diff_json;
use crate::policy::question::check_question_answer;
use crate::rejection::Rejection;

/// Decides the effect of an answer to a gate: it is recorded as one of several votes, or it closes
/// the gate.
pub(super) fn decide_gate_answer(
    gate: &GateRow,
    answer: Answer,
    ctx: DecideContext,
) -> Result<Batch, Rejection> {
    check_gate_open(gate, &ctx)?;
    check_decision_allowed(&gate.spec.kind, &answer.decision)?;
    check_answer_digest(gate, &answer)?;
    check_answer_permission(gate, &answer)?;
    let answer = check_answer_content(gate, answer)?;
    let id = gate.spec.id;
    let close =
        |event: fn(GateAnswer) -> Event, end: fn(Answer) -> GateTransition, answer: Answer| {
            let (transition, seen_answers) = (end(answer.clone()), Some(gate.answers.len()));
            let update = GateUpdate { gate: id, seen_answers, transition };
            let edit = gate_edit(&gate.spec, &answer);
            Batch {
                events: vec![event(GateAnswer { gate: id, answer, edit })],
                changes: vec![Change::UpdateGate(update)],
            }
        };
    if !answer_closes_gate(gate, &answer) {
        return Ok(close(Event::GateVoted, GateTransition::Voted, answer));
    }
    let settled = answer_with_approved_edit(gate, answer.clone());
    let mut batch = close(Event::GateAnswered, GateTransition::Answered, settled);
    if is_approval_for_run(gate, &answer) {
        add_approval_rule(gate, &answer, &ctx, &mut batch)?;
    }
    Ok(batch)
}

/// Returns what an answer changes in the content that the gate was raised with. `None` means that
/// the answer is no edit.
fn gate_edit(gate: &GateSpec, answer: &Answer) -> Option<GateEdit> {
    let (GateDecision::Edit(edited), Some(original)) = (&answer.decision, &gate.input) else {
        return None;
    };
    let digest = gate.digest.map(|digest| edited_content_digest(digest, edited));
    Some(GateEdit { digest, diff: diff_json(original, edited) })
}

fn check_gate_open(gate: &GateRow, ctx: &DecideContext) -> Result<(), Rejection> {
    let id = gate.spec.id;
    match gate.status {
        GateStatus::Open if !gate.is_overdue(ctx.now) => Ok(()),
        GateStatus::Open | GateStatus::Expired => Err(Rejection::GateExpired(id)),
        status @ (GateStatus::Answered | GateStatus::Withdrawn) => {
            let by = gate.answers.last();
            let by = by.map(|given| (given.answer.by.clone(), given.at));
            Err(Rejection::GateClosed { gate: id, status, by })
        }
    }
}

fn check_decision_allowed(kind: &GateKind, decision: &GateDecision) -> Result<(), Rejection> {
    if allowed_decisions(kind).contains(&decision.as_str()) {
        return Ok(());
    }
    let takes = match kind {
        GateKind::Approval | GateKind::Result => "approve, edit or reject",
        GateKind::Question | GateKind::Blocked => "answer or reject",
        GateKind::InDoubt => "approve, reject, answer or complete",
        GateKind::Signal => "complete, answer or reject",
    };
    Err(Rejection::InvalidDecision { decision: decision.as_str(), allowed: takes })
}

/// Returns the answer with the text to record: a valid option or a completed form.
fn check_answer_content(gate: &GateRow, mut answer: Answer) -> Result<Answer, Rejection> {
    if let (GateKind::Question, GateDecision::Answer(text)) = (&gate.spec.kind, &answer.decision) {
        let checked = check_question_answer(&gate.spec, text).map_err(Rejection::InvalidAnswer)?;
        answer.decision = GateDecision::Answer(checked);
    }
    Ok(answer)
}

/// Returns the digest that an approval of this gate must include. It is computed from the content
/// that the gate was raised with, or from the newest edit among the votes, which all further
/// approvals then refer to.
pub fn current_gate_digest(gate: &GateRow) -> Option<Hash> {
    let original = gate.spec.digest?;
    Some(
        newest_edited_input(gate)
            .map_or(original, |edited| edited_content_digest(original, edited)),
    )
}

/// Returns the newest edit of the gate's content among the votes. `None` means that nobody edited
/// it.
pub(super) fn newest_edited_input(gate: &GateRow) -> Option<&RawJson> {
    let newest = gate.answers.iter().rev();
    newest
        .filter_map(|given| match &given.answer.decision {
            GateDecision::Edit(edited) => Some(edited),
            GateDecision::Approve
            | GateDecision::Reject
            | GateDecision::Answer(_)
            | GateDecision::Complete => None,
        })
        .next()
}

/// Returns the content that an approval of this gate now applies to: the content that the gate was
/// raised with, or the newest edit among the votes.
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
    let Some(current) = current_gate_digest(gate) else {
        return Ok(());
    };
    let needed = match answer.decision {
        GateDecision::Approve | GateDecision::Edit(_) => true,
        GateDecision::Reject | GateDecision::Answer(_) | GateDecision::Complete => false,
    };
    match answer.digest {
        None if needed => Err(Rejection::DigestMissing),
        Some(named) if named != current => Err(Rejection::DigestChanged),
        None | Some(_) => Ok(()),
    }
}

fn check_answer_permission(gate: &GateRow, answer: &Answer) -> Result<(), Rejection> {
    let agrees = matches!(answer.decision, GateDecision::Approve | GateDecision::Edit(_));
    let own = gate.submitter.as_deref() == Some(answer.by.as_str())
        || gate.spec.earlier_submitters.contains(&answer.by);
    if agrees && own && gate.spec.approvers.not_submitter {
        return Err(Rejection::SelfApproval);
    }
    // Only an approval without changes can apply to later calls.
    let is_offered = gate.spec.pattern.is_some() && answer.decision == GateDecision::Approve;
    if answer.scope == AnswerScope::Run && !is_offered {
        return Err(Rejection::ScopeNotOffered);
    }
    let edits = matches!(answer.decision, GateDecision::Edit(_));
    if agrees && !edits && current_approvers(gate).contains(answer.by.as_str()) {
        return Err(Rejection::AlreadyVoted(answer.by.clone()));
    }
    Ok(())
}

/// Returns the people who have approved the gate's current content. An edit restarts the count.
fn current_approvers(gate: &GateRow) -> BTreeSet<&str> {
    let is_edit = |given: &RecordedAnswer| matches!(given.answer.decision, GateDecision::Edit(_));
    let from = gate.answers.iter().rposition(is_edit).unwrap_or(0);
    gate.answers[from..].iter().map(|given| given.answer.by.as_str()).collect()
}

/// Returns whether the approval applies to the whole run. If several approvals are needed, each of
/// them must have this scope.
fn is_approval_for_run(gate: &GateRow, answer: &Answer) -> bool {
    let earlier = gate.answers.iter().map(|given| given.answer.scope);
    answer.decision == GateDecision::Approve
        && answer.scope == AnswerScope::Run
        && earlier.into_iter().all(|scope| scope == AnswerScope::Run)
}

/// Returns whether this answer closes the gate. One rejection is enough to close it.
fn answer_closes_gate(gate: &GateRow, answer: &Answer) -> bool {
    let needed = usize::from(gate.spec.approvers.count);
    match &answer.decision {
        GateDecision::Edit(_) => needed <= 1,
        GateDecision::Approve => current_approvers(gate).len() + 1 >= needed,
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

fn add_approval_rule(
    gate: &GateRow,
    answer: &Answer,
    ctx: &DecideContext,
    batch: &mut Batch,
) -> Result<(), Rejection> {
    let GateSpec { id, pattern, .. } = &gate.spec;
    let Some(pattern) = pattern.clone() else {
        return Err(Rejection::ScopeNotOffered);
    };
    let rule = RuleId::derive(id.bits(), "for this run", ctx.now);
    let by = answer.by.clone();
    let row = ApprovalRuleRow { rule, pattern: pattern.clone(), by: by.clone(), active: true };
    // The rule precedes the answer, so that a run woken by the answer already has the rule.
    batch.events.insert(0, Event::RuleAdded(RuleAdded { rule, pattern, by }));
    batch.changes.push(Change::PutRule(row));
    Ok(())
}
