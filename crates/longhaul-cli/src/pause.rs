//! `longhaul pause`: lets runs stand still until somebody says otherwise.
//!
//! Never: cuts off what is under way.

use clap::Args;

use crate::desk::find::look;
use crate::exit::Exit;
use crate::order::Order;
use crate::runtime;

const EXAMPLES: &str = "Examples:
  longhaul pause @last
  longhaul pause run_01k3qv9 run_01k41xm     let them go on: longhaul resume RUN";

/// Stills runs.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Pause {
    /// The runs: ids, the last six letters of them, or @last
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Pause {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let desk = look()?;
        runtime::small()?.block_on(Order::Pause.give(&*desk, &self.runs, self.json))
    }
}
