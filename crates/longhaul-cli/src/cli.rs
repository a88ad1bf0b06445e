//! The command line: one line for each command, one file for each.
//!
//! Never: what a command does.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use longhaul_engine::clock::SystemClock;

use crate::exit::Exit;
use crate::{
    agents, answer, approve, bench, chaos, config, db, demo, error, export, gates, keys, log, ls,
    mcp, memory, mock_model, models, run, run_commands, serve, show, steer, submit, trust, version,
    watch, why, worker,
};

const SERVER_HELP: &str = "A server is asked instead of this folder's store when it is named:
  LONGHAUL_URL=https://agents.example LONGHAUL_KEY=lh_... longhaul ls";

/// A durable runtime for AI agents: a run is a journal of facts, and outlives
/// its process.
#[derive(Debug, Parser)]
#[command(name = "longhaul", version, arg_required_else_help = true, after_help = SERVER_HELP)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// Declares the commands once: what is typed, and what runs.
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

// In the order of a day: start, look, steer, decide, define, administer.
commands! {
    /// Shows an agent at work, an approval, a SIGKILL and a recovery; needs no key
    Demo(demo::Demo),
    /// Server and driver in one, for writing agents: reads them again when they change
    Dev(serve::Dev),
    /// Server and driver in one, for production
    Serve(serve::Serve),
    /// Submits a task and follows it to its end; drives if nobody does
    Run(run::Run),
    /// Submits a task and returns as soon as it is on disk
    Submit(submit::Submit),
    /// Drives the runs of this project until it is told to stop
    Worker(worker::Worker),
    /// Lists runs, newest first
    Ls(ls::Ls),
    /// Shows one run: a page, its conversation or its journal
    Show(show::Show),
    /// Writes a run down for others: as a cassette
    Export(export::Export),
    /// Follows a run to its end; drives if nobody does
    Watch(watch::Watch),
    /// Says in a sentence how a run stands, and what helps
    Why(why::Why),
    /// Writes a message to a run, and says what became of it
    Steer(steer::Steer),
    /// Lets runs stand still
    Pause(run_commands::Pause),
    /// Lets runs go on, maybe with more to spend
    Resume(run_commands::Resume),
    /// Ends runs
    Cancel(run_commands::Cancel),
    /// What waits for a person
    #[command(alias = "approvals")]
    Gates(gates::Gates),
    /// Says yes to exactly what was shown
    Approve(approve::Approve),
    /// Says no, and maybe why
    Reject(answer::Reject),
    /// Answers a question
    Answer(answer::Answer),
    /// Which agents there are, and what is wrong with them
    Agents(agents::Agents),
    /// Which models can be asked, with which key, and what they cost
    Models(models::Models),
    /// The servers of tools in .mcp.json, and whether they answer
    Mcp(mcp::Mcp),
    /// What this project would run on its own, and whether you have looked at it
    Trust(trust::Trust),
    /// What agents remember, and how it is removed
    Memory(memory::Memory),
    /// Who may come in over HTTP, and as what
    Keys(keys::Keys),
    /// Checks, copies and restores this folder's store
    #[command(subcommand)]
    Db(db::Db),
    /// What is set, by whom, and where it is read
    #[command(subcommand)]
    Config(config::Config),
    /// Measures this machine and this build, and prints the ratio between them
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Kills workers in the middle of their work and counts what came of it
    Chaos(chaos::Chaos),
    /// Plays scripts as Anthropic and OpenAI would speak them, for SDKs without a key
    MockModel(mock_model::MockModel),
    /// Says which build this is
    Version(version::Version),
}

impl Cli {
    /// Runs the command and says what went wrong, why, and what helps.
    pub(crate) fn run(self) -> ExitCode {
        // A server has a log of its own.
        if !matches!(self.command, Command::Dev(_) | Command::Serve(_)) {
            log::init_warnings();
        }
        let done = match SystemClock.is_before_1970() {
            true => Err(error::clock_before_1970().into()),
            false => self.command.run(),
        };
        match done {
            Ok(exit) => exit.into(),
            Err(error) => {
                log::report_error(&error);
                error::exit_for_error(&error).into()
            }
        }
    }
}
