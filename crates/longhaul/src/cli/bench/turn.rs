//! `longhaul bench turn`: what a durable turn costs, how that grows with the
//! run, and what a SIGKILL costs.
//!
//! Never: a figure without the machine's own limit from the same run beside it.

mod crash;
mod life;

use anyhow::Context as _;
use clap::Args;
use longhaul_engine::clock::Stopwatch;
use longhaul_store::bench::{BareAsk, Rate, Spans, bare, sync_spans};
use serde_json::{Value, json};

use crate::cli::bench::turn::crash::{Crashes, crash};
use crate::cli::bench::turn::life::{Life, Lived, WARM_UP_TURNS};
use crate::cli::{runtime, say};

/// So many turns has each life.
const TURNS: [u32; 4] = [50, 200, 1_000, 5_000];

/// So many bare commits tell what one takes.
const BARE_COMMITS: u64 = 500;

/// CPU of a turn in a run of 50 turns, in microseconds.
const CPU_US_TARGET: f64 = 300.0;

/// Bytes stored for each byte that was said or given back.
const BYTES_TARGET: f64 = 1.8;

/// From the end of a process to the first fact of the next, in milliseconds.
const RECOVERY_MS_TARGET: f64 = 200.0;

/// What a turn costs.
#[derive(Debug, Args)]
pub(crate) struct Turn {
    /// The length of each tool's result, in bytes
    #[arg(long, default_value_t = 2_048, value_parser = clap::value_parser!(u32).range(1..=8_000))]
    result: u32,
    /// The longest life, in turns
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(50..=100_000))]
    turns: u32,
    /// How many times a worker is killed
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    kills: u32,
    /// The folder in which to measure; its disk counts
    #[arg(long)]
    dir: Option<std::path::PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Everything that was measured.
struct Report {
    syncs: Spans,
    bare: Rate,
    lives: Vec<Lived>,
    crashes: Crashes,
}

impl Turn {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let dir = self.dir.clone().unwrap_or_else(std::env::temp_dir);
        let folder = tempfile::Builder::new()
            .prefix("longhaul-bench-")
            .tempdir_in(&dir)
            .with_context(|| {
                let dir = dir.display();
                format!("`{dir}` can't be written to; name another folder with --dir")
            })?;
        let watch = Stopwatch::start();
        self.talk("measuring the disk ...");
        let syncs = sync_spans(folder.path(), 500, &|| watch.nanos())?;
        let bare = bare(
            &BareAsk {
                file: folder.path().join("bare.db"),
                runs: 1,
                events: BARE_COMMITS,
                body_bytes: 900,
                per_commit: 1,
            },
            &|| watch.nanos(),
        )?;
        let mut lives = Vec::new();
        for turns in TURNS.into_iter().filter(|turns| *turns <= self.turns) {
            self.talk(&format!("living {turns} turns ..."));
            let life = Life {
                turns,
                result_bytes: self.result as usize,
            };
            let file = folder.path().join(format!("turns-{turns}.db"));
            lives.push(runtime::driving()?.block_on(life.live(&file))?);
        }
        self.talk(&format!("killing a worker {} times ...", self.kills));
        let crashes = runtime::driving()?.block_on(crash(folder.path(), self.kills))?;
        let report = Report {
            syncs,
            bare,
            lives,
            crashes,
        };
        say::data(&if self.json {
            self.as_json(&report).to_string()
        } else {
            self.as_text(&report)
        })
    }

    fn talk(&self, line: &str) {
        if !self.json {
            say::talk(line);
        }
    }

    fn as_json(&self, report: &Report) -> Value {
        let lives = report.lives.iter().map(|lived| {
            json!({
                "turns": lived.turns,
                "commits_per_turn": lived.commits_per_turn(),
                "cpu_us_per_turn": lived.cpu_us_per_turn(),
                "wall_us_per_turn": lived.wall_us_per_turn(),
                "stored_bytes_per_turn": lived.stored_per_turn(),
                "said_bytes_per_turn": lived.said_per_turn(),
                "stored_per_said": lived.stored_per_said(),
                "recovery_fold_ms": lived.fold_ms,
            })
        });
        let crashes = &report.crashes;
        json!({
            "result_bytes": self.result,
            "build": build(),
            "cores": cores(),
            "fdatasync_us": { "p50": us(report.syncs.percentile(50)), "p99": us(report.syncs.percentile(99)) },
            "bare_commit_us": commit_us(report.bare),
            "warm_up_turns": WARM_UP_TURNS,
            "lives": lives.collect::<Vec<_>>(),
            "kills": crashes.kills,
            "runs_lost": crashes.lost,
            "model_calls_repeated": crashes.repeated,
            "results_repeated": crashes.results_repeated,
            "recovery_ms": { "p50": crashes.percentile(50), "max": crashes.percentile(100) },
        })
    }

    fn as_text(&self, report: &Report) -> String {
        let mut lines = vec![
            format!(
                "bench turn: scripted model without delay, one tool call a turn with {} bytes of result, \
                 after {WARM_UP_TURNS} turns of warm-up, WAL, synchronous=FULL, {} cores, {}",
                self.result,
                cores(),
                build()
            ),
            format!(
                "write of 8 KiB + fdatasync    p50 {:.0} us   p99 {:.0} us",
                us(report.syncs.percentile(50)),
                us(report.syncs.percentile(99))
            ),
            format!("a commit of bare SQLite       mean {:.0} us", commit_us(report.bare)),
            String::new(),
            "turns  commits a turn  CPU us a turn  wall us a turn  bytes a turn  stored/said  fold after a crash".to_owned(),
        ];
        for lived in &report.lives {
            lines.push(format!(
                "{:>5}  {:>14.2}  {:>13.0}  {:>14.0}  {:>12.0}  {:>11.2}  {:>15.1} ms",
                lived.turns,
                lived.commits_per_turn(),
                lived.cpu_us_per_turn(),
                lived.wall_us_per_turn(),
                lived.stored_per_turn(),
                lived.stored_per_said(),
                lived.fold_ms,
            ));
        }
        lines.push(String::new());
        lines.extend(verdicts(report));
        let crashes = &report.crashes;
        lines.push(format!(
            "W7  {} kills: {} runs lost, {} model calls asked again, {} recorded results repeated; \
             from the start of a new process to its first fact p50 {:.0} ms, max {:.0} ms (target {RECOVERY_MS_TARGET:.0}: {})",
            crashes.kills,
            crashes.lost,
            crashes.repeated,
            crashes.results_repeated,
            crashes.percentile(50),
            crashes.percentile(100),
            met(crashes.percentile(50) <= RECOVERY_MS_TARGET),
        ));
        lines.join("\n")
    }
}

fn verdicts(report: &Report) -> Vec<String> {
    let (Some(first), Some(last)) = (report.lives.first(), report.lives.last()) else {
        return Vec::new();
    };
    let growth = last.cpu_us_per_turn() / first.cpu_us_per_turn().max(1.0);
    vec![
        format!(
            "W1  {:.0} us CPU a turn at {} turns with {:.2} commits a turn (target {CPU_US_TARGET:.0} us: {})",
            first.cpu_us_per_turn(),
            first.turns,
            first.commits_per_turn(),
            met(first.cpu_us_per_turn() <= CPU_US_TARGET),
        ),
        format!(
            "W2  {:.2} bytes stored for a byte said at {} turns (target {BYTES_TARGET}: {}); \
             CPU a turn at {} turns is {growth:.2} of that at {}",
            last.stored_per_said(),
            last.turns,
            met(last.stored_per_said() <= BYTES_TARGET),
            last.turns,
            first.turns,
        ),
    ]
}

const fn met(is_met: bool) -> &'static str {
    if is_met { "met" } else { "missed" }
}

fn commit_us(bare: Rate) -> f64 {
    1e6 / bare.per_second().max(1.0)
}

fn us(nanos: u64) -> f64 {
    nanos as f64 / 1_000.0
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

const fn build() -> &'static str {
    if cfg!(debug_assertions) {
        "debug build: not for comparing"
    } else {
        "release"
    }
}
