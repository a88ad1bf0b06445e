//! Asks before a storm is let loose on what is not a rehearsal.
//!
//! Never: takes silence, or a missing terminal, for a yes.

use longhaul::assemble::ProjectRuntime;
use longhaul_engine::agent::Agent;
use longhaul_engine::tool_registry::RegisteredTool;

use crate::chaos::verify::call_history::PROBE_PREFIX;
use crate::error::CliError;
use crate::exit::Exit;
use crate::output;

/// Tools that stay in the storm's own folder.
const LOCAL_TOOLS: &[&str] = &["vault_read", "vault_write", "vault_list", "read_output"];

/// Returns if the storm may begin.
pub(crate) fn confirm(house: &ProjectRuntime, agent: &Agent, yes: bool) -> anyhow::Result<()> {
    let concerns = find_concerns(house, agent);
    if concerns.is_empty() || yes {
        return Ok(());
    }
    output::stderr_line(&format!("`{}` is no rehearsal:", agent.name));
    for concern in &concerns {
        output::stderr_line(&format!("  {concern}"));
    }
    let agrees = |line: String| matches!(line.trim(), "y" | "yes");
    if output::is_interactive() && output::prompt("Begin all the same? [y/N]").is_some_and(agrees) {
        return Ok(());
    }
    let command = format!("longhaul chaos --yes {} ...", agent.name);
    Err(CliError::usage("nothing was begun")
        .with_exit(Exit::NotAllowed)
        .hint("begin all the same", command)
        .hint("or storm the built-in project", "longhaul chaos")
        .into())
}

fn find_concerns(house: &ProjectRuntime, agent: &Agent) -> Vec<String> {
    let models = house.config.model_aliases();
    let named: Vec<String> = match agent.models.as_slice() {
        // A key in the environment is enough for a model of its provider's.
        [] => match house.longhaul.services().models.resolve(None) {
            Ok(found) => vec![found.name],
            Err(_) => models.default.iter().cloned().collect(),
        },
        several => several.to_vec(),
    };
    let real = named
        .iter()
        .map(|name| models.aliases.get(name).unwrap_or(name))
        .filter(|name| !name.starts_with("scripted/"))
        .map(|name| format!("{name} is asked for real, and again after many a kill"));
    let outside = agent
        .tools
        .iter()
        .filter(|tool| !LOCAL_TOOLS.contains(&tool.as_str()) && !is_control(house, tool))
        .filter(|tool| !tool.starts_with(PROBE_PREFIX))
        .map(|tool| format!("{tool} may act on the world outside the storm's folder"));
    real.chain(outside).collect()
}

/// Whether a tool never executes: it asks, waits or ends.
fn is_control(house: &ProjectRuntime, tool: &str) -> bool {
    let equipped = house.longhaul.services().tools.find(tool);
    equipped.is_some_and(RegisteredTool::is_control)
}
