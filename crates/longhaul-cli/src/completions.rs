//! `longhaul completions`: scripts with which shells complete command lines.
//!
//! A shell's script asks this binary for what can follow, so that it completes the agents and runs of
//! the current project too.

use anyhow::Context as _;
use clap::{Args, Command};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::{CompleteEnv, Shells};
use longhaul_api::query::RunsQuery;

use crate::client::connect::with_client_if_any;
use crate::{environment, output};

pub(crate) const EXAMPLES: &str = "Examples:
  source <(longhaul completions bash)        in ~/.bashrc
  source <(longhaul completions zsh)         in ~/.zshrc, below compinit
  longhaul completions fish | source         in ~/.config/fish/config.fish";

/// Environment variable in which a shell's script names the shell that asks for completions.
const SHELL_VAR: &str = "LONGHAUL_COMPLETE";

/// Name of the binary, as the scripts call it.
const BINARY: &str = "longhaul";

/// Maximum number of the newest runs that are completed.
const RUNS_MAX: usize = 50;

/// Arguments of `longhaul completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsCommand {
    /// Shell that the script is for
    #[arg(value_parser = ["bash", "zsh", "fish"])]
    shell: String,
}

/// Answers a shell that asks what can follow on its command line of this command, with the agents
/// and runs of the project, and ends the process. Returns if no shell asks.
pub(crate) fn answer_shell(command: impl Fn() -> Command) {
    let with_candidates = || command().mut_subcommands(add_candidates);
    CompleteEnv::with_factory(with_candidates).var(SHELL_VAR).bin(BINARY).complete();
}

impl CompletionsCommand {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let shells = Shells::builtins();
        let shell = shells.completer(&self.shell).context("the shell is not supported")?;
        let mut script = Vec::new();
        shell.write_registration(SHELL_VAR, BINARY, BINARY, BINARY, &mut script)?;
        output::print_text(String::from_utf8(script)?.trim_end())
    }
}

fn add_candidates(command: Command) -> Command {
    let command = command.mut_args(|arg| match arg.get_id().as_str() {
        "agent" => arg.add(ArgValueCandidates::new(agents)),
        "run" | "runs" | "id" | "root" | "parent" | "after" => {
            arg.add(ArgValueCandidates::new(runs))
        }
        // An approval or a question can be named by its run.
        "gate" | "gates" => arg.add(ArgValueCandidates::new(runs)),
        _ => arg,
    });
    let is_agents = command.get_name() == "agents";
    command.mut_subcommands(|subcommand| match is_agents {
        true => subcommand.mut_args(|arg| match arg.get_id().as_str() {
            "name" => arg.add(ArgValueCandidates::new(agents)),
            _ => arg,
        }),
        false => add_candidates(subcommand),
    })
}

/// Returns the agents of the project. None if the project can't be loaded.
fn agents() -> Vec<CompletionCandidate> {
    let load = || {
        let config = environment::load_config_quietly(&environment::current_process_env()?)?;
        environment::load_agents(&config)
    };
    let agents = load().map(|loaded| loaded.agents).unwrap_or_default().into_iter();
    let agents = agents.map(|one| {
        let description = Some(one.agent.description).filter(|text| !text.is_empty());
        CompletionCandidate::new(one.agent.name.to_string()).help(description.map(Into::into))
    });
    agents.collect()
}

/// Returns `@last` and the newest runs. Only `@last` if there is no store or server.
fn runs() -> Vec<CompletionCandidate> {
    let rows =
        with_client_if_any(async |client| client.list_runs(RunsQuery::default(), RUNS_MAX).await);
    let rows = rows.ok().flatten().unwrap_or_default().into_iter();
    let runs = rows.map(|row| {
        let help = format!("{} {}", row.agent, row.status.as_str());
        CompletionCandidate::new(row.id.to_string()).help(Some(help.into()))
    });
    let last = CompletionCandidate::new("@last").help(Some("the newest run".into()));
    std::iter::once(last).chain(runs).collect()
}
