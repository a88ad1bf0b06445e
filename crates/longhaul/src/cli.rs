//! The command line: one line for each command, one file for each.
//!
//! Never: what a command does.

mod agents;
mod bench;
mod card;
mod chaos;
mod config;
mod demo;
mod driving;
mod exit;
mod fail;
mod follow;
mod here;
mod me;
mod name;
mod open;
mod person;
mod run;
mod runtime;
mod say;
mod submit;
mod task_args;
mod teller;
mod version;
mod worker;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::cli::exit::Exit;
use crate::cli::fail::Failure;

/// A durable runtime for AI agents: a run is a journal of facts, and outlives
/// its process.
#[derive(Debug, Parser)]
#[command(name = "longhaul", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Which agents there are, and what is wrong with them
    Agents(agents::Agents),
    /// Measures this machine and this build, and prints the ratio between them
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Kills workers in the middle of their work and counts what came of it
    Chaos(chaos::Chaos),
    /// What is set, by whom, and where it is read
    #[command(subcommand)]
    Config(config::Config),
    /// Shows an agent at work, an approval, a SIGKILL and a recovery; needs no key
    Demo(demo::Demo),
    /// Submits a task and follows it to its end; drives if nobody does
    Run(run::Run),
    /// Submits a task and returns as soon as it is on disk
    Submit(submit::Submit),
    /// Says which build this is
    Version(version::Version),
    /// Drives the runs of this project until it is told to stop
    Worker(worker::Worker),
}

impl Cli {
    /// Runs the command and says what went wrong, why, and what helps.
    pub(crate) fn run(self) -> ExitCode {
        tracing_subscriber::fmt()
            .with_writer(std::io::stderr)
            .with_max_level(tracing::Level::WARN)
            .with_target(false)
            .init();
        let done = match self.command {
            Command::Agents(agents) => agents.run().map(|()| Exit::Done),
            Command::Bench(bench) => bench.run().map(|()| Exit::Done),
            Command::Chaos(chaos) => chaos.run(),
            Command::Config(config) => config.run().map(|()| Exit::Done),
            Command::Demo(demo) => demo.run(),
            Command::Run(run) => run.run(),
            Command::Submit(submit) => submit.run(),
            Command::Version(version) => version.run().map(|()| Exit::Done),
            Command::Worker(worker) => worker.run(),
        };
        match done {
            Ok(exit) => exit.into(),
            Err(error) => {
                say::error(&error);
                let failure = error.downcast_ref::<Failure>();
                failure.map_or(Exit::Usage, |failure| failure.exit).into()
            }
        }
    }
}
