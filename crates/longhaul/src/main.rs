//! The `longhaul` binary: reads the command line and hands over to the library.
//!
//! Never: does work of its own; every command lives in a file under `cli/`.

use clap::Parser;

/// A durable runtime for AI agents.
#[derive(Debug, Parser)]
#[command(name = "longhaul", version)]
struct Cli {}

fn main() -> anyhow::Result<()> {
    let Cli {} = Cli::parse();
    Ok(())
}
