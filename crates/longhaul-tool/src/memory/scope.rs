//! Whose notes a run reads and writes.
//!
//! Never: the model's choice. The runtime says it.

use longhaul_core::id::ResourceKey;
use longhaul_core::port::tool::{ToolContext, ToolFailure};

/// Whose notes a run reads and writes: those of its resource, else of its thread.
pub(super) fn memory_scope(around: &ToolContext) -> Result<ResourceKey, ToolFailure> {
    if let Some(resource) = &around.resource {
        return Ok(resource.clone());
    }
    let thread = around.thread.as_ref();
    let named = thread.and_then(|thread| ResourceKey::new(thread.as_str()).ok());
    named.ok_or_else(|| {
        ToolFailure::new(
            "This run has no memory: it was started for nobody in particular. Go on without it, \
             and tell the person to start the run with --resource NAME or --thread NAME if notes \
             should be kept.",
        )
    })
}
