//! Answers gates as a person would who goes and looks at the world.
//!
//! Never: says that something happened that nobody saw, or lets a call that must
//! not be repeated begin again.

use std::collections::BTreeMap;
use std::path::PathBuf;

use longhaul_core::id::RunId;
use longhaul_core::policy::gate::{Answer, Decision, GateKind, GateRow, GateStatus, Scope};
use longhaul_core::port::store::GateFilter;
use longhaul_engine::{Error, Longhaul};
use longhaul_run::commands::current_digest;

use crate::chaos::probe_log;
use crate::chaos::verify::call_history::PROBE_PREFIX;

/// So many gates are answered at once.
const GATES_MAX: usize = 1_000;

/// After so many answers a run is left as it is: it would ask for ever.
const ANSWERS_PER_RUN_MAX: u32 = 200;

/// Who answers.
#[derive(Debug)]
pub(crate) struct AutoApprover {
    /// Where the witness tools leave their lines.
    pub(crate) probe_file: Option<PathBuf>,
    answer_counts: BTreeMap<RunId, u32>,
}

impl AutoApprover {
    pub(crate) const fn new(file: Option<PathBuf>) -> Self {
        Self { probe_file: file, answer_counts: BTreeMap::new() }
    }

    /// Answers every open gate.
    pub(crate) async fn answer_gates(&mut self, longhaul: &Longhaul) -> anyhow::Result<()> {
        let ask = GateFilter {
            status: Some(GateStatus::Open),
            limit: GATES_MAX,
            ..GateFilter::default()
        };
        for gate in longhaul.gates(ask).await? {
            let answered = self.answer_counts.entry(gate.run).or_default();
            if *answered >= ANSWERS_PER_RUN_MAX {
                continue;
            }
            *answered += 1;
            let (decision, note) = self.decide(&gate)?;
            let answer = Answer {
                decision,
                // A quorum wants different people.
                by: format!("chaos:{}", gate.answers.len() + 1),
                scope: Scope::Once,
                note: Some(note.to_owned()),
                payload: None,
                digest: current_digest(&gate),
            };
            match longhaul.answer(gate.spec.id, answer).await {
                // Its driver was quicker to withdraw it, or writes right now.
                Ok(_) | Err(Error::Rejected(_) | Error::Contention(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn decide(&self, gate: &GateRow) -> anyhow::Result<(Decision, &'static str)> {
        Ok(match gate.spec.kind {
            GateKind::Approval | GateKind::Result => (Decision::Approve, "chaos approves all"),
            GateKind::Question => (Decision::Answer("go on".into()), "chaos knows no answer"),
            GateKind::Blocked => (Decision::Reject, "chaos can't help"),
            GateKind::Signal => (Decision::Complete, "chaos waits for nobody"),
            GateKind::InDoubt if self.has_probe_record(gate)? => {
                (Decision::Complete, "chaos looked: its line is there")
            }
            GateKind::InDoubt if is_probed(gate) => {
                (Decision::Reject, "chaos looked: there is no line of it")
            }
            GateKind::InDoubt => {
                (Decision::Reject, "nobody could look: in a storm it counts as not done")
            }
        })
    }

    /// Whether the world shows a line of that call. Its driver is dead and
    /// reaped, so no line can come any more.
    fn has_probe_record(&self, gate: &GateRow) -> anyhow::Result<bool> {
        let (Some(file), Some(call)) = (&self.probe_file, gate.spec.call) else {
            return Ok(false);
        };
        let lines = probe_log::load(file)?;
        let is_it = |line: &probe_log::ProbeRecord| line.run == gate.run && line.call == call;
        Ok(lines.iter().any(is_it))
    }
}

fn is_probed(gate: &GateRow) -> bool {
    let tool = gate.spec.tool.as_deref();
    tool.is_some_and(|tool| tool.starts_with(PROBE_PREFIX))
}
