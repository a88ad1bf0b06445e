//! `longhaul answer`: a person's words to a question.
//!
//! Never: a yes to a call; that is `longhaul approve`.

use clap::Args;
use longhaul_core::policy::gate::Decision;

use crate::exit::Exit;
use crate::fail::Failure;
use crate::{answering, say};

/// The longest answer that is read.
const ANSWER_BYTES_MAX: u64 = 1024 * 1024;

const EXAMPLES: &str = "Examples:
  longhaul answer @last \"the first of March\"
  longhaul answer gate_01k3w2b - < notes.txt     the answer from stdin";

/// Answers a question.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
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

impl Answer {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let text = self.text()?;
        answering::give(&self.gate, self.json, (Decision::Answer(text), None))
    }

    fn text(&self) -> anyhow::Result<String> {
        let text = match self.text == ["-"] {
            true => say::stdin(ANSWER_BYTES_MAX, "the answer")?,
            false => self.text.join(" "),
        };
        match text.trim().is_empty() {
            true => Err(Failure::usage("an answer needs words").into()),
            false => Ok(text),
        }
    }
}
