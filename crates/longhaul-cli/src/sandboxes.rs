//! `longhaul sandboxes`: lists, shows, starts, stops and deletes sandboxes, and runs commands in
//! them.

mod exec;
mod shell;

use clap::{Args, Subcommand};
use longhaul_api::client::Request;
use longhaul_api::operation::NoQuery;
use longhaul_api::operations::{
    DELETE_SANDBOX, LIST_SANDBOXES, SHOW_SANDBOX, START_SANDBOX, STOP_SANDBOX,
};
use longhaul_api::query::SandboxesQuery;
use longhaul_api::sandbox::SandboxView;
use longhaul_core::change::SandboxState;
use longhaul_core::id::{RunId, SandboxId};

use crate::client::connect::{with_client, with_client_if_any};
use crate::event_printer::format_date_time;
use crate::exit::Exit;
use crate::sandboxes::exec::{ExecCommand, ROWS_MAX, resolve_sandbox_id};
use crate::sandboxes::shell::ShellCommand;
use crate::style::TextTone;
use crate::table::{self, ListOr, TableCell};
use crate::{output, resolve};

pub(crate) const EXAMPLES: &str = "Examples:
  longhaul sandboxes                          the sandboxes that exist
  longhaul sandboxes ls --run @last --all     also those of a run that are deleted or lost
  longhaul sandboxes show sbx_01k3s0yq8w7v2m4n6p8r0t2v4x
  longhaul sandboxes exec r0t2v4x -- ls -la   a command in the work folder
  longhaul sandboxes shell r0t2v4x            a shell in the work folder
  longhaul sandboxes stop r0t2v4x             gives its slot to another run; its files are kept
  longhaul sandboxes rm r0t2v4x               deletes its files";

/// Arguments of `longhaul sandboxes`.
pub(crate) type SandboxesCommand = ListOr<ListSandboxesCommand, SandboxesSubcommand>;

#[derive(Debug, Subcommand)]
pub(crate) enum SandboxesSubcommand {
    /// Lists the sandboxes, the oldest first
    Ls(ListSandboxesCommand),
    /// Shows a sandbox
    Show(SandboxArgs),
    /// Starts a stopped sandbox whose run has not ended
    Start(SandboxArgs),
    /// Stops a sandbox that its run does not use now, and keeps its files
    Stop(SandboxArgs),
    /// Deletes a sandbox that its run does not use now, with its files
    #[command(visible_alias = "delete")]
    Rm(SandboxArgs),
    /// Runs a command in a running sandbox; the journal of the run records the command
    Exec(ExecCommand),
    /// Opens a shell in a running sandbox; the journal of the run records each line
    #[command(after_help = shell::HELP)]
    Shell(ShellCommand),
}

#[derive(Debug, Args)]
pub(crate) struct ListSandboxesCommand {
    /// Only the sandboxes of this run: its id, four or more of its first or last characters, or @last
    #[arg(long)]
    run: Option<String>,
    /// Also list sandboxes that no longer exist
    #[arg(long)]
    all: bool,
    /// Print the sandboxes as one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SandboxArgs {
    /// Id of the sandbox, or four or more of its first or last characters
    sandbox: String,
    /// Print the sandbox as one JSON object
    #[arg(long)]
    json: bool,
}

impl SandboxesCommand {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        match &self.command {
            None => self.list.run(),
            Some(SandboxesSubcommand::Ls(list)) => list.run(),
            Some(SandboxesSubcommand::Show(args)) => args.send(|id| SHOW_SANDBOX.at(id)),
            Some(SandboxesSubcommand::Start(args)) => args.send(|id| START_SANDBOX.at(id)),
            Some(SandboxesSubcommand::Stop(args)) => args.send(|id| STOP_SANDBOX.at(id)),
            Some(SandboxesSubcommand::Rm(args)) => args.send(|id| DELETE_SANDBOX.at(id)),
            Some(SandboxesSubcommand::Exec(exec)) => return exec.run(),
            Some(SandboxesSubcommand::Shell(shell)) => return shell.run(),
        }?;
        Ok(Exit::Done)
    }
}

impl ListSandboxesCommand {
    fn run(&self) -> anyhow::Result<()> {
        let sandboxes = with_client_if_any(async |client| {
            let run: Option<RunId> = match &self.run {
                Some(run) => Some(resolve::resolve_run_id(client, run).await?),
                None => None,
            };
            let query = SandboxesQuery { run, all: self.all, ..SandboxesQuery::default() };
            client.list(LIST_SANDBOXES, query, ROWS_MAX).await
        })?;
        let titles = ["SANDBOX", "PROVIDER", "STATE", "ISOLATION", "RUN", "CREATED", "IDLE SINCE"];
        let note = "No run has used a sandbox.   Agents with `sandbox:` in their file use one";
        table::show_list(self.json, &sandboxes.unwrap_or_default(), (&titles, note), sandbox_row)
    }
}

impl SandboxArgs {
    /// Sends a request about the sandbox, and prints the sandbox.
    fn send<B: serde::Serialize + Send + Sync>(
        &self,
        request: impl FnOnce(SandboxId) -> Request<NoQuery, B, SandboxView>,
    ) -> anyhow::Result<()> {
        let sandbox = with_client(async |client| {
            let id = resolve_sandbox_id(client, &self.sandbox).await?;
            client.send(request(id)).await
        })?;
        output::show_text(self.json, &sandbox, describe_sandbox)
    }
}

/// Returns lines about a sandbox.
fn describe_sandbox(sandbox: &SandboxView) -> String {
    let SandboxView { id, provider, state, run, .. } = sandbox;
    let mut text = format!("{id}   {provider}   {}   {run}", state.as_str());
    let facts = [
        ("reason", sandbox.reason.clone()),
        ("isolation", sandbox.isolation.map(|isolation| isolation.as_str().to_owned())),
        ("handle", Some(sandbox.handle.clone()).filter(|handle| !handle.is_empty())),
        ("host", sandbox.host.clone()),
        ("created", Some(format_date_time(sandbox.created_at))),
        ("idle since", sandbox.idle_since.map(format_date_time)),
    ];
    for (name, value) in facts {
        if let Some(value) = value {
            text.push_str(&format!("\n  {name:<11}{value}"));
        }
    }
    text
}

fn sandbox_row(sandbox: &SandboxView) -> Vec<TableCell> {
    let tone = match sandbox.state {
        SandboxState::Running => TextTone::Good,
        SandboxState::Lost => TextTone::Bad,
        SandboxState::Creating
        | SandboxState::Starting
        | SandboxState::Stopping
        | SandboxState::Stopped
        | SandboxState::Deleted => TextTone::Dim,
    };
    let isolation = sandbox.isolation.map_or("-", |isolation| isolation.as_str());
    let idle = sandbox.idle_since.map_or_else(|| "-".to_owned(), format_date_time);
    table::row(&[
        &sandbox.id,
        &sandbox.provider,
        &TableCell::toned(sandbox.state.as_str(), tone),
        &isolation,
        &sandbox.run,
        &format_date_time(sandbox.created_at),
        &idle,
    ])
}
