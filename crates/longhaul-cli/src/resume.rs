//! `longhaul resume`: lets runs go on, maybe with more to spend.
//!
//! Never: drives them; a worker does, or `longhaul watch`.

use clap::Args;
use longhaul_core::policy::budget::Raise;

use crate::desk::find::look;
use crate::exit::Exit;
use crate::order::Order;
use crate::runtime;
use crate::task_args::raise;

const EXAMPLES: &str = "Examples:
  longhaul resume @last
  longhaul resume run_01k3qv9 --budget 10              up to ten dollars in all
  longhaul resume run_01k3qv9 --budget turns=50,tokens=1000000";

/// Lets runs go on.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Resume {
    /// The runs: ids, the last six letters of them, or @last
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<String>,
    /// New caps: dollars, or a list such as usd=2,turns=20,tokens=100000,active_time=10m
    #[arg(long, value_parser = raise)]
    budget: Option<Raise>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Resume {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let desk = look()?;
        let order = Order::Resume(self.budget);
        runtime::small()?.block_on(order.give(&*desk, &self.runs, self.json))
    }
}
