//! The conversation between the runtime and the model.
//!
//! Invariant: a reply is followed by the results of all its calls before the next reply. The
//! results of a turn are appended all at once, when the last one is recorded.
//!
//! The text of the latest perception (the data that the context provider returned) is in the prompt
//! and in the conversation, so its state contains only what is needed besides.

use std::collections::BTreeMap;
use std::sync::Arc;

use longhaul_core::event::environment::MemoryCompacted;
use longhaul_core::event::run::{ForkEdit, RunPrepared};
use longhaul_core::event::turn::PerceptionUpdate;
use longhaul_core::id::CallId;
use longhaul_core::message::{Message, Part, ToolResult};
use longhaul_core::raw::{Hash, RawJson, StoredText};
use serde::{Deserialize, Serialize};

/// The conversation of a run with the model. Messages are shared, so a request to the model only
/// copies pointers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transcript {
    pub system: StoredText,
    pub tools: StoredText,
    /// Names of the tools that tool calls have added to `tools` during the run. They are the last
    /// ones in `tools`.
    loaded_tools: Vec<String>,
    /// Size in bytes of the definitions that tool calls have added to `tools` during the run.
    pub(crate) loaded_bytes: u64,
    pub(crate) model: String,
    /// Names of all models of the run in order of preference, including the first one.
    models: Vec<String>,
    pub(crate) messages: Arc<Vec<Arc<Message>>>,
    /// Number of messages at the start of `messages` that are summaries written by compactions.
    pub(crate) summaries: usize,
    /// Number of messages that compactions have replaced, not counting replaced summaries.
    pub(crate) dropped: usize,
    /// Message with the task's input. When the run completes, it is appended to the thread (the
    /// conversation that successive runs share). `None` until the run is prepared.
    task_message: Option<Arc<Message>>,
    /// Messages of tasks that were added to the run after it was created. When the run completes,
    /// they are appended to the thread (the conversation that successive runs share).
    pub(crate) added_task_messages: Vec<Arc<Message>>,
}

/// State of the latest perception: the data that the context provider returned last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PerceptionState {
    /// Hash of the state of the outside world (JSON of the context provider) that is in the
    /// conversation. `None` means that there is no context provider, or that a compaction may have
    /// removed this state.
    pub world: Option<Hash>,
    /// Values that the context provider supplies to tools, by name.
    pub context: Arc<BTreeMap<String, RawJson>>,
    /// Names of the tools in the prompt that come from external sources, such as MCP servers.
    pub external_tools: Arc<Vec<String>>,
}

impl Transcript {
    /// Returns the name of the model that the run currently uses.
    pub fn current_model(&self) -> &str {
        &self.model
    }

    /// Returns the names of all models of the run, in order of preference.
    pub fn models_by_preference(&self) -> &[String] {
        match self.models.as_slice() {
            [] => std::slice::from_ref(&self.model),
            models => models,
        }
    }

    /// Returns the name of the model to use if the current model fails permanently. `None` means
    /// that no other model is left.
    pub fn next_fallback_model(&self) -> Option<&str> {
        let models = self.models_by_preference();
        let index = models.iter().position(|model| *model == self.model)?;
        models.get(index + 1).map(String::as_str)
    }

    /// Returns the messages of the conversation so far.
    pub const fn messages(&self) -> &Arc<Vec<Arc<Message>>> {
        &self.messages
    }

    /// Returns the message with the task's input. `None` means that the run is not prepared yet.
    pub fn task_message(&self) -> Option<&Message> {
        self.task_message.as_deref()
    }

    /// Returns the message with the task's input, followed by the messages of the tasks that were
    /// added to the run.
    pub fn all_task_messages(&self) -> impl Iterator<Item = &Message> {
        self.task_message.iter().chain(&self.added_task_messages).map(|message| &**message)
    }

    /// Returns the approximate size of the conversation in a model request, in bytes, with the
    /// tools that tool calls have added since the run was prepared.
    pub fn estimated_bytes(&self) -> u64 {
        let messages = self.messages.iter().map(|message| message.estimated_bytes());
        messages.sum::<u64>() + self.loaded_bytes
    }

    /// Returns whether a tool call has added the tool with this name, as the model sees it.
    pub fn has_loaded_tool(&self, tool_name: &str) -> bool {
        self.loaded_tools.iter().any(|loaded| loaded == tool_name)
    }

    /// Adds tools that a tool call has loaded to the end of the run's list of tools. A tool that is
    /// loaded again keeps its place, so that providers can cache the list. Does nothing if the list
    /// is stored as a blob, which never happens in a run that can load tools.
    pub(crate) fn add_loaded_tools(&mut self, tool_entries: &[RawJson]) {
        for entry in tool_entries {
            let value = entry.to_value();
            let name = value.get("name").and_then(serde_json::Value::as_str).unwrap_or_default();
            let StoredText::Inline(list) = &self.tools else { return };
            let Some(list_without_bracket) =
                list.strip_suffix(']').filter(|_| !self.has_loaded_tool(name))
            else {
                continue;
            };
            let comma = if list_without_bracket.ends_with('[') { "" } else { "," };
            let extended_list = format!("{list_without_bracket}{comma}{}]", entry.as_str());
            self.tools = StoredText::new_inline(extended_list);
            self.loaded_tools.push(name.to_owned());
            self.loaded_bytes += entry.as_str().len() as u64;
        }
    }

    pub(crate) fn apply_preparation(&mut self, preparation: &RunPrepared) {
        self.system = preparation.system.clone();
        self.tools = preparation.tools.clone();
        self.model.clone_from(&preparation.model);
        let models = std::iter::once(&preparation.model).chain(&preparation.fallbacks);
        self.models = models.cloned().collect();
        self.loaded_tools.clear();
        let task_message = preparation.initial_messages.last().cloned().map(Arc::new);
        self.task_message = task_message.or(self.task_message.take());
    }

    /// Applies a change that a person has made to the conversation that a fork has copied. Returns
    /// by how many bytes the conversation grows. Does nothing if it has no such message or result.
    pub(crate) fn apply_edit(&mut self, edit: &ForkEdit) -> i64 {
        let messages = Arc::make_mut(&mut self.messages);
        let (edited, text) = match edit {
            ForkEdit::Message { index, text } => (messages.get_mut(*index), text),
            ForkEdit::Result { call, text } => {
                let mut newest_first = messages.iter_mut().rev();
                (newest_first.find(|message| result_of_call(message, *call).is_some()), text)
            }
        };
        let Some(edited) = edited else { return 0 };
        let before = edited.clone();
        match Arc::make_mut(edited) {
            Message::Results(results) => {
                let is_edited = |result: &&mut ToolResult| matches!(edit, ForkEdit::Result { call, .. } if *call == result.call);
                for result in results.iter_mut().filter(is_edited) {
                    result.content = vec![Part::Text(text.as_str().into())];
                    result.is_error = false;
                }
            }
            message @ (Message::User(_) | Message::Assistant(_)) => {
                *message = Message::user(text.as_str());
            }
        }
        let edited = Arc::clone(edited);
        let task_messages = self.task_message.iter_mut().chain(&mut self.added_task_messages);
        for task_message in task_messages.filter(|message| **message == before) {
            task_message.clone_from(&edited);
        }
        edited.estimated_bytes().cast_signed() - before.estimated_bytes().cast_signed()
    }

    /// Switches the run back to its first model.
    pub(crate) fn switch_to_first_model(&mut self) {
        if let Some(first) = self.models.first() {
            self.model.clone_from(first);
        }
    }

    /// Removes the last message of the conversation if the model wrote it, and returns it. `None`
    /// means that the model did not write the last message.
    pub(crate) fn remove_last_reply(&mut self) -> Option<Arc<Message>> {
        let is_reply =
            self.messages.last().is_some_and(|last| matches!(**last, Message::Assistant(_)));
        is_reply.then(|| Arc::make_mut(&mut self.messages).pop()).flatten()
    }

    pub(crate) fn apply_compaction(&mut self, compacted: &MemoryCompacted) {
        let messages = Arc::make_mut(&mut self.messages);
        let replaced = compacted.replaced.min(messages.len());
        let replaced_summaries = replaced.min(self.summaries);
        self.dropped += replaced - replaced_summaries;
        self.summaries = self.summaries - replaced_summaries + compacted.summary.len();
        messages.splice(0..replaced, compacted.summary.iter().cloned().map(Arc::new));
    }
}

/// Returns the result of a tool call, if the message contains it.
pub(crate) fn result_of_call(message: &Message, call: CallId) -> Option<&ToolResult> {
    match message {
        Message::Results(results) => results.iter().find(|result| result.call == call),
        Message::User(_) | Message::Assistant(_) => None,
    }
}

impl PerceptionState {
    pub(crate) fn from_event(event: &RunPrepared) -> Self {
        Self {
            world: event.world.as_ref().map(|world| match world {
                StoredText::Inline(text) => Hash::digest(text.as_bytes()),
                StoredText::Blob(at) => at.hash,
            }),
            context: Arc::new(event.context.clone()),
            external_tools: Arc::new(event.external_tools.clone()),
        }
    }

    pub(crate) fn apply_update(&mut self, update: &PerceptionUpdate) {
        self.world = Some(update.world_hash);
        self.context = Arc::new(update.context.clone());
    }
}
