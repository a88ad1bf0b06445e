//! A worker killed with SIGKILL again and again: what is lost, what is repeated, how soon it goes
//! on. The process is the real one and really dies.

use std::path::Path;

use anyhow::bail;
use longhaul::assemble::open;
use longhaul::config::load;
use longhaul_core::id::{RunId, Seq};
use longhaul_core::status::Status;
use longhaul_core::time::{Clock as _, Millis};
use longhaul_engine::clock::SystemClock;
use longhaul_engine::{Longhaul, Task};
use longhaul_store::OpenMode;
use longhaul_store::bench::Durations;
use serde_json::json;

use crate::bench::measure::nanos_to_micros;
use crate::bench::project::BenchProject;
use crate::bench::report::{Report, met_or_missed};
use crate::child_process::ChildProcess;
use crate::crash_counts::CrashCounts;
use crate::store_access::open_options;

/// From the start of a process to its first event, in milliseconds.
const RECOVERY_MS_TARGET: f64 = 200.0;

/// How long a worker lives after its first event.
const KILL_DELAY: Millis = Millis(60);

/// A run must end within this.
const RUN_TIMEOUT: Millis = Millis::from_secs(120);

/// More events than the journal has.
const EVENTS_MAX: usize = 1_000_000;

/// A run of many short turns that is always in the middle of something.
const PROJECT_FILES: &[(&str, &str)] = &[
    ("longhaul.toml", "[budget]\nturns = 100000\n[worker]\ncrash_limit = 0\n"),
    ("agents/busy.md", "---\nmodel: scripted/busy\ntools: [vault_list]\n---\nYou are killed.\n"),
    (
        "scripts/busy.yaml",
        "replies:\n  - text: Looking.\n    tools: [{ name: vault_list, input: {} }]\n    delay: 5ms\n  - text: Done.\nloop: { from: 0, to: 1, times: 400 }\n",
    ),
];

/// Kills a worker so many times, lets the last one finish the run, and adds what came of it to the
/// report.
pub(crate) async fn measure_crashes(
    folder: &Path,
    kills: u32,
    report: &mut Report,
) -> anyhow::Result<()> {
    let project = BenchProject::new(Some(folder), PROJECT_FILES)?;
    let longhaul =
        open(load::load(&project.process_env, &[])?, open_options(OpenMode::Outsider))?.longhaul;
    let run = longhaul.submit(Task::new("busy", "go")).await?;
    let mut spans = Vec::new();
    for _ in 0..kills {
        let (mut worker, span) = start_worker(&project, &longhaul, run).await?;
        spans.push(span);
        SystemClock.sleep(KILL_DELAY).await;
        worker.kill()?;
    }
    let (mut worker, span) = start_worker(&project, &longhaul, run).await?;
    spans.push(span);
    let deadline = SystemClock.monotonic().plus(RUN_TIMEOUT);
    while !longhaul.run_row(run).await?.status.is_terminal() {
        if SystemClock.monotonic() > deadline {
            bail!("{run} did not end after {kills} kills");
        }
        SystemClock.sleep(Millis(20)).await;
    }
    worker.stop().await?;
    let journal = longhaul.events(run, Seq::START, EVENTS_MAX).await?;
    let counts = CrashCounts::from_journal(&journal, Seq::START);
    let lost = u32::from(longhaul.run_row(run).await?.status != Status::Completed);
    // The first start recovered nothing.
    let spans = Durations::new(spans.split_off(1));
    let [p50, max] = [50, 100].map(|percent| nanos_to_micros(spans.percentile(percent)) / 1e3);
    report.add_line(format!(
        "\nW7  {kills} kills: {lost} runs lost, {} model calls asked again, {} recorded results repeated; \
         from the start of a new process to its first fact p50 {p50:.0} ms, max {max:.0} ms (target {RECOVERY_MS_TARGET:.0}: {})",
        counts.retried_model_calls,
        counts.repeated,
        met_or_missed(p50 <= RECOVERY_MS_TARGET),
    ));
    report.add_figures(&json!({
        "kills": kills,
        "runs_lost": lost,
        "model_calls_repeated": counts.retried_model_calls,
        "results_repeated": counts.repeated,
        "recovery_ms": { "p50": p50, "max": max },
    }))
}

/// Starts a worker and waits for its first event; how long that took.
async fn start_worker(
    project: &BenchProject,
    longhaul: &Longhaul,
    run: RunId,
) -> anyhow::Result<(ChildProcess, u64)> {
    let last = longhaul.run_row(run).await?.last_seq;
    let begun = SystemClock.monotonic_nanos();
    let args = ["worker", "--quiet", "--until-eof"];
    let worker = ChildProcess::start(&mut project.command(&args)?)?;
    let deadline = SystemClock.monotonic().plus(RUN_TIMEOUT);
    while longhaul.run_row(run).await?.last_seq == last {
        if SystemClock.monotonic() > deadline {
            bail!("a worker wrote nothing");
        }
        SystemClock.sleep(Millis(1)).await;
    }
    Ok((worker, SystemClock.monotonic_nanos() - begun))
}
