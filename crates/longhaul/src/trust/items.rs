//! Everything that a project would do on its own. What the user set elsewhere is no part of it.

use std::collections::BTreeSet;

use longhaul_engine::agent::Agent;
use longhaul_engine::agent::wish::{Eye, Isolation, Sandboxed, Sight, Skill};

use crate::agents::loaded::{Loaded, LoadedAgent, Source};
use crate::config::settings::Config;
use crate::mcp::file::McpFile;
use crate::mcp::name::named;
use crate::trust::item::{Item, Kind};
use crate::trust::sends;

/// The tool whose messages may be handed to a program.
pub const SENDER: &str = "send_message";

/// The tool that runs commands.
pub const SHELL: &str = "shell";

/// The tool that asks addresses.
const FETCH: &str = "http_fetch";

/// Everything that would be done, each item with the agents that would have it done.
pub fn items(config: &Config, file: &McpFile, loaded: &Loaded) -> Vec<Item> {
    let agents: Vec<&Agent> = loaded.agents.iter().map(|one| &one.agent).collect();
    let users = |uses: &dyn Fn(&Agent) -> bool| -> Vec<String> {
        let used_by = agents.iter().filter(|agent| uses(agent));
        used_by.map(|agent| agent.name.to_string()).collect()
    };
    let mut items = Vec::new();
    let asks_server = |agent: &Agent| agent.tools.iter().any(|tool| named(tool).is_some());
    items.extend(Item::mcp(file).map(|item| item.with_users(users(&asks_server))));
    for agent in &agents {
        let Some(item) = agent
            .perception
            .as_ref()
            .and_then(|sight| perception(config, sight))
        else {
            continue;
        };
        if !items.iter().any(|known: &Item| known.title == item.title) {
            let eye = |one: &Agent| one.perception.as_ref().map(|sight| sight.eye.clone());
            items.push(item.with_users(users(&|other| eye(other) == eye(agent))));
        }
    }
    let has = |agent: &Agent, name: &str| agent.tools.iter().any(|tool| tool == name);
    let deliver = sends::deliver(config);
    let deliver = deliver.and_then(|deliver| sends::delivery(&config.root, &deliver));
    let sends_message = |agent: &Agent| has(agent, SENDER);
    items.extend(deliver.map(|item| item.with_users(users(&sends_message))));
    let names = config.below("providers");
    let names: BTreeSet<&str> = names
        .filter_map(|(path, _)| path.split('.').next())
        .collect();
    for provider in names {
        let item = sends::provider(config, provider);
        let asks = |agent: &Agent| asks_provider(config, agent, provider);
        items.extend(item.map(|item| item.with_users(users(&asks))));
    }
    items.extend(sends::server(config));
    let asks_address = |agent: &Agent| {
        let eye = agent.perception.as_ref().map(|sight| &sight.eye);
        has(agent, FETCH) || has(agent, SENDER) || matches!(eye, Some(Eye::Url(_)))
    };
    items.extend(sends::outbound(config).map(|item| item.with_users(users(&asks_address))));
    items.extend(unsandboxed(loaded).map(|one| {
        let mut item = shell(&one.agent);
        item.shown.push(format!("  as {} says", one.path.display()));
        item
    }));
    items
}

fn perception(config: &Config, sight: &Sight) -> Option<Item> {
    match &sight.eye {
        Eye::Command(words) => Some(Item::perception(&config.root, words)),
        Eye::Url(url) => Some(sends::perception(url)),
        Eye::Named(_) => None,
    }
}

/// Whether an agent names a model of this provider, or names none and takes what there is.
fn asks_provider(config: &Config, agent: &Agent, provider: &str) -> bool {
    let models = config.models();
    let means = |name: &String| {
        let look = |name: &String| models.names.get(name).cloned();
        let meant = look(name).unwrap_or_else(|| name.clone());
        let meant = look(&meant).unwrap_or(meant);
        meant.split_once('/').is_some_and(|(of, _)| of == provider)
    };
    let takes_default = || models.default.as_ref().is_none_or(means);
    let mut named = agent.models.iter().chain(&agent.idle_models);
    named.any(means) || (agent.models.is_empty() && takes_default())
}

/// The agents of the project itself that may run commands without a sandbox.
fn unsandboxed(loaded: &Loaded) -> impl Iterator<Item = &LoadedAgent> {
    let is_open = |wish: &Sandboxed| wish.isolation == Isolation::None;
    loaded.agents.iter().filter(move |one| {
        let runs = one.agent.tools.iter().any(|tool| tool == SHELL);
        let is_open = one.agent.sandbox.as_ref().is_some_and(is_open);
        one.source != Source::BuiltIn && runs && is_open
    })
}

/// What has to be trusted before this agent runs a command: all that its own file says. `AGENTS.md`
/// is no part of that file, and of a skill only its name is.
pub fn shell(agent: &Agent) -> Item {
    let skills = agent.skills.iter().map(|skill| Skill {
        name: skill.name.clone(),
        description: String::new(),
    });
    let own = Agent {
        house_rules: String::new(),
        skills: skills.collect(),
        ..agent.clone()
    };
    let agent = agent.name.to_string();
    let name = format!("{SHELL}:{agent}");
    let title = format!("the tool `{SHELL}` of agent `{agent}`");
    let line = format!("agent {agent} may run commands on this machine without walls");
    Item::new(Kind::Shell, &name, title, &[&own.version().to_string()])
        .with_lines([line])
        .with_users(vec![agent])
}
