//! An answer at a gate, judged by the gate's row alone.
//!
//! Never: lets an approval pass that does not name what was shown.

use std::collections::BTreeSet;

use longhaul_core::change::{Batch, Change, GateTransition, GateUpdate, RuleRow};
use longhaul_core::event::Event;
use longhaul_core::event::environment::RuleAdded;
use longhaul_core::event::gate::GateAnswer;
use longhaul_core::id::RuleId;
use longhaul_core::policy::gate::{
    Answer, Decision, GateKind, GateRow, GateSpec, GateStatus, RecordedAnswer, Scope,
};
use longhaul_core::raw::{Hash, RawJson};

use crate::context::DecideContext;
use crate::policy::digest::edited_digest;
use crate::rejection::Rejection;

/// What follows from an answer: a vote of several, or the gate's end.
pub(super) fn decide_answer(
    gate: &GateRow,
    answer: Answer,
    moment: DecideContext,
) -> Result<Batch, Rejection> {
    check_open(gate, moment)?;
    check_decision(&gate.spec.kind, &answer.decision)?;
    check_digest(gate, &answer)?;
    check_permission(gate, &answer)?;
    let id = gate.spec.id;
    let close =
        |event: fn(GateAnswer) -> Event, end: fn(Answer) -> GateTransition, answer: Answer| {
            let how = end(answer.clone());
            Batch {
                events: vec![event(GateAnswer { gate: id, answer })],
                changes: vec![Change::UpdateGate(GateUpdate { gate: id, transition: how })],
            }
        };
    if !is_decided(gate, &answer) {
        return Ok(close(Event::GateVoted, GateTransition::Voted, answer));
    }
    let settled = resolve_edit(gate, answer.clone());
    let mut batch = close(Event::GateAnswered, GateTransition::Answered, settled);
    if applies_to_run(gate, &answer) {
        add_rule(gate, &answer, moment, &mut batch)?;
    }
    Ok(batch)
}

fn check_open(gate: &GateRow, moment: DecideContext) -> Result<(), Rejection> {
    let id = gate.spec.id;
    let is_late = gate.deadline.is_some_and(|deadline| deadline <= moment.now);
    match gate.status {
        GateStatus::Open if !is_late => Ok(()),
        GateStatus::Open | GateStatus::Expired => Err(Rejection::GateExpired(id)),
        status @ (GateStatus::Answered | GateStatus::Withdrawn) => {
            let by = gate.answers.last();
            let by = by.map(|given| (given.answer.by.clone(), given.at));
            Err(Rejection::GateClosed { gate: id, status, by })
        }
    }
}

fn check_decision(kind: &GateKind, decision: &Decision) -> Result<(), Rejection> {
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

/// The digest that stands now, and that an approval names: the original, or that
/// of the newest edit among the votes, which everybody else then agrees to.
pub fn current_digest(gate: &GateRow) -> Option<Hash> {
    let original = gate.spec.digest?;
    Some(newest_edit(gate).map_or(original, |edited| edited_digest(original, edited)))
}

/// The newest edit among the votes.
fn newest_edit(gate: &GateRow) -> Option<&RawJson> {
    let newest = gate.answers.iter().rev();
    newest
        .filter_map(|given| match &given.answer.decision {
            Decision::Edit(edited) => Some(edited),
            Decision::Approve | Decision::Reject | Decision::Answer(_) | Decision::Complete => None,
        })
        .next()
}

/// What stands frozen now, and what `standing_digest` is of: the original, or the
/// newest edit among the votes.
pub fn current_input(gate: &GateRow) -> Option<&RawJson> {
    newest_edit(gate).or(gate.spec.input.as_ref())
}

/// What can be said at a gate of this kind.
pub const fn allowed_decisions(kind: &GateKind) -> &'static [&'static str] {
    match kind {
        GateKind::Approval | GateKind::Result => &["approve", "edit", "reject"],
        GateKind::Question | GateKind::Blocked => &["answer", "reject"],
        GateKind::InDoubt => &["approve", "reject", "answer", "complete"],
        GateKind::Signal => &["complete", "answer", "reject"],
    }
}

fn check_digest(gate: &GateRow, answer: &Answer) -> Result<(), Rejection> {
    let Some(standing) = current_digest(gate) else {
        return Ok(());
    };
    let needed = match answer.decision {
        Decision::Approve | Decision::Edit(_) => true,
        Decision::Reject | Decision::Answer(_) | Decision::Complete => false,
    };
    match answer.digest {
        None if needed => Err(Rejection::DigestMissing),
        Some(named) if named != standing => Err(Rejection::DigestChanged),
        None | Some(_) => Ok(()),
    }
}

fn check_permission(gate: &GateRow, answer: &Answer) -> Result<(), Rejection> {
    let agrees = matches!(answer.decision, Decision::Approve | Decision::Edit(_));
    let own = gate.submitter.as_deref() == Some(answer.by.as_str());
    if agrees && own && gate.spec.approvers.not_submitter {
        return Err(Rejection::SelfApproval);
    }
    // Only a plain yes can be meant for later calls too.
    let offered = gate.spec.pattern.is_some() && answer.decision == Decision::Approve;
    if answer.scope == Scope::Run && !offered {
        return Err(Rejection::ScopeNotOffered);
    }
    let edits = matches!(answer.decision, Decision::Edit(_));
    if agrees && !edits && current_approvers(gate).contains(answer.by.as_str()) {
        return Err(Rejection::AlreadyVoted(answer.by.clone()));
    }
    Ok(())
}

/// Who has agreed to what stands now: an edit restarts the count.
fn current_approvers(gate: &GateRow) -> BTreeSet<&str> {
    let is_edit = |given: &RecordedAnswer| matches!(given.answer.decision, Decision::Edit(_));
    let from = gate.answers.iter().rposition(is_edit).unwrap_or(0);
    gate.answers[from..].iter().map(|given| given.answer.by.as_str()).collect()
}

/// Whether the approval is meant for later calls too: where several must agree,
/// it reaches no further than each of them said.
fn applies_to_run(gate: &GateRow, answer: &Answer) -> bool {
    let earlier = gate.answers.iter().map(|given| given.answer.scope);
    answer.decision == Decision::Approve
        && answer.scope == Scope::Run
        && earlier.into_iter().all(|scope| scope == Scope::Run)
}

/// Whether this answer closes the gate. One no is enough.
fn is_decided(gate: &GateRow, answer: &Answer) -> bool {
    let needed = usize::from(gate.spec.approvers.count);
    match &answer.decision {
        Decision::Edit(_) => needed <= 1,
        Decision::Approve => current_approvers(gate).len() + 1 >= needed,
        Decision::Reject | Decision::Answer(_) | Decision::Complete => true,
    }
}

/// When several agreed to an edit, the answer that counts is the edit.
fn resolve_edit(gate: &GateRow, mut answer: Answer) -> Answer {
    if let (Decision::Approve, Some(edited)) = (&answer.decision, newest_edit(gate)) {
        answer.decision = Decision::Edit(edited.clone());
    }
    answer
}

fn add_rule(
    gate: &GateRow,
    answer: &Answer,
    moment: DecideContext,
    batch: &mut Batch,
) -> Result<(), Rejection> {
    let GateSpec { id, pattern, .. } = &gate.spec;
    let Some(pattern) = pattern.clone() else {
        return Err(Rejection::ScopeNotOffered);
    };
    let rule = RuleId::derive(id.bits(), "for this run", moment.now);
    let by = answer.by.clone();
    let row = RuleRow { rule, pattern: pattern.clone(), by: by.clone(), active: true };
    // The rule stands before the answer, so that whoever is woken by it knows it.
    batch.events.insert(0, Event::RuleAdded(RuleAdded { rule, pattern, by }));
    batch.changes.push(Change::PutRule(row));
    Ok(())
}
