//! The tool that runs commands on this machine without walls, and who in this
//! project would use it.
//!
//! Never: counts the agents once and for all. Their files may change while a
//! server runs.

use std::fmt;
use std::sync::Arc;

use longhaul_core::port::tool::Tool;

/// The tool, and who would use it.
pub struct Unwalled {
    /// The tool.
    pub tool: Arc<dyn Tool>,
    /// The agents of the project that may run commands, as they stand on disk now.
    pub agents: Box<dyn Fn() -> Vec<String> + Send + Sync>,
}

impl fmt::Debug for Unwalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unwalled").finish_non_exhaustive()
    }
}
