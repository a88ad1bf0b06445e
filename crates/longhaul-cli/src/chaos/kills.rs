//! The kill loop of a chaos test: submits runs, starts workers and kills them until all kills are
//! done, answers the gates in place of a person, and lets the last worker finish the runs and stop
//! their sandboxes.
//!
//! Invariant: a call in doubt counts as done only if its effect is recorded, and a call that must
//! not be repeated is never started again.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};

use clap::Args;
use longhaul::project::ProjectRuntime;
use longhaul_core::change::SandboxFilter;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::id::{RunId, Seq};
use longhaul_core::policy::gate::{Answer, GateDecision, GateKind, GateRow};
use longhaul_core::port::store::{GateFilter, JournalReadRequest, RunFilter};
use longhaul_core::time::{Clock as _, Millis};
use longhaul_engine::clock::SystemClock;
use longhaul_engine::{Error, Task};
use longhaul_run::commands::current_gate_digest;
use serde::Serialize;

use crate::chaos::project::ScratchProject;
use crate::chaos::sandboxes::verify_sandboxes;
use crate::output;

/// Range of the time from a worker's first event to its kill, in milliseconds, before it is scaled.
const LIFETIME_MS: (u64, u64) = (5, 150);

/// First scale of lifetimes, its minimum and its maximum, in percent. The first one is low because
/// the duration of a run is unknown at first.
const SCALES: (u64, u64, u64) = (30, 2, 2_000);

/// Share of the runs that have ended by the time of the last kill, in percent. Most kills interrupt
/// several runs then.
const ENDED_AT_LAST_KILL: u64 = 60;

/// Interval between checks of the progress of the runs.
const POLL_INTERVAL: Millis = Millis(2);

/// Timeout for a worker's next event. After it the worker is killed anyway, because all its runs may
/// be waiting.
const EVENT_TIMEOUT: Millis = Millis::from_secs(10);

/// Timeout for the next event of the last worker. After it the loop gives up.
const STALL_TIMEOUT: Millis = Millis::from_secs(180);

/// Maximum number of gates that are answered at a time, and of answers per run. Further gates of a
/// run stay open, because the run might never end.
const GATES_MAX: usize = 1_000;
const ANSWERS_PER_RUN_MAX: u32 = 200;

/// Note of every answer.
const NOTE: &str =
    "answered by chaos: a call in doubt counts as done only if its effect is recorded";

/// Maximum number of events read from a journal. No journal is that long.
const EVENTS_MAX: usize = 10_000_000;

/// Command-line arguments of the kill loop.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct KillArgs {
    /// Number of runs to submit; more are submitted if all have ended before the last kill
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub(crate) runs: u64,
    /// Number of times that a worker is killed
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(0..=100_000))]
    pub(crate) kills: u64,
    /// Seed of the random kill times; by default a new seed
    #[arg(long, default_value_t = SystemClock.monotonic_nanos() % 1_000_000, hide_default_value = true)]
    pub(crate) seed: u64,
    /// Print the scorecard as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// What happened in the kill loop.
#[derive(Debug, Default, Serialize)]
pub(crate) struct KillLog {
    /// Runs whose submission was acknowledged.
    #[serde(skip)]
    pub(crate) runs: Vec<RunId>,
    /// Number of workers that were killed in the middle of their work.
    pub(crate) kills: u64,
    /// Number of workers that were started after the first one.
    pub(crate) restarts: u64,
    pub(crate) recovery_ms: RecoveryTimes,
    /// Number of sandboxes that the runs have used.
    pub(crate) sandboxes: usize,
    /// Sandboxes, or parts of them, that are left in a wrong state, each described in a sentence.
    pub(crate) sandbox_problems: Vec<String>,
    /// Whether the last worker wrote nothing for `STALL_TIMEOUT` while runs had not ended or
    /// sandboxes were not stopped.
    pub(crate) stalled: bool,
}

/// Times from each worker's start to its first event, in milliseconds.
#[derive(Debug, Default, Serialize)]
pub(crate) struct RecoveryTimes {
    #[serde(skip)]
    all: Vec<u64>,
    pub(crate) median: u64,
    pub(crate) worst: u64,
}

/// All runs, and the numbers of events, of open runs, of ended runs and of sandboxes that are not
/// stopped.
struct Progress {
    runs: BTreeSet<RunId>,
    events: u64,
    open: u64,
    ended: u64,
    sandboxes: u64,
}

/// Time at which a worker is killed.
#[derive(Clone, Copy)]
enum End {
    /// This time after the worker's first event.
    After(Millis),
    /// When all runs have ended and all sandboxes are stopped.
    AllEnded,
}

/// The kill loop of a chaos test.
pub(crate) struct KillLoop<'a> {
    scratch: &'a ScratchProject,
    runtime: &'a ProjectRuntime,
    args: KillArgs,
    /// Task of every run.
    task: Task,
    log: KillLog,
    /// Number of gates that were answered in each run.
    answers: BTreeMap<RunId, u32>,
}

impl<'a> KillLoop<'a> {
    /// Runs the whole loop. Returns what happened, and the journals of all acknowledged runs and of
    /// their child runs.
    pub(crate) async fn run(
        scratch: &'a ScratchProject,
        runtime: &'a ProjectRuntime,
        args: KillArgs,
        task: Task,
    ) -> anyhow::Result<(KillLog, BTreeMap<RunId, Vec<JournalEntry>>)> {
        let (log, answers) = (KillLog::default(), BTreeMap::new());
        let mut kill_loop = Self { scratch, runtime, args, task, log, answers };
        kill_loop.submit_and_kill().await?;
        let Progress { mut runs, open, sandboxes, .. } =
            kill_loop.run_worker(End::AllEnded).await?;
        kill_loop.log.stalled = open + sandboxes > 0;
        let mut log = kill_loop.log;
        (log.sandboxes, log.sandbox_problems) = verify_sandboxes(scratch, runtime).await?;
        let RecoveryTimes { all, median, worst } = &mut log.recovery_ms;
        all.sort_unstable();
        *median = all.get(all.len().saturating_sub(1) / 2).copied().unwrap_or_default();
        *worst = all.last().copied().unwrap_or_default();
        runs.extend(&log.runs);
        let mut journals = BTreeMap::new();
        for run in runs {
            let request = JournalReadRequest { run, after: Seq::START, limit: EVENTS_MAX };
            let page = runtime.longhaul.services().store.read_journal(request).await?;
            journals.insert(run, page.entries);
        }
        Ok((log, journals))
    }

    /// Submits all runs and kills their workers until all kills are done.
    async fn submit_and_kill(&mut self) -> anyhow::Result<()> {
        let KillArgs { runs, kills, seed, json } = self.args;
        let mut scale = SCALES.0;
        for done in 1..=kills {
            // A quarter of the runs is submitted at the start, the rest evenly over the kills.
            self.submit_up_to(runs * (kills + 3 * (done - 1)) / (4 * kills)).await?;
            let (min, max) = LIFETIME_MS;
            let random = BuildHasherDefault::<DefaultHasher>::new().hash_one((seed, done));
            let lifetime = Millis((min + random % (max - min)) * scale / 100);
            let Progress { ended, .. } = self.run_worker(End::After(lifetime)).await?;
            self.log.kills = done;
            scale = match ended * kills * 100 > done * runs * ENDED_AT_LAST_KILL {
                true => (scale * 7 / 10).max(SCALES.1),
                false => (scale * 13 / 10 + 1).min(SCALES.2),
            };
            if !json && done.is_multiple_of(10) {
                output::eprint_line(&format!("  {done} of {kills} kills, {ended} runs have ended"));
            }
        }
        self.submit_up_to(runs).await
    }

    /// Submits runs until there are this many.
    async fn submit_up_to(&mut self, count: u64) -> anyhow::Result<()> {
        while (self.log.runs.len() as u64) < count {
            self.log.runs.push(self.runtime.longhaul.submit(self.task.clone()).await?);
        }
        Ok(())
    }

    /// Starts a worker process, answers gates while it works, and kills it at its end, or after a
    /// timeout without an event.
    async fn run_worker(&mut self, end: End) -> anyhow::Result<Progress> {
        // Each answer writes an event, which must not be taken for the first one of the worker.
        while self.answer_gates().await? {}
        let mut events = self.progress().await?.events;
        let start = SystemClock.monotonic_time();
        let (mut first_event, mut last_event) = (None, start);
        let mut worker = self.scratch.start_worker()?;
        self.log.restarts += u64::from(self.log.kills > 0);
        loop {
            worker.check_running()?;
            let progress = self.progress().await?;
            let now = SystemClock.monotonic_time();
            if progress.events > events {
                (events, last_event) = (progress.events, now);
                if first_event.is_none() {
                    first_event = Some(now);
                    self.log.recovery_ms.all.push(now.minus(start).0);
                }
            }
            let (is_over, timeout) = match end {
                End::After(lifetime) => {
                    (first_event.is_some_and(|first| now.minus(first) >= lifetime), EVENT_TIMEOUT)
                }
                End::AllEnded => (progress.open + progress.sandboxes == 0, STALL_TIMEOUT),
            };
            if is_over || now.minus(last_event) >= timeout {
                worker.kill()?;
                return Ok(progress);
            }
            // However fast the runs are, each kill finds one to interrupt.
            if progress.open == 0 && matches!(end, End::After(_)) {
                self.submit_up_to(self.log.runs.len() as u64 + 1).await?;
                events = self.progress().await?.events;
            }
            self.answer_gates().await?;
            SystemClock.sleep(POLL_INTERVAL).await;
        }
    }

    async fn progress(&self) -> anyhow::Result<Progress> {
        // All runs. The store takes no larger limit.
        let filter = RunFilter { limit: usize::MAX >> 1, ..RunFilter::default() };
        let services = self.runtime.longhaul.services();
        let rows = services.store.list_runs(filter).await?;
        let filter = SandboxFilter { limit: usize::MAX >> 1, ..SandboxFilter::default() };
        let sandboxes = services.records.list_sandboxes(filter).await?;
        let sandboxes = sandboxes.iter().filter(|row| row.state.holds_slot()).count() as u64;
        let ended = rows.iter().filter(|row| row.status.is_terminal()).count() as u64;
        let events = rows.iter().map(|row| row.last_seq.0).sum();
        let runs = rows.iter().map(|row| row.id).collect();
        Ok(Progress { runs, events, open: rows.len() as u64 - ended, ended, sandboxes })
    }

    /// Answers the open gates of all runs. Returns whether an answer was accepted.
    async fn answer_gates(&mut self) -> anyhow::Result<bool> {
        let longhaul = &self.runtime.longhaul;
        let mut is_accepted = false;
        for gate in longhaul.list_gates(GateFilter::open(None, GATES_MAX)).await? {
            let count = self.answers.entry(gate.run).or_default();
            *count += 1;
            if *count > ANSWERS_PER_RUN_MAX {
                continue;
            }
            // A quorum needs different people.
            let by = format!("chaos:{}", gate.answers.len() + 1);
            let (note, digest) = (Some(NOTE.to_owned()), current_gate_digest(&gate));
            let answer = Answer { note, digest, ..Answer::new(self.decide(&gate)?, by) };
            match longhaul.answer_gate(gate.spec.id, answer).await {
                Ok(_) => is_accepted = true,
                // The driver has withdrawn the gate meanwhile, or is writing at the moment.
                Err(Error::Rejected(_) | Error::Contention(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(is_accepted)
    }

    fn decide(&self, gate: &GateRow) -> anyhow::Result<GateDecision> {
        // The process that made a call in doubt is dead, so no further record can appear.
        let (effects, call) = (self.scratch.read_effects()?, gate.spec.call);
        let is_recorded = effects.iter().any(|one| one.run == gate.run && Some(one.call) == call);
        Ok(match gate.spec.kind {
            GateKind::Approval | GateKind::Result => GateDecision::Approve,
            GateKind::Question => GateDecision::Answer("go on".to_owned()),
            GateKind::Signal => GateDecision::Complete,
            GateKind::InDoubt if is_recorded => GateDecision::Complete,
            GateKind::InDoubt | GateKind::Blocked => GateDecision::Reject,
        })
    }
}
