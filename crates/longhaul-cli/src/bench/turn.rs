//! `longhaul bench turn`: measures the cost of a durable turn in the engine and over HTTP, how the
//! cost grows with the length of the run, and the cost of a SIGKILL.

mod bench_run;
mod concurrency;
mod crash;
mod history;
mod http;

use std::path::Path;

use clap::{Args, ValueEnum};

use crate::bench::fixture::{BenchFixture, WARM_UP_TURNS};
use crate::bench::measure::DiskSpeed;
use crate::bench::model_source::{MockModelApi, ModelSource};
use crate::bench::report::{self, BenchReport, met_or_missed};
use crate::bench::turn::bench_run::BenchRunResult;
use crate::bench::turn::crash::measure_crash_recovery;
use crate::bench::turn::http::HttpBench;
use crate::runtime;

/// Default length of a tool result when the engine is measured without HTTP, in bytes.
const ENGINE_RESULT_BYTES: u32 = 2_048;
/// Default length of a tool result over HTTP, in bytes. It is short because every result is sent
/// again with each turn and parsed by the mock.
const HTTP_RESULT_BYTES: u32 = 200;

/// Lengths of the runs that are measured without HTTP, in turns.
const TURN_COUNTS: [u32; 6] = [50, 200, 1_000, 5_000, 20_000, 100_000];

/// Target CPU time of a turn in a run of 50 turns, in microseconds.
const CPU_US_TARGET: f64 = 300.0;

/// Maximum number of bytes stored per byte of model replies and tool results.
const STORED_RATIO_TARGET: f64 = 1.8;

/// A part of `bench turn` that can be measured alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TurnBenchPart {
    /// Commits, CPU time and bytes per turn with a scripted model, without HTTP
    Engine,
    /// Three cases with model calls over real HTTP: one run, a long history, many concurrent runs
    Http,
    /// Recovery after workers are killed
    Crash,
}

/// Arguments of `longhaul bench turn`.
#[derive(Debug, Args)]
pub(crate) struct BenchTurnCommand {
    /// Length of each tool result in bytes; by default 2048 without HTTP and 200 over HTTP
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=8_000))]
    result: Option<u32>,
    /// Maximum length of a run, in turns
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(50..=100_000))]
    turns: u32,
    /// Number of times that a worker is killed
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    kills: u32,
    /// Over HTTP: maximum length of the conversation, in messages
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(10..=5_000))]
    messages: u32,
    /// Over HTTP: number of concurrent runs
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    runs: u32,
    /// Provider API that the mock model is called with
    #[arg(long, value_enum, default_value_t = MockModelApi::Chat)]
    wire: MockModelApi,
    /// Measure only these parts of the benchmark
    #[arg(long, value_name = "PART", value_enum, value_delimiter = ',')]
    only: Vec<TurnBenchPart>,
    /// Folder for the stores; the speed of its disk matters
    #[arg(long)]
    dir: Option<std::path::PathBuf>,
    /// Print the measurements as one JSON object
    #[arg(long)]
    json: bool,
    /// Execute only one run of this many turns over HTTP; used by the script scripts/instructions
    #[arg(long, hide = true, requires = "single_run_url")]
    single_run_turns: Option<u32>,
    /// URL of the mock model for the single run
    #[arg(long, hide = true, requires = "single_run_turns")]
    single_run_url: Option<String>,
}

impl BenchTurnCommand {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let folder = report::create_temp_folder(self.dir.as_deref())?;
        let runtime = runtime::build_multi_thread_tokio()?;
        if let (Some(turns), Some(url)) = (self.single_run_turns, self.single_run_url.clone()) {
            let source = ModelSource::Mock { wire: self.wire, url };
            let file = folder.path().join("run.db");
            let fixture = BenchFixture::new(&file, source, ENGINE_RESULT_BYTES as usize)?;
            return runtime.block_on(fixture.execute_runs(turns, 1)).map(|_| ());
        }
        runtime.block_on(self.measure_selected_parts(folder.path()))?.print()
    }

    async fn measure_selected_parts(&self, folder: &Path) -> anyhow::Result<BenchReport> {
        let is_selected = |part| self.only.is_empty() || self.only.contains(&part);
        let result_bytes = |default_bytes| self.result.unwrap_or(default_bytes) as usize;
        let conditions = format!("WAL, synchronous=FULL, after {WARM_UP_TURNS} turns of warm-up");
        let mut report = BenchReport::new("turn", &conditions, self.json);
        DiskSpeed::measure_disk_speed(folder, &mut report)?;
        if is_selected(TurnBenchPart::Engine) {
            self.measure_turns_without_http(folder, result_bytes(ENGINE_RESULT_BYTES), &mut report)
                .await?;
        }
        if is_selected(TurnBenchPart::Crash) {
            report.print_progress(&format!("killing a worker {} times", self.kills));
            measure_crash_recovery(folder, self.kills, &mut report).await?;
        }
        if is_selected(TurnBenchPart::Http) {
            let http_bench = HttpBench {
                wire: self.wire,
                messages: self.messages,
                runs: self.runs,
                result_bytes: result_bytes(HTTP_RESULT_BYTES),
                folder,
            };
            http_bench.measure_turns_over_http(&mut report).await?;
        }
        Ok(report)
    }

    /// Measures runs without HTTP: the engine and the store, with a scripted model.
    async fn measure_turns_without_http(
        &self,
        folder: &Path,
        result_bytes: usize,
        report: &mut BenchReport,
    ) -> anyhow::Result<()> {
        let mut runs: Vec<BenchRunResult> = Vec::new();
        for turns in TURN_COUNTS.into_iter().filter(|turns| *turns <= self.turns) {
            report.print_progress(&format!("executing {turns} turns"));
            let source = ModelSource::Scripted { calls: 1 };
            let file = folder.join(format!("turns-{turns}.db"));
            runs.push(
                BenchRunResult::execute_measured_run(&file, source, (turns, result_bytes)).await?,
            );
        }
        report.add_text_line(format!(
            "\nin the engine: scripted model without delay, one tool call per turn with {result_bytes} bytes of result"
        ));
        let titles =
            ["turns", "commits per turn", "CPU us per turn", "wall us per turn", "bytes per turn"];
        let titles = [&titles[..], &["stored/transcript", "fold after a crash"]].concat();
        report.add_table(&titles, &runs.iter().map(BenchRunResult::table_row).collect::<Vec<_>>());
        report
            .add_json_fields(&serde_json::json!({ "result_bytes": result_bytes, "runs": runs }))?;
        let (Some(first), Some(last)) = (runs.first(), runs.last()) else {
            return Ok(());
        };
        report.add_text_line(first.target_comparison_line("W1  ", CPU_US_TARGET));
        report.add_text_line(format!(
            "W2  {:.2} bytes stored per byte of replies and results at {} turns (target {STORED_RATIO_TARGET}: {}); \
             CPU per turn at {} turns is {:.2} times that at {}",
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
