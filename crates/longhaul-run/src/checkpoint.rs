//! Checkpoints: states of a run from which it is restored without replaying its whole journal. They are
//! only a cache.
//!
//! A checkpoint contains no messages, because the journal has them, so it stays small. It has two states:
//! the latest one, which is enough for views of the run, and an earlier one, from which a driver replays
//! the messages that no compaction has replaced.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use longhaul_core::checkpoint::RunCheckpoint;
use longhaul_core::id::{RunId, Seq};
use longhaul_core::message::Message;
use serde::{Deserialize, Serialize};

use crate::state::stage::RunStage;
use crate::state::{FOLD_HASH, Run};

/// Number of completed turns between two checkpoints.
pub const TURNS_PER_CHECKPOINT: u32 = 10;

/// Number of recent states that are kept in memory. One of them becomes the start of the
/// conversation when a compaction has replaced all earlier messages.
const RECENT_STATES_MAX: usize = 2;

/// State of a run without its messages and the names of its tool calls.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct StateWithoutMessages {
    run: Run,
    /// Number of messages that the run had in this state.
    messages: usize,
    /// Number of tool calls in the model's replies up to this state.
    tools_called: usize,
}

/// Content of a checkpoint, stored as JSON.
#[derive(Serialize, Deserialize)]
struct CheckpointContent {
    latest: StateWithoutMessages,
    conversation_start: Option<StateWithoutMessages>,
    /// Distinct names of the called tools.
    tool_names: Vec<String>,
    /// Calls in their order: an index in `tool_names`, and the number of calls in a row.
    tool_calls: Vec<(usize, usize)>,
}

/// Collects states of a run while its events are applied, and writes checkpoints of them.
#[derive(Debug, Clone)]
pub struct CheckpointWriter {
    /// State from which the messages of the conversation can be replayed. `None` means that the whole
    /// journal is needed.
    conversation_start: Option<Box<StateWithoutMessages>>,
    /// Copies of the latest states of the run, oldest first.
    recent: VecDeque<StateWithoutMessages>,
    /// Sequence number of the newest stored checkpoint.
    saved_seq: Seq,
    /// Number of completed turns between two checkpoints.
    interval: u32,
}

impl CheckpointWriter {
    /// Creates the writer for a run whose journal is replayed from the state `replay_start`, or
    /// from the first event if it is `None`. `last_checkpoint_seq` is the sequence number of the
    /// stored checkpoint.
    pub fn new(replay_start: Option<&Run>, last_checkpoint_seq: Seq) -> Self {
        Self {
            conversation_start: replay_start
                .map(|start| Box::new(StateWithoutMessages::copy_without_messages(start))),
            recent: VecDeque::new(),
            saved_seq: last_checkpoint_seq,
            interval: TURNS_PER_CHECKPOINT,
        }
    }

    /// Sets the number of completed turns between two checkpoints.
    pub fn with_turns_per_checkpoint(self, turns: u32) -> Self {
        Self { interval: turns, ..self }
    }

    /// Called with the state after each event. Keeps a copy of the state when an interval of turns
    /// has been completed since the last copy and the run is at a model call, not at tool calls.
    pub fn keep_state_if_due(&mut self, run: &Run) {
        let newest = self.recent.back().or(self.conversation_start.as_deref());
        let turns = newest.map_or(0, |state| state.run.control.turns);
        if run.control.turns < turns.saturating_add(self.interval)
            || !matches!(run.control.stage, RunStage::ModelPending(_) | RunStage::ModelRunning(_))
        {
            return;
        }
        let dropped = run.transcript.dropped;
        let is_start = |state: &&StateWithoutMessages| state.were_all_messages_compacted(dropped);
        if let Some(start) = self.recent.iter().rev().find(is_start) {
            self.conversation_start = Some(Box::new(start.clone()));
        }
        self.recent.push_back(StateWithoutMessages::copy_without_messages(run));
        if self.recent.len() > RECENT_STATES_MAX {
            self.recent.pop_front();
        }
    }

    /// Returns the newest checkpoint of the run. `None` means that it is already stored, or that no
    /// state was kept yet.
    pub fn unsaved_checkpoint(&self, run: &Run) -> Option<RunCheckpoint> {
        let latest = self.recent.back()?;
        let seq = latest.run.seq;
        if seq <= self.saved_seq {
            return None;
        }
        let called = run.tools_called.get(..latest.tools_called)?;
        let names: BTreeSet<&String> = called.iter().collect();
        let tool_names: Vec<String> = names.into_iter().cloned().collect();
        let in_a_row = called.chunk_by(|one, next| one == next);
        let tool_calls = in_a_row
            .filter_map(|row| Some((tool_names.binary_search(row.first()?).ok()?, row.len())));
        let content = CheckpointContent {
            latest: latest.clone(),
            conversation_start: self.conversation_start.as_deref().cloned(),
            tool_calls: tool_calls.collect(),
            tool_names,
        };
        let state = serde_json::to_vec(&content).ok()?;
        Some(RunCheckpoint { seq, fold_hash: FOLD_HASH.to_owned(), state })
    }

    /// Records that the newest checkpoint is stored.
    pub fn mark_newest_checkpoint_saved(&mut self) {
        if let Some(latest) = self.recent.back() {
            self.saved_seq = self.saved_seq.max(latest.run.seq);
        }
    }
}

impl StateWithoutMessages {
    fn copy_without_messages(run: &Run) -> Self {
        Self {
            run: run.without_messages(),
            messages: run.transcript.messages().len(),
            tools_called: run.tools_called.len(),
        }
    }

    /// Returns whether compactions after this state have replaced all of its messages, so that the
    /// current conversation can be replayed from this state. `dropped_message_count` is the number
    /// of messages of the whole run that compactions have replaced up to now.
    fn were_all_messages_compacted(&self, dropped_message_count: usize) -> bool {
        let transcript = &self.run.transcript;
        let own_messages = self.messages.saturating_sub(transcript.summaries);
        let earlier = transcript.dropped;
        earlier < dropped_message_count && own_messages <= dropped_message_count - earlier
    }

    /// Returns the run in this state, without messages. `None` means that the state belongs to
    /// another run or has more tool calls than `tools_called`.
    fn into_run(self, id: RunId, tools_called: &[String]) -> Option<Run> {
        let mut run = self.run;
        run.tools_called = tools_called.get(..self.tools_called)?.to_vec();
        (run.id == id).then_some(run)
    }
}

impl CheckpointContent {
    /// Returns the names of all called tools, in the order of the calls.
    fn called_tool_names(&self) -> Vec<String> {
        let indexes = self.tool_calls.iter();
        let indexes = indexes.flat_map(|(index, count)| std::iter::repeat_n(*index, *count));
        let names = indexes.take(self.latest.tools_called);
        names.filter_map(|index| self.tool_names.get(index).cloned()).collect()
    }
}

/// Restores the latest state of a run from a checkpoint, without messages. `None` means that the
/// checkpoint is not usable.
pub fn restore_latest_state(id: RunId, checkpoint: &RunCheckpoint) -> Option<Run> {
    let content: CheckpointContent = serde_json::from_slice(&checkpoint.state).ok()?;
    let tools_called = content.called_tool_names();
    let run = content.latest.into_run(id, &tools_called)?;
    (run.seq == checkpoint.seq).then_some(run)
}

/// Restores the state from which the journal is replayed to get the whole conversation. The
/// messages before this state are empty placeholders, because a later compaction replaces them
/// anyway. `None` means that the whole journal must be replayed.
pub fn restore_conversation_start(id: RunId, checkpoint: &RunCheckpoint) -> Option<Run> {
    let content: CheckpointContent = serde_json::from_slice(&checkpoint.state).ok()?;
    let tools_called = content.called_tool_names();
    let start = content.conversation_start?;
    let placeholder = Arc::new(Message::user(""));
    let placeholders = vec![placeholder; start.messages];
    let mut run = start.into_run(id, &tools_called)?;
    run.transcript.messages = Arc::new(placeholders);
    Some(run)
}
