//! `longhaul bench`: one subcommand for each concern.
//!
//! Never: a figure without its conditions. Each prints the raw limit of the
//! machine from the same run, and the ratio to it.

mod client;
mod fixture;
mod journal;
mod measure;
mod model_source;
mod project;
mod report;
mod serve;
mod tools;
mod turn;
mod write_load;

use clap::Subcommand;

const JOURNAL_EXAMPLES: &str = "Examples:
  longhaul bench journal                    on this folder's disk, 20,000 events in each measurement
  longhaul bench journal --dir /mnt/data    on another disk
  longhaul bench journal --events 2000 --json

Exit codes: 0 measured, 2 usage. Use a release build.";

const TURN_EXAMPLES: &str = "Examples:
  longhaul bench turn                       all parts
  longhaul bench turn --only engine,crash   without HTTP
  longhaul bench turn --only http --wire anthropic --runs 50 --json

Exit codes: 0 measured, 2 usage. Use a release build.";

const TOOLS_EXAMPLES: &str = "Examples:
  longhaul bench tools                      runs of 200 turns, the cheapest of 3 rounds
  longhaul bench tools --rounds 10          steadier on a busy machine
  longhaul bench tools --result 4000 --dir /mnt/data --json

Exit codes: 0 measured, 2 usage. Use a release build.";

const SERVE_EXAMPLES: &str = "Examples:
  longhaul bench serve                      with as many runs in flight as the targets ask for
  longhaul bench serve --runs 50            with fewer
  longhaul bench serve --json

Exit codes: 0 measured, 2 usage. Use a release build.";

/// What to measure.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// What a durable event costs: the disk, a bare SQLite loop, and the store
    #[command(after_help = JOURNAL_EXAMPLES)]
    Journal(journal::Journal),
    /// What a durable turn costs: commits, CPU, bytes, and recovery after kill -9
    #[command(after_help = TURN_EXAMPLES)]
    Turn(turn::Turn),
    /// What a tool call costs: its schema, its journal, its capsule; one at a time and eight at once
    #[command(after_help = TOOLS_EXAMPLES)]
    Tools(tools::Tools),
    /// What the server costs: start, memory, streams, and answers while runs are in flight
    #[command(after_help = SERVE_EXAMPLES)]
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

#[cfg(test)]
mod tests {
    use clap::Subcommand as _;

    use super::Bench;

    #[test]
    fn the_examples_in_the_help_of_each_bench_parse() {
        let mut tree = Bench::augment_subcommands(clap::Command::new("bench"));
        let names: Vec<String> =
            tree.get_subcommands().map(|one| one.get_name().to_owned()).collect();
        assert_eq!(names, ["journal", "turn", "tools", "serve"]);
        for name in names {
            let one = tree.find_subcommand_mut(&name).expect("a bench");
            let help = one.render_help().to_string();
            let (_, examples) = help.split_once("Examples:\n").expect("examples");
            let lines = examples.lines().take_while(|line| !line.is_empty());
            for line in lines.map(|line| line.trim()) {
                let command = line.split("   ").next().unwrap_or_default();
                let words = command.split(' ').skip(1);
                let taken = tree.clone().try_get_matches_from(words);
                assert!(taken.is_ok(), "{line}: {taken:?}");
            }
        }
    }
}
