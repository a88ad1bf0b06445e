//! `longhaul reject`: a no, and maybe why.
//!
//! Never: needs a digest. A no is safe whatever is asked.

use clap::Args;
use longhaul_core::policy::gate::Decision;

use crate::answering;
use crate::exit::Exit;

const EXAMPLES: &str = "Examples:
  longhaul reject @last
  longhaul reject gate_01k3rzc --note \"not on a Friday\"     the model reads the note";

/// Says no at a gate.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
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

impl Reject {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        answering::give(&self.gate, self.json, (Decision::Reject, self.note.clone()))
    }
}
