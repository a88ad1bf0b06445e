//! `longhaul answer` and `longhaul reject`, and what follows from an answer at a gate. A run is
//! never said to go on when nobody drives it.

use clap::Args;
use longhaul_api::gate::GateView;
use longhaul_core::policy::gate::{self, Decision, Scope};
use longhaul_engine::handle::GateAnswerOutcome;

use crate::caller_name::caller_name;
use crate::client::RunClient;
use crate::error::CliError;
use crate::event_printer::first_line;
use crate::exit::Exit;
use crate::{output, resolve};

/// Maximum length of an answer.
const ANSWER_BYTES_MAX: u64 = 1024 * 1024;

/// How many characters of a digest are shown.
pub(crate) const DIGEST_CHARS: usize = 8;

const ANSWER_EXAMPLES: &str = "Examples:
  longhaul answer @last \"the first of March\"
  longhaul answer gate_01k3w2b - < notes.txt     the answer from stdin";

const REJECT_EXAMPLES: &str = "Examples:
  longhaul reject @last
  longhaul reject gate_01k3rzc --note \"not on a Friday\"     the model reads the note";

/// Answers a question.
#[derive(Debug, Args)]
#[command(after_help = ANSWER_EXAMPLES)]
pub(crate) struct Answer {
    /// The gate, or a run with only one open
    #[arg(value_name = "RUN|GATE")]
    gate: String,
    /// The answer; `-` reads it from stdin
    #[arg(required = true)]
    text: Vec<String>,
    /// Print the gate as one JSON object
    #[arg(long)]
    json: bool,
}

/// Says no at a gate.
#[derive(Debug, Args)]
#[command(after_help = REJECT_EXAMPLES)]
pub(crate) struct Reject {
    /// The gate, or a run with only one open
    #[arg(value_name = "RUN|GATE")]
    gate: String,
    /// Words for the model
    #[arg(long)]
    note: Option<String>,
    /// Print the gate as one JSON object
    #[arg(long)]
    json: bool,
}

impl Answer {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let text = output::text_or_stdin(&self.text, ANSWER_BYTES_MAX, "the answer")?;
        if text.trim().is_empty() {
            return Err(CliError::usage("an answer needs words").into());
        }
        answer_gate(&self.gate, self.json, (Decision::Answer(text), None))
    }
}

impl Reject {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        answer_gate(&self.gate, self.json, (Decision::Reject, self.note.clone()))
    }
}

/// Answers the gate of this name with a note.
fn answer_gate(
    gate: &str,
    json: bool,
    (decision, note): (Decision, Option<String>),
) -> anyhow::Result<Exit> {
    resolve::with_gate(gate, async |client, gate| {
        let answering = AnswerFlow { client, gate, json };
        answering.send(decision, Scope::Once, note).await
    })
}

/// A gate about to be answered.
pub(crate) struct AnswerFlow<'a> {
    pub(crate) client: &'a RunClient,
    pub(crate) gate: GateView,
    pub(crate) json: bool,
}

impl AnswerFlow<'_> {
    /// Sends the answer of whoever types, and tells what came of it. Its digest is that of the
    /// gate that was read, so an answer to anything newer is refused.
    pub(crate) async fn send(
        self,
        decision: Decision,
        scope: Scope,
        note: Option<String>,
    ) -> anyhow::Result<Exit> {
        let (done, digest) = match (&decision, scope) {
            (Decision::Approve, Scope::Run) => ("Approved for this run", self.gate.digest),
            (Decision::Approve, Scope::Once) => ("Approved", self.gate.digest),
            (Decision::Edit(_), _) => ("Approved with your change", self.gate.digest),
            (Decision::Reject, _) => ("Rejected", None),
            (Decision::Answer(_), _) => ("Answered", None),
            (Decision::Complete, _) => ("Completed", None),
        };
        let answer =
            gate::Answer { decision, by: caller_name(), scope, note, payload: None, digest };
        let (verdict, gate) = self.client.answer(&self.gate, answer).await?;
        if self.json {
            output::stdout_json(&gate)?;
            return Ok(Exit::Done);
        }
        output::stdout_text(&format!("{done}: {}", gate_subject(&gate)))?;
        output::stdout_text(&self.next_step_text(&verdict, &gate).await?)?;
        Ok(Exit::Done)
    }

    async fn next_step_text(
        &self,
        verdict: &GateAnswerOutcome,
        gate: &GateView,
    ) -> anyhow::Result<String> {
        let run = gate.run;
        let seq = match verdict {
            GateAnswerOutcome::Voted(_) => {
                let (has, needs) = (gate.answers.len(), gate.approvers);
                return Ok(format!("{has} of {needs} have agreed; {run} still waits."));
            }
            GateAnswerOutcome::Closed(seq) => *seq,
        };
        let open = self.client.open_gates(run).await?;
        let open = open.len();
        if open > 0 {
            let others = if open == 1 { "answer" } else { "answers" };
            return Ok(format!("{run} waits for {open} more {others}: longhaul gates --run {run}"));
        }
        Ok(match self.client.has_driver().await? {
            true => format!("{run} resumes at event {seq}."),
            false => format!(
                "{run} resumes at event {seq} as soon as somebody drives it: longhaul watch {run}"
            ),
        })
    }
}

/// What it was about: the call with its input, or what was asked.
fn gate_subject(gate: &GateView) -> String {
    let said = match (&gate.tool, &gate.input) {
        (Some(tool), Some(input)) => first_line(&format!("{tool} {}", input.as_str())),
        (Some(_), None) | (None, _) => first_line(&gate.ask),
    };
    let said = match gate.injected_subjects.is_empty() {
        true => said,
        false => format!("{said}   set for it: {}", first_line(&gate.injected_subjects.join(", "))),
    };
    let digest = gate.digest.map(|digest| digest.to_string());
    let digest = digest.as_deref().and_then(|text| text.get(..DIGEST_CHARS));
    match digest {
        Some(digest) => format!("{said}   digest {digest}"),
        None => said,
    }
}
