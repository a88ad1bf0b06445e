//! Checks an agent that a program wrote in Rust, by the rules and in the sentences that hold for
//! one in a file.
//!
//! Never: reads a file.

use longhaul_engine::agent::Agent;

use crate::agents::load_context::LoadContext;
use crate::agents::output;
use crate::agents::shell_check;
use crate::agents::template::{self, AllowedNames, LANE_NAMES, prompt_names};
use crate::agents::tools;

/// Everything that is wrong with the agent. Normalizes its output schema as for files.
pub(crate) fn check(agent: &mut Agent, shelf: &LoadContext<'_>) -> Vec<String> {
    let mut problems = Vec::new();
    for tool in &agent.tools {
        // Servers are not looked for again after this.
        let problem = tools::tool_name_error(tool, tool, shelf)
            .or_else(|| tools::missing_server(tool, shelf));
        problems.extend(problem);
    }
    problems.extend(shell_check::shell_error(agent).map(str::to_owned));
    let names = prompt_names(agent.perception.is_some());
    let prompt = [("the prompt", &agent.prompt, AllowedNames::Only(&names))];
    let lane = agent.lane.iter();
    let lane = lane.map(|lane| ("`lane`", lane, AllowedNames::Only(LANE_NAMES)));
    let events = agent.events.values();
    let events = events.map(|text| ("`events`", text, AllowedNames::Any));
    for (what, text, names) in prompt.into_iter().chain(lane).chain(events) {
        if let Some(fault) = template::find_error(text, names) {
            problems.push(format!("{what}:{}: {}", fault.position, fault.message));
        }
    }
    if let Some(schema) = &agent.output {
        match output::validate(schema.to_value()) {
            Ok(schema) => agent.output = Some(schema),
            Err(why) => problems.push(format!("the output schema {why}")),
        }
    }
    problems
}
