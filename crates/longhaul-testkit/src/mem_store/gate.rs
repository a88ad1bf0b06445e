//! Gates: raised once, closed once. The timer of a closed gate is not removed; it fires later
//! and has no effect.

use longhaul_core::change::{GateTransition, GateUpdate};
use longhaul_core::id::RunId;
use longhaul_core::policy::gate::{Answer, GateRow, GateSpec, GateStatus, RecordedAnswer};
use longhaul_core::port::store::{AppendRefusalReason, GateFilter};

use crate::mem_store::rows::Tables;
use crate::mem_store::tx::{ChangeResult, Tx, refuse};

impl Tx<'_> {
    /// Opens a gate. Refused if a gate with this id exists.
    pub(crate) fn raise_gate(&mut self, run: RunId, spec: GateSpec) -> ChangeResult {
        if self.tables.gates.get(&spec.id).is_some() {
            return refuse(AppendRefusalReason::GateExists);
        }
        let submitter = self.tables.heads.get(&run).and_then(|head| head.task.submitter.clone());
        let row = GateRow {
            run,
            status: GateStatus::Open,
            raised_at: self.now,
            deadline: spec.timeout.map(|timeout| self.now.plus(timeout)),
            submitter,
            answers: Vec::new(),
            spec,
        };
        self.tables.gates.insert(row.spec.id, row);
        Ok(())
    }

    /// Adds an answer to an open gate, or closes it.
    pub(crate) fn update_gate(&mut self, update: GateUpdate) -> ChangeResult {
        let Some(gate) = self.tables.gates.get(&update.gate) else {
            return refuse(AppendRefusalReason::GateNotFound);
        };
        if gate.status != GateStatus::Open {
            let last = gate.answers.last().cloned().map(Box::new);
            return refuse(AppendRefusalReason::GateClosed(gate.status, last));
        }
        if update.seen_answers.is_some_and(|seen| seen != gate.answers.len()) {
            return refuse(AppendRefusalReason::GateAnswersChanged);
        }
        // A gate without a deadline never expires.
        let has_deadline = !matches!(update.transition, GateTransition::AnsweredByMessage(_));
        let is_expired = has_deadline && gate.deadline.is_some_and(|deadline| self.now >= deadline);
        let (status, answer) = match update.transition {
            GateTransition::Voted(answer) => (GateStatus::Open, Some(answer)),
            GateTransition::Answered(answer) | GateTransition::AnsweredByMessage(answer) => {
                (GateStatus::Answered, Some(answer))
            }
            GateTransition::Expired => (GateStatus::Expired, None),
            GateTransition::Withdrawn => (GateStatus::Withdrawn, None),
        };
        if is_expired && answer.is_some() {
            return refuse(AppendRefusalReason::GateClosed(GateStatus::Expired, None));
        }
        let at = self.now;
        let recorded = answer.map(|answer: Answer| RecordedAnswer { at, answer });
        self.tables.gates.update(&update.gate, |gate| {
            gate.status = status;
            gate.answers.extend(recorded);
        });
        Ok(())
    }
}

impl Tables {
    /// Returns gates, newest first.
    pub(crate) fn gates(&self, filter: &GateFilter) -> Vec<GateRow> {
        let matches = |row: &&GateRow| {
            filter.gate.is_none_or(|gate| row.spec.id == gate)
                && filter.run.is_none_or(|run| row.run == run)
                && filter.status.is_none_or(|status| row.status == status)
                && filter.tag.as_ref().is_none_or(|tag| row.spec.tags.contains(tag))
                && filter.after.is_none_or(|after| row.spec.id < after)
        };
        let rows = self.gates.iter().rev().map(|(_, row)| row);
        rows.filter(matches).take(filter.limit).cloned().collect()
    }
}
