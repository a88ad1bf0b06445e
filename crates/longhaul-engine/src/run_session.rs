//! One driver's hold on one journal: folds it, decides, lets it grow.
//!
//! Never: produces a result again. When the journal has moved on, the same
//! input is decided again on what is there now.

use longhaul_core::change::Batch;
use longhaul_core::change::{Change, Due, HeadUpdate, LateResult, TimerKind, TimerUpdate};
use longhaul_core::event::Event;
use longhaul_core::event::entry::Entry;
use longhaul_core::event::tool::ToolSurfaced;
use longhaul_core::id::{RunId, Seq, TimerId, WorkerId};
use longhaul_core::message::Part;
use longhaul_core::port::store::{
    AppendRequest, Appended, Author, Claim, JournalPage, ReadRequest, Refused, StoreError,
};
use longhaul_core::time::{Millis, Timestamp};
use longhaul_core::usage::RemainingBudget;
use longhaul_run::commands::{RunCommand, RunSnapshot, decide_command};
use longhaul_run::input::{ToolCallResult, ToolCallStatus};
use longhaul_run::state::ReplayError;
use longhaul_run::{DecideContext, Input, Run, decide};

use crate::error::Error;
use crate::notifier::DriverRegistration;
use crate::services::EngineServices;

/// So many entries are read at once.
const PAGE_SIZE: usize = 500;

/// So often in a row may the heart find no place for what it is told: then
/// somebody has made a mistake, and asking again would only cost.
const REJECTIONS_MAX: u32 = 8;

/// So long is waited before a store that could not write is asked again.
const STORE_RETRY_DELAY: Millis = Millis(250);

/// Whoever waits for a store says so once in so many tries.
const TRIES_PER_WARNING: u32 = 40;

/// So long is a run set aside whose driver met a fault.
const ERROR_DELAY: Millis = Millis::from_secs(30);

/// What came of telling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommitOutcome {
    /// It stands; the run is still ours, or rests.
    Applied,
    /// The run is another's now, or has ended under us.
    Lost,
}

/// A journal in a driver's hands.
#[derive(Debug)]
pub(crate) struct RunSession {
    services: EngineServices,
    worker: WorkerId,
    claim: Claim,
    registration: DriverRegistration,
    run: Run,
    /// The store's time, and our own count of nanoseconds at that moment.
    store_time: (Timestamp, u64),
    remaining_budget: Option<RemainingBudget>,
    rejections: u32,
}

impl RunSession {
    /// Folds the journal of a run that was just claimed.
    pub(crate) async fn open(
        ports: &EngineServices,
        worker: WorkerId,
        claimed: Claim,
    ) -> Result<Self, Error> {
        let seat = ports.notifier.register(claimed.run);
        let (run, now) = fold(ports, claimed.run).await?;
        seat.set_folded(run.seq());
        Ok(Self {
            store_time: (now, ports.clock.monotonic_nanos()),
            services: ports.clone(),
            worker,
            claim: claimed,
            registration: seat,
            run,
            remaining_budget: None,
            rejections: 0,
        })
    }

    /// The run as it stands.
    pub(crate) const fn run(&self) -> &Run {
        &self.run
    }

    /// The claim under which we drive.
    pub(crate) const fn claim(&self) -> &Claim {
        &self.claim
    }

    /// The store's time, as far as we know it.
    pub(crate) fn now(&self) -> Timestamp {
        let (now, at) = self.store_time;
        let since = self.services.clock.monotonic_nanos().saturating_sub(at) / 1_000;
        Timestamp::from_micros(now.as_micros().saturating_add_unsigned(since))
    }

    /// Returns when somebody else may have written.
    pub(crate) async fn notified(&self) {
        self.registration.notified().await;
    }

    /// Reads what others have written and folds it.
    pub(crate) async fn catch_up(&mut self) -> Result<(), Error> {
        loop {
            let page = self.read_next_page().await?;
            for entry in &page.entries {
                self.run.apply(entry)?;
            }
            self.store_time = (page.now, self.services.clock.monotonic_nanos());
            if self.run.seq() >= page.last_seq {
                self.registration.set_folded(self.run.seq());
                return Ok(());
            }
        }
    }

    /// Reads on, and waits with a store that is busy: calls are under way, and
    /// to give up now would leave them in doubt.
    async fn read_next_page(&self) -> Result<JournalPage, Error> {
        loop {
            match read_page(&self.services, self.run.id(), self.run.seq()).await {
                Err(Error::Store(StoreError::Busy { .. })) => {
                    let clock = &self.services.clock;
                    clock.sleep(STORE_RETRY_DELAY).await;
                }
                read => return read,
            }
        }
    }

    /// Decides what follows from an input and writes it.
    pub(crate) async fn commit(&mut self, input: Input) -> Result<CommitOutcome, Error> {
        loop {
            // What was read on the way may say so before any append does.
            if !self.is_ours() {
                self.surface_results(input).await?;
                return Ok(CommitOutcome::Lost);
            }
            let moment =
                DecideContext { now: self.now(), remaining_budget: self.remaining_budget.take() };
            let batch = match decide(&self.run, input.clone(), moment) {
                Ok(batch) if batch.is_empty() => {
                    return self.count_rejection("nothing follows from it");
                }
                Ok(batch) => batch,
                // Such as a result that surfaced meanwhile.
                Err(refusal) => return self.count_rejection(&refusal.to_string()),
            };
            match self.append(batch).await? {
                AppendOutcome::Committed => {
                    self.rejections = 0;
                    return Ok(CommitOutcome::Applied);
                }
                AppendOutcome::Conflict => self.catch_up().await?,
                AppendOutcome::OverBudget(left) => self.remaining_budget = Some(left),
                AppendOutcome::Fenced => {
                    self.surface_results(input).await?;
                    return Ok(CommitOutcome::Lost);
                }
            }
        }
    }

    /// Writes what a call says and must be read about afterwards. What the heart
    /// does not take, as the call has ended meanwhile, is let go.
    pub(crate) async fn commit_durable(&mut self, input: Input) -> Result<CommitOutcome, Error> {
        loop {
            if !self.is_ours() {
                return Ok(CommitOutcome::Lost);
            }
            let Ok(batch) = decide(&self.run, input.clone(), DecideContext::new(self.now())) else {
                return Ok(CommitOutcome::Applied);
            };
            if batch.is_empty() {
                return Ok(CommitOutcome::Applied);
            }
            match self.append(batch).await? {
                AppendOutcome::Committed | AppendOutcome::OverBudget(_) => {
                    return Ok(CommitOutcome::Applied);
                }
                AppendOutcome::Conflict => self.catch_up().await?,
                AppendOutcome::Fenced => return Ok(CommitOutcome::Lost),
            }
        }
    }

    /// Writes what may as well be lost, such as how far a call is: once, and without
    /// waiting for a store that can't write now.
    pub(crate) async fn try_commit(&mut self, input: Input) -> Result<CommitOutcome, Error> {
        if !self.is_ours() {
            return Ok(CommitOutcome::Lost);
        }
        let Ok(batch) = decide(&self.run, input, DecideContext::new(self.now())) else {
            return Ok(CommitOutcome::Applied);
        };
        if batch.is_empty() {
            return Ok(CommitOutcome::Applied);
        }
        let append = self.driver_append(batch);
        match self.services.store.append(append.clone()).await {
            Ok(Appended::At { seq, now }) => {
                self.fold_own(append.batch.events, seq, now)?;
                Ok(CommitOutcome::Applied)
            }
            Ok(Appended::Fenced | Appended::RunEnded) => Ok(CommitOutcome::Lost),
            // What others wrote is read when somebody rings, or before the next fact.
            Ok(Appended::Conflict | Appended::RunNotFound | Appended::Refused(_)) => {
                Ok(CommitOutcome::Applied)
            }
            Err(error) => {
                tracing::debug!(run = %append.run, %error, "a word was dropped");
                Ok(CommitOutcome::Applied)
            }
        }
    }

    /// Whether nobody has claimed the run since, and it has not ended: an input
    /// is decided for the driver that the journal names.
    fn is_ours(&self) -> bool {
        self.run.outcome().is_none() && self.run.control().epoch == self.claim.epoch
    }

    /// The heart does not take it.
    fn count_rejection(&mut self, why: &str) -> Result<CommitOutcome, Error> {
        self.rejections += 1;
        if self.rejections > REJECTIONS_MAX {
            return Err(Error::Internal { run: self.run.id(), reason: why.to_owned() });
        }
        Ok(CommitOutcome::Applied)
    }

    /// An append of ours, after all that we know.
    fn driver_append(&self, batch: Batch) -> AppendRequest {
        let author =
            Author::Driver { worker: self.worker, epoch: self.claim.epoch, after: self.run.seq() };
        let run = self.run.id();
        AppendRequest { run, author, batch }
    }

    async fn append(&mut self, batch: Batch) -> Result<AppendOutcome, Error> {
        let append = self.driver_append(batch);
        match self.append_with_retries(&append).await? {
            Appended::At { seq, now } => {
                self.fold_own(append.batch.events, seq, now)?;
                Ok(AppendOutcome::Committed)
            }
            Appended::Conflict => Ok(AppendOutcome::Conflict),
            Appended::Refused(Refused::OverBudget(left)) => Ok(AppendOutcome::OverBudget(left)),
            Appended::Fenced | Appended::RunEnded => Ok(AppendOutcome::Fenced),
            other @ (Appended::RunNotFound | Appended::Refused(_)) => Err(Error::Internal {
                run: self.run.id(),
                reason: format!("its driver's append was answered {other:?}"),
            }),
        }
    }

    /// Appends, and waits with a store that is busy or full: an append can be
    /// repeated, and what we have in our hands must not be lost.
    async fn append_with_retries(&self, append: &AppendRequest) -> Result<Appended, Error> {
        let mut tries: u32 = 0;
        loop {
            match self.services.store.append(append.clone()).await {
                Err(error @ (StoreError::Busy { .. } | StoreError::DiskFull { .. })) => {
                    if tries.is_multiple_of(TRIES_PER_WARNING) {
                        let run = append.run;
                        tracing::warn!(%run, %error, "it stands still until it can be written");
                    }
                    tries = tries.wrapping_add(1);
                    let clock = &self.services.clock;
                    clock.sleep(STORE_RETRY_DELAY).await;
                }
                Err(fault) => return Err(fault.into()),
                Ok(appended) => return Ok(appended),
            }
        }
    }

    /// Folds what we wrote ourselves: it need not be read back.
    fn fold_own(&mut self, events: Vec<Event>, last: Seq, now: Timestamp) -> Result<(), Error> {
        for event in events {
            let entry = Entry {
                run: self.run.id(),
                seq: self.run.seq().next(),
                at: now,
                epoch: self.claim.epoch,
                event,
            };
            self.run.apply(&entry)?;
        }
        self.store_time = (now, self.services.clock.monotonic_nanos());
        self.registration.set_folded(self.run.seq());
        if self.run.seq() == last {
            return Ok(());
        }
        Err(Error::Internal {
            run: self.run.id(),
            reason: format!("the store wrote up to {last}, we to {}", self.run.seq()),
        })
    }

    /// A driver that has lost the run hands its real results in as an outsider.
    async fn surface_results(&self, input: Input) -> Result<(), Error> {
        let Input::ToolsDone(done) = input else {
            return Ok(());
        };
        for tool in done {
            match tool.status {
                ToolCallStatus::Completed | ToolCallStatus::Failed => {
                    self.surface_result(tool).await?
                }
                ToolCallStatus::Interrupted | ToolCallStatus::Unknown => {}
            }
        }
        Ok(())
    }

    async fn surface_result(&self, tool: ToolCallResult) -> Result<(), Error> {
        let run = self.run.id();
        let Some(row) = self.services.store.get_run(run).await? else {
            return Ok(());
        };
        let call = tool.call;
        let text = output_text(&tool.output.content);
        let surfaced = ToolSurfaced {
            call,
            is_error: tool.status == ToolCallStatus::Failed,
            output: tool.output,
        };
        let view = RunSnapshot { run, status: row.status };
        let told = decide_command(
            &view,
            RunCommand::SurfaceResult(surfaced),
            DecideContext::new(self.now()),
        );
        let kept = match told {
            Err(_) => Appended::RunEnded,
            Ok(mut batch) => {
                let blobs = tool.blobs.into_iter();
                batch.changes.extend(blobs.map(Change::PutBlob));
                let author = Author::Outsider;
                self.append_with_retries(&AppendRequest { run, author, batch }).await?
            }
        };
        if kept == Appended::RunEnded {
            let late = LateResult { call, text };
            self.services.records.save_late_result(run, late).await?;
        }
        Ok(())
    }
}

/// What came of an append.
enum AppendOutcome {
    Committed,
    Conflict,
    /// The account does not cover it.
    OverBudget(RemainingBudget),
    Fenced,
}

/// All the words of an output.
fn output_text(parts: &[Part]) -> String {
    let texts = parts.iter().map(|part| match part {
        Part::Text(text) => &**text,
        Part::Image(_) => "(a picture)",
    });
    texts.collect::<Vec<_>>().join("\n")
}

async fn read_page(ports: &EngineServices, run: RunId, after: Seq) -> Result<JournalPage, Error> {
    let ask = ReadRequest { run, after, limit: PAGE_SIZE };
    Ok(ports.store.read(ask).await?)
}

/// Folds a whole journal; the second is the store's time.
pub(crate) async fn fold(ports: &EngineServices, run: RunId) -> Result<(Run, Timestamp), Error> {
    fold_with(ports, run, Run::apply).await
}

/// Folds a journal without its conversation, for views.
pub(crate) async fn fold_outline(
    ports: &EngineServices,
    run: RunId,
) -> Result<(Run, Timestamp), Error> {
    fold_with(ports, run, Run::apply_without_transcript).await
}

type ApplyFn = fn(&mut Run, &Entry) -> Result<(), ReplayError>;

async fn fold_with(
    ports: &EngineServices,
    run: RunId,
    apply: ApplyFn,
) -> Result<(Run, Timestamp), Error> {
    let mut folded: Option<Run> = None;
    loop {
        let after = folded.as_ref().map_or(Seq::START, Run::seq);
        let page = read_page(ports, run, after).await?;
        for entry in &page.entries {
            match &mut folded {
                None => folded = Some(Run::from_first_entry(entry)?),
                Some(run) => apply(run, entry)?,
            }
        }
        match folded {
            Some(run) if run.seq() >= page.last_seq => return Ok((run, page.now)),
            None if page.entries.is_empty() => return Err(Error::RunNotFound(run)),
            Some(_) | None => {}
        }
    }
}

/// Lets go of a run whose driver met a fault. It rests for a while and is then
/// claimed anew, under another epoch, so that whatever the fault left half done
/// is found in doubt and never simply repeated.
pub(crate) async fn park_after_error(
    ports: &EngineServices,
    worker: WorkerId,
    claimed: &Claim,
) -> Result<(), Error> {
    let run = claimed.run;
    let now = ports.records.now().await?;
    let arm = TimerUpdate::Arm {
        timer: TimerId::derive(run.bits(), &format!("retry:{}", claimed.epoch.0), now),
        run,
        due: Due::After(ERROR_DELAY),
        kind: TimerKind::Wake,
    };
    let park = HeadUpdate::Park { reason: "retry", blocked: false, release_lane: false };
    let changes = vec![Change::SetTimer(arm), Change::SetHead(park)];
    update_head(ports, worker, claimed, changes).await
}

/// Gives a run back as it stands: whoever claims it next begins again what may be.
/// Where it can be released it is, so that this does not count as a crash.
pub(crate) async fn release_run(
    ports: &EngineServices,
    worker: WorkerId,
    claimed: &Claim,
) -> Result<(), Error> {
    let Claim { run, epoch, .. } = *claimed;
    let (folded, now) = fold_outline(ports, run).await?;
    if let Ok(batch) = decide(&folded, Input::Release, DecideContext::new(now)) {
        let author = Author::Driver { worker, epoch, after: folded.seq() };
        let appended = ports.store.append(AppendRequest { run, author, batch }).await?;
        if appended != Appended::Conflict {
            return Ok(());
        }
    }
    let changes = vec![Change::SetHead(HeadUpdate::Release)];
    update_head(ports, worker, claimed, changes).await
}

/// Changes rows of a run that is still ours, without a fact. Where it is not,
/// nothing is to be done.
pub(crate) async fn update_head(
    ports: &EngineServices,
    worker: WorkerId,
    claimed: &Claim,
    changes: Vec<Change>,
) -> Result<(), Error> {
    let run = claimed.run;
    loop {
        let Some(row) = ports.store.get_run(run).await? else {
            return Ok(());
        };
        let author = Author::Driver { worker, epoch: claimed.epoch, after: row.last_seq };
        let batch = Batch { events: Vec::new(), changes: changes.clone() };
        // Somebody wrote since the row was read: what is to be done is the same.
        let appended = ports.store.append(AppendRequest { run, author, batch }).await?;
        if appended != Appended::Conflict {
            return Ok(());
        }
    }
}
