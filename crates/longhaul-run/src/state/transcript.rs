//! What the model has been told and has said, in order.
//!
//! Never: holds a call without its result in front of a next reply; the fold
//! adds the results of a turn together, when the last one is there.

use std::sync::Arc;

use longhaul_core::event::environment::MemoryCompacted;
use longhaul_core::event::run::RunPrepared;
use longhaul_core::message::Message;
use longhaul_core::raw::StoredText;
use serde::{Deserialize, Serialize};

/// The conversation. Messages are shared: a request copies pointers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transcript {
    system: StoredText,
    tools: StoredText,
    model: String,
    /// All that may be asked, in order, the first one included.
    #[serde(default)]
    models: Vec<String>,
    messages: Arc<Vec<Arc<Message>>>,
    /// What the run was asked: a thread remembers it at the end.
    task_message: Option<Arc<Message>>,
}

impl Default for Transcript {
    fn default() -> Self {
        Self {
            system: StoredText::inline(""),
            tools: StoredText::inline("[]"),
            model: String::new(),
            models: Vec::new(),
            messages: Arc::default(),
            task_message: None,
        }
    }
}

impl Transcript {
    /// The system prompt.
    pub const fn system(&self) -> &StoredText {
        &self.system
    }

    /// The table of tools.
    pub const fn tools(&self) -> &StoredText {
        &self.tools
    }

    /// The model that is asked.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// All models that may be asked, in order.
    pub fn models(&self) -> &[String] {
        match self.models.as_slice() {
            [] => std::slice::from_ref(&self.model),
            models => models,
        }
    }

    /// The model that is asked when this one fails for good; none: there is no other.
    pub fn next_fallback(&self) -> Option<&str> {
        let models = self.models();
        let place = models.iter().position(|model| *model == self.model)?;
        models.get(place + 1).map(String::as_str)
    }

    /// The conversation so far.
    pub const fn messages(&self) -> &Arc<Vec<Arc<Message>>> {
        &self.messages
    }

    /// What the run was asked.
    pub fn task_message(&self) -> Option<&Message> {
        self.task_message.as_deref()
    }

    /// The bytes that a request spends on it, about.
    pub fn bytes(&self) -> u64 {
        self.messages.iter().map(|message| message.estimated_bytes()).sum()
    }

    pub(crate) fn prepare(&mut self, seen: &RunPrepared) {
        self.system = seen.system.clone();
        self.tools = seen.tools.clone();
        self.model.clone_from(&seen.model);
        let all = std::iter::once(&seen.model).chain(&seen.fallbacks);
        self.models = all.cloned().collect();
        self.task_message = seen.initial_messages.last().cloned().map(Arc::new);
    }

    /// Another model is asked from now on.
    pub(crate) fn switch_model(&mut self, model: &str) {
        model.clone_into(&mut self.model);
    }

    /// The first model is asked again.
    pub(crate) fn reset_model(&mut self) {
        if let Some(first) = self.models.first() {
            self.model.clone_from(first);
        }
    }

    pub(crate) fn push(&mut self, message: Message) {
        Arc::make_mut(&mut self.messages).push(Arc::new(message));
    }

    pub(crate) fn clear(&mut self) {
        Arc::make_mut(&mut self.messages).clear();
    }

    pub(crate) fn compact(&mut self, compacted: &MemoryCompacted) {
        let messages = Arc::make_mut(&mut self.messages);
        let replaced = compacted.replaced.min(messages.len());
        messages.splice(0..replaced, compacted.summary.iter().cloned().map(Arc::new));
    }
}
