//! Everything that a project would do on its own. What the user set elsewhere is no part of it.

use std::collections::BTreeSet;

use longhaul_engine::agent::Agent;
use longhaul_engine::agent::config::{
    Isolation, PerceptionConfig, PerceptionSource, SandboxConfig, Skill,
};

use crate::agents::loaded_agents::{AgentSource, LoadedAgent, LoadedAgents};
use crate::config::settings::Config;
use crate::mcp::file::McpFile;
use crate::mcp::name::parse_tool_name;
use crate::trust::egress;
use crate::trust::item::{TrustItem, TrustKind};

/// The tool whose messages may be handed to a program.
pub const SEND_MESSAGE_TOOL: &str = "send_message";

/// The tool that runs commands.
pub const SHELL_TOOL: &str = "shell";

/// The tool that asks addresses.
const HTTP_FETCH_TOOL: &str = "http_fetch";

/// Everything that would be done, each item with the agents that would have it done.
pub fn discover(config: &Config, file: &McpFile, loaded: &LoadedAgents) -> Vec<TrustItem> {
    let agents: Vec<&Agent> = loaded.agents.iter().map(|one| &one.agent).collect();
    let users = |uses: &dyn Fn(&Agent) -> bool| -> Vec<String> {
        let used_by = agents.iter().filter(|agent| uses(agent));
        used_by.map(|agent| agent.name.to_string()).collect()
    };
    let mut items = Vec::new();
    let asks_server =
        |agent: &Agent| agent.tools.iter().any(|tool| parse_tool_name(tool).is_some());
    items.extend(TrustItem::mcp(file).map(|item| item.with_users(users(&asks_server))));
    for agent in &agents {
        let Some(item) = agent.perception.as_ref().and_then(|sight| perception_item(config, sight))
        else {
            continue;
        };
        if !items.iter().any(|known: &TrustItem| known.title == item.title) {
            let eye = |one: &Agent| one.perception.as_ref().map(|sight| sight.source.clone());
            items.push(item.with_users(users(&|other| eye(other) == eye(agent))));
        }
    }
    let has = |agent: &Agent, name: &str| agent.tools.iter().any(|tool| tool == name);
    let deliver = egress::project_delivery_target(config);
    let deliver = deliver.and_then(|deliver| egress::delivery_item(&config.root, &deliver));
    let sends_message = |agent: &Agent| has(agent, SEND_MESSAGE_TOOL);
    items.extend(deliver.map(|item| item.with_users(users(&sends_message))));
    let names = config.settings_below("providers");
    let names: BTreeSet<&str> = names.filter_map(|(path, _)| path.split('.').next()).collect();
    for provider in names {
        let item = egress::provider_item(config, provider);
        let asks = |agent: &Agent| uses_provider(config, agent, provider);
        items.extend(item.map(|item| item.with_users(users(&asks))));
    }
    items.extend(egress::server_item(config));
    let asks_address = |agent: &Agent| {
        let eye = agent.perception.as_ref().map(|sight| &sight.source);
        has(agent, HTTP_FETCH_TOOL)
            || has(agent, SEND_MESSAGE_TOOL)
            || matches!(eye, Some(PerceptionSource::Url(_)))
    };
    items.extend(egress::outbound_item(config).map(|item| item.with_users(users(&asks_address))));
    items.extend(unsandboxed_agents(loaded).map(|one| {
        let mut item = shell_item(&one.agent);
        item.lines.push(format!("  as {} says", one.path.display()));
        item
    }));
    items
}

fn perception_item(config: &Config, sight: &PerceptionConfig) -> Option<TrustItem> {
    match &sight.source {
        PerceptionSource::Command(words) => Some(TrustItem::perception(&config.root, words)),
        PerceptionSource::Url(url) => Some(egress::perception_item(url)),
        PerceptionSource::Named(_) => None,
    }
}

/// Whether an agent names a model of this provider, or names none and takes what there is.
fn uses_provider(config: &Config, agent: &Agent, provider: &str) -> bool {
    let models = config.model_aliases();
    let means = |name: &String| {
        let look = |name: &String| models.aliases.get(name).cloned();
        let meant = look(name).unwrap_or_else(|| name.clone());
        let meant = look(&meant).unwrap_or(meant);
        meant.split_once('/').is_some_and(|(of, _)| of == provider)
    };
    let takes_default = || models.default.as_ref().is_none_or(means);
    let mut named = agent.models.iter().chain(&agent.idle_models);
    named.any(means) || (agent.models.is_empty() && takes_default())
}

/// The agents of the project itself that may run commands without a sandbox.
fn unsandboxed_agents(loaded: &LoadedAgents) -> impl Iterator<Item = &LoadedAgent> {
    let is_open = |wish: &SandboxConfig| wish.isolation == Isolation::None;
    loaded.agents.iter().filter(move |one| {
        let runs = one.agent.tools.iter().any(|tool| tool == SHELL_TOOL);
        let is_open = one.agent.sandbox.as_ref().is_some_and(is_open);
        one.source != AgentSource::BuiltIn && runs && is_open
    })
}

/// What has to be trusted before this agent runs a command: all that its own file says. `AGENTS.md`
/// is no part of that file, and of a skill only its name is.
pub fn shell_item(agent: &Agent) -> TrustItem {
    let skills = agent
        .skills
        .iter()
        .map(|skill| Skill { name: skill.name.clone(), description: String::new() });
    let own = Agent { project_rules: String::new(), skills: skills.collect(), ..agent.clone() };
    let agent = agent.name.to_string();
    let name = format!("{SHELL_TOOL}:{agent}");
    let title = format!("the tool `{SHELL_TOOL}` of agent `{agent}`");
    let line = format!("agent {agent} may run commands on this machine without walls");
    TrustItem::new(TrustKind::Shell, &name, title, &[&own.version().to_string()])
        .with_lines([line])
        .with_users(vec![agent])
}
