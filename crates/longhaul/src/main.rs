//! The `longhaul` binary: reads the command line and hands over to one command.
//!
//! Never: does work of its own; every command lives in a file under `cli/`.

mod cli;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    cli::Cli::parse().run()
}
