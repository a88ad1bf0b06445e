//! `longhaul answer`: a person's words to a question.
//!
//! Never: a yes to a call; that is `longhaul approve`.

use std::io::Read as _;

use anyhow::Context as _;
use clap::Args;
use longhaul_core::policy::gate::Decision;

use crate::answering::Answering;
use crate::desk::find::look;
use crate::exit::Exit;
use crate::fail::Failure;
use crate::{name, runtime};

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
        let desk = look()?;
        let desk = &*desk;
        runtime::small()?.block_on(async {
            let gate = name::gate(desk, &self.gate).await?;
            let json = self.json;
            let answering = Answering { desk, gate, json };
            let answer = answering.answer(Decision::Answer(text), None);
            answering.give(answer).await
        })
    }

    fn text(&self) -> anyhow::Result<String> {
        let mut text = self.text.join(" ");
        if self.text == ["-"] {
            text.clear();
            let stdin = std::io::stdin().lock();
            stdin
                .take(ANSWER_BYTES_MAX)
                .read_to_string(&mut text)
                .context("the answer can't be read from stdin")?;
        }
        match text.trim().is_empty() {
            true => Err(Failure::usage("an answer needs words").into()),
            false => Ok(text),
        }
    }
}
