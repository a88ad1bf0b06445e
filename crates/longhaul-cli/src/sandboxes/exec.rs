//! `longhaul sandboxes exec`: runs one command in a sandbox.

use std::time::Duration;

use clap::Args;
use longhaul_api::operations::{EXEC_IN_SANDBOX, LIST_SANDBOXES};
use longhaul_api::query::SandboxesQuery;
use longhaul_api::sandbox::{SandboxExecBody, SandboxExecView};
use longhaul_core::id::SandboxId;

use crate::client::Client;
use crate::client::connect::with_client;
use crate::exit::Exit;
use crate::{output, resolve};

/// Maximum number of sandboxes that are listed.
pub(super) const ROWS_MAX: usize = 10_000;

#[derive(Debug, Args)]
pub(crate) struct ExecCommand {
    /// Id of the sandbox, or four or more of its first or last characters
    sandbox: String,
    /// Working directory; default: the work folder
    #[arg(long)]
    cwd: Option<String>,
    /// Seconds after which the command is killed, 600 at most
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=600))]
    timeout: u64,
    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
    /// Program and arguments
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

impl ExecCommand {
    pub(super) fn run(&self) -> anyhow::Result<Exit> {
        let body = SandboxExecBody {
            command: self.command.clone(),
            cwd: self.cwd.clone(),
            timeout: Some(self.timeout),
        };
        let ended = with_client(async |client| {
            let id = resolve_sandbox_id(client, &self.sandbox).await?;
            exec_in_sandbox(client, id, &body).await
        })?;
        if self.json {
            output::print_json(&ended)?;
        } else {
            print_output(&ended)?;
        }
        Ok(if ended.exit == Some(0) { Exit::Done } else { Exit::RunFailed })
    }
}

/// Sends a command, and waits as long as the command may run.
pub(super) async fn exec_in_sandbox(
    client: &Client,
    id: SandboxId,
    body: &SandboxExecBody,
) -> anyhow::Result<SandboxExecView> {
    let time = Duration::from_secs(body.timeout.unwrap_or_default());
    client.send(EXEC_IN_SANDBOX.at(id).body(body).with_extra_time(time)).await
}

/// Prints the output of a command, and how the command ended if it has failed.
pub(super) fn print_output(ended: &SandboxExecView) -> anyhow::Result<()> {
    output::print_untrusted_output(&ended.stdout)?;
    for line in ended.stderr.lines() {
        output::eprint_line(line);
    }
    for refusal in &ended.refused {
        output::eprint_line(refusal);
    }
    match (&ended.killed, ended.exit) {
        (Some(reason), _) => output::eprint_line(&format!("The command was killed: {reason}.")),
        (None, Some(0) | None) => {}
        (None, Some(code)) => output::eprint_line(&format!("exit {code}")),
    }
    Ok(())
}

/// Finds the sandbox with this id or id suffix, also if it no longer exists.
pub(super) async fn resolve_sandbox_id(client: &Client, id: &str) -> anyhow::Result<SandboxId> {
    if let Ok(sandbox) = id.parse::<SandboxId>() {
        return Ok(sandbox);
    }
    let query = SandboxesQuery { all: true, ..SandboxesQuery::default() };
    let sandboxes = client.list(LIST_SANDBOXES, query, ROWS_MAX).await?;
    resolve::resolve_id_part(id, "sandbox", SandboxId::PREFIX, sandboxes.iter().map(|row| row.id))
}
