//! Finds all actions of a project that need trust. Settings that the user made outside the project
//! are not included.

use std::collections::BTreeSet;

use longhaul_engine::agent::Agent;
use longhaul_engine::agent::check::SHELL_TOOL;
use longhaul_engine::agent::config::{
    IsolationLevel, PerceptionConfig, PerceptionSource, SandboxConfig, Skill,
};

use crate::agents::loaded_agents::{AgentSource, LoadedAgent, LoadedAgents};
use crate::config::inbox_folders::inbox_folders;
use crate::config::settings::Config;
use crate::mcp::file::McpFile;
use crate::mcp::name::split_mcp_server_and_tool;
use crate::trust::egress;
use crate::trust::item::{TrustItem, TrustKind};

/// Name of the tool that sends messages to a file, a program or a URL.
pub const SEND_MESSAGE_TOOL: &str = "send_message";

/// Name of the tool that fetches URLs.
const HTTP_FETCH_TOOL: &str = "http_fetch";

/// Returns all items of a project that need trust, each with the agents that use it.
pub fn discover_trust_items(
    config: &Config,
    file: &McpFile,
    loaded: &LoadedAgents,
) -> Vec<TrustItem> {
    let agents: Vec<&Agent> = loaded.agents.iter().map(|one| &one.agent).collect();
    let matching_agent_names = |is_match: &dyn Fn(&Agent) -> bool| -> Vec<String> {
        let used_by = agents.iter().filter(|agent| is_match(agent));
        used_by.map(|agent| agent.name.to_string()).collect()
    };
    let mut items = Vec::new();
    let uses_mcp_server =
        |agent: &Agent| agent.tools.iter().any(|tool| split_mcp_server_and_tool(tool).is_some());
    items.extend(
        TrustItem::for_mcp_servers(file)
            .map(|item| item.with_used_by(matching_agent_names(&uses_mcp_server))),
    );
    for agent in &agents {
        let Some(item) = agent
            .perception
            .as_ref()
            .and_then(|perception| perception_trust_item(config, perception))
        else {
            continue;
        };
        if !items.iter().any(|existing: &TrustItem| existing.title == item.title) {
            let source =
                |one: &Agent| one.perception.as_ref().map(|perception| perception.source.clone());
            items.push(
                item.with_used_by(matching_agent_names(&|other| source(other) == source(agent))),
            );
        }
    }
    let has_tool = |agent: &Agent, name: &str| agent.tools.iter().any(|tool| tool == name);
    let deliver = egress::project_delivery_target(config);
    let deliver = deliver.and_then(|deliver| egress::delivery_trust_item(&config.root, &deliver));
    let sends_message = |agent: &Agent| has_tool(agent, SEND_MESSAGE_TOOL);
    items.extend(deliver.map(|item| item.with_used_by(matching_agent_names(&sends_message))));
    let names = config.settings_below("providers");
    let names: BTreeSet<&str> = names.filter_map(|(path, _)| path.split('.').next()).collect();
    for provider in names {
        let item = egress::provider_trust_item(config, provider);
        let is_user = |agent: &Agent| uses_provider(config, agent, provider);
        items.extend(item.map(|item| item.with_used_by(matching_agent_names(&is_user))));
    }
    items.extend(egress::server_trust_item(config));
    items.extend(inbox_folders(config).iter().filter_map(|folder| {
        Some(egress::folder_inbox_trust_item(folder.name.as_str(), folder.agent.as_deref()?))
    }));
    let sends_requests = |agent: &Agent| {
        let source = agent.perception.as_ref().map(|perception| &perception.source);
        has_tool(agent, HTTP_FETCH_TOOL)
            || has_tool(agent, SEND_MESSAGE_TOOL)
            || matches!(source, Some(PerceptionSource::Url(_)))
    };
    items.extend(
        egress::outbound_trust_item(config)
            .map(|item| item.with_used_by(matching_agent_names(&sends_requests))),
    );
    items.extend(unsandboxed_agents(loaded).map(|loaded_agent| {
        let mut item = shell_trust_item(&loaded_agent.agent);
        item.lines.push(format!("  defined in {}", loaded_agent.path.display()));
        item
    }));
    items
}

/// Returns the trust item of a perception command or URL, which returns data about the outside
/// world. `None` means a context provider that the program registers, which needs no trust.
fn perception_trust_item(config: &Config, perception: &PerceptionConfig) -> Option<TrustItem> {
    match &perception.source {
        PerceptionSource::Command(args) => {
            Some(TrustItem::for_perception_command(&config.root, args))
        }
        PerceptionSource::Url(url) => Some(egress::perception_url_trust_item(url)),
        PerceptionSource::Named(_) => None,
    }
}

/// Whether an agent uses a model of this provider, or names no model and may get one by default.
fn uses_provider(config: &Config, agent: &Agent, provider: &str) -> bool {
    let models = config.model_aliases();
    let is_of_provider = |name: &String| {
        let alias_target = |name: &String| models.aliases.get(name).cloned();
        let target = alias_target(name).unwrap_or_else(|| name.clone());
        let target = alias_target(&target).unwrap_or(target);
        target.split_once('/').is_some_and(|(name_provider, _)| name_provider == provider)
    };
    let uses_default_model = || models.default.as_ref().is_none_or(is_of_provider);
    let mut model_names = agent.models.iter().chain(&agent.idle_models);
    model_names.any(is_of_provider) || (agent.models.is_empty() && uses_default_model())
}

/// Returns the project's agents that may run unsandboxed commands.
fn unsandboxed_agents(loaded: &LoadedAgents) -> impl Iterator<Item = &LoadedAgent> {
    let is_open = |sandbox: &SandboxConfig| sandbox.isolation == IsolationLevel::None;
    loaded.agents.iter().filter(move |one| {
        let runs = one.agent.tools.iter().any(|tool| tool == SHELL_TOOL);
        let is_open = one.agent.sandbox.as_ref().is_some_and(is_open);
        one.source != AgentSource::BuiltIn && runs && is_open
    })
}

/// Returns the trust item that a person must approve before this agent runs a shell command. It
/// covers the content of the agent's own file, without `AGENTS.md`; of each skill it covers only
/// the name.
pub fn shell_trust_item(agent: &Agent) -> TrustItem {
    let skills = agent
        .skills
        .iter()
        .map(|skill| Skill { name: skill.name.clone(), description: String::new() });
    let agent_without_rules =
        Agent { project_rules: String::new(), skills: skills.collect(), ..agent.clone() };
    let agent = agent.name.to_string();
    let name = format!("{SHELL_TOOL}:{agent}");
    let title = format!("the tool `{SHELL_TOOL}` of agent `{agent}`");
    let line = format!("agent {agent} may run commands on this machine unsandboxed");
    TrustItem::new(
        TrustKind::Shell,
        &name,
        title,
        &[&agent_without_rules.definition_hash().to_string()],
    )
    .with_description_lines([line])
    .with_used_by(vec![agent])
}
