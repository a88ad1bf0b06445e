//! Memory: notes about a resource, which one run writes down and later ones find.
//!
//! Never: a note of another resource. Whose notes they are is the runtime's to
//! say, and out of the model's reach.

mod recall;
mod remember;

use std::sync::Arc;

use longhaul_core::id::{BadId, ResourceKey};
use longhaul_core::port::shelves::Shelves;
use longhaul_core::port::tool::{Tool, ToolContext, ToolFailure};

use crate::memory::recall::Recall;
use crate::memory::remember::Remember;

/// The names of the tools of memory.
pub const NAMES: [&str; 2] = ["remember", "recall"];

/// Notes on a shelf.
#[derive(Debug, Clone)]
pub struct Memory {
    shelves: Arc<dyn Shelves>,
}

impl Memory {
    /// The notes of this store.
    pub fn new(shelves: Arc<dyn Shelves>) -> Self {
        Self { shelves }
    }

    /// `remember` and `recall` over these notes.
    pub fn tools(&self) -> Result<Vec<Arc<dyn Tool>>, BadId> {
        Ok(vec![
            Arc::new(Remember::new(self.shelves.clone())?),
            Arc::new(Recall::new(self.shelves.clone())?),
        ])
    }
}

/// Whose notes a run reads and writes: those of its resource, else of its thread.
fn whose(around: &ToolContext) -> Result<ResourceKey, ToolFailure> {
    if let Some(resource) = &around.resource {
        return Ok(resource.clone());
    }
    let thread = around.thread.as_ref();
    let named = thread.and_then(|thread| ResourceKey::new(thread.as_str()).ok());
    named.ok_or_else(|| {
        ToolFailure(
            "This run has no memory: it was started for nobody in particular. Go on without it, \
             and tell the person to start the run with --resource NAME or --thread NAME if notes \
             should be kept."
                .to_owned(),
        )
    })
}
