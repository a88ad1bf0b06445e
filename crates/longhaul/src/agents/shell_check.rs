//! Checks agents with the shell tool. This build has no sandbox, so the agent must declare that its
//! commands run unsandboxed.
//!
//! Invariant: an agent whose commands need a sandbox does not run without one.

use longhaul_engine::agent::Agent;
use longhaul_engine::agent::config::IsolationLevel;

use crate::agents::diagnostics::Diagnostics;
use crate::spanned::TableEntry;

/// Name of the tool that runs shell commands.
pub(crate) const SHELL_TOOL: &str = "shell";

/// Whether the agent's file declares that commands run unsandboxed.
pub(crate) fn is_unsandboxed(agent: &Agent) -> bool {
    let sandbox = agent.sandbox.as_ref();
    sandbox.is_some_and(|sandbox| sandbox.isolation == IsolationLevel::None)
}

/// Returns an error message if the agent has the shell tool and does not declare that its commands
/// run unsandboxed.
pub(crate) fn missing_sandbox_error(agent: &Agent) -> Option<&'static str> {
    let runs = agent.tools.iter().any(|tool| tool == SHELL_TOOL);
    (runs && !is_unsandboxed(agent)).then_some(
        "`shell` needs a sandbox, which this build does not support yet: it supports only \
         `sandbox: { isolation: none }`, which runs commands unsandboxed",
    )
}

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
