//! The tool that runs commands, and what it needs that this build can't make.
//!
//! Never: lets it pass in silence. An agent that asks for a wall must not run
//! without it.

use longhaul_engine::agent::Agent;
use longhaul_engine::agent::config::Isolation;

use crate::agents::diagnostics::Diagnostics;
use crate::spanned::TableEntry;

/// The tool that runs commands.
pub(crate) const SHELL_TOOL: &str = "shell";

/// Whether an agent says itself that its commands need no walls.
pub(crate) fn is_unsandboxed(agent: &Agent) -> bool {
    let sandbox = agent.sandbox.as_ref();
    sandbox.is_some_and(|sandbox| sandbox.isolation == Isolation::None)
}

/// That the agent has the tool and no sandbox.
pub(crate) fn shell_error(agent: &Agent) -> Option<&'static str> {
    let runs = agent.tools.iter().any(|tool| tool == SHELL_TOOL);
    (runs && !is_unsandboxed(agent)).then_some(
        "`shell` needs a sandbox, and this build can't make one yet: only \
         `sandbox: { isolation: none }`, which runs commands without walls",
    )
}

/// Notes that an agent has the tool and no sandbox; `at` is the field that would say otherwise.
pub(crate) fn check_shell(sheet: &mut Diagnostics, agent: &Agent, at: Option<&TableEntry>) {
    if let (Some(at), Some(message)) = (at, shell_error(agent)) {
        sheet.unsupported(at.position, message);
    }
}
