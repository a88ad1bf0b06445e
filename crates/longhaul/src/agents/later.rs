//! The tool that runs commands, and what it needs that this build can't make.
//!
//! Never: lets it pass in silence. An agent that asks for a wall must not run
//! without it.

use longhaul_engine::agent::Agent;
use longhaul_engine::agent::wish::Isolation;

use crate::agents::sheet::Sheet;
use crate::written::Entry;

/// The tool that runs commands.
pub(crate) const SHELL: &str = "shell";

/// Whether an agent says itself that its commands need no walls.
pub(crate) fn is_unwalled(agent: &Agent) -> bool {
    let sandbox = agent.sandbox.as_ref();
    sandbox.is_some_and(|sandbox| sandbox.isolation == Isolation::None)
}

/// That the agent has the tool and no sandbox.
pub(crate) fn shell_fault(agent: &Agent) -> Option<&'static str> {
    let runs = agent.tools.iter().any(|tool| tool == SHELL);
    (runs && !is_unwalled(agent)).then_some(
        "`shell` needs a sandbox, and this build can't make one yet: only \
         `sandbox: { isolation: none }`, which runs commands without walls",
    )
}

/// Notes that an agent has the tool and no sandbox; `at` is the field that would say otherwise.
pub(crate) fn shell(sheet: &mut Sheet, agent: &Agent, at: Option<&Entry>) {
    if let (Some(at), Some(message)) = (at, shell_fault(agent)) {
        sheet.not_yet(at.place, message);
    }
}
