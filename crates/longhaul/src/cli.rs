//! The command line: one line for each command, one file for each.
//!
//! Never: what a command does.

mod agents;
mod bench;
mod config;
mod here;
mod say;
mod version;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

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
    /// What is set, by whom, and where it is read
    #[command(subcommand)]
    Config(config::Config),
    /// Says which build this is
    Version(version::Version),
}

/// A command could not do what it was asked: usage or configuration.
const EXIT_CONFIG: u8 = 2;

impl Cli {
    /// Runs the command and says what went wrong, why, and what helps.
    pub(crate) fn run(self) -> ExitCode {
        let done = match self.command {
            Command::Agents(agents) => agents.run(),
            Command::Bench(bench) => bench.run(),
            Command::Config(config) => config.run(),
            Command::Version(version) => version.run(),
        };
        match done {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                say::error(&error);
                ExitCode::from(EXIT_CONFIG)
            }
        }
    }
}
