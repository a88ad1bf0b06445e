//! The kill loop of a chaos test: submits runs, starts workers and kills them until all kills are
//! done, answers the gates in place of a person, and lets the last worker finish the runs.
//!
//! Invariant: a call in doubt counts as done only if its effect is recorded, and a call that must
//! not be repeated is never started again.

use std::collections::{BTreeMap, BTreeSet};

use longhaul::project::ProjectRuntime;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::id::{RunId, Seq};
use longhaul_core::policy::gate::{
    Answer, AnswerScope, GateDecision, GateKind, GateRow, GateStatus,
};
use longhaul_core::port::store::{GateFilter, RunFilter, RunRow};
use longhaul_core::time::{Clock as _, Millis};
use longhaul_engine::Error;
use longhaul_engine::Task;
use longhaul_engine::clock::SystemClock;
use longhaul_run::commands::current_gate_digest;
use serde::Serialize;

use crate::chaos::project::{PROBE_PREFIX, ScratchProject};
use crate::child_process::ChildProcess;
use crate::output;

/// Range of the time from a worker's first event to its kill, in milliseconds, before it is scaled.
const LIFETIME_MS: (u64, u64) = (5, 150);

/// First scale of lifetimes, its minimum and its maximum, in percent. The first one is low because
/// the duration of a run is unknown at first.
const SCALES: (u64, u64, u64) = (30, 2, 2_000);

/// Share of the runs that have ended by the time of the last kill, in percent. The rest are still
/// open, so that the last kills interrupt something.
const ENDED_AT_LAST_KILL: u64 = 60;

/// Interval between checks of the progress of the runs.
const POLL_INTERVAL: Millis = Millis(3);

/// Timeout for a worker's first event. After it the worker is killed anyway, because all its runs may
/// be waiting.
const FIRST_EVENT_TIMEOUT: Millis = Millis::from_secs(10);

/// Timeout for the next event of the last worker. After it the loop gives up.
const STALL_TIMEOUT: Millis = Millis::from_secs(180);

/// Maximum number of gates that are answered at a time, and of answers per run. Further gates of a
/// run stay open, because the run might never end.
const GATES_MAX: usize = 1_000;
const ANSWERS_PER_RUN_MAX: u32 = 200;

/// Maximum number of events read from a journal. No journal is that long.
const EVENTS_MAX: usize = 10_000_000;

/// What a chaos test does.
#[derive(Debug)]
pub(crate) struct ChaosPlan {
    pub(crate) task: Task,
    pub(crate) runs: u64,
    pub(crate) kills: u64,
    pub(crate) seed: u64,
    /// Whether no progress is printed.
    pub(crate) quiet: bool,
}

/// What happened in the kill loop.
#[derive(Debug, Default, Serialize)]
pub(crate) struct KillLog {
    /// Runs whose submission was acknowledged.
    #[serde(skip)]
    pub(crate) runs: Vec<RunId>,
    pub(crate) kills: KillCounts,
    /// Number of workers that were started after the first one.
    pub(crate) restarts: u64,
    pub(crate) recovery_ms: RecoveryTimes,
    /// Whether the last worker wrote nothing for `STALL_TIMEOUT` while runs had not ended.
    pub(crate) stalled: bool,
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct KillCounts {
    pub(crate) planned: u64,
    pub(crate) done: u64,
}

/// Times from each worker's start to its first event, in milliseconds.
#[derive(Debug, Default, Serialize)]
pub(crate) struct RecoveryTimes {
    #[serde(skip)]
    all: Vec<u64>,
    pub(crate) median: u64,
    pub(crate) worst: u64,
}

/// Numbers of events, of open runs and of ended runs.
struct Progress {
    events: u64,
    open: u64,
    ended: u64,
}

/// The kill loop of a chaos test.
pub(crate) struct KillLoop<'a> {
    scratch: &'a ScratchProject,
    runtime: &'a ProjectRuntime,
    plan: &'a ChaosPlan,
    log: KillLog,
    answers: BTreeMap<RunId, u32>,
    random: u64,
}

impl<'a> KillLoop<'a> {
    /// Runs the whole loop and returns what happened.
    pub(crate) async fn run(
        scratch: &'a ScratchProject,
        runtime: &'a ProjectRuntime,
        plan: &'a ChaosPlan,
    ) -> anyhow::Result<KillLog> {
        let kills = KillCounts { planned: plan.kills, done: 0 };
        let log = KillLog { kills, ..KillLog::default() };
        let (answers, random) = (BTreeMap::new(), plan.seed);
        let mut kill_loop = Self { scratch, runtime, plan, log, answers, random };
        kill_loop.submit_and_kill().await?;
        kill_loop.finish_open_runs().await?;
        let times = &mut kill_loop.log.recovery_ms;
        times.all.sort_unstable();
        times.median = times.all.get(times.all.len().saturating_sub(1) / 2).map_or(0, |ms| *ms);
        times.worst = times.all.last().map_or(0, |ms| *ms);
        Ok(kill_loop.log)
    }

    /// Submits all runs and kills their workers until all kills are done or all runs have ended.
    async fn submit_and_kill(&mut self) -> anyhow::Result<()> {
        let ChaosPlan { runs, kills, .. } = *self.plan;
        let mut scale = SCALES.0;
        while self.log.kills.done < kills {
            // A quarter of the runs is submitted at the start, the rest during the first 90 % of the
            // kills, so that there is work to interrupt until the last kill.
            let first = (runs / 4).max(1);
            let due = first + (runs - first) * self.log.kills.done / (kills * 9 / 10).max(1);
            self.submit_up_to(due.min(runs)).await?;
            if self.progress().await?.open == 0 {
                self.submit_up_to((self.log.runs.len() as u64 + 1).min(runs)).await?;
            }
            if self.progress().await?.open == 0 {
                break;
            }
            let mut worker = self.start_worker().await?;
            let (min, max) = LIFETIME_MS;
            let lifetime = Millis((min + self.next_random() % (max - min)) * scale / 100);
            let Progress { open, ended, .. } = self.let_work(lifetime).await?;
            if open == 0 && self.log.runs.len() as u64 == runs {
                break;
            }
            worker.kill()?;
            self.log.kills.done += 1;
            let done = self.log.kills.done;
            scale = match ended * kills * 100 > done * runs * ENDED_AT_LAST_KILL {
                true => (scale * 7 / 10).max(SCALES.1),
                false => (scale * 13 / 10 + 1).min(SCALES.2),
            };
            if !self.plan.quiet && done.is_multiple_of(10) {
                output::eprint_line(&format!(
                    "  {done} of {kills} kills, {ended} of {runs} runs have ended"
                ));
            }
        }
        self.submit_up_to(runs).await
    }

    /// Returns the next pseudo-random number (splitmix64).
    const fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.random;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    async fn submit_up_to(&mut self, count: u64) -> anyhow::Result<()> {
        while (self.log.runs.len() as u64) < count {
            let run = self.runtime.longhaul.submit(self.plan.task.clone()).await?;
            self.log.runs.push(run);
        }
        Ok(())
    }

    /// Starts a worker process and waits for its first event.
    async fn start_worker(&mut self) -> anyhow::Result<ChildProcess> {
        self.answer_gates().await?;
        let events_before = self.progress().await?.events;
        let start = SystemClock.monotonic_nanos();
        let mut worker = self.scratch.start_worker()?;
        self.log.restarts += u64::from(self.log.kills.done > 0);
        let elapsed = || Millis((SystemClock.monotonic_nanos() - start) / 1_000_000);
        while elapsed() < FIRST_EVENT_TIMEOUT {
            worker.check_running()?;
            if self.progress().await?.events > events_before {
                self.log.recovery_ms.all.push(elapsed().0);
                break;
            }
            SystemClock.sleep(POLL_INTERVAL).await;
        }
        Ok(worker)
    }

    /// Waits for this time, or until all runs have ended, and answers gates meanwhile.
    async fn let_work(&mut self, lifetime: Millis) -> anyhow::Result<Progress> {
        let start = SystemClock.monotonic_time();
        loop {
            let progress = self.progress().await?;
            let elapsed = SystemClock.monotonic_time().minus(start);
            if elapsed >= lifetime || progress.open == 0 {
                return Ok(progress);
            }
            self.answer_gates().await?;
            SystemClock.sleep(POLL_INTERVAL.min(Millis(lifetime.0 - elapsed.0))).await;
        }
    }

    /// Lets the last worker finish all runs.
    async fn finish_open_runs(&mut self) -> anyhow::Result<()> {
        if self.progress().await?.open == 0 {
            return Ok(());
        }
        let mut worker = self.start_worker().await?;
        let (mut events, mut last_change) = (0, SystemClock.monotonic_time());
        loop {
            worker.check_running()?;
            let progress = self.progress().await?;
            if progress.events > events {
                (events, last_change) = (progress.events, SystemClock.monotonic_time());
            }
            self.log.stalled = SystemClock.monotonic_time().minus(last_change) > STALL_TIMEOUT;
            if progress.open == 0 || self.log.stalled {
                return Ok(());
            }
            self.answer_gates().await?;
            SystemClock.sleep(Millis(20)).await;
        }
    }

    async fn progress(&self) -> anyhow::Result<Progress> {
        let rows = run_rows(self.runtime).await?;
        let ended = rows.iter().filter(|row| row.status.is_terminal()).count() as u64;
        let events = rows.iter().map(|row| row.last_seq.0).sum();
        Ok(Progress { events, open: rows.len() as u64 - ended, ended })
    }

    /// Answers the open gates of all runs.
    async fn answer_gates(&mut self) -> anyhow::Result<()> {
        let status = Some(GateStatus::Open);
        let filter = GateFilter { status, limit: GATES_MAX, ..GateFilter::default() };
        let longhaul = &self.runtime.longhaul;
        for gate in longhaul.list_gates(filter).await? {
            let count = self.answers.entry(gate.run).or_default();
            *count += 1;
            if *count > ANSWERS_PER_RUN_MAX {
                continue;
            }
            let (decision, note) = decide(&gate, self.scratch)?;
            let answer = Answer {
                decision,
                // A quorum needs different people.
                by: format!("chaos:{}", gate.answers.len() + 1),
                scope: AnswerScope::Once,
                note: Some(note.to_owned()),
                payload: None,
                digest: current_gate_digest(&gate),
            };
            match longhaul.answer_gate(gate.spec.id, answer).await {
                // The driver has withdrawn the gate meanwhile, or is writing at the moment.
                Ok(_) | Err(Error::Rejected(_) | Error::Contention(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Returns the decision about a gate, and the note of the answer.
fn decide(
    gate: &GateRow,
    scratch: &ScratchProject,
) -> anyhow::Result<(GateDecision, &'static str)> {
    Ok(match gate.spec.kind {
        GateKind::Approval | GateKind::Result => (GateDecision::Approve, "chaos approves all"),
        GateKind::Question => (GateDecision::Answer("go on".into()), "chaos has no answer"),
        GateKind::Blocked => (GateDecision::Reject, "chaos can't help"),
        GateKind::Signal => (GateDecision::Complete, "chaos sends every signal"),
        GateKind::InDoubt => {
            // The process that made the call is dead, so no further record can appear.
            let is_recorded = scratch
                .read_effects()?
                .iter()
                .any(|effect| effect.run == gate.run && Some(effect.call) == gate.spec.call);
            let is_probe =
                gate.spec.tool.as_deref().is_some_and(|one| one.starts_with(PROBE_PREFIX));
            match (is_recorded, is_probe) {
                (true, _) => (GateDecision::Complete, "chaos checked: it has a record"),
                (false, true) => (GateDecision::Reject, "chaos checked: it has no record"),
                (false, false) => {
                    (GateDecision::Reject, "not verifiable: chaos treats it as not done")
                }
            }
        }
    })
}

/// Returns the journals of all acknowledged runs and of their child runs.
pub(crate) async fn read_journals(
    runtime: &ProjectRuntime,
    log: &KillLog,
) -> anyhow::Result<BTreeMap<RunId, Vec<JournalEntry>>> {
    let rows = run_rows(runtime).await?;
    let mut journals = BTreeMap::new();
    let runs: BTreeSet<RunId> =
        log.runs.iter().copied().chain(rows.iter().map(|row| row.id)).collect();
    for run in runs {
        let entries = match runtime.longhaul.read_run_journal(run, Seq::START, EVENTS_MAX).await {
            Err(Error::RunNotFound(_)) => Vec::new(),
            entries => entries?,
        };
        journals.insert(run, entries);
    }
    Ok(journals)
}

async fn run_rows(runtime: &ProjectRuntime) -> anyhow::Result<Vec<RunRow>> {
    let filter = RunFilter { limit: usize::MAX >> 1, ..RunFilter::default() };
    Ok(runtime.longhaul.services().store.list_runs(filter).await?)
}
