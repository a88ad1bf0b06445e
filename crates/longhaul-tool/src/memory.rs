//! Memory: notes about a resource, which one run writes down and later ones find.
//!
//! Never: a note of another resource. Whose notes they are is the runtime's to
//! say, and out of the model's reach.

mod recall;
mod remember;
mod scope;

use std::sync::Arc;

use longhaul_core::port::records::RecordStore;
use longhaul_core::port::tool::Tool;

use crate::memory::recall::Recall;
use crate::memory::remember::Remember;
use crate::typed::{TypedToolError, typed};

/// The names of the tools of memory.
pub const NAMES: [&str; 2] = ["remember", "recall"];

/// Notes on a shelf.
#[derive(Debug, Clone)]
pub struct Memory {
    store: Arc<dyn RecordStore>,
}

impl Memory {
    /// The notes of this store.
    pub fn new(shelves: Arc<dyn RecordStore>) -> Self {
        Self { store: shelves }
    }

    /// `remember` and `recall` over these notes.
    pub fn tools(&self) -> Result<Vec<Arc<dyn Tool>>, TypedToolError> {
        Ok(vec![typed(Remember(self.store.clone()))?, typed(Recall(self.store.clone()))?])
    }
}
