//! Asks for confirmation before a chaos test whose agent would have real effects.
//!
//! Invariant: neither silence nor a missing terminal counts as a yes.

use longhaul::assemble::ProjectRuntime;
use longhaul_engine::agent::Agent;
use longhaul_engine::tool_registry::RegisteredTool;

use crate::chaos::verify::call_history::PROBE_PREFIX;
use crate::error::CliError;
use crate::exit::Exit;
use crate::output;

/// Tools whose effects stay in the temporary folder of the chaos test.
const LOCAL_TOOLS: &[&str] = &["vault_read", "vault_write", "vault_list", "read_output"];

/// Fails if the agent has real effects and the user does not confirm the chaos test.
pub(crate) fn confirm_chaos_run(
    runtime: &ProjectRuntime,
    agent: &Agent,
    yes: bool,
) -> anyhow::Result<()> {
    let warnings = describe_effects_outside_test(runtime, agent);
    if warnings.is_empty() || yes {
        return Ok(());
    }
    output::eprint_line(&format!("`{}` would have real effects:", agent.name));
    for warning in &warnings {
        output::eprint_line(&format!("  {warning}"));
    }
    let is_yes = |line: String| matches!(line.trim(), "y" | "yes");
    if output::is_interactive() && output::ask_for_line("Start anyway? [y/N]").is_some_and(is_yes) {
        return Ok(());
    }
    let command = format!("longhaul chaos --yes {} ...", agent.name);
    Err(CliError::usage_error("the chaos run was not started")
        .with_exit_code(Exit::NotAllowed)
        .with_hint("start anyway", command)
        .with_hint("or use the built-in project", "longhaul chaos")
        .into())
}

/// Describes each real model and each tool of the agent that may have effects outside the chaos
/// test.
fn describe_effects_outside_test(runtime: &ProjectRuntime, agent: &Agent) -> Vec<String> {
    let models = runtime.config.model_aliases();
    let model_names: Vec<String> = match agent.models.as_slice() {
        // A key in the environment is enough to choose a real model by default.
        [] => match runtime.longhaul.services().models.resolve_model_name(None) {
            Ok(model) => vec![model.name],
            Err(_) => models.default.iter().cloned().collect(),
        },
        names => names.to_vec(),
    };
    let real_models = model_names
        .iter()
        .map(|name| models.aliases.get(name).unwrap_or(name))
        .filter(|name| !name.starts_with("scripted/"))
        .map(|name| format!("{name} is a real model; after a kill its calls may be repeated"));
    let external_effects = agent
        .tools
        .iter()
        .filter(|tool| {
            !LOCAL_TOOLS.contains(&tool.as_str()) && !is_tool_without_effects(runtime, tool)
        })
        .filter(|tool| !tool.starts_with(PROBE_PREFIX))
        .map(|tool| format!("{tool} may have effects outside the temporary folder"));
    real_models.chain(external_effects).collect()
}

/// Returns whether a tool only asks a person, waits or ends the run, and so has no effects of its
/// own.
fn is_tool_without_effects(runtime: &ProjectRuntime, tool: &str) -> bool {
    let registered = runtime.longhaul.services().tools.find_tool(tool);
    registered.is_some_and(RegisteredTool::is_control)
}
