//! `longhaul why`: one sentence on how a run stands, and the command that helps.
//!
//! Never: more than that. `longhaul show` has the rest.

use clap::Args;
use serde_json::json;

use crate::driven::why;
use crate::exit::Exit;
use crate::{fail, name, say};

const EXAMPLES: &str = "Examples:
  longhaul why @last
  longhaul why run_01k3qv9 --json | jq -r .command";

/// Says how a run stands.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Why {
    /// The run: its id, the last six letters of it, or @last
    run: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Why {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        name::with_run(&self.run, async |desk, run| {
            let view = desk.show(run).await.map_err(fail::about_run(run))?;
            let said = why(desk, &view).await?;
            if self.json {
                let command = Some(&said.command).filter(|command| !command.is_empty());
                let answer = json!({
                    "run": run, "status": view.status, "reason": view.reason,
                    "sentence": said.sentence, "command": command,
                });
                say::json(&answer.to_string())?;
            } else {
                say::words(&said.sentence)?;
                if !said.command.is_empty() {
                    say::words(&format!("  {}", said.command))?;
                }
            }
            Ok(Exit::Done)
        })
    }
}
