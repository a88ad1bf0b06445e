//! State of the latest perception (the data that the context provider returned), and the external
//! tools that were available when the run was prepared. The text of the perception is not stored
//! here; it is in the prompt and in the conversation.

use std::collections::BTreeMap;
use std::sync::Arc;

use longhaul_core::event::run::RunPrepared;
use longhaul_core::event::turn::PerceptionUpdate;
use longhaul_core::raw::{Hash, RawJson, StoredText};
use serde::{Deserialize, Serialize};

/// State of the latest perception: the data that the context provider returned last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PerceptionState {
    world: Option<Hash>,
    context: Arc<BTreeMap<String, RawJson>>,
    external_tools: Arc<Vec<String>>,
}

impl PerceptionState {
    /// Returns the hash of the state of the outside world (JSON of the context provider) that is in
    /// the conversation. `None` means that there is no context provider, or that a compaction may
    /// have removed this state.
    pub const fn world_hash(&self) -> Option<Hash> {
        self.world
    }

    /// Returns the values that the context provider supplies to tools, by name.
    pub fn context(&self) -> &BTreeMap<String, RawJson> {
        &self.context
    }

    /// Returns the names of the tools in the prompt that come from external sources, such as MCP
    /// servers.
    pub fn external_tools(&self) -> &[String] {
        &self.external_tools
    }

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

    /// Forgets the hash of the state of the outside world after a compaction, so that the next
    /// refresh sends the state again even if it has not changed. The context values for tools are
    /// kept.
    pub(crate) const fn clear_world_hash(&mut self) {
        self.world = None;
    }
}
