//! `longhaul-bench`: benchmarks, one subcommand for each measured part.
//!
//! Runs are driven in this process through the public library. What is measured from outside (a
//! server, the start of a process, kills) is the binary `longhaul`, so that two builds of it can be
//! compared. Absolute figures move with the machine: compare the ratios and the counts of one run.

mod crash;
mod disk;
mod fixture;
mod http;
mod journal;
mod measure;
mod options;
mod park;
mod process;
mod queue;
mod report;
mod sandbox;
mod serve;
mod turn;

use clap::{Parser, Subcommand};

use crate::options::Options;

const EXAMPLES: &str = "Examples:
  longhaul-bench turn                                 all parts of a turn
  longhaul-bench turn --only http --wire anthropic    without the runs in the engine alone
  longhaul-bench queue --queued 1000000               a longer queue: creating it takes minutes
  longhaul-bench park --dir /mnt/data --json          on another disk, as JSON
  longhaul-bench serve --longhaul OTHER               the same measurement of another build

`make bench` builds all of it and runs every benchmark. Use a release build.
Exit codes: 0 measured, 1 failed, 2 usage.";

/// Measures Longhaul
#[derive(Debug, Parser)]
#[command(name = "longhaul-bench", after_help = EXAMPLES)]
struct Cli {
    #[command(flatten)]
    options: Options,
    #[command(subcommand)]
    bench: Bench,
}

/// The benchmarks.
#[derive(Debug, Subcommand)]
enum Bench {
    /// Measures durable writes: clients submit tasks, and each waits until its task is on disk
    Journal(journal::JournalArgs),
    /// Measures a durable turn (W1, W2, W3): commits, CPU and bytes, in the engine and over HTTP
    Turn(turn::TurnArgs),
    /// Measures the queue (W5): tasks per second, claims of an idle worker, long queues, busy lanes
    Queue(queue::QueueArgs),
    /// Measures runs that wait for a person (W4): memory, CPU while nothing happens, the resume
    Park(park::ParkArgs),
    /// Measures the binary (W6): start, first run, memory, streams, response times under load
    Serve(serve::ServeArgs),
    /// Measures recovery after kill -9 (W7): runs lost, calls repeated, time to the first event
    Crash(crash::CrashArgs),
    /// Measures sandboxes of the provider `local`: commands, starts, ten and a hundred at once
    Sandbox(sandbox::SandboxArgs),
    /// Executes one run over HTTP and prints nothing, for scripts/instructions
    #[command(hide = true)]
    Run(turn::SingleRunArgs),
}

fn main() -> anyhow::Result<()> {
    let Cli { options, bench } = Cli::parse();
    // Also installs the crypto provider, without which no HTTP client can be built.
    drop(longhaul::Runtime::builder());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        match bench {
            Bench::Journal(args) => args.run(&options).await?.print(),
            Bench::Turn(args) => args.run(&options).await?.print(),
            Bench::Queue(args) => args.run(&options).await?.print(),
            Bench::Park(args) => args.run(&options).await?.print(),
            Bench::Serve(args) => args.run(&options).await?.print(),
            Bench::Crash(args) => args.run(&options)?.print(),
            Bench::Sandbox(args) => args.run(&options).await?.print(),
            Bench::Run(args) => args.run(&options).await,
        }
    })
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::{Cli, EXAMPLES};

    #[test]
    fn the_arguments_are_consistent_and_the_examples_parse() {
        Cli::command().debug_assert();
        let examples = EXAMPLES.lines().filter_map(|line| line.strip_prefix("  "));
        for example in examples {
            let command = example.split("   ").next().unwrap_or_default();
            let result = Cli::try_parse_from(command.split(' '));
            assert!(result.is_ok(), "{command}: {result:?}");
        }
    }
}
