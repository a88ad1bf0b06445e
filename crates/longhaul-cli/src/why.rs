//! `longhaul why`: explains a run's status in one sentence and names the command that helps.

use clap::Args;
use serde_json::json;

use crate::driver_status::explain_run_status;
use crate::{output, resolve};

const EXAMPLES: &str = "Examples:
  longhaul why @last
  longhaul why run_01k3qv9 --json | jq -r .command";

/// Arguments of `longhaul why`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct WhyCommand {
    /// Run to explain: its id, the last six characters of the id, or @last
    run: String,
    /// Print the explanation as one JSON object
    #[arg(long)]
    json: bool,
}

impl WhyCommand {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        resolve::with_resolved_run(&self.run, async |client, run| {
            let view = client.get_run(run).await?;
            let explanation = explain_run_status(client, &view).await?;
            if self.json {
                let command = Some(&explanation.command).filter(|command| !command.is_empty());
                let answer = json!({
                    "run": run, "status": view.status, "reason": view.reason,
                    "message": explanation.message, "command": command,
                });
                return output::print_json(&answer);
            }
            output::print_text(&explanation.message)?;
            match explanation.command.as_str() {
                "" => Ok(()),
                command => output::print_text(&format!("  {command}")),
            }
        })
    }
}
