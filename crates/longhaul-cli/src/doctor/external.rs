//! Checks of `longhaul doctor` about what agents use outside of the project: models and MCP servers.

use std::collections::BTreeMap;

use longhaul_engine::agent::Agent;
use longhaul_project::agents::loaded_agents::{AgentSource, LoadedAgents};
use longhaul_project::assemble::project_model_resolver;
use longhaul_project::config::settings::Config;
use longhaul_project::mcp::file::McpFile;
use longhaul_project::mcp::name::{ALL_SERVERS, split_mcp_server_and_tool};

use crate::doctor::finding::{Finding, FindingStatus, agent_names};
use crate::environment;
use crate::format::count_with_noun;
use crate::mcp::ask;

/// Checks that each model of the project's agents has a key or a script. No provider is contacted.
pub(super) fn check_models(config: &Config, loaded: &LoadedAgents) -> Finding {
    let resolver = project_model_resolver(config, &environment::system_clock());
    let mut unusable: BTreeMap<String, Vec<&Agent>> = BTreeMap::new();
    let mut usable = Vec::new();
    for agent in own_agents(loaded) {
        let names: Vec<Option<&str>> = match agent.models.is_empty() {
            true => vec![None],
            false => agent.models.iter().map(|name| Some(name.as_str())).collect(),
        };
        for name in names {
            match resolver.resolve_model_name(name) {
                Ok(model) if !usable.contains(&model.name) => usable.push(model.name),
                Ok(_) => {}
                Err(error) => {
                    let name = name.map_or_else(String::new, |name| format!("`{name}`: "));
                    unusable.entry(format!("{name}{error}")).or_default().push(agent);
                }
            }
        }
    }
    if usable.is_empty() && unusable.is_empty() {
        // A project without agents of its own uses the built-in ones.
        match resolver.resolve_model_name(None) {
            Ok(model) => usable.push(model.name),
            Err(error) => return Finding::new("models", FindingStatus::Warning, error.to_string()),
        }
    }
    let notes: Vec<String> = unusable
        .iter()
        .map(|(reason, agents)| format!("used by {}: {reason}", agent_names(agents)))
        .collect();
    let status = if notes.is_empty() { FindingStatus::Ok } else { FindingStatus::Problem };
    let message = match notes.is_empty() {
        true => format!(
            "{} with a key or a script; `longhaul models check` contacts their providers",
            count_with_noun(usable.len(), "model")
        ),
        false => format!(
            "{} of the agents can't be called: see `longhaul models`",
            count_with_noun(notes.len(), "model")
        ),
    };
    Finding { notes, ..Finding::new("models", status, message) }
}

/// Starts the trusted MCP servers and asks them for their tools. `None` means that there are no
/// servers.
pub(super) fn check_mcp_servers(
    config: &Config,
    loaded: &LoadedAgents,
) -> anyhow::Result<Option<Finding>> {
    let file = McpFile::load(config);
    if let Some(problem) = file.problems.first() {
        let message = format!("{problem}: fix the file, see `longhaul mcp ls`");
        return Ok(Some(Finding::new("mcp", FindingStatus::Problem, message)));
    }
    let answers = ask::ask_trusted_servers(|_| true)?;
    if answers.is_empty() {
        return Ok(None);
    }
    let (mut notes, mut is_needed) = (Vec::new(), false);
    for (name, answer) in &answers {
        let Err(reason) = answer else { continue };
        let users: Vec<&Agent> =
            own_agents(loaded).filter(|agent| uses_server(agent, name)).collect();
        is_needed |= !users.is_empty();
        notes.push(match users.is_empty() {
            true => format!("`{name}`: {reason}"),
            false => format!("`{name}`, used by {}: {reason}", agent_names(&users)),
        });
    }
    let status = match (notes.is_empty(), is_needed) {
        (true, _) => FindingStatus::Ok,
        (false, true) => FindingStatus::Problem,
        (false, false) => FindingStatus::Warning,
    };
    let ready = answers.len() - notes.len();
    let message = format!("{ready} of {} respond", count_with_noun(answers.len(), "server"));
    Ok(Some(Finding { notes, ..Finding::new("mcp", status, message) }))
}

fn uses_server(agent: &Agent, name: &str) -> bool {
    let servers = agent.tools.iter().filter_map(|tool| split_mcp_server_and_tool(tool));
    let mut servers = servers.map(|(server, _)| server);
    servers.any(|server| server == name || server == ALL_SERVERS)
}

fn own_agents(loaded: &LoadedAgents) -> impl Iterator<Item = &Agent> {
    let own = loaded.agents.iter().filter(|one| one.source != AgentSource::BuiltIn);
    own.map(|one| &one.agent)
}
