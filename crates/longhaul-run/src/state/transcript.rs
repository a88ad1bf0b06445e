//! What the model has been told and has said, in order.
//!
//! Never: holds a call without its result in front of a next reply; the fold
//! adds the results of a turn together, when the last one is there.

use std::sync::Arc;

use longhaul_core::event::run::RunPerceived;
use longhaul_core::event::world::MemoryCompacted;
use longhaul_core::message::Message;
use longhaul_core::raw::Body;
use serde::{Deserialize, Serialize};

/// The conversation. Messages are shared: a request copies pointers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transcript {
    system: Body,
    tools: Body,
    model: String,
    /// All that may be asked, in order, the first one included.
    #[serde(default)]
    models: Vec<String>,
    messages: Arc<Vec<Arc<Message>>>,
    /// What the run was asked: a thread remembers it at the end.
    asked: Option<Arc<Message>>,
}

impl Default for Transcript {
    fn default() -> Self {
        Self {
            system: Body::inline(""),
            tools: Body::inline("[]"),
            model: String::new(),
            models: Vec::new(),
            messages: Arc::default(),
            asked: None,
        }
    }
}

impl Transcript {
    /// The system prompt.
    pub const fn system(&self) -> &Body {
        &self.system
    }

    /// The table of tools.
    pub const fn tools(&self) -> &Body {
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
    pub fn fallback(&self) -> Option<&str> {
        let models = self.models();
        let place = models.iter().position(|model| *model == self.model)?;
        models.get(place + 1).map(String::as_str)
    }

    /// The conversation so far.
    pub const fn messages(&self) -> &Arc<Vec<Arc<Message>>> {
        &self.messages
    }

    /// What the run was asked.
    pub fn asked(&self) -> Option<&Message> {
        self.asked.as_deref()
    }

    /// The bytes that a request spends on it, about.
    pub fn bytes(&self) -> u64 {
        self.messages.iter().map(|message| message.bytes()).sum()
    }

    pub(crate) fn perceive(&mut self, seen: &RunPerceived) {
        self.system = seen.system.clone();
        self.tools = seen.tools.clone();
        self.model.clone_from(&seen.model);
        let all = std::iter::once(&seen.model).chain(&seen.fallbacks);
        self.models = all.cloned().collect();
        self.asked = seen.opening.last().cloned().map(Arc::new);
    }

    /// Another model is asked from now on.
    pub(crate) fn turn_to(&mut self, model: &str) {
        model.clone_into(&mut self.model);
    }

    /// The first model is asked again.
    pub(crate) fn turn_back(&mut self) {
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
