//! `longhaul submit`: hands a task over and returns as soon as it is on disk.
//!
//! Never: drives or follows.

use clap::Args;
use longhaul::assemble::House;
use longhaul_core::id::RunId;

use crate::cli::exit::Exit;
use crate::cli::fail::{self, Failure};
use crate::cli::open;
use crate::cli::task_args::TaskArgs;
use crate::cli::{runtime, say};

const EXAMPLES: &str = "Examples:
  longhaul submit writer \"Summarise README.md\"
  longhaul submit writer - --lane docs < task.txt
  longhaul submit writer \"...\" --idempotency-key 2026-11-15   safe to repeat

The run begins as soon as somebody drives: longhaul worker";

/// Submits a task.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Submit {
    #[command(flatten)]
    task: TaskArgs,
    /// Print the run as one JSON object
    #[arg(long)]
    json: bool,
}

impl Submit {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let house = open::beside()?;
        runtime::small()?.block_on(async {
            let run = submit(&house, &self.task).await?;
            if self.json {
                let view = house.longhaul.show(run).await.map_err(fail::engine)?;
                say::data(&serde_json::to_string(&view)?)?;
            } else {
                say::data(&run.to_string())?;
            }
            Ok(Exit::Done)
        })
    }
}

/// Submits what was typed, after a look whether it can be done at all.
pub(crate) async fn submit(house: &House, args: &TaskArgs) -> anyhow::Result<RunId> {
    let found = house
        .loaded
        .find(args.agent())
        .map_err(|error| Failure::usage(error.to_string()).hint("all agents", "longhaul agents"))?;
    let agent = &found.agent;
    let named = args
        .model()
        .or_else(|| agent.models.first().map(String::as_str));
    let model = house.longhaul.ports().models.find(named);
    model.map_err(|sentence| {
        Failure::usage(format!("no model for agent `{}`: {sentence}", agent.name))
            .hint("see what is set", "longhaul config show --origin")
            .hint("or try the scripted demo", "longhaul demo")
    })?;
    let task = args.task()?;
    house.longhaul.submit(task).await.map_err(fail::engine)
}
