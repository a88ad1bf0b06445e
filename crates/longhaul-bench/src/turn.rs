//! `longhaul-bench turn`: the cost of a durable turn, i.e. of one model call and one tool call, in
//! runs of different lengths (W1, W2) and in many concurrent runs (W3).

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use longhaul::RunHandle;
use longhaul::events::Event;
use longhaul::models::Message;

use crate::disk::measure_disk;
use crate::fixture::{Fixture, FixtureSpec, file_bytes, script_of_turns};
use crate::measure::{Cost, Stopwatch};
use crate::options::Options;
use crate::process::{LonghaulBinary, MockModel, ModelApi};
use crate::report::{Report, core_count};

/// Number of turns of the run before each measurement, which keeps one-time costs out of it.
const WARM_UP_TURNS: u32 = 3;

/// Lengths of the runs in the engine, in turns.
const TURN_COUNTS: [u32; 6] = [50, 200, 1_000, 5_000, 20_000, 100_000];

/// Numbers of turns of the single run, and of each concurrent run, over HTTP.
const HTTP_TURNS: u32 = 50;
const CONCURRENT_TURNS: u32 = 10;

/// Latency of the slow model.
const LATENCY_MS: u32 = 100;

/// Target CPU time of a turn in a run of 50 turns.
const CPU_US_TARGET: f64 = 300.0;
/// Maximum number of bytes stored per byte of model replies and tool results.
const STORED_RATIO_TARGET: f64 = 1.8;
/// Maximum ratio of the CPU time per turn of concurrent runs to that of a single run.
const CONCURRENT_CPU_TARGET: f64 = 1.2;
/// Minimum share of the turns per second that the CPU cores allow.
const CPU_BOUND_SHARE_TARGET: f64 = 0.8;
/// Minimum share of the turns per second that the latency of the slow model allows.
const IDEAL_SHARE_TARGET: f64 = 0.96;

/// A part that can be measured alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Runs of several lengths with a scripted model in this process
    Engine,
    /// One run and many concurrent runs, whose model is called over HTTP
    Http,
}

/// Arguments of `longhaul-bench turn`.
#[derive(Debug, Args)]
pub(crate) struct TurnArgs {
    /// Length of each tool result in bytes; by default 2048 in the engine and 200 over HTTP
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=8_000))]
    result: Option<u32>,
    /// Maximum length of a run in the engine, in turns
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(50..=100_000))]
    turns: u32,
    /// Number of concurrent runs over HTTP
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    runs: u32,
    /// API with which the mock model is called
    #[arg(long, value_enum, default_value_t = ModelApi::Chat)]
    wire: ModelApi,
    /// Measure only these parts
    #[arg(long, value_name = "PART", value_enum, value_delimiter = ',')]
    only: Vec<Part>,
}

/// Arguments of the single run whose instructions scripts/instructions counts.
#[derive(Debug, Args)]
pub(crate) struct SingleRunArgs {
    #[arg(long)]
    turns: u32,
    #[arg(long, value_enum)]
    wire: ModelApi,
    /// URL of a mock model with a script `turns-N`
    #[arg(long)]
    url: String,
}

impl SingleRunArgs {
    pub(crate) async fn run(&self, options: &Options) -> anyhow::Result<()> {
        let folder = options.temp_folder()?;
        let mock = MockModel::at_url(self.wire, self.url.clone());
        let fixture = Fixture::open(FixtureSpec {
            folder: folder.path().join("run"),
            scripts: vec![script_of_turns(self.turns)],
            mock: Some(&mock),
            result_bytes: 2_048,
        })
        .await?;
        fixture.execute(self.turns, 1).await.map(|_| ())
    }
}

impl TurnArgs {
    pub(crate) async fn run(&self, options: &Options) -> anyhow::Result<Report> {
        let folder = options.temp_folder()?;
        let conditions = format!("WAL, synchronous=FULL, after {WARM_UP_TURNS} turns of warm-up");
        let mut report = options.report("turn", &conditions);
        measure_disk(folder.path(), &mut report)?;
        let is_selected = |part| self.only.is_empty() || self.only.contains(&part);
        if is_selected(Part::Engine) {
            self.measure_engine(folder.path(), &mut report).await?;
        }
        if is_selected(Part::Http) {
            self.measure_http(folder.path(), (&options.binary()?, &mut report)).await?;
        }
        Ok(report)
    }

    /// Measures runs of several lengths, each with a store of its own.
    async fn measure_engine(&self, folder: &Path, report: &mut Report) -> anyhow::Result<()> {
        let result_bytes = self.result.unwrap_or(2_048) as usize;
        let mut first = None;
        for turns in TURN_COUNTS.into_iter().filter(|turns| *turns <= self.turns) {
            report.progress(&format!("executing {turns} turns"));
            let spec = spec(folder.join(format!("turns-{turns}")), turns, result_bytes);
            let run = MeasuredRun::execute(spec, turns).await?;
            let cpu_us = run.cost.cpu_us;
            let first = *first.get_or_insert(cpu_us);
            run.report(&format!("engine_{turns}_turns"), report);
            report.figure("cpu_to_first_row", cpu_us / first);
        }
        Ok(())
    }

    async fn measure_http(
        &self,
        folder: &Path,
        (binary, report): (&LonghaulBinary, &mut Report),
    ) -> anyhow::Result<()> {
        let bytes = self.result.unwrap_or(200) as usize;
        report.progress(&format!("executing {HTTP_TURNS} turns over HTTP"));
        let single = spec(folder.join("http-one"), HTTP_TURNS, bytes);
        let mock = MockModel::start(binary, folder, (self.wire, 0), &single.scripts)?;
        let single =
            MeasuredRun::execute(FixtureSpec { mock: Some(&mock), ..single }, HTTP_TURNS).await?;
        drop(mock);
        single.report("http_one_run", report);
        for latency_ms in [0, LATENCY_MS] {
            report.progress(&format!("executing {} runs, {latency_ms} ms latency", self.runs));
            let project = folder.join(format!("http-{latency_ms}"));
            let spec = spec(project, CONCURRENT_TURNS, bytes);
            let mock = MockModel::start(binary, folder, (self.wire, latency_ms), &spec.scripts)?;
            let fixture = Fixture::open(FixtureSpec { mock: Some(&mock), ..spec }).await?;
            fixture.execute(WARM_UP_TURNS, 1).await?;
            let before = mock.received_bytes_and_cpu_us().await?;
            let (_, cost) = fixture.execute(CONCURRENT_TURNS, self.runs).await?;
            let after = mock.received_bytes_and_cpu_us().await?;
            let turns = self.runs * CONCURRENT_TURNS;
            let mock_cpu_us = (after.1 - before.1) / f64::from(turns);
            let cost = cost.per(turns);
            let per_s = 1e6 / cost.wall_us;
            report
                .section(format!("http_{}_runs_{latency_ms}_ms", self.runs))
                .figure("turns_per_s", per_s)
                .figure("commits_per_turn", cost.commits)
                .figure("cpu_us_per_turn", cost.cpu_us)
                .figure("request_bytes_per_turn", (after.0 - before.0) / f64::from(turns));
            if latency_ms == 0 {
                // The mock uses its share of the same cores.
                let allowed = core_count() as f64 * 1e6 / (cost.cpu_us + mock_cpu_us);
                let ratio = cost.cpu_us / single.cost.cpu_us;
                report
                    .at_most("cpu_to_one_run", ratio, CONCURRENT_CPU_TARGET)
                    .figure("mock_cpu_us_per_turn", mock_cpu_us)
                    .figure("cpu_bound_per_s", allowed)
                    .at_least("share_of_cpu_bound", per_s / allowed, CPU_BOUND_SHARE_TARGET);
            } else {
                // A run makes one model call more than it has turns with a tool call.
                let seconds = f64::from((CONCURRENT_TURNS + 1) * latency_ms) / 1e3;
                let ideal = f64::from(turns) / seconds;
                report.figure("ideal_per_s", ideal).at_least(
                    "share_of_ideal",
                    per_s / ideal,
                    IDEAL_SHARE_TARGET,
                );
            }
        }
        Ok(())
    }
}

fn spec(folder: PathBuf, turns: u32, result_bytes: usize) -> FixtureSpec<'static> {
    let scripts = vec![script_of_turns(WARM_UP_TURNS), script_of_turns(turns)];
    FixtureSpec { folder, scripts, mock: None, result_bytes }
}

/// What one run cost, on average per turn.
struct MeasuredRun {
    cost: Cost,
    stored_bytes: f64,
    transcript_bytes: f64,
    /// Time to replay the whole journal of the run, as after a crash.
    replay_ms: f64,
}

impl MeasuredRun {
    /// Executes a run in a new store, after a warm-up.
    async fn execute(spec: FixtureSpec<'_>, turns: u32) -> anyhow::Result<Self> {
        let store_file = Fixture::open(spec.clone()).await?.store_file;
        let empty_bytes = file_bytes(&store_file);
        let fixture = Fixture::open(spec).await?;
        let (warm_up, _) = fixture.execute(WARM_UP_TURNS, 1).await?;
        let (runs, cost) = fixture.execute(turns, 1).await?;
        let run = runs.first().context("no run was executed")?;
        let replay = Stopwatch::start();
        run.view().await?;
        let replay_ms = replay.elapsed_ms();
        let mut transcript_bytes = transcript_bytes(run).await?;
        transcript_bytes += self::transcript_bytes(warm_up.first().context("no warm-up")?).await?;
        drop((warm_up, runs, fixture));
        // The warm-up is stored too.
        let stored_turns = f64::from(turns + WARM_UP_TURNS);
        Ok(Self {
            cost: cost.per(turns),
            stored_bytes: (file_bytes(&store_file) - empty_bytes) as f64 / stored_turns,
            transcript_bytes: transcript_bytes as f64 / stored_turns,
            replay_ms,
        })
    }

    fn report(&self, section: &str, report: &mut Report) {
        report
            .section(section)
            .figure("commits_per_turn", self.cost.commits)
            .at_most("cpu_us_per_turn", self.cost.cpu_us, CPU_US_TARGET)
            .figure("wall_us_per_turn", self.cost.wall_us)
            .figure("stored_bytes_per_turn", self.stored_bytes)
            .at_most(
                "stored_to_transcript_bytes",
                self.stored_bytes / self.transcript_bytes,
                STORED_RATIO_TARGET,
            )
            .figure("replay_ms", self.replay_ms);
    }
}

/// Returns the length of the model replies and tool results of a run, in bytes.
async fn transcript_bytes(run: &RunHandle) -> anyhow::Result<u64> {
    let (mut bytes, mut events) = (0, run.events());
    while let Some(entry) = events.next().await {
        #[expect(clippy::wildcard_enum_match_arm, reason = "other events are not transcript")]
        match entry?.event {
            Event::TurnCompleted(turn) => {
                bytes += Message::Assistant(turn.reply).estimated_bytes();
            }
            Event::ToolCompleted(call) => {
                bytes += Message::User(call.output.content).estimated_bytes();
            }
            _ => {}
        }
    }
    Ok(bytes)
}
