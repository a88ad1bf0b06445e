//! `longhaul sandboxes`: lists, shows, starts, stops and deletes sandboxes, and runs commands in
//! them.

use clap::{Args, Subcommand};
use longhaul_api::client::Request;
use longhaul_api::operation::NoQuery;
use longhaul_api::operations::{
    DELETE_SANDBOX, EXEC_IN_SANDBOX, LIST_SANDBOXES, SHOW_SANDBOX, START_SANDBOX, STOP_SANDBOX,
};
use longhaul_api::query::SandboxesQuery;
use longhaul_api::sandbox::{SandboxExecBody, SandboxExecView, SandboxView};
use longhaul_core::change::SandboxState;
use longhaul_core::id::{RunId, SandboxId};

use crate::client::Client;
use crate::client::connect::{with_client, with_client_if_any};
use crate::event_printer::format_date_time;
use crate::exit::Exit;
use crate::style::TextTone;
use crate::table::{self, ListOr, TableCell};
use crate::{output, resolve};

/// Maximum number of sandboxes that are listed.
const ROWS_MAX: usize = 10_000;

pub(crate) const EXAMPLES: &str = "Examples:
  longhaul sandboxes                          the sandboxes that exist
  longhaul sandboxes ls --run @last --all     also those of a run that are deleted or lost
  longhaul sandboxes show sbx_01k3s0yq8w7v2m4n6p8r0t2v4x
  longhaul sandboxes exec r0t2v4x -- ls -la   a command in the work folder
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
}

#[derive(Debug, Args)]
pub(crate) struct ListSandboxesCommand {
    /// Only the sandboxes of this run: its id, the last six or more characters, or @last
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
    /// Id of the sandbox, or at least its last six characters
    sandbox: String,
    /// Print the sandbox as one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ExecCommand {
    /// Id of the sandbox, or at least its last six characters
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

impl ExecCommand {
    fn run(&self) -> anyhow::Result<Exit> {
        let body = SandboxExecBody {
            command: self.command.clone(),
            cwd: self.cwd.clone(),
            timeout: Some(self.timeout),
        };
        let ended = with_client(async |client| {
            let id = resolve_sandbox_id(client, &self.sandbox).await?;
            client.send(EXEC_IN_SANDBOX.at(id).body(&body)).await
        })?;
        if self.json {
            output::print_json(&ended)?;
        } else {
            print_output(&ended)?;
        }
        Ok(if ended.exit == Some(0) { Exit::Done } else { Exit::RunFailed })
    }
}

fn print_output(ended: &SandboxExecView) -> anyhow::Result<()> {
    output::print_untrusted_text(&ended.stdout)?;
    for line in ended.stderr.lines() {
        output::eprint_line(line);
    }
    for refusal in &ended.refused {
        output::eprint_line(&format!("The sandbox refused: {refusal}"));
    }
    match (&ended.killed, ended.exit) {
        (Some(reason), _) => output::eprint_line(&format!("The command was killed: {reason}.")),
        (None, Some(0) | None) => {}
        (None, Some(code)) => output::eprint_line(&format!("exit {code}")),
    }
    Ok(())
}

/// Finds the sandbox with this id or id suffix, also if it no longer exists.
async fn resolve_sandbox_id(client: &Client, id: &str) -> anyhow::Result<SandboxId> {
    if let Ok(sandbox) = id.parse::<SandboxId>() {
        return Ok(sandbox);
    }
    let query = SandboxesQuery { all: true, ..SandboxesQuery::default() };
    let sandboxes = client.list(LIST_SANDBOXES, query, ROWS_MAX).await?;
    resolve::resolve_id_suffix(id, "sandbox", SandboxId::PREFIX, sandboxes.iter().map(|row| row.id))
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
