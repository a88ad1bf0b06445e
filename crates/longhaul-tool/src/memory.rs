//! The memory tools: notes about a resource (a person or thing) that later runs can find.
//!
//! Invariant: a run accesses only the notes of its own resource. The runtime sets the resource, not
//! the model.

mod recall;
mod remember;
mod scope;

use std::sync::Arc;

use longhaul_core::port::records::RecordStore;
use longhaul_core::port::tool::Tool;

use crate::memory::recall::RecallTool;
use crate::memory::remember::RememberTool;
use crate::typed::{TypedToolError, typed};

/// Names of the memory tools.
pub const NAMES: [&str; 2] = ["remember", "recall"];

/// The memory tools with the record store that holds the notes.
#[derive(Debug, Clone)]
pub struct MemoryTools {
    store: Arc<dyn RecordStore>,
}

impl MemoryTools {
    pub fn new(store: Arc<dyn RecordStore>) -> Self {
        Self { store }
    }

    /// Returns `remember` and `recall` for these notes.
    pub fn tools(&self) -> Result<Vec<Arc<dyn Tool>>, TypedToolError> {
        Ok(vec![typed(RememberTool(self.store.clone()))?, typed(RecallTool(self.store.clone()))?])
    }
}
