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
    /// Hash of the state of the outside world (JSON of the context provider) that is in the
    /// conversation. `None` means that there is no context provider, or that a compaction may have
    /// removed this state.
    pub world: Option<Hash>,
    /// Values that the context provider supplies to tools, by name.
    pub context: Arc<BTreeMap<String, RawJson>>,
    /// Names of the tools in the prompt that come from external sources, such as MCP servers.
    pub external_tools: Arc<Vec<String>>,
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
