//! One driver's hold on one journal: folds it, decides, lets it grow.
//!
//! Never: produces a result again. When the journal has moved on, the same
//! input is decided again on what is there now.

use longhaul_core::change::Batch;
use longhaul_core::change::{Change, Due, HeadMove, LateResult, TimerKind, TimerMove};
use longhaul_core::event::Event;
use longhaul_core::event::entry::Entry;
use longhaul_core::event::tool::ToolSurfaced;
use longhaul_core::id::{RunId, Seq, TimerId, WorkerId};
use longhaul_core::message::Part;
use longhaul_core::port::store::{
    Append, Appended, Author, Claimed, Page, ReadAsk, Refused, StoreError,
};
use longhaul_core::time::{Millis, Timestamp};
use longhaul_core::usage::Left;
use longhaul_run::input::{ToolDone, ToolEnd};
use longhaul_run::outside::{View, Word, tell};
use longhaul_run::state::Misfit;
use longhaul_run::{Input, Moment, Run, decide};

use crate::error::Error;
use crate::nudge::Seated;
use crate::ports::Ports;

/// So many entries are read at once.
const PAGE: usize = 500;

/// So often in a row may the heart find no place for what it is told: then
/// somebody has made a mistake, and asking again would only cost.
const MISPLACED_MAX: u32 = 8;

/// So long is waited before a store that could not write is asked again.
const STORE_PAUSE: Millis = Millis(250);

/// Whoever waits for a store says so once in so many tries.
const TRIES_A_WORD: u32 = 40;

/// So long is a run set aside whose driver met a fault.
const SET_ASIDE: Millis = Millis::from_secs(30);

/// What came of telling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// It stands; the run is still ours, or rests.
    On,
    /// The run is another's now, or has ended under us.
    Gone,
}

/// A journal in a driver's hands.
#[derive(Debug)]
pub(crate) struct Ledger {
    ports: Ports,
    worker: WorkerId,
    claimed: Claimed,
    seat: Seated,
    run: Run,
    /// The store's time, and our own count of nanoseconds at that moment.
    heard: (Timestamp, u64),
    left: Option<Left>,
    misplaced: u32,
}

impl Ledger {
    /// Folds the journal of a run that was just claimed.
    pub(crate) async fn open(
        ports: &Ports,
        worker: WorkerId,
        claimed: Claimed,
    ) -> Result<Self, Error> {
        let seat = ports.nudges.sit(claimed.run);
        let (run, now) = fold(ports, claimed.run).await?;
        seat.seen(run.seq());
        Ok(Self {
            heard: (now, ports.clock.nanos()),
            ports: ports.clone(),
            worker,
            claimed,
            seat,
            run,
            left: None,
            misplaced: 0,
        })
    }

    /// The run as it stands.
    pub(crate) const fn run(&self) -> &Run {
        &self.run
    }

    /// The claim under which we drive.
    pub(crate) const fn claimed(&self) -> &Claimed {
        &self.claimed
    }

    /// The store's time, as far as we know it.
    pub(crate) fn now(&self) -> Timestamp {
        let (now, at) = self.heard;
        let since = self.ports.clock.nanos().saturating_sub(at) / 1_000;
        Timestamp::from_micros(now.as_micros().saturating_add_unsigned(since))
    }

    /// Returns when somebody else may have written.
    pub(crate) async fn nudged(&self) {
        self.seat.nudged().await;
    }

    /// Reads what others have written and folds it.
    pub(crate) async fn catch_up(&mut self) -> Result<(), Error> {
        loop {
            let page = self.read_on().await?;
            for entry in &page.entries {
                self.run.apply(entry)?;
            }
            self.heard = (page.now, self.ports.clock.nanos());
            if self.run.seq() >= page.last {
                self.seat.seen(self.run.seq());
                return Ok(());
            }
        }
    }

    /// Reads on, and waits with a store that is busy: calls are under way, and
    /// to give up now would leave them in doubt.
    async fn read_on(&self) -> Result<Page, Error> {
        loop {
            match read(&self.ports, self.run.id(), self.run.seq()).await {
                Err(Error::Store(StoreError::Busy { .. })) => {
                    let clock = &self.ports.clock;
                    clock.sleep(STORE_PAUSE).await;
                }
                read => return read,
            }
        }
    }

    /// Decides what follows from an input and writes it.
    pub(crate) async fn tell(&mut self, input: Input) -> Result<Told, Error> {
        loop {
            // What was read on the way may say so before any append does.
            if !self.is_ours() {
                self.hand_in(input).await?;
                return Ok(Told::Gone);
            }
            let moment = Moment {
                now: self.now(),
                left: self.left.take(),
            };
            let batch = match decide(&self.run, input.clone(), moment) {
                Ok(batch) if batch.is_empty() => return self.misplaced("nothing follows from it"),
                Ok(batch) => batch,
                // Such as a result that surfaced meanwhile.
                Err(refusal) => return self.misplaced(&refusal.to_string()),
            };
            match self.append(batch).await? {
                Wrote::Stands => {
                    self.misplaced = 0;
                    return Ok(Told::On);
                }
                Wrote::MovedOn => self.catch_up().await?,
                Wrote::Short(left) => self.left = Some(left),
                Wrote::Lost => {
                    self.hand_in(input).await?;
                    return Ok(Told::Gone);
                }
            }
        }
    }

    /// Writes what a call says and must be read about afterwards. What the heart
    /// does not take, as the call has ended meanwhile, is let go.
    pub(crate) async fn note(&mut self, input: Input) -> Result<Told, Error> {
        loop {
            if !self.is_ours() {
                return Ok(Told::Gone);
            }
            let Ok(batch) = decide(&self.run, input.clone(), Moment::at(self.now())) else {
                return Ok(Told::On);
            };
            if batch.is_empty() {
                return Ok(Told::On);
            }
            match self.append(batch).await? {
                Wrote::Stands | Wrote::Short(_) => return Ok(Told::On),
                Wrote::MovedOn => self.catch_up().await?,
                Wrote::Lost => return Ok(Told::Gone),
            }
        }
    }

    /// Writes what may as well be lost, such as how far a call is: once, and without
    /// waiting for a store that can't write now.
    pub(crate) async fn mention(&mut self, input: Input) -> Result<Told, Error> {
        if !self.is_ours() {
            return Ok(Told::Gone);
        }
        let Ok(batch) = decide(&self.run, input, Moment::at(self.now())) else {
            return Ok(Told::On);
        };
        if batch.is_empty() {
            return Ok(Told::On);
        }
        let append = self.own(batch);
        match self.ports.store.append(append.clone()).await {
            Ok(Appended::At { seq, now }) => {
                self.take_in(append.batch.events, seq, now)?;
                Ok(Told::On)
            }
            Ok(Appended::Fenced | Appended::RunEnded) => Ok(Told::Gone),
            // What others wrote is read when somebody rings, or before the next fact.
            Ok(Appended::MovedOn | Appended::NoRun | Appended::Refused(_)) => Ok(Told::On),
            Err(error) => {
                tracing::debug!(run = %append.run, %error, "a word was dropped");
                Ok(Told::On)
            }
        }
    }

    /// Whether nobody has claimed the run since, and it has not ended: an input
    /// is decided for the driver that the journal names.
    fn is_ours(&self) -> bool {
        self.run.outcome().is_none() && self.run.control().epoch == self.claimed.epoch
    }

    /// The heart does not take it.
    fn misplaced(&mut self, why: &str) -> Result<Told, Error> {
        self.misplaced += 1;
        if self.misplaced > MISPLACED_MAX {
            return Err(Error::Stuck {
                run: self.run.id(),
                why: why.to_owned(),
            });
        }
        Ok(Told::On)
    }

    /// An append of ours, after all that we know.
    fn own(&self, batch: Batch) -> Append {
        let author = Author::Driver {
            worker: self.worker,
            epoch: self.claimed.epoch,
            after: self.run.seq(),
        };
        let run = self.run.id();
        Append { run, author, batch }
    }

    async fn append(&mut self, batch: Batch) -> Result<Wrote, Error> {
        let append = self.own(batch);
        match self.persist(&append).await? {
            Appended::At { seq, now } => {
                self.take_in(append.batch.events, seq, now)?;
                Ok(Wrote::Stands)
            }
            Appended::MovedOn => Ok(Wrote::MovedOn),
            Appended::Refused(Refused::OverBudget(left)) => Ok(Wrote::Short(left)),
            Appended::Fenced | Appended::RunEnded => Ok(Wrote::Lost),
            other @ (Appended::NoRun | Appended::Refused(_)) => Err(Error::Stuck {
                run: self.run.id(),
                why: format!("its driver's append was answered {other:?}"),
            }),
        }
    }

    /// Appends, and waits with a store that is busy or full: an append can be
    /// repeated, and what we have in our hands must not be lost.
    async fn persist(&self, append: &Append) -> Result<Appended, Error> {
        let mut tries: u32 = 0;
        loop {
            match self.ports.store.append(append.clone()).await {
                Err(error @ (StoreError::Busy { .. } | StoreError::Full { .. })) => {
                    if tries.is_multiple_of(TRIES_A_WORD) {
                        let run = append.run;
                        tracing::warn!(%run, %error, "it stands still until it can be written");
                    }
                    tries = tries.wrapping_add(1);
                    let clock = &self.ports.clock;
                    clock.sleep(STORE_PAUSE).await;
                }
                Err(fault) => return Err(fault.into()),
                Ok(appended) => return Ok(appended),
            }
        }
    }

    /// Folds what we wrote ourselves: it need not be read back.
    fn take_in(&mut self, events: Vec<Event>, last: Seq, now: Timestamp) -> Result<(), Error> {
        for event in events {
            let entry = Entry {
                run: self.run.id(),
                seq: self.run.seq().next(),
                at: now,
                epoch: self.claimed.epoch,
                event,
            };
            self.run.apply(&entry)?;
        }
        self.heard = (now, self.ports.clock.nanos());
        self.seat.seen(self.run.seq());
        if self.run.seq() == last {
            return Ok(());
        }
        Err(Error::Stuck {
            run: self.run.id(),
            why: format!("the store wrote up to {last}, we to {}", self.run.seq()),
        })
    }

    /// A driver that has lost the run hands its real results in as an outsider.
    async fn hand_in(&self, input: Input) -> Result<(), Error> {
        let Input::ToolsDone(done) = input else {
            return Ok(());
        };
        for tool in done {
            match tool.end {
                ToolEnd::Completed | ToolEnd::Failed => self.surface(tool).await?,
                ToolEnd::Interrupted | ToolEnd::Unknown => {}
            }
        }
        Ok(())
    }

    async fn surface(&self, tool: ToolDone) -> Result<(), Error> {
        let run = self.run.id();
        let Some(row) = self.ports.store.row(run).await? else {
            return Ok(());
        };
        let call = tool.call;
        let text = words(&tool.output.content);
        let surfaced = ToolSurfaced {
            call,
            is_error: tool.end == ToolEnd::Failed,
            output: tool.output,
        };
        let view = View {
            run,
            status: row.status,
        };
        let told = tell(&view, Word::Surface(surfaced), Moment::at(self.now()));
        let kept = match told {
            Err(_) => Appended::RunEnded,
            Ok(mut batch) => {
                let blobs = tool.blobs.into_iter();
                batch.changes.extend(blobs.map(Change::PutBlob));
                let author = Author::Outsider;
                self.persist(&Append { run, author, batch }).await?
            }
        };
        if kept == Appended::RunEnded {
            let late = LateResult { call, text };
            self.ports.shelves.keep_late(run, late).await?;
        }
        Ok(())
    }
}

/// What came of an append.
enum Wrote {
    Stands,
    MovedOn,
    /// The account does not cover it.
    Short(Left),
    Lost,
}

/// All the words of an output.
fn words(parts: &[Part]) -> String {
    let texts = parts.iter().map(|part| match part {
        Part::Text(text) => &**text,
        Part::Image(_) => "(a picture)",
    });
    texts.collect::<Vec<_>>().join("\n")
}

async fn read(ports: &Ports, run: RunId, after: Seq) -> Result<Page, Error> {
    let ask = ReadAsk {
        run,
        after,
        limit: PAGE,
    };
    Ok(ports.store.read(ask).await?)
}

/// Folds a whole journal; the second is the store's time.
pub(crate) async fn fold(ports: &Ports, run: RunId) -> Result<(Run, Timestamp), Error> {
    fold_by(ports, run, Run::apply).await
}

/// Folds a journal without its conversation, for views.
pub(crate) async fn fold_outline(ports: &Ports, run: RunId) -> Result<(Run, Timestamp), Error> {
    fold_by(ports, run, Run::apply_outline).await
}

type Apply = fn(&mut Run, &Entry) -> Result<(), Misfit>;

async fn fold_by(ports: &Ports, run: RunId, apply: Apply) -> Result<(Run, Timestamp), Error> {
    let mut folded: Option<Run> = None;
    loop {
        let after = folded.as_ref().map_or(Seq::START, Run::seq);
        let page = read(ports, run, after).await?;
        for entry in &page.entries {
            match &mut folded {
                None => folded = Some(Run::begin(entry)?),
                Some(run) => apply(run, entry)?,
            }
        }
        match folded {
            Some(run) if run.seq() >= page.last => return Ok((run, page.now)),
            None if page.entries.is_empty() => return Err(Error::NoRun(run)),
            Some(_) | None => {}
        }
    }
}

/// Lets go of a run whose driver met a fault. It rests for a while and is then
/// claimed anew, under another epoch, so that whatever the fault left half done
/// is found in doubt and never simply repeated.
pub(crate) async fn set_aside(
    ports: &Ports,
    worker: WorkerId,
    claimed: &Claimed,
) -> Result<(), Error> {
    let run = claimed.run;
    let now = ports.shelves.now().await?;
    let arm = TimerMove::Arm {
        timer: TimerId::derive(run.bits(), &format!("aside:{}", claimed.epoch.0), now),
        run,
        due: Due::After(SET_ASIDE),
        what: TimerKind::Wake,
    };
    let park = HeadMove::Park {
        reason: "retry",
        blocked: false,
        release_lane: false,
    };
    let changes = vec![Change::SetTimer(arm), Change::SetHead(park)];
    move_head(ports, worker, claimed, changes).await
}

/// Gives a run back as it stands: whoever claims it next begins again what may be.
/// Where it can be released it is, so that this does not count as a crash.
pub(crate) async fn give_back(
    ports: &Ports,
    worker: WorkerId,
    claimed: &Claimed,
) -> Result<(), Error> {
    let Claimed { run, epoch, .. } = *claimed;
    let (folded, now) = fold_outline(ports, run).await?;
    if let Ok(batch) = decide(&folded, Input::Release, Moment::at(now)) {
        let author = Author::Driver {
            worker,
            epoch,
            after: folded.seq(),
        };
        let appended = ports.store.append(Append { run, author, batch }).await?;
        if appended != Appended::MovedOn {
            return Ok(());
        }
    }
    let changes = vec![Change::SetHead(HeadMove::Release)];
    move_head(ports, worker, claimed, changes).await
}

/// Changes rows of a run that is still ours, without a fact. Where it is not,
/// nothing is to be done.
pub(crate) async fn move_head(
    ports: &Ports,
    worker: WorkerId,
    claimed: &Claimed,
    changes: Vec<Change>,
) -> Result<(), Error> {
    let run = claimed.run;
    loop {
        let Some(row) = ports.store.row(run).await? else {
            return Ok(());
        };
        let author = Author::Driver {
            worker,
            epoch: claimed.epoch,
            after: row.last,
        };
        let batch = Batch {
            events: Vec::new(),
            changes: changes.clone(),
        };
        // Somebody wrote since the row was read: what is to be done is the same.
        let appended = ports.store.append(Append { run, author, batch }).await?;
        if appended != Appended::MovedOn {
            return Ok(());
        }
    }
}
