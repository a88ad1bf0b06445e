//! The scope of a run's notes: the resource or thread that the notes belong to.
//!
//! Invariant: the runtime sets the scope, not the model.

use longhaul_core::id::ResourceKey;
use longhaul_core::port::tool::{ToolContext, ToolFailure};

/// Returns the scope of a run's notes: the run's resource, or else its thread.
pub(super) fn memory_scope(ctx: &ToolContext) -> Result<ResourceKey, ToolFailure> {
    if let Some(resource) = &ctx.resource {
        return Ok(resource.clone());
    }
    let thread = ctx.thread.as_ref();
    let named = thread.and_then(|thread| ResourceKey::new(thread.as_str()).ok());
    named.ok_or_else(|| {
        ToolFailure::new(
            "This run has no memory, because it has no resource and no thread. Continue without it, \
             and tell the user to start the run with --resource NAME or --thread NAME if notes \
             should be saved.",
        )
    })
}
