//! What a file may ask for and this build can't do.
//!
//! Never: lets it pass in silence. An agent that asks for a wall must not run
//! without it.

use longhaul_engine::agent::Agent;
use longhaul_engine::agent::wish::Isolation;

use crate::agents::sheet::{Fields, Sheet};

/// The tool that runs commands.
pub(crate) const SHELL: &str = "shell";

/// Whether an agent says itself that its commands need no walls.
pub(crate) fn is_unwalled(agent: &Agent) -> bool {
    let sandbox = agent.sandbox.as_ref();
    sandbox.is_some_and(|sandbox| sandbox.isolation == Isolation::None)
}

/// Says what comes later.
pub(crate) fn read(sheet: &mut Sheet, agent: &Agent, fields: &Fields<'_>) {
    let runs = agent.tools.iter().any(|tool| tool == SHELL);
    if !runs || is_unwalled(agent) {
        return;
    }
    if let Some(at) = fields.get("sandbox").or_else(|| fields.get("tools")) {
        let message = "`shell` needs a sandbox, and this build can't make one yet: only \
                       `sandbox: { isolation: none }`, which runs commands without walls";
        sheet.not_yet(at.place, message);
    }
}
