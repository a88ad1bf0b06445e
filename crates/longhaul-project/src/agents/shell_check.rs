//! Checks agents with the shell tool. This build has no sandbox, so the agent must declare that its
//! commands run unsandboxed.
//!
//! Invariant: an agent whose commands need a sandbox does not run without one.

use longhaul_engine::agent::Agent;
use longhaul_engine::agent::check::missing_sandbox_error;

use crate::agents::diagnostics::Diagnostics;
use crate::spanned::TableEntry;

/// Reports a problem at the field `entry` if the agent has the shell tool and does not declare that
/// its commands run unsandboxed.
pub(crate) fn check_shell_is_declared_unsandboxed(
    diagnostics: &mut Diagnostics,
    agent: &Agent,
    entry: Option<&TableEntry>,
) {
    if let (Some(entry), Some(message)) = (entry, missing_sandbox_error(agent)) {
        diagnostics.report_unsupported(entry.position, message);
    }
}
