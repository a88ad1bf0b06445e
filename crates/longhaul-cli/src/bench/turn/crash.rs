//! A worker killed with SIGKILL again and again: what is lost, what is repeated,
//! how soon it goes on.
//!
//! Never: a gentle end. The process is the real one and really dies.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use longhaul_core::event::Event;
use longhaul_core::event::entry::Entry;
use longhaul_core::failure::FailureClass;
use longhaul_core::id::{RunId, Seq};
use longhaul_core::port::store::{ReadAsk, Store};
use longhaul_core::time::{Clock, Millis};
use longhaul_engine::clock::{Stopwatch, SystemClock};
use longhaul_store::bench::Spans;
use longhaul_store::{Options, Role, SqliteStore, open};
use serde::Serialize;

use crate::bench::conditions::met;
use crate::bench::cost::micros;
use crate::demo::worker::WorkerProcess;
use crate::project_files;

/// What the crashes came to.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Crashes {
    kills: u32,
    runs_lost: usize,
    model_calls_repeated: usize,
    results_repeated: usize,
    recovery_ms: Recovery,
}

/// How long it took until the run went on.
#[derive(Debug, Default, Serialize)]
struct Recovery {
    p50: f64,
    max: f64,
}

impl Crashes {
    pub(crate) fn line(&self) -> String {
        format!(
            "W7  {} kills: {} runs lost, {} model calls asked again, {} recorded results repeated; \
             from the start of a new process to its first fact p50 {:.0} ms, max {:.0} ms (target {RECOVERY_MS_TARGET:.0}: {})",
            self.kills,
            self.runs_lost,
            self.model_calls_repeated,
            self.results_repeated,
            self.recovery_ms.p50,
            self.recovery_ms.max,
            met(self.recovery_ms.p50 <= RECOVERY_MS_TARGET),
        )
    }
}

/// From the end of a process to the first fact of the next, in milliseconds.
const RECOVERY_MS_TARGET: f64 = 200.0;

/// So long does a worker live after its first fact.
const LIVES: Millis = Millis(60);

/// A run must end within this.
const PATIENCE: Millis = Millis::from_secs(120);

/// Kills a worker so many times, and lets the last one bring the run home.
pub(crate) async fn crash(folder: &Path, kills: u32) -> anyhow::Result<Crashes> {
    let folder = folder.join("crash");
    write_project(&folder)?;
    let store = watcher(&folder)?;
    let run = submit(&folder).await?;
    let mut crashes = Crashes {
        kills,
        ..Crashes::default()
    };
    let mut spans = Vec::new();
    for _ in 0..kills {
        let (mut worker, took) = start(&folder, &store, run).await?;
        spans.push(took);
        SystemClock.sleep(LIVES).await;
        worker.kill().await?;
    }
    let (mut worker, took) = start(&folder, &store, run).await?;
    spans.push(took);
    // The first start recovered nothing.
    let spans = Spans::new(spans.split_off(1));
    crashes.recovery_ms = Recovery {
        p50: micros(spans.percentile(50)) / 1e3,
        max: micros(spans.percentile(100)) / 1e3,
    };
    let until = SystemClock.monotonic().plus(PATIENCE);
    let journal = loop {
        let row = store.row(run).await?;
        if row.is_some_and(|row| row.status.is_terminal()) {
            break read(&store, run).await?;
        }
        if SystemClock.monotonic() > until {
            bail!("{run} did not end after {kills} kills");
        }
        SystemClock.sleep(Millis(20)).await;
    };
    worker.end().await?;
    count(&journal, &mut crashes);
    Ok(crashes)
}

/// Starts a worker and waits for its first fact; how long that took.
async fn start(
    folder: &Path,
    store: &SqliteStore,
    run: RunId,
) -> anyhow::Result<(WorkerProcess, u64)> {
    let last = store.row(run).await?.map_or(Seq::START, |row| row.last);
    let watch = Stopwatch::start();
    let worker = WorkerProcess::start(folder)?;
    let until = SystemClock.monotonic().plus(PATIENCE);
    loop {
        let ask = ReadAsk {
            run,
            after: last,
            limit: 1,
        };
        if !store.read(ask).await?.entries.is_empty() {
            return Ok((worker, watch.nanos()));
        }
        if SystemClock.monotonic() > until {
            bail!("a worker wrote nothing");
        }
        SystemClock.sleep(Millis(1)).await;
    }
}

fn count(journal: &[Entry], crashes: &mut Crashes) {
    let mut turns = std::collections::BTreeSet::new();
    let mut calls = std::collections::BTreeSet::new();
    for entry in journal {
        #[expect(clippy::wildcard_enum_match_arm, reason = "only these bear on a crash")]
        match &entry.event {
            Event::TurnFailed(failed) if failed.failure.class == FailureClass::Lost => {
                crashes.model_calls_repeated += 1;
            }
            Event::TurnCompleted(done) => drop(turns.insert(done.turn)),
            Event::ToolCompleted(ended) => drop(calls.insert(ended.call)),
            Event::TurnStarted(started) => {
                crashes.results_repeated += usize::from(turns.contains(&started.turn));
            }
            Event::ToolStarted(started) => {
                crashes.results_repeated += usize::from(calls.contains(&started.call));
            }
            Event::RunFailed(_) | Event::RunCancelled(_) => crashes.runs_lost += 1,
            _ => {}
        }
    }
}

async fn read(store: &SqliteStore, run: RunId) -> anyhow::Result<Vec<Entry>> {
    let mut journal: Vec<Entry> = Vec::new();
    loop {
        let after = journal.last().map_or(Seq::START, |entry| entry.seq);
        let ask = ReadAsk {
            run,
            after,
            limit: 1_000,
        };
        let page = store.read(ask).await?;
        if page.entries.is_empty() {
            return Ok(journal);
        }
        journal.extend(page.entries);
    }
}

fn watcher(folder: &Path) -> anyhow::Result<SqliteStore> {
    let file = folder.join(".longhaul/longhaul.db");
    let url = format!("sqlite:{}", file.display());
    Ok(open(Options::new(
        url,
        Role::Outsider,
        Arc::new(SystemClock),
    ))?)
}

/// A run of many short turns that is always in the middle of something.
fn write_project(folder: &Path) -> anyhow::Result<()> {
    let files = [
        (
            "longhaul.toml",
            "[budget]\nturns = 100000\n[worker]\ncrash_limit = 0\n",
        ),
        (
            "agents/busy.md",
            "---\nmodel: scripted/busy\ntools: [vault_list]\n---\nYou are killed.\n",
        ),
        (
            "scripts/busy.yaml",
            "replies:\n  - text: Looking.\n    tools: [{ name: vault_list, input: {} }]\n    delay: 5ms\n  - text: Done.\nloop: { from: 0, to: 1, times: 400 }\n",
        ),
    ];
    project_files::write(folder, &files)
}

async fn submit(folder: &Path) -> anyhow::Result<RunId> {
    let program = std::env::current_exe()?;
    let output = tokio::process::Command::new(program)
        .args(["submit", "busy", "go"])
        .current_dir(folder)
        .env_remove("LONGHAUL_STORE")
        .env_remove("LONGHAUL_DATA")
        .output()
        .await?;
    let said = String::from_utf8_lossy(&output.stdout);
    said.trim()
        .parse()
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())
}
