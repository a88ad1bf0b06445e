//! An answer at a gate, and what follows from it, told to whoever gave it.
//!
//! Never: says that a run goes on when nobody drives it.

use longhaul_api::gate::GateView;
use longhaul_core::policy::gate::{Answer, Decision, Scope};
use longhaul_engine::handle::Verdict;

use crate::desk::Desk;
use crate::exit::Exit;
use crate::me::me;
use crate::teller::short;
use crate::{fail, name, say};

/// So much of a digest is said.
pub(crate) const DIGEST_LETTERS: usize = 8;

/// A gate about to be answered.
pub(crate) struct Answering<'a> {
    pub(crate) desk: &'a dyn Desk,
    pub(crate) gate: GateView,
    pub(crate) json: bool,
}

/// Gives this answer with a note at the gate that is named so.
pub(crate) fn give(
    gate: &str,
    json: bool,
    (decision, note): (Decision, Option<String>),
) -> anyhow::Result<Exit> {
    name::at_gate(gate, async |desk, gate| {
        let answering = Answering { desk, gate, json };
        let answer = answering.answer(decision, note);
        answering.give(answer).await
    })
}

impl Answering<'_> {
    /// An answer of whoever types; its digest is of what stands in the gate that
    /// was read, so an answer to anything newer is refused.
    pub(crate) fn answer(&self, decision: Decision, note: Option<String>) -> Answer {
        let digest = match decision {
            Decision::Approve | Decision::Edit(_) => self.gate.digest,
            Decision::Reject | Decision::Answer(_) | Decision::Complete => None,
        };
        Answer {
            decision,
            by: me(),
            scope: Scope::Once,
            note,
            payload: None,
            digest,
        }
    }

    /// Gives the answer, and tells what came of it.
    pub(crate) async fn give(self, answer: Answer) -> anyhow::Result<Exit> {
        let no = fail::about_gate(&self.gate);
        let id = self.gate.id;
        let done = did(&answer);
        let (verdict, gate) = self.desk.answer(id, answer).await.map_err(&no)?;
        if self.json {
            say::json(&serde_json::to_string(&gate)?)?;
            return Ok(Exit::Done);
        }
        say::words(&format!("{done}: {}", what(&gate)))?;
        say::words(&self.follows(&verdict, &gate).await?)?;
        Ok(Exit::Done)
    }

    async fn follows(&self, verdict: &Verdict, gate: &GateView) -> anyhow::Result<String> {
        let run = gate.run;
        let seq = match verdict {
            Verdict::Counted(_) => {
                let (has, needs) = (gate.answers.len(), gate.approvers);
                return Ok(format!("{has} of {needs} have agreed; {run} still waits."));
            }
            Verdict::Closed(seq) => *seq,
        };
        let open = self.desk.open_gates(run).await.map_err(fail::engine)?;
        let open = open.len();
        if open > 0 {
            let others = if open == 1 { "answer" } else { "answers" };
            return Ok(format!(
                "{run} waits for {open} more {others}: longhaul gates --run {run}"
            ));
        }
        Ok(match self.desk.is_driven().await.map_err(fail::engine)? {
            true => format!("{run} resumes at event {seq}."),
            false => format!(
                "{run} resumes at event {seq} as soon as somebody drives it: longhaul watch {run}"
            ),
        })
    }
}

fn did(answer: &Answer) -> &'static str {
    match (&answer.decision, answer.scope) {
        (Decision::Approve, Scope::Run) => "Approved for this run",
        (Decision::Approve, Scope::Once) => "Approved",
        (Decision::Edit(_), _) => "Approved with your change",
        (Decision::Reject, _) => "Rejected",
        (Decision::Answer(_), _) => "Answered",
        (Decision::Complete, _) => "Completed",
    }
}

/// What it was about: the call with its input, or what was asked.
fn what(gate: &GateView) -> String {
    let said = match (&gate.tool, &gate.input) {
        (Some(tool), Some(input)) => short(&format!("{tool} {}", input.as_str())),
        (Some(_), None) | (None, _) => short(&gate.ask),
    };
    let said = match gate.about.is_empty() {
        true => said,
        false => format!("{said}   set for it: {}", short(&gate.about.join(", "))),
    };
    let digest = gate.digest.map(|digest| digest.to_string());
    let digest = digest
        .as_deref()
        .and_then(|text| text.get(..DIGEST_LETTERS));
    match digest {
        Some(digest) => format!("{said}   digest {digest}"),
        None => said,
    }
}
