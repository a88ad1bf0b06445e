//! What somebody saw of the world for a run, and what was brought for it.
//!
//! Never: the words of it. Those stand in the prompt and in the conversation.

use std::collections::BTreeMap;
use std::sync::Arc;

use longhaul_core::event::run::RunPerceived;
use longhaul_core::event::turn::Seen;
use longhaul_core::raw::{Body, Hash, RawJson};
use serde::{Deserialize, Serialize};

/// What was seen last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sights {
    world: Option<Hash>,
    context: Arc<BTreeMap<String, RawJson>>,
    supplied: Arc<Vec<String>>,
}

impl Sights {
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
    pub fn supplied(&self) -> &[String] {
        &self.supplied
    }

    pub(crate) fn first(seen: &RunPerceived) -> Self {
        Self {
            world: seen.world.as_ref().map(|world| match world {
                Body::Inline(text) => Hash::of(text.as_bytes()),
                Body::Blob(at) => at.hash,
            }),
            context: Arc::new(seen.context.clone()),
            supplied: Arc::new(seen.supplied.clone()),
        }
    }

    pub(crate) fn again(&mut self, seen: &Seen) {
        self.world = Some(seen.world);
        self.context = Arc::new(seen.context.clone());
    }

    /// The conversation was shortened: whoever looks next tells the world again, also
    /// one that is as it was. What tools are given stays.
    pub(crate) const fn forget(&mut self) {
        self.world = None;
    }
}
