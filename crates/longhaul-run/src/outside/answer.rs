//! An answer at a gate, judged by the gate's row alone.
//!
//! Never: lets an approval pass that does not name what was shown.

use std::collections::BTreeSet;

use longhaul_core::change::{Batch, Change, GateClosing, GateEnd, RuleRow};
use longhaul_core::event::Event;
use longhaul_core::event::gate::GateAnswer;
use longhaul_core::event::world::RuleAdded;
use longhaul_core::id::RuleId;
use longhaul_core::policy::gate::{
    Answer, Decision, GateKind, GateRow, GateSpec, GateStatus, GivenAnswer, Scope,
};
use longhaul_core::raw::{Hash, RawJson};

use crate::judge::digest::edited_digest;
use crate::moment::Moment;
use crate::refusal::Refusal;

/// What follows from an answer: a vote of several, or the gate's end.
pub(super) fn judge(gate: &GateRow, answer: Answer, moment: Moment) -> Result<Batch, Refusal> {
    is_open(gate, moment)?;
    fits(&gate.spec.kind, &answer.decision)?;
    names_what_was_shown(gate, &answer)?;
    may_answer(gate, &answer)?;
    let id = gate.spec.id;
    let given = GateAnswer {
        gate: id,
        answer: answer.clone(),
    };
    if !is_decided(gate, &answer) {
        let how = GateEnd::Voted(answer);
        return Ok(Batch {
            events: vec![Event::GateVoted(given)],
            changes: vec![Change::CloseGate(GateClosing { gate: id, how })],
        });
    }
    let how = GateEnd::Answered(settle_edit(gate, answer.clone()));
    let given = GateAnswer {
        gate: id,
        answer: settle_edit(gate, given.answer),
    };
    let mut batch = Batch {
        events: vec![Event::GateAnswered(given)],
        changes: vec![Change::CloseGate(GateClosing { gate: id, how })],
    };
    if reaches_further(gate, &answer) {
        remember(gate, &answer, moment, &mut batch)?;
    }
    Ok(batch)
}

fn is_open(gate: &GateRow, moment: Moment) -> Result<(), Refusal> {
    if gate.status != GateStatus::Open {
        let by = gate
            .answers
            .last()
            .map(|given| (given.answer.by.clone(), given.at));
        return match gate.status {
            GateStatus::Expired => Err(Refusal::GateExpired(gate.spec.id)),
            GateStatus::Open | GateStatus::Answered | GateStatus::Withdrawn => {
                Err(Refusal::GateClosed {
                    gate: gate.spec.id,
                    status: gate.status,
                    by,
                })
            }
        };
    }
    if gate.deadline.is_some_and(|deadline| deadline <= moment.now) {
        return Err(Refusal::GateExpired(gate.spec.id));
    }
    Ok(())
}

fn fits(kind: &GateKind, decision: &Decision) -> Result<(), Refusal> {
    if decisions(kind).contains(&decision.as_str()) {
        return Ok(());
    }
    let takes = match kind {
        GateKind::Approval | GateKind::Result => "approve, edit or reject",
        GateKind::Question | GateKind::Blocked => "answer or reject",
        GateKind::InDoubt => "approve, reject, answer or complete",
        GateKind::Signal => "complete, answer or reject",
    };
    Err(Refusal::WrongDecision {
        decision: decision.as_str(),
        takes,
    })
}

/// The digest that stands now, and that an approval names: the original, or that
/// of the newest edit among the votes, which everybody else then agrees to.
pub fn standing_digest(gate: &GateRow) -> Option<Hash> {
    let original = gate.spec.digest?;
    let edits = gate
        .answers
        .iter()
        .rev()
        .filter_map(|given| match &given.answer.decision {
            Decision::Edit(edited) => Some(edited),
            Decision::Approve | Decision::Reject | Decision::Answer(_) | Decision::Complete => None,
        });
    edits.take(1).next().map_or(Some(original), |edited| {
        Some(edited_digest(original, edited))
    })
}

/// What stands frozen now, and what `standing_digest` is of: the original, or the
/// newest edit among the votes.
pub fn standing_input(gate: &GateRow) -> Option<&RawJson> {
    let edits = gate
        .answers
        .iter()
        .rev()
        .filter_map(|given| match &given.answer.decision {
            Decision::Edit(edited) => Some(edited),
            Decision::Approve | Decision::Reject | Decision::Answer(_) | Decision::Complete => None,
        });
    edits.take(1).next().or(gate.spec.input.as_ref())
}

/// What can be said at a gate of this kind.
pub const fn decisions(kind: &GateKind) -> &'static [&'static str] {
    match kind {
        GateKind::Approval | GateKind::Result => &["approve", "edit", "reject"],
        GateKind::Question | GateKind::Blocked => &["answer", "reject"],
        GateKind::InDoubt => &["approve", "reject", "answer", "complete"],
        GateKind::Signal => &["complete", "answer", "reject"],
    }
}

fn names_what_was_shown(gate: &GateRow, answer: &Answer) -> Result<(), Refusal> {
    let Some(standing) = standing_digest(gate) else {
        return Ok(());
    };
    let needed = match answer.decision {
        Decision::Approve | Decision::Edit(_) => true,
        Decision::Reject | Decision::Answer(_) | Decision::Complete => false,
    };
    match answer.digest {
        None if needed => Err(Refusal::DigestMissing),
        Some(named) if named != standing => Err(Refusal::DigestChanged),
        None | Some(_) => Ok(()),
    }
}

fn may_answer(gate: &GateRow, answer: &Answer) -> Result<(), Refusal> {
    let agrees = matches!(answer.decision, Decision::Approve | Decision::Edit(_));
    let own = gate.submitter.as_deref() == Some(answer.by.as_str());
    if agrees && own && gate.spec.approvers.not_submitter {
        return Err(Refusal::OwnRun);
    }
    // Only a plain yes can be meant for later calls too.
    let offered = gate.spec.pattern.is_some() && answer.decision == Decision::Approve;
    if answer.scope == Scope::Run && !offered {
        return Err(Refusal::ScopeNotOffered);
    }
    let edits = matches!(answer.decision, Decision::Edit(_));
    if agrees && !edits && voices(gate).contains(answer.by.as_str()) {
        return Err(Refusal::VotedBefore(answer.by.clone()));
    }
    Ok(())
}

/// Who has agreed to what stands now: an edit restarts the count.
fn voices(gate: &GateRow) -> BTreeSet<&str> {
    let is_edit = |given: &GivenAnswer| matches!(given.answer.decision, Decision::Edit(_));
    let from = gate.answers.iter().rposition(is_edit).unwrap_or(0);
    gate.answers[from..]
        .iter()
        .map(|given| given.answer.by.as_str())
        .collect()
}

/// Whether the approval is meant for later calls too: where several must agree,
/// it reaches no further than each of them said.
fn reaches_further(gate: &GateRow, answer: &Answer) -> bool {
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
        Decision::Approve => voices(gate).len() + 1 >= needed,
        Decision::Reject | Decision::Answer(_) | Decision::Complete => true,
    }
}

/// When several agreed to an edit, the answer that counts is the edit.
fn settle_edit(gate: &GateRow, mut answer: Answer) -> Answer {
    let edit = gate
        .answers
        .iter()
        .rev()
        .find_map(|given| match &given.answer.decision {
            Decision::Edit(edited) => Some(edited.clone()),
            Decision::Approve | Decision::Reject | Decision::Answer(_) | Decision::Complete => None,
        });
    if let (Decision::Approve, Some(edited)) = (&answer.decision, edit) {
        answer.decision = Decision::Edit(edited);
    }
    answer
}

fn remember(
    gate: &GateRow,
    answer: &Answer,
    moment: Moment,
    batch: &mut Batch,
) -> Result<(), Refusal> {
    let GateSpec { id, pattern, .. } = &gate.spec;
    let Some(pattern) = pattern.clone() else {
        return Err(Refusal::ScopeNotOffered);
    };
    let rule = RuleId::derive(id.bits(), "for this run", moment.now);
    let by = answer.by.clone();
    let row = RuleRow {
        rule,
        pattern: pattern.clone(),
        by: by.clone(),
        active: true,
    };
    // The rule stands before the answer, so that whoever is woken by it knows it.
    batch
        .events
        .insert(0, Event::RuleAdded(RuleAdded { rule, pattern, by }));
    batch.changes.push(Change::PutRule(row));
    Ok(())
}
