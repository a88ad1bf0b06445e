//! What somebody saw of the world for a run, and what was brought for it.
//!
//! Never: the words of it. Those stand in the prompt and in the conversation.

use std::collections::BTreeMap;
use std::sync::Arc;

use longhaul_core::event::run::RunPrepared;
use longhaul_core::event::turn::PerceptionUpdate;
use longhaul_core::raw::{Hash, RawJson, StoredText};
use serde::{Deserialize, Serialize};

/// What was seen last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PerceptionState {
    world: Option<Hash>,
    context: Arc<BTreeMap<String, RawJson>>,
    external_tools: Arc<Vec<String>>,
}

impl PerceptionState {
    /// The hash of the world's JSON that the model was told; none: nobody looked, or
    /// what was told may be gone from the conversation.
    pub const fn world(&self) -> Option<Hash> {
        self.world
    }

    /// What whoever looked gives to tools, by name.
    pub fn context(&self) -> &BTreeMap<String, RawJson> {
        &self.context
    }

    /// The tools that others brought when the model was told of them.
    pub fn external_tools(&self) -> &[String] {
        &self.external_tools
    }

    pub(crate) fn from_event(seen: &RunPrepared) -> Self {
        Self {
            world: seen.world.as_ref().map(|world| match world {
                StoredText::Inline(text) => Hash::digest(text.as_bytes()),
                StoredText::Blob(at) => at.hash,
            }),
            context: Arc::new(seen.context.clone()),
            external_tools: Arc::new(seen.external_tools.clone()),
        }
    }

    pub(crate) fn update(&mut self, seen: &PerceptionUpdate) {
        self.world = Some(seen.world_hash);
        self.context = Arc::new(seen.context.clone());
    }

    /// The conversation was shortened: whoever looks next tells the world again, also
    /// one that is as it was. What tools are given stays.
    pub(crate) const fn clear_world(&mut self) {
        self.world = None;
    }
}
