//! `longhaul bench turn`: what a durable turn costs, in the engine and over HTTP, how that grows
//! with the run, and what a SIGKILL costs.

mod bench_run;
mod concurrency;
mod crash;
mod history;
mod http;

use std::path::Path;

use clap::{Args, ValueEnum};

use crate::bench::fixture::{Fixture, WARM_UP_TURNS};
use crate::bench::measure::DiskLimits;
use crate::bench::model_source::{ModelSource, Wire};
use crate::bench::report::{self, Report, met_or_missed};
use crate::bench::turn::bench_run::BenchRun;
use crate::bench::turn::crash::measure_crashes;
use crate::bench::turn::http::HttpBench;
use crate::runtime;

/// The length of a tool's result unless it is set. Over HTTP every result is sent again with each
/// turn, and the mock reads them all.
const ENGINE_RESULT_BYTES: u32 = 2_048;
const HTTP_RESULT_BYTES: u32 = 200;

/// Number of turns of each run in the engine.
const TURN_COUNTS: [u32; 6] = [50, 200, 1_000, 5_000, 20_000, 100_000];

/// CPU of a turn in a run of 50 turns, in microseconds.
const CPU_US_TARGET: f64 = 300.0;

/// Bytes stored for each byte that was said or returned.
const STORED_RATIO_TARGET: f64 = 1.8;

/// A part of this bench.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Commits, CPU and bytes with a scripted model and no wire
    Engine,
    /// One run, a long history and a crowd over real HTTP
    Http,
    /// Workers that are killed
    Crash,
}

/// What a turn costs.
#[derive(Debug, Args)]
pub(crate) struct Turn {
    /// The length of each tool's result, in bytes; unless it is said, 2048 in the engine and 200 over HTTP
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=8_000))]
    result: Option<u32>,
    /// The longest life, in turns
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(50..=100_000))]
    turns: u32,
    /// How many times a worker is killed
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    kills: u32,
    /// Over HTTP, the longest history, in messages
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(10..=5_000))]
    messages: u32,
    /// Over HTTP, how many runs at once
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    runs: u32,
    /// The wire over which the mock is asked
    #[arg(long, value_enum, default_value_t = Wire::Chat)]
    wire: Wire,
    /// Measure only these parts
    #[arg(long, value_name = "PART", value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// The folder in which to measure; its disk counts
    #[arg(long)]
    dir: Option<std::path::PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Execute one run of so many turns over HTTP and nothing else, for scripts/instructions
    #[arg(long, hide = true, requires = "single_run_url")]
    single_run_turns: Option<u32>,
    /// Where the mock of that run is
    #[arg(long, hide = true, requires = "single_run_turns")]
    single_run_url: Option<String>,
}

impl Turn {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let folder = report::create_temp_folder(self.dir.as_deref())?;
        let runtime = runtime::multi_thread()?;
        if let (Some(turns), Some(url)) = (self.single_run_turns, self.single_run_url.clone()) {
            let source = ModelSource::Mock { wire: self.wire, url };
            let file = folder.path().join("run.db");
            let fixture = Fixture::new(&file, source, ENGINE_RESULT_BYTES as usize)?;
            return runtime.block_on(fixture.execute(turns, 1)).map(|_| ());
        }
        runtime.block_on(self.measure(folder.path()))?.print()
    }

    async fn measure(&self, folder: &Path) -> anyhow::Result<Report> {
        let wants = |part| self.only.is_empty() || self.only.contains(&part);
        let result_bytes = |usual| self.result.unwrap_or(usual) as usize;
        let conditions = format!("WAL, synchronous=FULL, after {WARM_UP_TURNS} turns of warm-up");
        let mut report = Report::new("turn", &conditions, self.json);
        DiskLimits::measure(folder, &mut report)?;
        if wants(Part::Engine) {
            self.measure_engine(folder, result_bytes(ENGINE_RESULT_BYTES), &mut report).await?;
        }
        if wants(Part::Crash) {
            report.print_progress(&format!("killing a worker {} times", self.kills));
            measure_crashes(folder, self.kills, &mut report).await?;
        }
        if wants(Part::Http) {
            let over_http = HttpBench {
                wire: self.wire,
                messages: self.messages,
                runs: self.runs,
                result_bytes: result_bytes(HTTP_RESULT_BYTES),
                folder,
            };
            over_http.measure(&mut report).await?;
        }
        Ok(report)
    }

    /// Runs without a wire: the engine and the store, with a scripted model.
    async fn measure_engine(
        &self,
        folder: &Path,
        result_bytes: usize,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        let mut runs: Vec<BenchRun> = Vec::new();
        for turns in TURN_COUNTS.into_iter().filter(|turns| *turns <= self.turns) {
            report.print_progress(&format!("executing {turns} turns"));
            let source = ModelSource::Scripted { calls: 1 };
            let file = folder.join(format!("turns-{turns}.db"));
            runs.push(BenchRun::execute(&file, source, (turns, result_bytes)).await?);
        }
        report.add_line(format!(
            "\nin the engine: scripted model without delay, one tool call a turn with {result_bytes} bytes of result"
        ));
        let head = ["turns", "commits a turn", "CPU us a turn", "wall us a turn", "bytes a turn"];
        let head = [&head[..], &["stored/said", "fold after a crash"]].concat();
        report.add_table(&head, &runs.iter().map(BenchRun::row).collect::<Vec<_>>());
        report.add_figures(&serde_json::json!({ "result_bytes": result_bytes, "runs": runs }))?;
        let (Some(first), Some(last)) = (runs.first(), runs.last()) else {
            return Ok(());
        };
        report.add_line(first.target_line("W1  ", CPU_US_TARGET));
        report.add_line(format!(
            "W2  {:.2} bytes stored for a byte said at {} turns (target {STORED_RATIO_TARGET}: {}); \
             CPU a turn at {} turns is {:.2} of that at {}",
            last.stored_per_transcript_byte,
            last.turns,
            met_or_missed(last.stored_per_transcript_byte <= STORED_RATIO_TARGET),
            last.turns,
            last.cost.cpu_us_per_turn / first.cost.cpu_us_per_turn.max(1.0),
            first.turns,
        ));
        Ok(())
    }
}
