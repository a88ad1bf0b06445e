//! `longhaul bench`: benchmarks, one subcommand for each measured part. Each benchmark also measures
//! the raw limit of the machine, such as the speed of the disk, in the same run and prints the ratio.

mod client;
mod fixture;
mod journal;
mod measure;
mod model_source;
mod park;
mod project;
mod queue;
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

const QUEUE_EXAMPLES: &str = "Examples:
  longhaul bench queue                      20,000 tasks, and 100,000 more that wait
  longhaul bench queue --queued 1000000     a longer queue: creating it takes minutes
  longhaul bench queue --tasks 2000 --queued 5000 --dir /mnt/data --json

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

const PARK_EXAMPLES: &str = "Examples:
  longhaul bench park                       100,000 parked runs, idle for a minute
  longhaul bench park --runs 1000000        more runs: creating them takes minutes
  longhaul bench park --runs 5000 --idle 10 --dir /mnt/data --json

Exit codes: 0 measured, 2 usage. Use a release build.";

/// The benchmarks, each a subcommand of `longhaul bench`.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Measures the cost of a durable event: on the disk, in plain SQLite, and in the store
    #[command(after_help = JOURNAL_EXAMPLES)]
    Journal(journal::BenchJournalCommand),
    /// Measures the cost of a durable turn: commits, CPU, bytes, and recovery after kill -9
    #[command(after_help = TURN_EXAMPLES)]
    Turn(turn::BenchTurnCommand),
    /// Measures the queue: tasks per second, claims of an idle worker, long queues and busy lanes
    #[command(after_help = QUEUE_EXAMPLES)]
    Queue(queue::BenchQueueCommand),
    /// Measures the cost of a tool call: schema check and journal, with one call and with eight
    /// parallel calls
    #[command(after_help = TOOLS_EXAMPLES)]
    Tools(tools::BenchToolsCommand),
    /// Measures the server: start, memory, streams, and response times while runs are in flight
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(serve::BenchServeCommand),
    /// Measures runs that wait for a person: memory, CPU while nothing happens, and the resume
    #[command(after_help = PARK_EXAMPLES)]
    Park(park::BenchParkCommand),
}

impl BenchCommand {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        match self {
            Self::Journal(journal) => journal.run(),
            Self::Turn(turn) => turn.run(),
            Self::Queue(queue) => queue.run(),
            Self::Tools(tools) => tools.run(),
            Self::Serve(serve) => serve.run(),
            Self::Park(park) => park.run(),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Subcommand as _;

    use super::BenchCommand;

    #[test]
    fn the_examples_in_the_help_of_each_bench_parse() {
        let mut bench_command = BenchCommand::augment_subcommands(clap::Command::new("bench"));
        let names: Vec<String> = bench_command
            .get_subcommands()
            .map(|subcommand| subcommand.get_name().to_owned())
            .collect();
        assert_eq!(names, ["journal", "turn", "queue", "tools", "serve", "park"]);
        for name in names {
            let subcommand =
                bench_command.find_subcommand_mut(&name).expect("the subcommand exists");
            let help = subcommand.render_help().to_string();
            let (_, examples) = help.split_once("Examples:\n").expect("the help has examples");
            let lines = examples.lines().take_while(|line| !line.is_empty());
            for line in lines.map(|line| line.trim()) {
                let command = line.split("   ").next().unwrap_or_default();
                let args = command.split(' ').skip(1);
                let matches = bench_command.clone().try_get_matches_from(args);
                assert!(matches.is_ok(), "{line}: {matches:?}");
            }
        }
    }
}
