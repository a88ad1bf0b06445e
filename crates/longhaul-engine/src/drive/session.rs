//! A driver's session on one run: replays (folds) the journal into the run's state, passes inputs
//! to the state machine and appends the resulting events.
//!
//! When an append conflicts with another writer, the new entries are folded and the state machine
//! decides about the same input again. The work that produced the input is not repeated.

use std::sync::Arc;

use longhaul_core::change::{JournalBatch, LateToolResult, RowChange};
use longhaul_core::event::Event;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::event::tool::{LateToolResultEvent, ToolOutput};
use longhaul_core::id::{Seq, WorkerId};
use longhaul_core::policy::budget::BudgetAccount;
use longhaul_core::policy::effect_key::{ClaimedEffectKey, EffectKeyChange, EffectKeyState};
use longhaul_core::port::store::{
    AppendRefusalReason, AppendRequest, AppendResult, Claim, JournalAuthor, StoreError,
};
use longhaul_core::time::{Clock, Millis, Timestamp};
use longhaul_run::checkpoint::CheckpointWriter;
use longhaul_run::commands::{RunCommand, decide_command};
use longhaul_run::input::ToolCallStatus;
use longhaul_run::{DecisionContext, EffectKeyOfOtherCall, Run, RunInput, decide};

use crate::drive::provider_blocks::{ProviderAvailability, calls_other_model, model_to_call};
use crate::drive::truncate::truncate_output;
use crate::error::{Error, Result};
use crate::notifier::DriverRegistration;
use crate::replay::{read_journal_page, replay_driven_run};
use crate::services::Services;
use crate::tools::recorded_outputs::OutputReader;

/// Maximum number of consecutive inputs that the state machine may reject. More rejections are a
/// bug, and trying again would only cost money.
const REJECTIONS_MAX: u32 = 8;

/// Delay before a failed access to the store is retried.
const STORE_RETRY_DELAY: Millis = Millis(250);

/// Number of retries between two log lines about a busy store.
const TRIES_PER_WARNING: u32 = 40;

/// Calls a function that reads the store until the store is not busy.
pub(crate) async fn retry_while_busy<T, R>(
    clock: &dyn Clock,
    mut read: impl FnMut() -> R,
) -> Result<T, StoreError>
where
    R: Future<Output = Result<T, StoreError>>,
{
    loop {
        match read().await {
            Err(StoreError::Busy { .. }) => clock.sleep(STORE_RETRY_DELAY).await,
            result => return result,
        }
    }
}

/// Outcome of committing an input to the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommitOutcome {
    /// The input was applied, or dropped because it no longer fits the run's state. This driver
    /// still holds its claim, or the run is idle.
    Applied,
    /// Another driver has claimed the run, or the run has ended.
    Lost,
}

/// A driver's session on one run: the replayed state of the run, and the claim under which the
/// driver appends to its journal.
#[derive(Debug)]
pub(crate) struct RunSession {
    services: Services,
    worker: WorkerId,
    claim: Claim,
    registration: DriverRegistration,
    run: Run,
    checkpoints: CheckpointWriter,
    /// Last known time of the store, and the monotonic clock in nanoseconds when it was read.
    store_time: (Timestamp, u64),
    rejections: u32,
    /// Budget account of the run's tree (its root run and all descendants) when the run was
    /// claimed, if the run had reached a cap of the account. The cap may have been raised through
    /// another run.
    account_at_claim: Option<BudgetAccount>,
}

impl RunSession {
    /// Opens a session on a run that was just claimed, by folding its journal from its checkpoint.
    pub(crate) async fn open(
        services: &Services,
        worker: WorkerId,
        claimed: Claim,
    ) -> Result<Self> {
        let registration = services.notifier.register(claimed.run);
        let (run, checkpoints, now) = Box::pin(replay_driven_run(services, claimed.run)).await?;
        registration.set_replayed_seq(run.seq());
        let account_at_claim = match run.control().budget.exhausted_shared_cap().is_some() {
            true => services.records.budget_account(run.task().root).await?,
            false => None,
        };
        Ok(Self {
            store_time: (now, services.clock.monotonic_nanos()),
            services: services.clone(),
            worker,
            claim: claimed,
            registration,
            run,
            checkpoints,
            rejections: 0,
            account_at_claim,
        })
    }

    /// Returns the state of the run, as folded from the journal.
    pub(crate) const fn run(&self) -> &Run {
        &self.run
    }

    /// Returns the claim of this driver on the run.
    pub(crate) const fn claim(&self) -> &Claim {
        &self.claim
    }

    /// Returns the current time of the store, extrapolated from its last response.
    pub(crate) fn now(&self) -> Timestamp {
        let (now, at) = self.store_time;
        let since = self.services.clock.monotonic_nanos().saturating_sub(at) / 1_000;
        Timestamp::from_micros(now.as_micros().saturating_add_unsigned(since))
    }

    /// Waits until another writer may have appended to the journal of the run.
    pub(crate) async fn wait_for_notification(&self) {
        self.registration.wait_for_notification().await;
    }

    /// Reads the journal entries that other writers have appended and applies them to the state.
    pub(crate) async fn apply_new_entries(&mut self) -> Result<()> {
        loop {
            // Calls are running, and giving up now would leave their outcome unknown.
            let (services, run, seq) = (&self.services, self.run.id(), self.run.seq());
            let read = || read_journal_page(services, run, seq);
            let page = retry_while_busy(&*services.clock, read).await?;
            for entry in &page.entries {
                self.run.apply(entry)?;
                self.checkpoints.keep_state_if_due(&self.run);
            }
            self.store_time = (page.now, self.services.clock.monotonic_nanos());
            if self.run.seq() >= page.last_seq {
                self.registration.set_replayed_seq(self.run.seq());
                return Ok(());
            }
        }
    }

    /// Passes an input to the state machine and appends the resulting events. Repeats both if the
    /// append conflicts with another writer or is refused, for example because of a budget.
    pub(crate) async fn commit(&mut self, input: RunInput) -> Result<CommitOutcome> {
        // A decision that avoids only the last refusal could meet an earlier one again, so all are
        // kept until another writer has appended.
        let mut ctx = self.decision_context();
        loop {
            // Entries read meanwhile may show that the run is lost before an append does.
            if !self.holds_claim() {
                self.submit_late_tool_results(input).await?;
                return Ok(CommitOutcome::Lost);
            }
            let model = model_to_call(&self.run, &input).to_owned();
            let blocks = &self.services.provider_blocks;
            let records = &*self.services.records;
            let blocked_until = blocks.blocked_until(records, &model, self.now()).await;
            let DecisionContext { now, caps, .. } = self.decision_context();
            ctx = DecisionContext {
                now,
                caps,
                provider_blocked_until: blocked_until,
                random: self.random_for_retry_jitter(&input),
                ..ctx
            };
            let calls_other_model = calls_other_model(&self.run);
            let batch = match decide(&self.run, input.clone(), ctx.clone()) {
                Ok(batch) if batch.is_empty() => {
                    return self.count_rejection("the input has no effect");
                }
                Ok(batch) => batch,
                // For example, a result that was surfaced meanwhile.
                Err(refusal) => return self.count_rejection(&refusal.to_string()),
            };
            match self.append_batch(&batch).await? {
                AppendResult::Committed { .. } => {
                    self.rejections = 0;
                    let availability = ProviderAvailability::from_events(&batch.events, now);
                    if let Some(state) = availability.filter(|_| !calls_other_model) {
                        let Services { provider_blocks, records, .. } = &self.services;
                        provider_blocks.record_availability(&**records, &model, (state, now)).await;
                    }
                    return Ok(CommitOutcome::Applied);
                }
                AppendResult::Conflict => {
                    self.apply_new_entries().await?;
                    // One of the new entries may be a raise.
                    ctx = self.decision_context();
                }
                AppendResult::Refused(reason) => {
                    self.add_refusal(&mut ctx, reason, &batch).await?;
                }
                AppendResult::Fenced | AppendResult::RunEnded | AppendResult::RunNotFound => {
                    self.submit_late_tool_results(input).await?;
                    return Ok(CommitOutcome::Lost);
                }
            }
        }
    }

    /// Adds a refusal by the store to the context of the next decision about the same input.
    #[expect(clippy::wildcard_enum_match_arm, reason = "all other refusals are unexpected")]
    async fn add_refusal(
        &self,
        ctx: &mut DecisionContext,
        reason: AppendRefusalReason,
        refused: &JournalBatch,
    ) -> Result<()> {
        let children =
            refused.events.iter().filter(|event| matches!(event, Event::ChildStarted(_)));
        match reason {
            AppendRefusalReason::OverBudget(account) => ctx.budget_account = Some(account),
            AppendRefusalReason::TreeFull if children.clone().next().is_some() => {
                ctx.free_children = Some(children.count() - 1);
            }
            AppendRefusalReason::OverCap(refusal) => ctx.add_cap_refusal(*refusal),
            AppendRefusalReason::KeyTaken(taken) => {
                let clock = &*self.services.clock;
                let load = || self.load_taken_key(refused, taken);
                ctx.add_taken_key(retry_while_busy(clock, load).await?);
            }
            AppendRefusalReason::KeyNotHeld => ctx.forget_taken_keys(),
            AppendRefusalReason::NoSlot => {
                ctx.no_sandbox_slot = true;
                self.services.sandboxes.changed.notify_one();
            }
            reason => {
                let reason = format!("the store refused an append to the journal: {reason:?}");
                return Err(Error::Internal { run: self.run.id(), reason });
            }
        }
        Ok(())
    }

    /// Returns which tool call has claimed an effect key that a call of the refused batch needs. If
    /// the claiming call has completed, its result is read from the journal of its run.
    async fn load_taken_key(
        &self,
        refused: &JournalBatch,
        key: ClaimedEffectKey,
    ) -> Result<EffectKeyOfOtherCall, StoreError> {
        let mut claims = refused.changes.iter().filter_map(|change| {
            let RowChange::UpdateKey(EffectKeyChange::Claim(claim)) = change else { return None };
            Some(claim)
        });
        let claim = claims.find(|claim| claim.key == key.key);
        let (Some(claim), EffectKeyState::Done) = (claim, key.state) else {
            return Ok(EffectKeyOfOtherCall { key, result: None });
        };
        let Services { store, records, .. } = &self.services;
        let outputs = OutputReader::new(store.clone(), records.clone());
        let recorded = outputs.read_tool_output(key.holder.run, key.holder.call).await?;
        let text = recorded.and_then(|(_, text)| text);
        let result = text.map(|text| truncate_output(claim.holder.call, ToolOutput::text(text)));
        Ok(EffectKeyOfOtherCall { key, result })
    }

    /// Returns the context for the state machine: the current time, the spend caps, and the budget
    /// account if the run waited for a higher cap of it.
    fn decision_context(&self) -> DecisionContext {
        let now = self.now();
        let is_at_cap = self.run.control().budget.exhausted_shared_cap().is_some();
        let budget_account = self.account_at_claim.filter(|_| is_at_cap);
        let caps = self.services.caps.caps_with_windows_at(now);
        DecisionContext { caps, budget_account, ..DecisionContext::new(now) }
    }

    /// Returns a random number by which the delay of a retry is varied. 0 if no retry can follow
    /// this input.
    fn random_for_retry_jitter(&self, input: &RunInput) -> u64 {
        if !matches!(input, RunInput::ModelFailed { .. } | RunInput::ToolsDone(_)) {
            return 0;
        }
        let bytes = self.services.ids.random_bytes().unwrap_or_default();
        bytes.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    /// Returns the clock of this driver.
    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.services.clock)
    }

    /// Commits an input that must not be lost, such as durable progress of a call. Does nothing if
    /// the state machine rejects the input, for example because the call has ended.
    pub(crate) async fn commit_durable(&mut self, input: RunInput) -> Result<CommitOutcome> {
        loop {
            let batch = match self.decide_during_work(input.clone()) {
                Ok(batch) => batch,
                Err(outcome) => return Ok(outcome),
            };
            match self.append_batch(&batch).await? {
                AppendResult::Committed { .. } | AppendResult::Refused(_) => {
                    return Ok(CommitOutcome::Applied);
                }
                AppendResult::Conflict => self.apply_new_entries().await?,
                AppendResult::Fenced | AppendResult::RunEnded | AppendResult::RunNotFound => {
                    return Ok(CommitOutcome::Lost);
                }
            }
        }
    }

    /// Tries once to append an input that may be lost, such as the progress of a call. Does not
    /// wait for a busy store.
    pub(crate) async fn try_commit_droppable(&mut self, input: RunInput) -> Result<CommitOutcome> {
        let batch = match self.decide_during_work(input) {
            Ok(batch) => batch,
            Err(outcome) => return Ok(outcome),
        };
        let append = self.append_request(batch);
        match self.services.store.append_to_journal(append.clone()).await {
            Ok(AppendResult::Committed { seq, now }) => {
                self.apply_appended(append.batch.events, seq, now)?;
            }
            Ok(AppendResult::Fenced | AppendResult::RunEnded) => return Ok(CommitOutcome::Lost),
            // Other writers' entries are read on the next notification or before the next append.
            Ok(AppendResult::Conflict | AppendResult::RunNotFound | AppendResult::Refused(_)) => {}
            Err(error) => {
                tracing::debug!(run = %append.run, %error, "a progress update was dropped");
            }
        }
        Ok(CommitOutcome::Applied)
    }

    /// Decides about an input while work is running. The error is the outcome if there is nothing
    /// to append.
    fn decide_during_work(&self, input: RunInput) -> Result<JournalBatch, CommitOutcome> {
        if !self.holds_claim() {
            return Err(CommitOutcome::Lost);
        }
        let batch = decide(&self.run, input, self.decision_context()).ok();
        batch.filter(|batch| !batch.is_empty()).ok_or(CommitOutcome::Applied)
    }

    /// Whether this driver still holds its claim: the run was not claimed again and has not ended.
    fn holds_claim(&self) -> bool {
        self.run.outcome().is_none() && self.run.control().driver.epoch == self.claim.epoch
    }

    /// Counts an input that the state machine rejected. Fails after too many rejections in a row.
    fn count_rejection(&mut self, reason: &str) -> Result<CommitOutcome> {
        self.rejections += 1;
        if self.rejections > REJECTIONS_MAX {
            return Err(Error::Internal { run: self.run.id(), reason: reason.to_owned() });
        }
        Ok(CommitOutcome::Applied)
    }

    /// Builds an append request that fails if another writer has appended since this driver last
    /// read the journal. The request also stores an unsaved checkpoint, if there is one.
    fn append_request(&self, mut batch: JournalBatch) -> AppendRequest {
        let checkpoint = self.checkpoints.unsaved_checkpoint(&self.run);
        batch.changes.extend(checkpoint.map(RowChange::SaveCheckpoint));
        let author = JournalAuthor::Driver {
            worker: self.worker,
            epoch: self.claim.epoch,
            after: self.run.seq(),
        };
        let run = self.run.id();
        AppendRequest { run, author, batch }
    }

    /// Appends a batch and folds its events. After the window of a spend cap has passed, the known
    /// time is outdated; this counts as a conflict, because reading the journal updates the time.
    async fn append_batch(&mut self, batch: &JournalBatch) -> Result<AppendResult> {
        let append = self.append_request(batch.clone());
        let result = self.append_with_retries(&append).await?;
        if let AppendResult::Committed { seq, now } = result {
            self.apply_appended(append.batch.events, seq, now)?;
        }
        let is_outdated = result == AppendResult::Refused(AppendRefusalReason::CapWindowPassed);
        Ok(if is_outdated { AppendResult::Conflict } else { result })
    }

    /// Appends to the journal, retrying while the store is busy or full. An append can be repeated
    /// safely, and the results in memory must not be lost.
    async fn append_with_retries(&self, append: &AppendRequest) -> Result<AppendResult> {
        let mut attempts: u32 = 0;
        loop {
            match self.services.store.append_to_journal(append.clone()).await {
                Err(error @ (StoreError::Busy { .. } | StoreError::DiskFull { .. })) => {
                    if attempts.is_multiple_of(TRIES_PER_WARNING) {
                        let run = append.run;
                        tracing::warn!(%run, %error, "the store is busy; retrying the append");
                    }
                    attempts = attempts.wrapping_add(1);
                    let clock = &self.services.clock;
                    clock.sleep(STORE_RETRY_DELAY).await;
                }
                Err(error) => return Err(error.into()),
                Ok(appended) => return Ok(appended),
            }
        }
    }

    /// Folds events that this driver has appended, without reading them back.
    fn apply_appended(&mut self, events: Vec<Event>, last: Seq, now: Timestamp) -> Result<()> {
        self.checkpoints.mark_newest_checkpoint_saved();
        for event in events {
            let entry = JournalEntry {
                run: self.run.id(),
                seq: self.run.seq().next(),
                at: now,
                epoch: self.claim.epoch,
                event,
            };
            self.run.apply(&entry)?;
            self.checkpoints.keep_state_if_due(&self.run);
        }
        self.store_time = (now, self.services.clock.monotonic_nanos());
        self.registration.set_replayed_seq(self.run.seq());
        let (run, folded) = (self.run.id(), self.run.seq());
        if folded == last {
            return Ok(());
        }
        let reason = format!(
            "the last event in the store is {last}, but the driver has applied events up to {folded}"
        );
        Err(Error::Internal { run, reason })
    }

    /// Submits the tool results of a driver that has lost its claim on the run. They are appended
    /// without a claim, so that they are not lost.
    async fn submit_late_tool_results(&self, input: RunInput) -> Result<()> {
        let RunInput::ToolsDone(results) = input else { return Ok(()) };
        let run = self.run.id();
        for result in results {
            let is_error = result.status == ToolCallStatus::Failed;
            if !is_error && result.status != ToolCallStatus::Completed {
                continue;
            }
            let Some(row) = self.services.store.get_run(run).await? else { return Ok(()) };
            let (call, text) = (result.call, result.output.joined_text());
            let event = LateToolResultEvent { call, is_error, output: result.output };
            let ctx = DecisionContext::new(self.now());
            let command = RunCommand::SurfaceResult(event);
            let appended = match decide_command(run, row.status, command, ctx) {
                Err(_) => AppendResult::RunEnded,
                Ok(mut batch) => {
                    batch.changes.extend(result.blobs.into_iter().map(RowChange::PutBlob));
                    let author = JournalAuthor::Outsider;
                    self.append_with_retries(&AppendRequest { run, author, batch }).await?
                }
            };
            if appended == AppendResult::RunEnded {
                let late = LateToolResult { call, text };
                self.services.records.save_late_tool_result(run, late).await?;
            }
        }
        Ok(())
    }
}
