//! Asks before a storm is let loose on what is not a rehearsal.
//!
//! Never: takes silence, or a missing terminal, for a yes.

use longhaul::assemble::House;
use longhaul_engine::agent::Agent;
use longhaul_engine::toolbox::Equipped;

use crate::chaos::judge::life::WITNESS;
use crate::error::CliError;
use crate::exit::Exit;
use crate::say;

/// Tools that stay in the storm's own folder.
const INSIDE: &[&str] = &["vault_read", "vault_write", "vault_list", "read_output"];

/// Returns if the storm may begin.
pub(crate) fn ask(house: &House, agent: &Agent, yes: bool) -> anyhow::Result<()> {
    let concerns = concerns(house, agent);
    if concerns.is_empty() || yes {
        return Ok(());
    }
    say::talk(&format!("`{}` is no rehearsal:", agent.name));
    for concern in &concerns {
        say::talk(&format!("  {concern}"));
    }
    let agrees = |line: String| matches!(line.trim(), "y" | "yes");
    if say::is_somebody_there() && say::ask("Begin all the same? [y/N]").is_some_and(agrees) {
        return Ok(());
    }
    let command = format!("longhaul chaos --yes {} ...", agent.name);
    Err(CliError::usage("nothing was begun")
        .exit(Exit::NotAllowed)
        .hint("begin all the same", command)
        .hint("or storm the built-in project", "longhaul chaos")
        .into())
}

fn concerns(house: &House, agent: &Agent) -> Vec<String> {
    let models = house.config.models();
    let named: Vec<String> = match agent.models.as_slice() {
        // A key in the environment is enough for a model of its provider's.
        [] => match house.longhaul.ports().models.find(None) {
            Ok(found) => vec![found.name],
            Err(_) => models.default.iter().cloned().collect(),
        },
        several => several.to_vec(),
    };
    let real = named
        .iter()
        .map(|name| models.names.get(name).unwrap_or(name))
        .filter(|name| !name.starts_with("scripted/"))
        .map(|name| format!("{name} is asked for real, and again after many a kill"));
    let outside = agent
        .tools
        .iter()
        .filter(|tool| !INSIDE.contains(&tool.as_str()) && !is_control(house, tool))
        .filter(|tool| !tool.starts_with(WITNESS))
        .map(|tool| format!("{tool} may act on the world outside the storm's folder"));
    real.chain(outside).collect()
}

/// Whether a tool never executes: it asks, waits or ends.
fn is_control(house: &House, tool: &str) -> bool {
    let equipped = house.longhaul.ports().tools.find(tool);
    equipped.is_some_and(Equipped::is_control)
}
