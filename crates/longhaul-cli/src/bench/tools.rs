//! `longhaul bench tools`: what a tool call costs apart from its turn and its
//! commit: the schema check, the appraisal, the journal, the capsule around it.
//!
//! Never: a figure without its conditions. A turn without a call ends its run,
//! so runs of the same turns with one call and with eight are compared.

mod figures;
mod measure;

use clap::Args;

use crate::bench::conditions;
use crate::bench::tools::figures::Figures;
use crate::bench::tools::measure::Bench;
use crate::bench::turn::disk::Disk;
use crate::say;

/// What a tool call costs.
#[derive(Debug, Args)]
pub(crate) struct Tools {
    /// How many turns each run has
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(10..=10_000))]
    turns: u32,
    /// How often each run is made; the cheapest of them counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// The length of each result, in bytes
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=8_000))]
    result: u32,
    /// The folder in which to measure; its disk counts
    #[arg(long)]
    dir: Option<std::path::PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Tools {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let folder = conditions::folder(self.dir.as_deref())?;
        let talk = |line: &str| {
            if !self.json {
                say::talk(line);
            }
        };
        talk("measuring the disk ...");
        let disk = Disk::measure(folder.path())?;
        let bench = Bench {
            turns: self.turns,
            rounds: self.rounds,
            result_bytes: self.result as usize,
            folder: folder.path(),
        };
        let figures = Figures::new(&bench, disk, bench.measure(&talk)?);
        say::data(&match self.json {
            true => serde_json::to_string(&figures)?,
            false => figures.lines().join("\n"),
        })
    }
}
