//! A run as it follows from its journal.
//!
//! Never: the truth. The journal is; this is its fold, and a checkpoint of it
//! is a cache that any build may throw away.

pub mod call;
pub mod control;
pub mod loop_guard;
pub mod output_retries;
pub mod pending_timer;
pub mod perception;
pub mod stage;
pub mod transcript;

use longhaul_core::event::Event;
use longhaul_core::event::entry::Entry;
use longhaul_core::id::{RunId, Seq};
use longhaul_core::message::Message;
use longhaul_core::status::{Outcome, Status, Wait};
use longhaul_core::task::TaskSpec;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

use crate::state::control::{Control, Idle};
use crate::state::perception::PerceptionState;
use crate::state::stage::Stage;
use crate::state::transcript::Transcript;

/// The hash of the code that folds: a checkpoint of another build is dropped.
pub const FOLD_HASH: &str = env!("LONGHAUL_FOLD_HASH");

/// A run, folded from its journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub(crate) id: RunId,
    pub(crate) task: Arc<TaskSpec>,
    pub(crate) seq: Seq,
    pub(crate) control: Control,
    pub(crate) transcript: Transcript,
    pub(crate) tools_called: Vec<String>,
    #[serde(default)]
    pub(crate) perception: PerceptionState,
}

/// A journal that does not fold: a fault, because nothing we write is like that.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("event {seq} of {run}, `{kind}`, does not fit: {why}")]
pub struct ReplayError {
    /// Whose journal.
    pub run: RunId,
    /// Which place.
    pub seq: Seq,
    /// Which fact.
    pub kind: &'static str,
    /// Why.
    pub why: &'static str,
}

impl Run {
    /// Folds a journal from its beginning.
    pub fn replay<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Result<Self, ReplayError> {
        let mut entries = entries.into_iter();
        let first = entries.next().ok_or(ReplayError {
            run: RunId::from_bits(0),
            seq: Seq::START,
            kind: "",
            why: "the journal is empty",
        })?;
        let mut run = Self::from_first_entry(first)?;
        for entry in entries {
            run.apply(entry)?;
        }
        Ok(run)
    }

    /// The run that its first fact makes.
    pub fn from_first_entry(first: &Entry) -> Result<Self, ReplayError> {
        let Event::RunCreated(created) = &first.event else {
            return Err(replay_error(first, "a journal begins with `run.created`"));
        };
        if first.seq != Seq::START.next() {
            return Err(replay_error(first, "the first place is 1"));
        }
        let task = Arc::new(created.task.clone());
        Ok(Self {
            id: first.run,
            control: Control::new(first.run, &task),
            transcript: Transcript::default(),
            tools_called: Vec::new(),
            perception: PerceptionState::default(),
            seq: first.seq,
            task,
        })
    }

    /// Takes one fact in. The same facts in the same order give the same run.
    pub fn apply(&mut self, entry: &Entry) -> Result<(), ReplayError> {
        let said = self.fold_entry(entry)?;
        said.into_iter().for_each(|message| self.transcript.push(message));
        Ok(())
    }

    /// Takes one fact in without keeping the conversation, which makes up nearly all
    /// of a long run. The result is for views: nothing can be decided on it, because
    /// the size of the conversation is not known after it was shortened.
    pub fn apply_without_transcript(&mut self, entry: &Entry) -> Result<(), ReplayError> {
        self.fold_entry(entry)?;
        self.transcript.clear();
        Ok(())
    }

    /// Takes one fact in, and gives what it adds to the conversation.
    fn fold_entry(&mut self, entry: &Entry) -> Result<Vec<Message>, ReplayError> {
        if entry.run != self.id {
            return Err(replay_error(entry, "it is another run's"));
        }
        if entry.seq != self.seq.next() {
            return Err(replay_error(entry, "there is a gap before it"));
        }
        let said = self.control.apply(&entry.event).map_err(|why| replay_error(entry, why))?;
        if let Event::RunPrepared(seen) = &entry.event {
            self.transcript.prepare(seen);
            self.perception = PerceptionState::from_event(seen);
        }
        if let Event::TurnStarted(started) = &entry.event
            && let Some(seen) = &started.perception
        {
            self.perception.update(seen);
        }
        if let Event::TurnFailed(failed) = &entry.event
            && let Some(other) = &failed.fallback_model
        {
            self.transcript.switch_model(other);
        }
        if let Event::RunRetried(_) = &entry.event {
            self.transcript.reset_model();
        }
        if let Event::MemoryCompacted(compacted) = &entry.event {
            self.transcript.compact(compacted);
            self.control.set_compacted_bytes(self.transcript.bytes());
            self.perception.clear_world();
        }
        if let Event::TurnCompleted(done) = &entry.event {
            self.tools_called.extend(done.calls.iter().map(|call| call.tool.to_string()));
        }
        self.seq = entry.seq;
        Ok(said)
    }

    /// Which run.
    pub const fn id(&self) -> RunId {
        self.id
    }

    /// What it was made of.
    pub fn task(&self) -> &TaskSpec {
        &self.task
    }

    /// The last place that was folded.
    pub const fn seq(&self) -> Seq {
        self.seq
    }

    /// How it stands.
    pub fn status(&self) -> Status {
        match (&self.control.stage, &self.control.idle) {
            (Stage::Ended(outcome), _) => outcome.status(),
            (_, Some(Idle::Paused)) => Status::Paused,
            (_, Some(Idle::Parked { wait: Wait::Blocked(_), .. })) => Status::Blocked,
            (_, Some(Idle::Parked { wait: Wait::Worker, .. })) => Status::Running,
            (_, Some(Idle::Parked { .. })) => Status::Waiting,
            (_, None) if self.control.epoch.0 == 0 => Status::Pending,
            (_, None) => Status::Running,
        }
    }

    /// How it ended, if it has.
    pub const fn outcome(&self) -> Option<&Outcome> {
        if let Stage::Ended(outcome) = &self.control.stage {
            return Some(outcome);
        }
        None
    }

    /// What is being done, without the words.
    pub const fn control(&self) -> &Control {
        &self.control
    }

    /// The words.
    pub const fn transcript(&self) -> &Transcript {
        &self.transcript
    }

    /// What was seen of the world.
    pub const fn perception(&self) -> &PerceptionState {
        &self.perception
    }

    /// Whether its world was looked at and its prompt made.
    pub const fn is_prepared(&self) -> bool {
        !matches!(self.control.stage, Stage::New)
    }

    /// The tools that were called, in order and with repeats.
    pub fn tools_called(&self) -> &[String] {
        &self.tools_called
    }

    /// Whether everything under way is to be aborted: the run was cancelled.
    pub const fn is_stopping(&self) -> bool {
        self.control.cancel.is_some()
    }

    /// Whether a message wants what is under way cut off.
    pub fn is_interrupted(&self) -> bool {
        self.control.has_interrupting_steer()
    }
}

const fn replay_error(entry: &Entry, why: &'static str) -> ReplayError {
    ReplayError { run: entry.run, seq: entry.seq, kind: entry.event.kind(), why }
}
