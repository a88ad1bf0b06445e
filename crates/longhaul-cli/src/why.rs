//! `longhaul why`: one sentence on how a run stands, and the command that helps.
//!
//! Never: more than that. `longhaul show` has the rest.

use clap::Args;
use serde_json::json;

use crate::driver_status::explain;
use crate::{output, resolve};

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
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        resolve::with_run(&self.run, async |client, run| {
            let view = client.show(run).await?;
            let said = explain(client, &view).await?;
            if self.json {
                let command = Some(&said.command).filter(|command| !command.is_empty());
                let answer = json!({
                    "run": run, "status": view.status, "reason": view.reason,
                    "message": said.message, "command": command,
                });
                return output::stdout_json(&answer);
            }
            output::stdout_text(&said.message)?;
            match said.command.as_str() {
                "" => Ok(()),
                command => output::stdout_text(&format!("  {command}")),
            }
        })
    }
}
