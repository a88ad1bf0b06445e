//! Kills a worker process with SIGKILL repeatedly, and measures what is lost, what is repeated and
//! how soon the run continues.

use std::path::Path;

use anyhow::bail;
use longhaul::assemble::open_runtime;
use longhaul::config::load;
use longhaul_core::id::{RunId, Seq};
use longhaul_core::status::Status;
use longhaul_core::time::{Clock as _, Millis};
use longhaul_engine::clock::SystemClock;
use longhaul_engine::{Longhaul, Task};
use longhaul_store::OpenMode;
use longhaul_store::bench::SortedDurations;
use serde_json::json;

use crate::bench::measure::nanos_to_micros;
use crate::bench::project::BenchProject;
use crate::bench::report::{BenchReport, met_or_missed};
use crate::child_process::ChildProcess;
use crate::crash_counts::CrashRecoveryCounts;
use crate::store_access::store_open_options;

/// Target time from the start of a worker process to its first event, in milliseconds.
const RECOVERY_MS_TARGET: f64 = 200.0;

/// Time from a worker's first event until the worker is killed.
const KILL_DELAY: Millis = Millis(60);

/// Timeout for a worker's first event, and for the end of the run after the last kill.
const RUN_TIMEOUT: Millis = Millis::from_secs(120);

/// Maximum number of events read from the journal. The run writes far fewer.
const EVENTS_MAX: usize = 1_000_000;

/// Files of a project whose run has many short turns, so that a kill always interrupts some work.
const PROJECT_FILES: &[(&str, &str)] = &[
    ("longhaul.toml", "[budget]\nturns = 100000\n[worker]\ncrash_limit = 0\n"),
    ("agents/busy.md", "---\nmodel: scripted/busy\ntools: [vault_list]\n---\nYou are killed.\n"),
    (
        "scripts/busy.yaml",
        "replies:\n  - text: Looking.\n    tools: [{ name: vault_list, input: {} }]\n    delay: 5ms\n  - text: Done.\nloop: { from: 0, to: 1, times: 400 }\n",
    ),
];

/// Kills a worker `kills` times, lets the last worker finish the run, and adds the result to the
/// report.
pub(crate) async fn measure_crash_recovery(
    folder: &Path,
    kills: u32,
    report: &mut BenchReport,
) -> anyhow::Result<()> {
    let project = BenchProject::new(Some(folder), PROJECT_FILES)?;
    let longhaul = open_runtime(
        load::load(&project.process_env, &[])?,
        store_open_options(OpenMode::Outsider),
    )?
    .longhaul;
    let run = longhaul.submit(Task::new("busy", "go")).await?;
    let mut durations = Vec::new();
    for _ in 0..kills {
        let (mut worker, duration) = start_worker(&project, &longhaul, run).await?;
        durations.push(duration);
        SystemClock.sleep(KILL_DELAY).await;
        worker.kill()?;
    }
    let (mut worker, duration) = start_worker(&project, &longhaul, run).await?;
    durations.push(duration);
    let deadline = SystemClock.monotonic_time().plus(RUN_TIMEOUT);
    while !longhaul.run_row(run).await?.status.is_terminal() {
        if SystemClock.monotonic_time() > deadline {
            bail!("{run} did not end after {kills} kills");
        }
        SystemClock.sleep(Millis(20)).await;
    }
    worker.stop().await?;
    let journal = longhaul.read_run_journal(run, Seq::START, EVENTS_MAX).await?;
    let counts = CrashRecoveryCounts::from_journal(&journal, Seq::START);
    let lost_runs = u32::from(longhaul.run_row(run).await?.status != Status::Completed);
    // The first start is not a recovery.
    let durations = SortedDurations::new(durations.split_off(1));
    let [p50, max] = [50, 100].map(|percent| nanos_to_micros(durations.percentile(percent)) / 1e3);
    report.add_text_line(format!(
        "\nW7  {kills} kills: {lost_runs} runs lost, {} model calls repeated, {} recorded results repeated; \
         from the start of a new process to its first event p50 {p50:.0} ms, max {max:.0} ms (target {RECOVERY_MS_TARGET:.0}: {})",
        counts.retried_model_calls,
        counts.repeated,
        met_or_missed(p50 <= RECOVERY_MS_TARGET),
    ));
    report.add_json_fields(&json!({
        "kills": kills,
        "runs_lost": lost_runs,
        "model_calls_repeated": counts.retried_model_calls,
        "results_repeated": counts.repeated,
        "recovery_ms": { "p50": p50, "max": max },
    }))
}

/// Starts a worker process and waits for its first event. Returns the process and the time that
/// this took, in nanoseconds.
async fn start_worker(
    project: &BenchProject,
    longhaul: &Longhaul,
    run: RunId,
) -> anyhow::Result<(ChildProcess, u64)> {
    let last_seq = longhaul.run_row(run).await?.last_seq;
    let start = SystemClock.monotonic_nanos();
    let args = ["worker", "--quiet", "--until-eof"];
    let worker = ChildProcess::start(&mut project.longhaul_command(&args)?)?;
    let deadline = SystemClock.monotonic_time().plus(RUN_TIMEOUT);
    while longhaul.run_row(run).await?.last_seq == last_seq {
        if SystemClock.monotonic_time() > deadline {
            bail!("timeout: a worker wrote no event");
        }
        SystemClock.sleep(Millis(1)).await;
    }
    Ok((worker, SystemClock.monotonic_nanos() - start))
}
