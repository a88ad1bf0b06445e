//! Reads the conversation of a run and the messages that people sent to it.
//!
//! Also lists all model requests of a run with their outcomes, reconstructed from the journal without
//! calling a model, and follows the journal of a run until the run ends.
//!
//! Invariant: a follower of a journal misses and repeats no entry.

use std::sync::Arc;

use longhaul_api::steer::{SteerMessageTimes, SteerView};
use longhaul_api::transcript::{CompactionView, TranscriptView};
use longhaul_core::event::Event;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::event::environment::MemoryCompacted;
use longhaul_core::failure::Failure;
use longhaul_core::id::{RunId, Seq};
use longhaul_core::message::{Reply, StopReason};
use longhaul_core::port::model::{ModelRequest, ModelResponse};
use longhaul_core::port::store::{JournalReadRequest, StoreWatcher};
use longhaul_core::raw::StoredText;
use longhaul_core::time::Millis;
use longhaul_run::Run;
use longhaul_run::next::{EngineStep, next_engine_step};

use crate::changes::RunSubscription;
use crate::error::{Error, Result};
use crate::handle::Longhaul;
use crate::prompt::summary;
use crate::replay::{BlobTextCache, replay_journal};
use crate::services::Services;

/// Maximum number of journal entries that are read at once.
const PAGE_SIZE: usize = 500;

/// Outcome of a model request, as recorded in the journal.
#[derive(Debug)]
pub enum ModelCallOutcome {
    /// The model replied with this response.
    Reply(ModelResponse),
    /// The request failed for this reason.
    Failure(Failure),
    /// A person's message interrupted the model before the reply was complete.
    Interrupted,
}

/// Maximum number of journal entries that are read at once.
const STREAM_PAGE_SIZE: usize = 200;

/// Interval at which the journal is polled when no change notification arrives.
const POLL_INTERVAL: Millis = Millis::from_secs(1);

/// Stream of the journal entries of one run.
#[derive(Debug)]
pub struct JournalStream {
    services: Services,
    run: RunId,
    after: Seq,
    wake_source: JournalWatcher,
    /// Whether the last read returned nothing new, so that the next read first waits for a change.
    caught_up: bool,
    has_ended: bool,
}

/// Source of notifications that a journal may have grown.
#[derive(Debug)]
enum JournalWatcher {
    /// Subscription to the change feed that is shared by the whole process.
    Subscription(RunSubscription),
    /// Notifications of the store after every commit.
    Store(Box<dyn StoreWatcher>),
}

impl Longhaul {
    /// Returns the conversation of a run, with its compactions (each replaced older messages by a
    /// summary).
    pub async fn transcript(&self, run: RunId) -> Result<TranscriptView> {
        let (mut compactions, mut after_turn) = (Vec::new(), 0);
        let (folded, _) = replay_journal(&self.services, run, None, |run, entry| {
            if let Event::TurnCompleted(completed) = &entry.event {
                after_turn = completed.turn;
            }
            if let Event::MemoryCompacted(compacted) = &entry.event {
                let (at, model) = (entry.at, compacted.model.clone());
                let replaced_messages = compacted.replaced;
                compactions.push(CompactionView { after_turn, at, replaced_messages, model });
            }
            run.apply(entry)
        })
        .await?;
        let transcript = folded.transcript();
        let system = match &transcript.system {
            StoredText::Inline(text) => Some(text.to_string()),
            StoredText::Blob(at) => {
                let bytes = self.services.records.blob(at.hash).await?;
                bytes.and_then(|bytes| String::from_utf8(bytes).ok())
            }
        };
        let model = Some(transcript.current_model()).filter(|name| !name.is_empty());
        Ok(TranscriptView {
            run,
            model: model.map(str::to_owned),
            system,
            messages: transcript.messages().to_vec(),
            compactions,
        })
    }

    /// Returns the messages that people sent to a run, with their status.
    pub async fn list_steers(&self, run: RunId) -> Result<Vec<SteerView>> {
        let rows = self.services.records.queued_steer_messages(run).await?;
        let mut times = SteerMessageTimes::default();
        let mut after = Seq::START;
        loop {
            let page = self.read_run_journal(run, after, PAGE_SIZE).await?;
            let Some(last) = page.last() else { break };
            after = last.seq;
            page.iter().for_each(|entry| times.record_steer_event_time(entry));
        }
        Ok(rows.iter().map(|row| SteerView::new(row, &times)).collect())
    }

    /// Calls the closure with every model request of a run and its outcome, in the order of the
    /// journal.
    pub async fn for_each_model_call(
        &self,
        run: RunId,
        mut on_call: impl FnMut(&ModelRequest, ModelCallOutcome) + Send,
    ) -> Result<()> {
        let mut folded: Option<Run> = None;
        let mut pending: Option<ModelRequest> = None;
        let mut texts = BlobTextCache::default();
        let mut after = Seq::START;
        loop {
            let entries = self.read_run_journal(run, after, PAGE_SIZE).await?;
            let Some(last) = entries.last() else {
                return match folded {
                    Some(_) => Ok(()),
                    None => Err(Error::RunNotFound(run)),
                };
            };
            after = last.seq;
            for entry in &entries {
                let Some(folded) = &mut folded else {
                    folded = Some(Run::from_first_entry(entry)?);
                    continue;
                };
                folded.apply(entry)?;
                if let Event::TurnStarted(_) = &entry.event {
                    pending = model_request_of_step(folded, next_engine_step(folded, entry.at));
                    if let Some(request) = &mut pending {
                        texts.inline_request_blobs(&*self.services.records, request).await?;
                    }
                } else if let Some(outcome) = model_call_outcome(&entry.event)
                    && let Some(request) = pending.take()
                {
                    on_call(&request, outcome);
                }
            }
        }
    }

    /// Follows the journal of a run, starting after a sequence number.
    pub async fn watch_run_journal(&self, run: RunId, after: Seq) -> Result<JournalStream> {
        // Subscribe before the first read, so that no change is missed between the read and the
        // wait.
        let wake_source = match self.services.changes.subscribe_to_run(run) {
            Some(subscription) => JournalWatcher::Subscription(subscription),
            None => JournalWatcher::Store(self.services.store.watch_for_changes()),
        };
        if self.services.store.get_run(run).await?.is_none() {
            return Err(Error::RunNotFound(run));
        }
        Ok(JournalStream {
            services: self.services.clone(),
            run,
            after,
            wake_source,
            caught_up: false,
            has_ended: false,
        })
    }
}

fn model_request_of_step(run: &Run, step: EngineStep) -> Option<ModelRequest> {
    match step {
        EngineStep::AskModel(request) => Some(request),
        EngineStep::Compact(request) => {
            Some(summary::to_summary_request(request, run.control().summary_guidance()))
        }
        EngineStep::Prepare
        | EngineStep::RefreshPerception
        | EngineStep::UseTools(_)
        | EngineStep::StartChildren(_)
        | EngineStep::OpenSandbox
        | EngineStep::SaveWorkspace
        | EngineStep::StartGrading
        | EngineStep::Advance
        | EngineStep::Idle => None,
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "no other event ends a model request")]
fn model_call_outcome(event: &Event) -> Option<ModelCallOutcome> {
    match event {
        Event::TurnCompleted(turn) => Some(ModelCallOutcome::Reply(ModelResponse {
            reply: Arc::clone(&turn.reply),
            stop: turn.stop.clone(),
            usage: turn.usage,
            cost: turn.cost,
            model: turn.model.clone(),
            output: None,
        })),
        Event::TurnFailed(failed) => Some(ModelCallOutcome::Failure(failed.failure.clone())),
        Event::TurnInterrupted(_) => Some(ModelCallOutcome::Interrupted),
        Event::MemoryCompacted(compacted) => {
            Some(ModelCallOutcome::Reply(model_response_of_summary(compacted)))
        }
        _ => None,
    }
}

fn model_response_of_summary(compacted: &MemoryCompacted) -> ModelResponse {
    ModelResponse {
        reply: Arc::new(Reply::from_text(summary::summary_text(&compacted.summary))),
        stop: StopReason::EndTurn,
        usage: compacted.usage,
        cost: compacted.cost,
        model: compacted.model.clone(),
        output: None,
    }
}

impl JournalStream {
    /// Waits for the next journal entries and returns them in order. `None` means that the run has
    /// ended and everything was read.
    pub async fn next(&mut self) -> Result<Option<Vec<JournalEntry>>> {
        while !self.has_ended {
            // Stored in the struct for cancel safety: a call that was dropped while waiting
            // continues to wait when it is repeated, without another read.
            if self.caught_up {
                self.wait_for_journal_change().await?;
                self.caught_up = false;
            }
            let (run, after, limit) = (self.run, self.after, STREAM_PAGE_SIZE);
            let request = JournalReadRequest { run, after, limit };
            let page = self.services.store.read_journal(request).await?;
            if let Some(last) = page.entries.last() {
                self.after = last.seq;
                self.has_ended = last.event.is_terminal();
                return Ok(Some(page.entries));
            }
            let row = self.services.store.get_run(self.run).await?;
            let Some(row) = row else { return Err(Error::RunNotFound(self.run)) };
            if row.status.is_terminal() && self.after >= row.last_seq {
                self.has_ended = true;
                break;
            }
            self.caught_up = true;
        }
        Ok(None)
    }

    async fn wait_for_journal_change(&mut self) -> Result<()> {
        let clock = &self.services.clock;
        match &mut self.wake_source {
            JournalWatcher::Subscription(subscription) => {
                if !subscription.wait_for_journal_growth().await {
                    self.wake_source =
                        JournalWatcher::Store(self.services.store.watch_for_changes());
                }
            }
            JournalWatcher::Store(watch) => {
                tokio::select! {
                    biased;
                    changed = watch.wait_for_change() => changed?,
                    () = clock.sleep(POLL_INTERVAL) => {}
                }
            }
        }
        Ok(())
    }
}
