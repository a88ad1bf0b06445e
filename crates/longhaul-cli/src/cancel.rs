//! `longhaul cancel`: ends runs.
//!
//! Never: says that a run has ended when it has only been told to.

use clap::Args;

use crate::desk::find::look;
use crate::exit::Exit;
use crate::order::Order;
use crate::runtime;

const EXAMPLES: &str = "Examples:
  longhaul cancel @last
  longhaul cancel run_01k3qv9 run_01k41xm --reason \"wrong repository\"

A run that nobody drives ends at once, one that is driven as soon as its driver hears.";

/// Ends runs.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Cancel {
    /// The runs: ids, the last six letters of them, or @last
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<String>,
    /// Why, for the journal
    #[arg(long, default_value = "cancelled from the command line")]
    reason: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Cancel {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let desk = look()?;
        let order = Order::Cancel(self.reason.clone());
        runtime::small()?.block_on(order.give(&*desk, &self.runs, self.json))
    }
}
