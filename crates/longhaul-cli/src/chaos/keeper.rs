//! Answers gates as a person would who goes and looks at the world.
//!
//! Never: says that something happened that nobody saw, or lets a call that must
//! not be repeated begin again.

use std::collections::BTreeMap;
use std::path::PathBuf;

use longhaul_core::id::RunId;
use longhaul_core::policy::gate::{Answer, Decision, GateKind, GateRow, GateStatus, Scope};
use longhaul_core::port::store::GatesAsk;
use longhaul_engine::{Error, Longhaul};
use longhaul_run::outside::standing_digest;

use crate::chaos::judge::life::WITNESS;
use crate::chaos::witness;

/// So many gates are answered at once.
const GATES_MAX: usize = 1_000;

/// After so many answers a run is left as it is: it would ask for ever.
const ANSWERS_MAX: u32 = 200;

/// Who answers.
#[derive(Debug)]
pub(crate) struct Keeper {
    /// Where the witness tools leave their lines.
    pub(crate) file: Option<PathBuf>,
    answered: BTreeMap<RunId, u32>,
}

impl Keeper {
    pub(crate) const fn new(file: Option<PathBuf>) -> Self {
        Self {
            file,
            answered: BTreeMap::new(),
        }
    }

    /// Answers every open gate.
    pub(crate) async fn tend(&mut self, longhaul: &Longhaul) -> anyhow::Result<()> {
        let ask = GatesAsk {
            status: Some(GateStatus::Open),
            limit: GATES_MAX,
            ..GatesAsk::default()
        };
        for gate in longhaul.gates(ask).await? {
            let answered = self.answered.entry(gate.run).or_default();
            if *answered >= ANSWERS_MAX {
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
                digest: standing_digest(&gate),
            };
            match longhaul.answer(gate.spec.id, answer).await {
                // Its driver was quicker to withdraw it, or writes right now.
                Ok(_) | Err(Error::Refused(_) | Error::Crowded(_)) => {}
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
            GateKind::InDoubt if self.happened(gate)? => {
                (Decision::Complete, "chaos looked: its line is there")
            }
            GateKind::InDoubt if is_witnessed(gate) => {
                (Decision::Reject, "chaos looked: there is no line of it")
            }
            GateKind::InDoubt => (
                Decision::Reject,
                "nobody could look: in a storm it counts as not done",
            ),
        })
    }

    /// Whether the world shows a line of that call. Its driver is dead and
    /// reaped, so no line can come any more.
    fn happened(&self, gate: &GateRow) -> anyhow::Result<bool> {
        let (Some(file), Some(call)) = (&self.file, gate.spec.call) else {
            return Ok(false);
        };
        let lines = witness::read(file)?;
        let is_it = |line: &witness::Line| line.run == gate.run && line.call == call;
        Ok(lines.iter().any(is_it))
    }
}

fn is_witnessed(gate: &GateRow) -> bool {
    let tool = gate.spec.tool.as_deref();
    tool.is_some_and(|tool| tool.starts_with(WITNESS))
}
