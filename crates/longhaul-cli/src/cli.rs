//! The command-line definition: lists every command and dispatches to its module.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use longhaul_core::event::EVENT_FORMAT;
use longhaul_engine::clock::SystemClock;

use crate::exit::Exit;
use crate::table::JsonArgs;
use crate::{
    agents, answer, approve, batch, chains, chaos, completions, config, db, demo, diff, doctor,
    error, export, fork, gates, help, inbox, init, keys, lanes, log, ls, mcp, memory, mock_model,
    models, output, rm, rules, run, run_commands, sandboxes, schedules, server, show, signal,
    spend, steer, submit, tools, trust, watch, worker,
};

const SERVER_HELP: &str = "Set LONGHAUL_URL to use a server instead of this folder's store:
  LONGHAUL_URL=https://agents.example LONGHAUL_KEY=lh_... longhaul ls";

/// A durable runtime for AI agents: each run is a journal of events and survives a crash of its
/// process
#[derive(Debug, Parser)]
#[command(name = "longhaul", version, arg_required_else_help = true, after_help = SERVER_HELP)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// Declares the `Command` enum and the function that runs each command, from one list.
macro_rules! commands {
    ($($(#[$attribute:meta])* $name:ident($command:ty),)*) => {
        #[derive(Debug, Subcommand)]
        enum Command {
            $($(#[$attribute])* $name($command),)*
        }

        impl Command {
            fn run(&self) -> anyhow::Result<Exit> {
                match self {
                    $(Self::$name(command) => Ok(command.run()?.into()),)*
                }
            }
        }
    };
}

// Order in the help: start, inspect, steer, decide, define, administer.
commands! {
    /// Makes a project that runs at once
    #[command(after_help = init::EXAMPLES)]
    Init(init::InitCommand),
    /// Runs a demo with an approval, a SIGKILL and a recovery; no key
    Demo(demo::DemoCommand),
    #[command(flatten)]
    Server(server::ServerCommand),
    /// Submits a task and follows its run to the end
    ///
    /// Drives (executes) the run if no worker is running.
    Run(run::RunTaskCommand),
    /// Submits a task and returns as soon as it is on disk
    Submit(submit::SubmitTaskCommand),
    /// Reports an event to the runs that wait for it by name
    #[command(after_help = signal::EXAMPLES)]
    Signal(signal::SignalCommand),
    /// Submits a file of tasks as a batch, or shows a batch
    #[command(subcommand, after_help = batch::EXAMPLES)]
    Batch(batch::BatchCommand),
    /// Drives the runs of this project until it is stopped
    Worker(worker::WorkerCommand),
    /// Lists runs, newest first
    Ls(ls::ListRunsCommand),
    /// Shows one run: a summary, the conversation or the journal
    Show(show::ShowRunCommand),
    /// Exports a run as a cassette, which can be replayed
    Export(export::ExportRunCommand),
    /// Follows a run to its end
    ///
    /// Drives (executes) the run if no worker is running.
    Watch(watch::WatchRunCommand),
    /// Explains a run's status, with the command that helps
    Why(show::WhyCommand),
    /// Sends a message to a run, or shows what became of messages
    Steer(steer::SteerRunCommand),
    #[command(flatten)]
    Runs(run_commands::RunsCommand),
    /// Deletes ended runs with their child runs and notes
    Rm(rm::RemoveRunsCommand),
    /// Goes on from any turn of a run in a new run
    ///
    /// The new run can have another model or agent, or an edited message or result.
    Fork(fork::ForkRunCommand),
    /// Compares two runs, or shows the files that a run has changed
    ///
    /// Runs are compared turn by turn. The files are those in the sandbox of a run.
    Diff(diff::DiffRunsCommand),
    /// Lists, pauses and resumes lanes
    ///
    /// The runs of one lane execute one at a time.
    #[command(after_help = lanes::EXAMPLES)]
    Lanes(lanes::LanesCommand),
    /// Lists and stops sandboxes, and runs commands in them
    ///
    /// A sandbox is the isolated environment in which the tools of a run work.
    #[command(after_help = sandboxes::EXAMPLES)]
    Sandboxes(sandboxes::SandboxesCommand),
    /// Shows what spend caps have counted, and raises a cap
    #[command(after_help = spend::EXAMPLES)]
    Spend(spend::SpendCommand),
    /// Lists inboxes, posts tasks to them, and shows their tasks
    ///
    /// Also shows dead letters: tasks that failed and were not retried.
    #[command(after_help = inbox::EXAMPLES)]
    Inbox(inbox::InboxCommand),
    /// Lists approvals and questions that wait for a person
    #[command(alias = "approvals")]
    #[command(after_help = gates::EXAMPLES)]
    Gates(gates::GatesCommand),
    /// Approves exactly the tool call that was shown
    Approve(approve::ApproveCommand),
    /// Rejects a call or question, with a note for the model
    Reject(answer::RejectCommand),
    /// Answers a question that a run asks
    Answer(answer::AnswerCommand),
    /// Frees the effect key of a call that had no effect
    ///
    /// For a call whose outcome is unknown.
    FreeKey(run_commands::FreeKeyCommand),
    /// Lists and revokes remembered approvals
    #[command(after_help = rules::EXAMPLES)]
    Rules(rules::RulesCommand),
    /// Lists, checks, shows and creates agents
    #[command(after_help = agents::EXAMPLES)]
    Agents(agents::AgentsCommand),
    /// Lists every tool that an agent could have, or shows one
    #[command(after_help = tools::EXAMPLES)]
    Tools(tools::ToolsCommand),
    /// Lists, shows and checks chains of agents
    #[command(after_help = chains::EXAMPLES)]
    Chains(chains::ChainsCommand),
    /// Lists and changes schedules, which start agents at set times
    #[command(after_help = schedules::EXAMPLES)]
    Schedules(schedules::SchedulesCommand),
    /// Lists models, prices and keys, and checks providers
    #[command(after_help = models::EXAMPLES)]
    Models(models::ModelsCommand),
    /// Lists, checks and logs in to the MCP servers in .mcp.json
    #[command(after_help = mcp::EXAMPLES)]
    Mcp(mcp::McpCommand),
    /// Shows what this project would run, and asks whether to trust it
    ///
    /// Lists the programs, messages and addresses that the project itself names.
    Trust(trust::TrustCommand),
    /// Shows and deletes what agents remember
    #[command(subcommand, after_help = memory::EXAMPLES)]
    Memory(memory::MemoryCommand),
    /// Manages API keys for the HTTP server
    #[command(subcommand, after_help = keys::EXAMPLES)]
    Keys(keys::KeysCommand),
    /// Checks, copies and restores this folder's store
    #[command(subcommand, after_help = db::EXAMPLES)]
    Db(db::DbCommand),
    /// Shows settings, and where each of them is set
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Checks what runs need on this machine, with the fix for each
    #[command(after_help = doctor::EXAMPLES)]
    Doctor(doctor::DoctorCommand),
    /// Kills workers, and checks that nothing is lost or repeated
    Chaos(chaos::ChaosCommand),
    /// Serves scripted replies over the APIs of Anthropic and OpenAI
    ///
    /// For testing SDKs and programs without a key.
    MockModel(mock_model::MockModelCommand),
    /// Prints the script that completes commands in a shell
    #[command(after_help = completions::EXAMPLES)]
    Completions(completions::CompletionsCommand),
    /// Writes the manual pages of all commands to a folder
    #[command(after_help = MAN_EXAMPLES)]
    Man(ManCommand),
    /// Prints the version of this build
    Version(VersionCommand),
}

/// Arguments of `longhaul version`, which does not check for updates.
#[derive(Debug, clap::Args)]
struct VersionCommand {
    #[command(flatten)]
    output: JsonArgs,
}

impl VersionCommand {
    fn run(&self) -> anyhow::Result<()> {
        let version = env!("CARGO_PKG_VERSION");
        let data = serde_json::json!({ "version": version, "journal_format": EVENT_FORMAT });
        let text = |_: &_| format!("longhaul {version} (journal format {EVENT_FORMAT})");
        output::show_text(self.output.json, &data, text)
    }
}

const MAN_EXAMPLES: &str = "Examples:
  longhaul man ~/.local/share/man/man1
  man longhaul-run";

/// Arguments of `longhaul man`, which generates the pages from the definition of the commands.
#[derive(Debug, clap::Args)]
struct ManCommand {
    /// Folder for the pages, which is created if necessary
    folder: PathBuf,
}

impl ManCommand {
    fn run(&self) -> anyhow::Result<()> {
        let written = fs::create_dir_all(&self.folder)
            .and_then(|()| clap_mangen::generate_to(Cli::full_command(), &self.folder));
        written.with_context(|| {
            format!("the pages can't be written to {}; name another folder", self.folder.display())
        })?;
        output::eprint_line(&format!("the pages are in {}", self.folder.display()));
        Ok(())
    }
}

/// Shows the examples of a command in the help of its subcommands too, unless they have their own.
fn inherit_examples(command: clap::Command) -> clap::Command {
    let examples = command.get_after_help().cloned().unwrap_or_default();
    command.mut_subcommands(|subcommand| {
        inherit_examples(match subcommand.get_after_help() {
            Some(_) => subcommand,
            None => subcommand.after_help(examples.clone()),
        })
    })
}

impl Cli {
    /// Returns the definition of all commands, with their examples and in the groups of the help.
    pub(crate) fn full_command() -> clap::Command {
        help::group_commands(Self::command().mut_subcommands(inherit_examples))
    }

    /// Parses the command line.
    pub(crate) fn parse_command_line() -> Result<Self, clap::Error> {
        let mut command = Self::full_command();
        let matches = command.try_get_matches_from_mut(std::env::args_os())?;
        Self::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
    }

    /// Runs the command. If it fails, prints the error with hints.
    pub(crate) fn run(self) -> ExitCode {
        // These commands set up their own log.
        if !matches!(self.command, Command::Server(_) | Command::Worker(_)) {
            log::init_warning_log();
        }
        let result = match SystemClock.is_before_1970() {
            true => error::fail(
                "the system clock is before 1970, and times before 1970 can't be stored",
                "set the clock",
                "timedatectl set-ntp true",
            ),
            false => self.command.run(),
        };
        match result {
            Ok(exit) => exit.into(),
            Err(error) => {
                log::report_error(&error);
                error::exit_for_error(&error).into()
            }
        }
    }
}
