//! Checks an agent that a program defines in Rust, by the same rules and with the same messages as
//! agent files.

use longhaul_core::glob;
use longhaul_engine::agent::Agent;
use longhaul_engine::agent::config::GradingConfig;

use crate::agents::load_context::AgentLoadContext;
use crate::agents::shell_check;
use crate::agents::template::{
    self, AllowedTemplateVariables, LANE_VARIABLES, prompt_variable_names,
};
use crate::agents::tools;
use crate::agents::{outcome, output};

/// Returns all problems of the agent. Converts its output schema to canonical JSON, as for agent
/// files.
pub(crate) fn check_agent_and_canonicalize_schema(
    agent: &mut Agent,
    ctx: &AgentLoadContext<'_>,
) -> Vec<String> {
    let mut problems = Vec::new();
    for tool in &agent.tools {
        // Missing servers are an error here, since they are not checked again later.
        let problem = tools::tool_name_error(tool, tool, ctx)
            .or_else(|| tools::missing_mcp_server_message(tool, ctx));
        problems.extend(problem);
    }
    problems.extend(shell_check::missing_sandbox_error(agent).map(str::to_owned));
    let rules = agent.rules.iter().map(|rule| ("approve", &rule.tool, &rule.match_glob));
    let effects = agent.effects.iter().map(|rule| ("effects", &rule.tool, &rule.match_glob));
    for (field, tool, match_glob) in rules.chain(effects) {
        let errors =
            match_glob.iter().chain([tool]).filter_map(|glob| glob::check_length(glob).err());
        problems.extend(errors.map(|reason| format!("`{field}`: {reason}")));
    }
    let names = prompt_variable_names(agent.perception.is_some());
    let prompt = [("the prompt", &agent.prompt, AllowedTemplateVariables::Only(&names))];
    let lane = agent.lane.iter();
    let lane = lane.map(|lane| ("`lane`", lane, AllowedTemplateVariables::Only(LANE_VARIABLES)));
    let events = agent.events.values();
    let events = events.map(|text| ("`events`", text, AllowedTemplateVariables::Any));
    for (template_name, text, names) in prompt.into_iter().chain(lane).chain(events) {
        if let Some(error) = template::find_template_error(text, names) {
            problems.push(format!("{template_name}:{}: {}", error.position, error.message));
        }
    }
    if let Some(schema) = &agent.output {
        match output::validate_output_schema(schema.to_value()) {
            Ok(schema) => agent.output = Some(schema),
            Err(reason) => problems.push(format!("`output`: {reason}")),
        }
    }
    if let Some(GradingConfig { rubric, max_rounds, .. }) = &agent.outcome {
        problems.extend(outcome::rubric_error(rubric).map(|reason| format!("`outcome`: {reason}")));
        if !(1..=GradingConfig::MAX_ROUNDS_MAX).contains(max_rounds) {
            let max = GradingConfig::MAX_ROUNDS_MAX;
            problems.push(format!("`outcome`: `max_rounds` must be 1 to {max}"));
        }
    }
    problems
}
