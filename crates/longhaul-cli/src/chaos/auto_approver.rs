//! Answers the gates of a chaos test, which otherwise wait for a person. For a call in doubt
//! (started, outcome unknown after a kill), the effects that probe tools (tools for crash tests)
//! recorded in a file decide the answer.
//!
//! Invariant: a call counts as done only if it has a record, and a call that must not be repeated
//! is never started again.

use std::collections::BTreeMap;
use std::path::PathBuf;

use longhaul_core::id::RunId;
use longhaul_core::policy::gate::{
    Answer, AnswerScope, GateDecision, GateKind, GateRow, GateStatus,
};
use longhaul_core::port::store::GateFilter;
use longhaul_engine::{Error, Longhaul};
use longhaul_run::commands::current_gate_digest;

use crate::chaos::probe_log;
use crate::chaos::verify::call_history::PROBE_PREFIX;

/// Maximum number of gates that are answered at a time.
const GATES_MAX: usize = 1_000;

/// Maximum number of answers per run. Further gates of the run stay open, because the run might
/// never end.
const ANSWERS_PER_RUN_MAX: u32 = 200;

/// Answers the gates of the runs of a chaos test in place of a person.
#[derive(Debug)]
pub(crate) struct AutoApprover {
    /// The file in which probe tools (tools for crash tests) record their effects. `None` if no
    /// file is set.
    pub(crate) effect_log_path: Option<PathBuf>,
    answer_counts: BTreeMap<RunId, u32>,
}

impl AutoApprover {
    pub(crate) const fn new(file: Option<PathBuf>) -> Self {
        Self { effect_log_path: file, answer_counts: BTreeMap::new() }
    }

    /// Answers the open gates of all runs.
    pub(crate) async fn answer_gates(&mut self, longhaul: &Longhaul) -> anyhow::Result<()> {
        let filter = GateFilter {
            status: Some(GateStatus::Open),
            limit: GATES_MAX,
            ..GateFilter::default()
        };
        for gate in longhaul.list_gates(filter).await? {
            let count = self.answer_counts.entry(gate.run).or_default();
            if *count >= ANSWERS_PER_RUN_MAX {
                continue;
            }
            *count += 1;
            let (decision, note) = self.decision_and_note(&gate)?;
            let answer = Answer {
                decision,
                // A quorum needs different people.
                by: format!("chaos:{}", gate.answers.len() + 1),
                scope: AnswerScope::Once,
                note: Some(note.to_owned()),
                payload: None,
                digest: current_gate_digest(&gate),
            };
            match longhaul.answer_gate(gate.spec.id, answer).await {
                // The driver has withdrawn the gate meanwhile, or is writing at the moment.
                Ok(_) | Err(Error::Rejected(_) | Error::Contention(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Returns the decision about a gate, and the note of the answer.
    fn decision_and_note(&self, gate: &GateRow) -> anyhow::Result<(GateDecision, &'static str)> {
        Ok(match gate.spec.kind {
            GateKind::Approval | GateKind::Result => (GateDecision::Approve, "chaos approves all"),
            GateKind::Question => (GateDecision::Answer("go on".into()), "chaos has no answer"),
            GateKind::Blocked => (GateDecision::Reject, "chaos can't help"),
            GateKind::Signal => (GateDecision::Complete, "chaos sends every signal"),
            GateKind::InDoubt if self.has_effect_record(gate)? => {
                (GateDecision::Complete, "chaos checked: it has a record")
            }
            GateKind::InDoubt if is_effect_logging_tool_call(gate) => {
                (GateDecision::Reject, "chaos checked: it has no record")
            }
            GateKind::InDoubt => {
                (GateDecision::Reject, "not verifiable: chaos treats it as not done")
            }
        })
    }

    /// Returns whether the effect log, in which the probe tools record their effects, has a record
    /// of the gate's call. The process that made the call is dead, so no further record can appear.
    fn has_effect_record(&self, gate: &GateRow) -> anyhow::Result<bool> {
        let (Some(file), Some(call)) = (&self.effect_log_path, gate.spec.call) else {
            return Ok(false);
        };
        let records = probe_log::read_effect_log(file)?;
        let is_record_of_call =
            |record: &probe_log::EffectRecord| record.run == gate.run && record.call == call;
        Ok(records.iter().any(is_record_of_call))
    }
}

/// Returns whether the gate's call is one of a probe tool, which is a tool for crash tests that
/// records its effects in a file.
fn is_effect_logging_tool_call(gate: &GateRow) -> bool {
    let tool = gate.spec.tool.as_deref();
    tool.is_some_and(|tool| tool.starts_with(PROBE_PREFIX))
}
