//! Submits runs, starts workers and kills them, until all kills are spent; then
//! lets the last worker finish.
//!
//! Never: waits for ever. Where nothing is written for long it gives up and says so.

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

/// So long after its first fact a worker is killed, if the work goes as planned.
const WORKER_LIFETIME_MS: (u64, u64) = (5, 150);

/// Lives are made longer or shorter by this factor at most, in percent.
const LIFETIME_SCALE_PERCENT: (u64, u64) = (2, 2_000);

/// The first lives are short: nobody knows yet how long a run takes.
const FIRST_LIFETIME_SCALE: u64 = 30;

/// A life that does the work of so many is cut short.
const WORK_SHARES_MAX: u64 = 3;

/// So much of the work, in thousandths, may be done by the last kill: the rest is
/// a margin, since how much there is can only be guessed.
const DONE_BY_LAST_KILL: u64 = 850;

/// How often it is looked how the runs stand.
const POLL_INTERVAL: Millis = Millis(3);

/// A worker that has written nothing by then is killed all the same: its runs
/// may all be waiting.
const FIRST_EVENT_TIMEOUT: Millis = Millis::from_secs(10);

/// When the last worker has written nothing for so long, it is over.
const STALL_TIMEOUT: Millis = Millis::from_secs(180);

/// More events than a journal has.
const EVENTS_MAX: usize = 10_000_000;

/// What is to be done.
#[derive(Debug)]
pub(crate) struct ChaosPlan {
    pub(crate) task: Task,
    pub(crate) runs: u64,
    pub(crate) kills: u64,
    pub(crate) seed: u64,
    /// Tell nothing on the way.
    pub(crate) quiet: bool,
}

/// What was done.
#[derive(Debug, Default)]
pub(crate) struct KillLog {
    /// The runs that were acknowledged.
    pub(crate) runs: Vec<RunId>,
    pub(crate) kills: u64,
    /// Workers that were started after the first.
    pub(crate) restarts: u64,
    /// From a worker's start to the first fact it wrote, in milliseconds.
    pub(crate) recovery_times_ms: Vec<u64>,
    /// The last worker wrote nothing for long while runs were open.
    pub(crate) stalled: bool,
}

/// How the runs stand.
#[derive(Debug, Clone, Copy)]
struct ChaosProgress {
    /// Facts in all journals.
    events: u64,
    open: usize,
    ended: u64,
    /// So much of all the work is done, in thousandths, as far as it can be guessed.
    done_permille: u64,
}

/// A storm under way.
pub(crate) struct KillLoop<'a> {
    scratch: &'a ScratchProject,
    runtime: &'a ProjectRuntime,
    plan: &'a ChaosPlan,
    approver: AutoApprover,
    rng: SplitMix64,
    /// How long lives are now, in percent of the plan.
    lifetime_scale: u64,
    log: KillLog,
}

impl<'a> KillLoop<'a> {
    pub(crate) fn new(
        scratch: &'a ScratchProject,
        house: &'a ProjectRuntime,
        plan: &'a ChaosPlan,
    ) -> Self {
        Self {
            scratch,
            runtime: house,
            plan,
            approver: AutoApprover::new(scratch.probe_file()),
            rng: SplitMix64::new(plan.seed),
            lifetime_scale: FIRST_LIFETIME_SCALE,
            log: KillLog::default(),
        }
    }

    /// All of it.
    pub(crate) async fn run(mut self) -> anyhow::Result<KillLog> {
        while self.log.kills < self.plan.kills {
            self.submit_due().await?;
            let standing = self.progress().await?;
            if standing.open == 0 {
                break;
            }
            self.approver.answer_gates(&self.runtime.longhaul).await?;
            let child = self.start_worker().await?;
            if !self.run_then_kill(child).await? {
                break;
            }
            self.adjust_lifetime().await?;
        }
        self.submit_up_to(self.plan.runs).await?;
        self.finish().await?;
        Ok(self.log)
    }

    /// The first quarter at once, the rest spread over the first four fifths of
    /// the kills: so that there is work to be cut off until the last kill.
    async fn submit_due(&mut self) -> anyhow::Result<()> {
        let ChaosPlan { runs, kills, .. } = *self.plan;
        let spread = (kills * 4 / 5).max(1);
        let first = (runs / 4).max(1);
        let due = first + (runs - first) * self.log.kills / spread;
        self.submit_up_to(due.min(runs)).await?;
        let submitted = self.log.runs.len() as u64;
        if submitted < runs && self.progress().await?.open == 0 {
            self.submit_up_to(submitted + 1).await?;
        }
        Ok(())
    }

    async fn submit_up_to(&mut self, count: u64) -> anyhow::Result<()> {
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

    /// Starts a worker and waits until it drives.
    async fn start_worker(&mut self) -> anyhow::Result<ChildProcess> {
        let before = self.progress().await?.events;
        let begun = SystemClock.monotonic_nanos();
        let mut child = self.scratch.start_worker()?;
        self.log.restarts += u64::from(self.log.kills > 0);
        let since = || Millis((SystemClock.monotonic_nanos() - begun) / 1_000_000);
        while since() < FIRST_EVENT_TIMEOUT {
            child.check_running()?;
            if self.progress().await?.events > before {
                self.log.recovery_times_ms.push(since().0);
                break;
            }
            sleep(POLL_INTERVAL).await;
        }
        Ok(child)
    }

    /// Lets a worker live for a while and kills it; false: there was nothing
    /// left to cut off.
    async fn run_then_kill(&mut self, mut child: ChildProcess) -> anyhow::Result<bool> {
        let life = self.rng.between(WORKER_LIFETIME_MS.0, WORKER_LIFETIME_MS.1)
            * self.lifetime_scale
            / 100;
        let begun = self.progress().await?;
        let share = WORK_SHARES_MAX * 1_000 / self.plan.kills;
        let enough = (begun.done_permille + share).min(DONE_BY_LAST_KILL);
        let half = SystemClock.monotonic().plus(Millis(life / 2));
        let end = SystemClock.monotonic().plus(Millis(life));
        let mut tended = false;
        while SystemClock.monotonic() < end && self.progress().await?.done_permille <= enough {
            if !tended && SystemClock.monotonic() >= half {
                tended = true;
                self.approver.answer_gates(&self.runtime.longhaul).await?;
            }
            let left = end.minus(SystemClock.monotonic());
            SystemClock.sleep(POLL_INTERVAL.min(left)).await;
        }
        child.check_running()?;
        let submitted = self.log.runs.len() as u64;
        if submitted == self.plan.runs && self.progress().await?.open == 0 {
            return Ok(false);
        }
        child.kill()?;
        self.log.kills += 1;
        Ok(true)
    }

    /// Longer lives where the work lags behind the kills, shorter ones where it
    /// is ahead of them.
    async fn adjust_lifetime(&mut self) -> anyhow::Result<()> {
        let standing = self.progress().await?;
        let ChaosPlan { runs, kills, .. } = *self.plan;
        let ahead = standing.done_permille * kills > self.log.kills * DONE_BY_LAST_KILL;
        self.lifetime_scale = match ahead {
            true => (self.lifetime_scale * 7 / 10).max(LIFETIME_SCALE_PERCENT.0),
            false => (self.lifetime_scale * 13 / 10 + 1).min(LIFETIME_SCALE_PERCENT.1),
        };
        if !self.plan.quiet && self.log.kills.is_multiple_of(10) {
            output::stderr_line(&format!(
                "  {} of {kills} kills, {} of {runs} runs have ended",
                self.log.kills, standing.ended
            ));
        }
        Ok(())
    }

    /// The last worker ends everything.
    async fn finish(&mut self) -> anyhow::Result<()> {
        if self.progress().await?.open == 0 {
            return Ok(());
        }
        self.approver.answer_gates(&self.runtime.longhaul).await?;
        let mut child = self.start_worker().await?;
        let mut facts = 0;
        let mut changed = SystemClock.monotonic();
        loop {
            child.check_running()?;
            let standing = self.progress().await?;
            if standing.open == 0 {
                return Ok(());
            }
            if standing.events > facts {
                facts = standing.events;
                changed = SystemClock.monotonic();
            }
            if SystemClock.monotonic().minus(changed) > STALL_TIMEOUT {
                self.log.stalled = true;
                return Ok(());
            }
            self.approver.answer_gates(&self.runtime.longhaul).await?;
            sleep(Millis(20)).await;
        }
    }

    async fn progress(&self) -> anyhow::Result<ChaosProgress> {
        let rows = load_rows(self.runtime).await?;
        let ended = rows.iter().filter(|row| row.status.is_terminal());
        let lengths: Vec<u64> = ended.map(|row| u64::from(row.turns)).collect();
        let ended = lengths.len();
        let turns = rows.iter().map(|row| u64::from(row.turns));
        // Until the first has ended nobody knows how long a run is.
        let length = match ended {
            0 => turns.clone().max().unwrap_or_default() * 2,
            several => lengths.iter().sum::<u64>().div_ceil(several as u64),
        };
        Ok(ChaosProgress {
            events: rows.iter().map(|row| row.last_seq.0).sum(),
            open: rows.len() - ended,
            ended: ended as u64,
            done_permille: turns.sum::<u64>() * 1_000 / (length.max(4) * self.plan.runs),
        })
    }
}

/// The journals of every run that was acknowledged, and of those that they asked for.
pub(crate) async fn read_journals(
    house: &ProjectRuntime,
    log: &KillLog,
) -> anyhow::Result<Vec<RunJournal>> {
    let mut runs = log.runs.clone();
    runs.extend(load_rows(house).await?.iter().map(|row| row.id));
    runs.sort_unstable();
    runs.dedup();
    let mut journals = Vec::new();
    for run in runs {
        let entries = match house.longhaul.events(run, Seq::START, EVENTS_MAX).await {
            Ok(entries) => entries,
            Err(longhaul_engine::Error::RunNotFound(_)) => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        journals.push((run, entries));
    }
    Ok(journals)
}

async fn load_rows(house: &ProjectRuntime) -> anyhow::Result<Vec<RunRow>> {
    let ask = RunFilter { limit: usize::MAX >> 1, ..RunFilter::default() };
    Ok(house.longhaul.services().store.list_runs(ask).await?)
}

async fn sleep(span: Millis) {
    SystemClock.sleep(span).await;
}
