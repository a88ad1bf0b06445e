//! A run as it follows from its journal.
//!
//! Never: the truth. The journal is; this is its fold, and a checkpoint of it
//! is a cache that any build may throw away.

pub mod call;
pub mod circles;
pub mod control;
pub mod misfits;
pub mod seen;
pub mod sleep;
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

use crate::state::control::{Control, Rest};
use crate::state::seen::Sights;
use crate::state::stage::Stage;
use crate::state::transcript::Transcript;

/// The hash of the code that folds: a checkpoint of another build is dropped.
pub const FOLD: &str = env!("LONGHAUL_FOLD");

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
    pub(crate) sights: Sights,
}

/// A journal that does not fold: a fault, because nothing we write is like that.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("event {seq} of {run}, `{kind}`, does not fit: {why}")]
pub struct Misfit {
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
    pub fn replay<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Result<Self, Misfit> {
        let mut entries = entries.into_iter();
        let first = entries.next().ok_or(Misfit {
            run: RunId::from_bits(0),
            seq: Seq::START,
            kind: "",
            why: "the journal is empty",
        })?;
        let mut run = Self::begin(first)?;
        for entry in entries {
            run.apply(entry)?;
        }
        Ok(run)
    }

    /// The run that its first fact makes.
    pub fn begin(first: &Entry) -> Result<Self, Misfit> {
        let Event::RunCreated(created) = &first.event else {
            return Err(misfit(first, "a journal begins with `run.created`"));
        };
        if first.seq != Seq::START.next() {
            return Err(misfit(first, "the first place is 1"));
        }
        let task = Arc::new(created.task.clone());
        Ok(Self {
            id: first.run,
            control: Control::new(first.run, &task),
            transcript: Transcript::default(),
            tools_called: Vec::new(),
            sights: Sights::default(),
            seq: first.seq,
            task,
        })
    }

    /// Takes one fact in. The same facts in the same order give the same run.
    pub fn apply(&mut self, entry: &Entry) -> Result<(), Misfit> {
        let said = self.take_in(entry)?;
        said.into_iter()
            .for_each(|message| self.transcript.push(message));
        Ok(())
    }

    /// Takes one fact in without keeping the conversation, which makes up nearly all
    /// of a long run. The result is for views: nothing can be decided on it, because
    /// the size of the conversation is not known after it was shortened.
    pub fn apply_outline(&mut self, entry: &Entry) -> Result<(), Misfit> {
        self.take_in(entry)?;
        self.transcript.clear();
        Ok(())
    }

    /// Takes one fact in, and gives what it adds to the conversation.
    fn take_in(&mut self, entry: &Entry) -> Result<Vec<Message>, Misfit> {
        if entry.run != self.id {
            return Err(misfit(entry, "it is another run's"));
        }
        if entry.seq != self.seq.next() {
            return Err(misfit(entry, "there is a gap before it"));
        }
        let said = self
            .control
            .apply(&entry.event)
            .map_err(|why| misfit(entry, why))?;
        if let Event::RunPerceived(seen) = &entry.event {
            self.transcript.perceive(seen);
            self.sights = Sights::first(seen);
        }
        if let Event::TurnStarted(started) = &entry.event
            && let Some(seen) = &started.seen
        {
            self.sights.again(seen);
        }
        if let Event::TurnFailed(failed) = &entry.event
            && let Some(other) = &failed.instead
        {
            self.transcript.turn_to(other);
        }
        if let Event::RunRetried(_) = &entry.event {
            self.transcript.turn_back();
        }
        if let Event::MemoryCompacted(compacted) = &entry.event {
            self.transcript.compact(compacted);
            self.control.shortened_to(self.transcript.bytes());
            self.sights.forget();
        }
        if let Event::TurnCompleted(done) = &entry.event {
            self.tools_called
                .extend(done.calls.iter().map(|call| call.tool.to_string()));
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
        match (&self.control.stage, &self.control.rest) {
            (Stage::Ended(outcome), _) => outcome.status(),
            (_, Some(Rest::Paused)) => Status::Paused,
            (
                _,
                Some(Rest::Parked {
                    wait: Wait::Blocked(_),
                    ..
                }),
            ) => Status::Blocked,
            (
                _,
                Some(Rest::Parked {
                    wait: Wait::Worker, ..
                }),
            ) => Status::Running,
            (_, Some(Rest::Parked { .. })) => Status::Waiting,
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
    pub const fn sights(&self) -> &Sights {
        &self.sights
    }

    /// Whether its world was looked at and its prompt made.
    pub const fn is_perceived(&self) -> bool {
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
        self.control.interrupts()
    }
}

const fn misfit(entry: &Entry, why: &'static str) -> Misfit {
    Misfit {
        run: entry.run,
        seq: entry.seq,
        kind: entry.event.kind(),
        why,
    }
}
