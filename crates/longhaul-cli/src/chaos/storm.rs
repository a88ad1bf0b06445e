//! Submits runs, starts workers and kills them, until all kills are spent; then
//! lets the last worker finish.
//!
//! Never: waits for ever. Where nothing is written for long it gives up and says so.

use longhaul::assemble::House;
use longhaul_core::id::{InboxName, RunId, Seq};
use longhaul_core::port::store::{RowsAsk, RunRow};
use longhaul_core::time::{Clock as _, Millis};
use longhaul_engine::clock::SystemClock;
use longhaul_engine::task::Task;

use crate::chaos::dice::Dice;
use crate::chaos::judge::Journal;
use crate::chaos::keeper::Keeper;
use crate::chaos::scratch::Scratch;
use crate::own_process::OwnProcess;
use crate::say;

/// So long after its first fact a worker is killed, if the work goes as planned.
const LIFE_MS: (u64, u64) = (5, 150);

/// Lives are made longer or shorter by this factor at most, in percent.
const STRETCH: (u64, u64) = (2, 2_000);

/// The first lives are short: nobody knows yet how long a run takes.
const FIRST_STRETCH: u64 = 30;

/// A life that does the work of so many is cut short.
const SHARES_MAX: u64 = 3;

/// So much of the work, in thousandths, may be done by the last kill: the rest is
/// a margin, since how much there is can only be guessed.
const DONE_BY_LAST: u64 = 850;

/// How often it is looked how the runs stand.
const LOOK: Millis = Millis(3);

/// A worker that has written nothing by then is killed all the same: its runs
/// may all be waiting.
const FIRST_FACT_MAX: Millis = Millis::from_secs(10);

/// When the last worker has written nothing for so long, it is over.
const STALL: Millis = Millis::from_secs(180);

/// More events than a journal has.
const EVENTS_MAX: usize = 10_000_000;

/// What is to be done.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) task: Task,
    pub(crate) runs: u64,
    pub(crate) kills: u64,
    pub(crate) seed: u64,
    /// Tell nothing on the way.
    pub(crate) quiet: bool,
}

/// What was done.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// The runs that were acknowledged.
    pub(crate) runs: Vec<RunId>,
    pub(crate) kills: u64,
    /// Workers that were started after the first.
    pub(crate) restarts: u64,
    /// From a worker's start to the first fact it wrote, in milliseconds.
    pub(crate) recoveries: Vec<u64>,
    /// The last worker wrote nothing for long while runs were open.
    pub(crate) stalled: bool,
}

/// How the runs stand.
#[derive(Debug, Clone, Copy)]
struct Standing {
    /// Facts in all journals.
    facts: u64,
    open: usize,
    ended: u64,
    /// So much of all the work is done, in thousandths, as far as it can be guessed.
    done: u64,
}

/// A storm under way.
pub(crate) struct Storm<'a> {
    scratch: &'a Scratch,
    house: &'a House,
    plan: &'a Plan,
    keeper: Keeper,
    dice: Dice,
    /// How long lives are now, in percent of the plan.
    stretch: u64,
    log: Log,
}

impl<'a> Storm<'a> {
    pub(crate) fn new(scratch: &'a Scratch, house: &'a House, plan: &'a Plan) -> Self {
        Self {
            scratch,
            house,
            plan,
            keeper: Keeper::new(scratch.witness()),
            dice: Dice::new(plan.seed),
            stretch: FIRST_STRETCH,
            log: Log::default(),
        }
    }

    /// All of it.
    pub(crate) async fn rage(mut self) -> anyhow::Result<Log> {
        while self.log.kills < self.plan.kills {
            self.submit_what_is_due().await?;
            let standing = self.standing().await?;
            if standing.open == 0 {
                break;
            }
            self.keeper.tend(&self.house.longhaul).await?;
            let child = self.start().await?;
            if !self.live_and_die(child).await? {
                break;
            }
            self.adapt().await?;
        }
        self.submit_up_to(self.plan.runs).await?;
        self.finish().await?;
        Ok(self.log)
    }

    /// The first quarter at once, the rest spread over the first four fifths of
    /// the kills: so that there is work to be cut off until the last kill.
    async fn submit_what_is_due(&mut self) -> anyhow::Result<()> {
        let Plan { runs, kills, .. } = *self.plan;
        let spread = (kills * 4 / 5).max(1);
        let first = (runs / 4).max(1);
        let due = first + (runs - first) * self.log.kills / spread;
        self.submit_up_to(due.min(runs)).await?;
        let submitted = self.log.runs.len() as u64;
        if submitted < runs && self.standing().await?.open == 0 {
            self.submit_up_to(submitted + 1).await?;
        }
        Ok(())
    }

    async fn submit_up_to(&mut self, count: u64) -> anyhow::Result<()> {
        while (self.log.runs.len() as u64) < count {
            let mut task = self.plan.task.clone();
            let inboxes = self.house.config.worker().inboxes;
            task.inbox = inboxes.first().map(InboxName::new).transpose()?;
            task.submitter = Some("chaos".to_owned());
            let run = self.house.longhaul.submit(task).await;
            self.log.runs.push(run?);
        }
        Ok(())
    }

    /// Starts a worker and waits until it drives.
    async fn start(&mut self) -> anyhow::Result<OwnProcess> {
        let before = self.standing().await?.facts;
        let begun = SystemClock.nanos();
        let mut child = self.scratch.start_worker()?;
        self.log.restarts += u64::from(self.log.kills > 0);
        let since = || Millis((SystemClock.nanos() - begun) / 1_000_000);
        while since() < FIRST_FACT_MAX {
            child.check_running()?;
            if self.standing().await?.facts > before {
                self.log.recoveries.push(since().0);
                break;
            }
            rest(LOOK).await;
        }
        Ok(child)
    }

    /// Lets a worker live for a while and kills it; false: there was nothing
    /// left to cut off.
    async fn live_and_die(&mut self, mut child: OwnProcess) -> anyhow::Result<bool> {
        let life = self.dice.between(LIFE_MS.0, LIFE_MS.1) * self.stretch / 100;
        let begun = self.standing().await?;
        let share = SHARES_MAX * 1_000 / self.plan.kills;
        let enough = (begun.done + share).min(DONE_BY_LAST);
        let half = SystemClock.monotonic().plus(Millis(life / 2));
        let end = SystemClock.monotonic().plus(Millis(life));
        let mut tended = false;
        while SystemClock.monotonic() < end && self.standing().await?.done <= enough {
            if !tended && SystemClock.monotonic() >= half {
                tended = true;
                self.keeper.tend(&self.house.longhaul).await?;
            }
            let left = end.minus(SystemClock.monotonic());
            SystemClock.sleep(LOOK.min(left)).await;
        }
        child.check_running()?;
        let submitted = self.log.runs.len() as u64;
        if submitted == self.plan.runs && self.standing().await?.open == 0 {
            return Ok(false);
        }
        child.kill()?;
        self.log.kills += 1;
        Ok(true)
    }

    /// Longer lives where the work lags behind the kills, shorter ones where it
    /// is ahead of them.
    async fn adapt(&mut self) -> anyhow::Result<()> {
        let standing = self.standing().await?;
        let Plan { runs, kills, .. } = *self.plan;
        let ahead = standing.done * kills > self.log.kills * DONE_BY_LAST;
        self.stretch = match ahead {
            true => (self.stretch * 7 / 10).max(STRETCH.0),
            false => (self.stretch * 13 / 10 + 1).min(STRETCH.1),
        };
        if !self.plan.quiet && self.log.kills.is_multiple_of(10) {
            say::talk(&format!(
                "  {} of {kills} kills, {} of {runs} runs have ended",
                self.log.kills, standing.ended
            ));
        }
        Ok(())
    }

    /// The last worker ends everything.
    async fn finish(&mut self) -> anyhow::Result<()> {
        if self.standing().await?.open == 0 {
            return Ok(());
        }
        self.keeper.tend(&self.house.longhaul).await?;
        let mut child = self.start().await?;
        let mut facts = 0;
        let mut changed = SystemClock.monotonic();
        loop {
            child.check_running()?;
            let standing = self.standing().await?;
            if standing.open == 0 {
                return Ok(());
            }
            if standing.facts > facts {
                facts = standing.facts;
                changed = SystemClock.monotonic();
            }
            if SystemClock.monotonic().minus(changed) > STALL {
                self.log.stalled = true;
                return Ok(());
            }
            self.keeper.tend(&self.house.longhaul).await?;
            rest(Millis(20)).await;
        }
    }

    async fn standing(&self) -> anyhow::Result<Standing> {
        let rows = rows(self.house).await?;
        let ended = rows.iter().filter(|row| row.status.is_terminal());
        let lengths: Vec<u64> = ended.map(|row| u64::from(row.turns)).collect();
        let ended = lengths.len();
        let turns = rows.iter().map(|row| u64::from(row.turns));
        // Until the first has ended nobody knows how long a run is.
        let length = match ended {
            0 => turns.clone().max().unwrap_or_default() * 2,
            several => lengths.iter().sum::<u64>().div_ceil(several as u64),
        };
        Ok(Standing {
            facts: rows.iter().map(|row| row.last.0).sum(),
            open: rows.len() - ended,
            ended: ended as u64,
            done: turns.sum::<u64>() * 1_000 / (length.max(4) * self.plan.runs),
        })
    }
}

/// The journals of every run that was acknowledged, and of those that they asked for.
pub(crate) async fn journals(house: &House, log: &Log) -> anyhow::Result<Vec<Journal>> {
    let mut runs = log.runs.clone();
    runs.extend(rows(house).await?.iter().map(|row| row.id));
    runs.sort_unstable();
    runs.dedup();
    let mut journals = Vec::new();
    for run in runs {
        let entries = match house.longhaul.events(run, Seq::START, EVENTS_MAX).await {
            Ok(entries) => entries,
            Err(longhaul_engine::Error::NoRun(_)) => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        journals.push((run, entries));
    }
    Ok(journals)
}

async fn rows(house: &House) -> anyhow::Result<Vec<RunRow>> {
    let ask = RowsAsk {
        limit: usize::MAX >> 1,
        ..RowsAsk::default()
    };
    Ok(house.longhaul.ports().store.rows(ask).await?)
}

async fn rest(span: Millis) {
    SystemClock.sleep(span).await;
}
