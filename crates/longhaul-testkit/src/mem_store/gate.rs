//! Gates: raised once, answered once.
//!
//! Never: touches a gate's timer. It fires later and finds nothing to do.

use longhaul_core::change::{GateTransition, GateUpdate};
use longhaul_core::id::RunId;
use longhaul_core::policy::gate::{Answer, GateRow, GateSpec, GateStatus, RecordedAnswer};
use longhaul_core::port::store::{GateFilter, Refused};

use crate::mem_store::rows::Tables;
use crate::mem_store::tx::{ChangeResult, Tx, refuse};

impl Tx<'_> {
    /// A gate opens.
    pub(crate) fn raise_gate(&mut self, run: RunId, spec: GateSpec) {
        let submitter = self.tables.heads.get(&run).and_then(|head| head.task.submitter.clone());
        let row = GateRow {
            run,
            status: GateStatus::Open,
            raised_at: self.now,
            deadline: spec.timeout.map(|span| self.now.plus(span)),
            submitter,
            answers: Vec::new(),
            spec,
        };
        self.tables.gates.insert(row.spec.id, row);
    }

    /// An open gate gets an answer or closes.
    pub(crate) fn update_gate(&mut self, closing: GateUpdate) -> ChangeResult {
        let Some(gate) = self.tables.gates.get(&closing.gate) else {
            return refuse(Refused::GateNotFound);
        };
        if gate.status != GateStatus::Open {
            let last = gate.answers.last().cloned().map(Box::new);
            return refuse(Refused::GateClosed(gate.status, last));
        }
        // A gate without a deadline is answerable for ever.
        let is_over = gate.deadline.is_some_and(|deadline| self.now >= deadline);
        let (status, answer) = match closing.transition {
            GateTransition::Voted(answer) => (GateStatus::Open, Some(answer)),
            GateTransition::Answered(answer) => (GateStatus::Answered, Some(answer)),
            GateTransition::Expired => (GateStatus::Expired, None),
            GateTransition::Withdrawn => (GateStatus::Withdrawn, None),
        };
        if is_over && answer.is_some() {
            return refuse(Refused::GateClosed(GateStatus::Expired, None));
        }
        let at = self.now;
        let given = answer.map(|answer: Answer| RecordedAnswer { at, answer });
        self.tables.gates.update(&closing.gate, |gate| {
            gate.status = status;
            gate.answers.extend(given);
        });
        Ok(())
    }
}

impl Tables {
    /// Gates, newest first.
    pub(crate) fn gates(&self, ask: &GateFilter) -> Vec<GateRow> {
        let fits = |row: &&GateRow| {
            ask.gate.is_none_or(|gate| row.spec.id == gate)
                && ask.run.is_none_or(|run| row.run == run)
                && ask.status.is_none_or(|status| row.status == status)
                && ask.after.is_none_or(|after| row.spec.id < after)
        };
        let rows = self.gates.iter().rev().map(|(_, row)| row);
        rows.filter(fits).take(ask.limit).cloned().collect()
    }
}
