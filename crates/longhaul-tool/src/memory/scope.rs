//! The scope of a run's notes: the resource (the person or thing that the notes are about), or else
//! the thread (the conversation that successive runs share).
//!
//! Invariant: the runtime sets the scope, not the model.

use longhaul_core::id::ResourceKey;
use longhaul_core::port::tool::{ToolContext, ToolFailure};

/// Returns the scope of a run's notes: the run's resource (the person or thing that the notes are
/// about), or else its thread (the conversation that successive runs share).
pub(super) fn notes_resource(ctx: &ToolContext) -> Result<ResourceKey, ToolFailure> {
    if let Some(resource) = &ctx.resource {
        return Ok(resource.clone());
    }
    let thread = ctx.thread.as_ref();
    let resource_key = thread.and_then(|thread| ResourceKey::new(thread.as_str()).ok());
    resource_key.ok_or_else(|| {
        ToolFailure::new(
            "This run has no memory, because it has no resource and no thread. Continue without it, \
             and tell the user to start the run with --resource NAME or --thread NAME if notes \
             should be saved.",
        )
    })
}
