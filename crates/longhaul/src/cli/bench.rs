//! `longhaul bench`: one subcommand for each concern.
//!
//! Never: a figure without its conditions. Each prints the raw limit of the
//! machine from the same run, and the ratio to it.

mod journal;
mod load;
mod serve;
mod tools;
mod turn;

use clap::Subcommand;

/// What to measure.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// What a durable event costs: the disk, a bare SQLite loop, and the store
    Journal(journal::Journal),
    /// What a durable turn costs: commits, CPU, bytes, and recovery after kill -9
    Turn(turn::Turn),
    /// What a tool call costs: its schema, its journal, its capsule; one at a time and eight at once
    Tools(tools::Tools),
    /// What the server costs: start, memory, streams, and answers while runs are in flight
    Serve(serve::Serve),
}

impl Bench {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        match self {
            Self::Journal(journal) => journal.run(),
            Self::Turn(turn) => turn.run(),
            Self::Tools(tools) => tools.run(),
            Self::Serve(serve) => serve.run(),
        }
    }
}
