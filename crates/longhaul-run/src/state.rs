//! The state of a run, built by replaying its journal.
//!
//! The journal is the source of truth. The state can always be rebuilt from it, so a checkpoint of
//! the state is only a cache that any build may discard.

pub mod budget;
pub mod call;
pub mod control;
pub mod driver;
pub(crate) mod guards;
pub mod sandbox;
pub mod stage;
pub mod submitters;
pub mod transcript;

use std::sync::Arc;

use longhaul_core::event::Event;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::event::run::{CancelCause, RunWaiting};
use longhaul_core::id::{CallId, RunId, Seq};
use longhaul_core::message::Message;
use longhaul_core::output_reference::OutputReference;
use longhaul_core::policy::effect_key::EffectKey;
use longhaul_core::policy::gate::GateRule;
use longhaul_core::status::{RunOutcome, RunOutput, Status};
use longhaul_core::task::TaskSpec;
use longhaul_core::wait::WaitReason;
use serde::{Deserialize, Serialize};

use crate::state::call::CopiedToolCallOrigin;
use crate::state::control::ControlState;
use crate::state::driver::{Activity, DriverState};
use crate::state::stage::{EndedRun, RunStage};
use crate::state::submitters::Submitters;
use crate::state::transcript::{PerceptionState, Transcript};

/// Hash of the source code that replays journals. A checkpoint that was written with another hash
/// is discarded.
pub const FOLD_HASH: &str = env!("LONGHAUL_FOLD_HASH");

/// State of a run, built by replaying its journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub(crate) id: RunId,
    pub(crate) task: Arc<TaskSpec>,
    pub(crate) seq: Seq,
    pub(crate) control: ControlState,
    pub(crate) transcript: Transcript,
    pub(crate) tools_called: Vec<String>,
    pub(crate) perception: PerceptionState,
}

/// Error for a journal that can't be replayed. It indicates a bug, because Longhaul never writes
/// such a journal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("event {seq} of {run}, `{kind}`, is invalid: {reason}")]
pub struct ReplayError {
    /// Id of the run whose journal is invalid.
    pub run: RunId,
    /// Sequence number of the invalid event.
    pub seq: Seq,
    /// Kind of the invalid event.
    pub kind: &'static str,
    /// Reason why the event is invalid.
    pub reason: &'static str,
}

impl Run {
    /// Builds the state of a run by replaying its journal from the first event.
    pub fn replay<'a>(
        entries: impl IntoIterator<Item = &'a JournalEntry>,
    ) -> Result<Self, ReplayError> {
        let mut entries = entries.into_iter();
        let first = entries.next().ok_or(ReplayError {
            run: RunId::from_bits(0),
            seq: Seq::START,
            kind: "",
            reason: "the journal is empty",
        })?;
        let mut run = Self::from_first_entry(first)?;
        entries.try_for_each(|entry| run.apply(entry))?;
        Ok(run)
    }

    /// Creates the state of a run from the first event of its journal, `run.created`.
    pub fn from_first_entry(first_entry: &JournalEntry) -> Result<Self, ReplayError> {
        let Event::RunCreated(created) = &first_entry.event else {
            return Err(replay_error(first_entry, "a journal begins with `run.created`"));
        };
        if first_entry.seq != Seq::START.next() {
            return Err(replay_error(first_entry, "the first sequence number must be 1"));
        }
        let task = Arc::new(created.task.clone());
        Ok(Self {
            id: first_entry.run,
            control: ControlState::new(first_entry.run, &task),
            transcript: Transcript::default(),
            tools_called: Vec::new(),
            perception: PerceptionState::default(),
            seq: first_entry.seq,
            task,
        })
    }

    /// Applies one event of the journal to the state. The same events in the same order give the
    /// same state.
    pub fn apply(&mut self, entry: &JournalEntry) -> Result<(), ReplayError> {
        let messages = self.apply_entry(entry)?;
        // `make_mut` copies the list while a model request holds it.
        if !messages.is_empty() {
            Arc::make_mut(&mut self.transcript.messages).extend(messages.into_iter().map(Arc::new));
        }
        Ok(())
    }

    /// Applies one event of the journal without storing the conversation, which is nearly all of a
    /// long run's memory. The resulting state is only for showing the run: no decision can be based
    /// on it, because the size of the conversation is unknown after a compaction.
    pub fn apply_without_transcript(&mut self, entry: &JournalEntry) -> Result<(), ReplayError> {
        self.apply_entry(entry)?;
        Arc::make_mut(&mut self.transcript.messages).clear();
        Ok(())
    }

    /// Applies one event of the journal and returns the messages that it adds to the conversation.
    fn apply_entry(&mut self, entry: &JournalEntry) -> Result<Vec<Message>, ReplayError> {
        if entry.run != self.id {
            return Err(replay_error(entry, "it belongs to another run"));
        }
        if entry.seq != self.seq.next() {
            return Err(replay_error(entry, "there is a gap before it"));
        }
        let has_running_call = self.control.has_running_call();
        self.control.attempt.update_from_entry(entry, has_running_call);
        if let Event::SteerDelivered(delivered) = &entry.event
            && let Some(text) = self.control.text_of_queued_message_if_task(delivered.steer)
        {
            self.transcript.added_task_messages.push(Arc::new(Message::user(text)));
        }
        if let Event::RunForked(forked) = &entry.event {
            self.transcript.switch_to_first_model();
            if let Some(edit) = &forked.edit {
                let bytes = self.transcript.apply_edit(edit);
                self.control.transcript_bytes =
                    self.control.transcript_bytes.saturating_add_signed(bytes);
            }
            if self.control.has_unusable_reply() {
                let removed = self.transcript.remove_last_reply();
                self.control.transcript_bytes -= removed.map_or(0, |reply| reply.estimated_bytes());
            }
        }
        let messages =
            self.control.apply_event(&entry.event).map_err(|reason| replay_error(entry, reason))?;
        if let Event::RunPrepared(preparation) = &entry.event {
            // Only a fork is prepared again. Its list of tools is new.
            self.control.transcript_bytes -= std::mem::take(&mut self.transcript.loaded_bytes);
            self.transcript.apply_preparation(preparation);
            self.perception = PerceptionState::from_event(preparation);
        }
        if let Event::TurnStarted(started) = &entry.event
            && let Some(preparation) = &started.perception
        {
            self.perception.apply_update(preparation);
        }
        if let Event::TurnFailed(failed) = &entry.event
            && let Some(other) = &failed.fallback_model
        {
            self.transcript.model.clone_from(other);
        }
        // A new attempt of the run and each request after an outage start with the preferred model.
        if let Event::RunRetried(_)
        | Event::RunWaiting(RunWaiting { wait: WaitReason::Outage(_), .. }) = &entry.event
        {
            self.transcript.switch_to_first_model();
        }
        if let Event::MemoryCompacted(compacted) = &entry.event {
            self.transcript.apply_compaction(compacted);
            self.control.set_compacted_size(self.transcript.estimated_bytes());
            // The next refresh sends the state of the world again, even if it has not changed.
            self.perception.world = None;
        }
        if let Event::ToolCompleted(ended) = &entry.event {
            self.transcript.add_loaded_tools(&ended.output.loaded_tools);
        }
        if let Event::TurnCompleted(done) = &entry.event {
            self.tools_called.extend(done.calls.iter().map(|call| call.tool.to_string()));
        }
        self.seq = entry.seq;
        Ok(messages)
    }

    /// Returns a copy of the state that contains neither the messages of the conversation nor the
    /// names of the called tools.
    pub(crate) fn without_messages(&self) -> Self {
        let mut transcript = self.transcript.clone();
        transcript.messages = Arc::default();
        Self { transcript, tools_called: Vec::new(), ..self.clone() }
    }

    pub const fn id(&self) -> RunId {
        self.id
    }

    pub fn task(&self) -> &TaskSpec {
        &self.task
    }

    /// Returns the sequence number of the last event that was applied.
    pub const fn seq(&self) -> Seq {
        self.seq
    }

    pub fn status(&self) -> Status {
        match (&self.control.stage, &self.control.driver.activity) {
            (RunStage::Ended(ended), _) => ended.outcome.status(),
            (_, Activity::Paused) => Status::Paused,
            (_, Activity::Parked { wait: WaitReason::Blocked(_), .. }) => Status::Blocked,
            (_, Activity::Parked { wait: WaitReason::Worker, .. }) => Status::Running,
            (_, Activity::Parked { .. }) => Status::Waiting,
            _ if self.control.driver.epoch.0 == 0 => Status::Pending,
            (_, Activity::Ready | Activity::Driven) => Status::Running,
        }
    }

    /// Returns the outcome of the run. `None` means that the run has not ended.
    pub const fn outcome(&self) -> Option<&RunOutcome> {
        if let RunStage::Ended(ended) = &self.control.stage { Some(&ended.outcome) } else { None }
    }

    /// Returns the output of a run that completed, that stays open for messages, or that was
    /// cancelled while it was open. `None` means that the run has no output.
    pub fn output(&self) -> Option<&RunOutput> {
        let RunStage::Ended(EndedRun { outcome, cancelled_output }) = &self.control.stage else {
            return self.control.output_while_open();
        };
        match outcome {
            RunOutcome::Completed(output) => Some(output),
            RunOutcome::Failed(_) | RunOutcome::Cancelled(_) => cancelled_output.as_deref(),
        }
    }

    /// Returns whether the run has its result and is parked until a message arrives or its time for
    /// messages (`keep_open`) has passed.
    pub const fn is_open_for_messages(&self) -> bool {
        let is_concluding = matches!(self.control.stage, RunStage::Concluding(_));
        is_concluding && matches!(self.control.driver.wait(), Some(WaitReason::Message(_)))
    }

    /// Returns the number of the current attempt of the task, from 1. The attempts of the runs that
    /// this run retries are counted, too.
    pub fn attempt_number(&self) -> u32 {
        let earlier = self.task.retry_of.map_or(0, |retried| retried.attempts);
        earlier.saturating_add(self.control.attempt.number)
    }

    /// Returns the control state: everything about the run except the conversation.
    pub const fn control(&self) -> &ControlState {
        &self.control
    }

    /// Returns the principals that have added work to the run, for example with a message.
    pub const fn submitters(&self) -> &Submitters {
        &self.control.submitters
    }

    /// Returns the conversation of the run with the model.
    pub const fn transcript(&self) -> &Transcript {
        &self.transcript
    }

    /// Returns the state of the latest perception: what the context provider returned last.
    pub const fn perception(&self) -> &PerceptionState {
        &self.perception
    }

    /// Returns whether the run is prepared: the prompt is built and the perception (the context
    /// provider's report on the outside world) fetched.
    pub const fn is_prepared(&self) -> bool {
        !matches!(self.control.stage, RunStage::New { .. })
    }

    /// Returns the run that a call of the current reply was copied from. `None` means that this run
    /// has made the call.
    pub fn call_origin(&self, call: CallId) -> Option<CopiedToolCallOrigin> {
        self.control.call(call)?.origin
    }

    /// Returns the effect key (name of an effect that must happen at most once) of a tool call of
    /// the model's last reply. `None` means that the call has no effect key, or is not part of that
    /// reply.
    pub fn effect_key_of_call(&self, call: Option<CallId>) -> Option<&EffectKey> {
        self.control.call(call?)?.classification.key.as_ref()
    }

    /// Returns whether a call works in the sandbox of the run.
    pub fn is_call_sandboxed(&self, call: CallId) -> bool {
        self.control.call(call).is_some_and(|call| call.classification.sandboxed)
    }

    /// Returns the approval rules for the tool of a call of the model's last reply, in their order.
    pub fn rules_for_tool_of_call(&self, call: CallId) -> Vec<GateRule> {
        let rules = self.control.call(call).map(|call| {
            let rules = self.control.policy.rules.iter();
            rules.filter(|rule| rule.matches_glob(&rule.tool, call.classification.tool.as_str()))
        });
        rules.into_iter().flatten().cloned().collect()
    }

    /// Returns the references to earlier tool outputs in the input of a tool call of the model's
    /// last reply, with the values that approval rules and approvers have seen.
    pub fn output_references_of_call(&self, call: CallId) -> &[OutputReference] {
        self.control.call(call).map_or(&[], |tracked| &tracked.classification.outputs)
    }

    /// Returns the names of all tools that the run has called, in order and with duplicates.
    pub fn tools_called(&self) -> &[String] {
        &self.tools_called
    }

    /// Returns whether the worker that has claimed the run is expected to append events soon,
    /// because no call is running and no recovery from a crash is pending. False for a run without
    /// a claim.
    pub fn expects_events_from_driver(&self) -> bool {
        let DriverState { activity, crashed_epoch, .. } = &self.control.driver;
        *activity == Activity::Driven && crashed_epoch.is_none() && !self.control.has_running_call()
    }

    /// Returns whether the run was cancelled, so that work in progress must be aborted.
    pub const fn is_cancelling(&self) -> bool {
        self.control.stop.cancel.is_some()
    }

    /// Returns why the run was cancelled. `None` means that nobody cancelled it.
    pub fn cancel_cause(&self) -> Option<CancelCause> {
        self.control.stop.cancel.as_ref().map(|cancel| cancel.cause)
    }

    /// Returns whether a queued message asks to interrupt the work in progress.
    pub fn has_interrupting_steer(&self) -> bool {
        self.control.has_interrupting_steer()
    }
}

const fn replay_error(entry: &JournalEntry, reason: &'static str) -> ReplayError {
    ReplayError { run: entry.run, seq: entry.seq, kind: entry.event.kind(), reason }
}
