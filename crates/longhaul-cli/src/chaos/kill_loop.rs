//! The kill loop of a chaos test: submits runs, starts workers and kills them until all kills are
//! done, then lets the last worker finish the runs. The loop gives up if no worker writes anything
//! for a long time.

use longhaul::assemble::ProjectRuntime;
use longhaul_core::id::{InboxName, RunId, Seq};
use longhaul_core::port::store::{RunFilter, RunRow};
use longhaul_core::time::{Clock as _, Millis};
use longhaul_engine::clock::SystemClock;
use longhaul_engine::task::Task;

use crate::chaos::auto_approver::AutoApprover;
use crate::chaos::rng::SplitMix64;
use crate::chaos::scratch::ScratchProject;
use crate::chaos::verify::RunJournal;
use crate::child_process::ChildProcess;
use crate::output;

/// Range of the time from a worker's first event to its kill, in milliseconds. A random value from
/// it is multiplied by the current lifetime scale.
const WORKER_LIFETIME_MS: (u64, u64) = (5, 150);

/// Range of the factor by which worker lifetimes are scaled, in percent.
const LIFETIME_SCALE_PERCENT: (u64, u64) = (2, 2_000);

/// Initial scale of worker lifetimes, in percent. The scale is low because the duration of a run is
/// unknown at first.
const FIRST_LIFETIME_SCALE: u64 = 30;

/// Maximum amount of work per worker, as a multiple of the average amount (all work divided by the
/// number of kills). A worker that has done more is killed early.
const WORK_SHARES_MAX: u64 = 3;

/// Maximum share of all work that is done by the time of the last kill, in thousandths. The rest is
/// a margin, because the total amount of work is only estimated.
const DONE_BY_LAST_KILL: u64 = 850;

/// Interval between checks of the progress of the runs.
const POLL_INTERVAL: Millis = Millis(3);

/// Timeout for a worker's first event. A worker without an event by then is killed anyway, because
/// all its runs may be waiting.
const FIRST_EVENT_TIMEOUT: Millis = Millis::from_secs(10);

/// Timeout for the next event of the last worker. After that the kill loop gives up.
const STALL_TIMEOUT: Millis = Millis::from_secs(180);

/// Maximum number of events read from a journal. No journal is that long.
const EVENTS_MAX: usize = 10_000_000;

/// What a chaos test does: the task of its runs, and the numbers of runs and kills.
#[derive(Debug)]
pub(crate) struct ChaosPlan {
    pub(crate) task: Task,
    pub(crate) runs: u64,
    pub(crate) kills: u64,
    pub(crate) seed: u64,
    /// True if no progress is printed.
    pub(crate) quiet: bool,
}

/// What happened in the kill loop of a chaos test.
#[derive(Debug, Default)]
pub(crate) struct KillLoopResult {
    /// Ids of the runs whose submission was acknowledged.
    pub(crate) runs: Vec<RunId>,
    pub(crate) kills: u64,
    /// Number of workers that were started after the first one.
    pub(crate) restarts: u64,
    /// Time from each worker's start to its first event, in milliseconds.
    pub(crate) recovery_times_ms: Vec<u64>,
    /// True if the last worker wrote nothing for `STALL_TIMEOUT` while runs had not ended.
    pub(crate) stalled: bool,
}

/// Progress of all runs of a chaos test.
#[derive(Debug, Clone, Copy)]
struct ChaosProgress {
    /// Number of events in all journals.
    events: u64,
    open: usize,
    ended: u64,
    /// Estimated share of all work that is done, in thousandths.
    done_permille: u64,
}

/// State of the kill loop of a chaos test, which submits runs, and starts and kills workers.
pub(crate) struct KillLoop<'a> {
    scratch: &'a ScratchProject,
    runtime: &'a ProjectRuntime,
    plan: &'a ChaosPlan,
    approver: AutoApprover,
    rng: SplitMix64,
    /// Factor by which worker lifetimes are currently scaled, in percent.
    lifetime_scale: u64,
    log: KillLoopResult,
}

impl<'a> KillLoop<'a> {
    pub(crate) fn new(
        scratch: &'a ScratchProject,
        runtime: &'a ProjectRuntime,
        plan: &'a ChaosPlan,
    ) -> Self {
        Self {
            scratch,
            runtime,
            plan,
            approver: AutoApprover::new(scratch.effect_log_path()),
            rng: SplitMix64::new(plan.seed),
            lifetime_scale: FIRST_LIFETIME_SCALE,
            log: KillLoopResult::default(),
        }
    }

    /// Runs the whole kill loop and returns what happened.
    pub(crate) async fn run(mut self) -> anyhow::Result<KillLoopResult> {
        while self.log.kills < self.plan.kills {
            self.submit_due_runs().await?;
            let progress = self.read_chaos_progress().await?;
            if progress.open == 0 {
                break;
            }
            self.approver.answer_gates(&self.runtime.longhaul).await?;
            let child = self.start_worker().await?;
            if !self.run_worker_and_kill_unless_runs_ended(child).await? {
                break;
            }
            self.adjust_worker_lifetime().await?;
        }
        self.submit_runs_up_to(self.plan.runs).await?;
        self.finish_open_runs().await?;
        Ok(self.log)
    }

    /// Submits the runs that are due after the kills so far: a quarter of all runs at the start,
    /// the rest spread over the first 80 % of the kills, so that there is work to interrupt until
    /// the last kill.
    async fn submit_due_runs(&mut self) -> anyhow::Result<()> {
        let ChaosPlan { runs, kills, .. } = *self.plan;
        let kills_with_submits = (kills * 4 / 5).max(1);
        let initial_runs = (runs / 4).max(1);
        let due_runs = initial_runs + (runs - initial_runs) * self.log.kills / kills_with_submits;
        self.submit_runs_up_to(due_runs.min(runs)).await?;
        let submitted = self.log.runs.len() as u64;
        if submitted < runs && self.read_chaos_progress().await?.open == 0 {
            self.submit_runs_up_to(submitted + 1).await?;
        }
        Ok(())
    }

    async fn submit_runs_up_to(&mut self, count: u64) -> anyhow::Result<()> {
        while (self.log.runs.len() as u64) < count {
            let mut task = self.plan.task.clone();
            let inboxes = self.runtime.config.worker_settings().inboxes;
            task.inbox = inboxes.first().map(InboxName::new).transpose()?;
            task.submitter = Some("chaos".to_owned());
            let run = self.runtime.longhaul.submit(task).await;
            self.log.runs.push(run?);
        }
        Ok(())
    }

    /// Starts a worker process and waits for its first event.
    async fn start_worker(&mut self) -> anyhow::Result<ChildProcess> {
        let events_before = self.read_chaos_progress().await?.events;
        let start = SystemClock.monotonic_nanos();
        let mut child = self.scratch.start_worker()?;
        self.log.restarts += u64::from(self.log.kills > 0);
        let elapsed = || Millis((SystemClock.monotonic_nanos() - start) / 1_000_000);
        while elapsed() < FIRST_EVENT_TIMEOUT {
            child.check_running()?;
            if self.read_chaos_progress().await?.events > events_before {
                self.log.recovery_times_ms.push(elapsed().0);
                break;
            }
            sleep(POLL_INTERVAL).await;
        }
        Ok(child)
    }

    /// Lets a worker run for a while and kills it. Returns false if all runs had ended before the
    /// kill.
    async fn run_worker_and_kill_unless_runs_ended(
        &mut self,
        mut child: ChildProcess,
    ) -> anyhow::Result<bool> {
        let lifetime = self.rng.next_in_range(WORKER_LIFETIME_MS.0, WORKER_LIFETIME_MS.1)
            * self.lifetime_scale
            / 100;
        let progress_before = self.read_chaos_progress().await?;
        let permille_per_kill = WORK_SHARES_MAX * 1_000 / self.plan.kills;
        let target_permille =
            (progress_before.done_permille + permille_per_kill).min(DONE_BY_LAST_KILL);
        let half_time = SystemClock.monotonic_time().plus(Millis(lifetime / 2));
        let end_time = SystemClock.monotonic_time().plus(Millis(lifetime));
        let mut has_answered_gates = false;
        while SystemClock.monotonic_time() < end_time
            && self.read_chaos_progress().await?.done_permille <= target_permille
        {
            if !has_answered_gates && SystemClock.monotonic_time() >= half_time {
                has_answered_gates = true;
                self.approver.answer_gates(&self.runtime.longhaul).await?;
            }
            let remaining = end_time.minus(SystemClock.monotonic_time());
            SystemClock.sleep(POLL_INTERVAL.min(remaining)).await;
        }
        child.check_running()?;
        let submitted = self.log.runs.len() as u64;
        if submitted == self.plan.runs && self.read_chaos_progress().await?.open == 0 {
            return Ok(false);
        }
        child.kill()?;
        self.log.kills += 1;
        Ok(true)
    }

    /// Adjusts the lifetimes of workers: longer if the work lags behind the kills, shorter if the
    /// work is ahead.
    async fn adjust_worker_lifetime(&mut self) -> anyhow::Result<()> {
        let progress = self.read_chaos_progress().await?;
        let ChaosPlan { runs, kills, .. } = *self.plan;
        let is_ahead = progress.done_permille * kills > self.log.kills * DONE_BY_LAST_KILL;
        self.lifetime_scale = match is_ahead {
            true => (self.lifetime_scale * 7 / 10).max(LIFETIME_SCALE_PERCENT.0),
            false => (self.lifetime_scale * 13 / 10 + 1).min(LIFETIME_SCALE_PERCENT.1),
        };
        if !self.plan.quiet && self.log.kills.is_multiple_of(10) {
            output::eprint_line(&format!(
                "  {} of {kills} kills, {} of {runs} runs have ended",
                self.log.kills, progress.ended
            ));
        }
        Ok(())
    }

    /// Lets the last worker finish all runs.
    async fn finish_open_runs(&mut self) -> anyhow::Result<()> {
        if self.read_chaos_progress().await?.open == 0 {
            return Ok(());
        }
        self.approver.answer_gates(&self.runtime.longhaul).await?;
        let mut child = self.start_worker().await?;
        let mut events = 0;
        let mut last_change = SystemClock.monotonic_time();
        loop {
            child.check_running()?;
            let progress = self.read_chaos_progress().await?;
            if progress.open == 0 {
                return Ok(());
            }
            if progress.events > events {
                events = progress.events;
                last_change = SystemClock.monotonic_time();
            }
            if SystemClock.monotonic_time().minus(last_change) > STALL_TIMEOUT {
                self.log.stalled = true;
                return Ok(());
            }
            self.approver.answer_gates(&self.runtime.longhaul).await?;
            sleep(Millis(20)).await;
        }
    }

    async fn read_chaos_progress(&self) -> anyhow::Result<ChaosProgress> {
        let rows = load_run_rows(self.runtime).await?;
        let ended_rows = rows.iter().filter(|row| row.status.is_terminal());
        let lengths: Vec<u64> = ended_rows.map(|row| u64::from(row.turns)).collect();
        let ended_count = lengths.len();
        let turns = rows.iter().map(|row| u64::from(row.turns));
        // Until the first run has ended, its length is only estimated.
        let length = match ended_count {
            0 => turns.clone().max().unwrap_or_default() * 2,
            count => lengths.iter().sum::<u64>().div_ceil(count as u64),
        };
        Ok(ChaosProgress {
            events: rows.iter().map(|row| row.last_seq.0).sum(),
            open: rows.len() - ended_count,
            ended: ended_count as u64,
            done_permille: turns.sum::<u64>() * 1_000 / (length.max(4) * self.plan.runs),
        })
    }
}

/// Returns the journals of all acknowledged runs and of their child runs.
pub(crate) async fn read_run_journals(
    runtime: &ProjectRuntime,
    log: &KillLoopResult,
) -> anyhow::Result<Vec<RunJournal>> {
    let mut runs = log.runs.clone();
    runs.extend(load_run_rows(runtime).await?.iter().map(|row| row.id));
    runs.sort_unstable();
    runs.dedup();
    let mut journals = Vec::new();
    for run in runs {
        let entries = match runtime.longhaul.read_run_journal(run, Seq::START, EVENTS_MAX).await {
            Ok(entries) => entries,
            Err(longhaul_engine::Error::RunNotFound(_)) => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        journals.push((run, entries));
    }
    Ok(journals)
}

async fn load_run_rows(runtime: &ProjectRuntime) -> anyhow::Result<Vec<RunRow>> {
    let filter = RunFilter { limit: usize::MAX >> 1, ..RunFilter::default() };
    Ok(runtime.longhaul.services().store.list_runs(filter).await?)
}

async fn sleep(duration: Millis) {
    SystemClock.sleep(duration).await;
}
