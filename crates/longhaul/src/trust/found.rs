//! Finds everything that a project would do on its own.
//!
//! Never: what its owner set elsewhere. A setting of the user's own file is no
//! stranger's.

use std::collections::BTreeSet;

use longhaul_engine::agent::Agent;
use longhaul_engine::agent::wish::{Eye, Isolation, Sandboxed, Skill};

use crate::agents::loaded::{Loaded, LoadedAgent, Source};
use crate::config::settings::Config;
use crate::mcp::file::McpFile;
use crate::mcp::name::named;
use crate::trust::sends;
use crate::trust::thing::{Kind, Thing};

/// The tool whose messages may be handed to a program.
pub const SENDER: &str = "send_message";

/// The tool that runs commands.
pub const SHELL: &str = "shell";

/// The tool that asks addresses.
const FETCH: &str = "http_fetch";

/// Everything that would be run, each with the agents that would have it run.
pub fn things(config: &Config, file: &McpFile, loaded: &Loaded) -> Vec<Thing> {
    let agents: Vec<&Agent> = loaded.agents.iter().map(|one| &one.agent).collect();
    let mut things = Vec::new();
    if let Some(thing) = Thing::mcp(file) {
        let asks = |agent: &&&Agent| agent.tools.iter().any(|tool| named(tool).is_some());
        let used_by = agents.iter().filter(asks).map(|agent| name(agent));
        things.push(Thing {
            used_by: used_by.collect(),
            ..thing
        });
    }
    for agent in &agents {
        let thing = match agent.perception.as_ref().map(|sight| &sight.eye) {
            Some(Eye::Command(words)) => Thing::command(Kind::Perception, &config.root, words),
            Some(Eye::Url(url)) => sends::perception(url),
            Some(Eye::Named(_)) | None => continue,
        };
        let known = things
            .iter_mut()
            .find(|known| known.kind == thing.kind && known.name == thing.name);
        match known {
            Some(known) => known.used_by.push(name(agent)),
            None => things.push(Thing {
                used_by: vec![name(agent)],
                ..thing
            }),
        }
    }
    let with = |thing: Thing, uses: &dyn Fn(&Agent) -> bool| {
        let used_by = agents.iter().filter(|agent| uses(agent));
        Thing {
            used_by: used_by.map(|agent| name(agent)).collect(),
            ..thing
        }
    };
    let has = |agent: &Agent, name: &str| agent.tools.iter().any(|tool| tool == name);
    let deliver = sends::deliver(config);
    let deliver = deliver.and_then(|deliver| sends::delivery(&config.root, &deliver));
    things.extend(deliver.map(|thing| with(thing, &|agent| has(agent, SENDER))));
    things.extend(providers(config, &agents));
    things.extend(sends::server(config));
    let asks = |agent: &Agent| {
        let eye = agent.perception.as_ref().map(|sight| &sight.eye);
        has(agent, FETCH) || has(agent, SENDER) || matches!(eye, Some(Eye::Url(_)))
    };
    things.extend(sends::outbound(config).map(|thing| with(thing, &asks)));
    things.extend(unwalled(loaded).map(|one| {
        let mut thing = shell(&one.agent);
        thing
            .shown
            .push(format!("  as {} says", one.path.display()));
        thing
    }));
    things
}

/// The providers that would be sent what is yours, each with the agents that name
/// it, or that name none and take what there is.
fn providers(config: &Config, agents: &[&Agent]) -> Vec<Thing> {
    let names = config.below("providers");
    let names = names.filter_map(|(path, _)| path.split('.').next());
    let names: BTreeSet<&str> = names.collect();
    let models = config.models();
    let means = |named: &String, provider: &str| {
        let look = |named: &String| models.names.get(named).cloned();
        let meant = look(named).unwrap_or_else(|| named.clone());
        let meant = look(&meant).unwrap_or(meant);
        meant.split_once('/').is_some_and(|(of, _)| of == provider)
    };
    let asks = |agent: &Agent, provider: &str| {
        let mut named = agent.models.iter().chain(&agent.idle_models);
        let takes = || match &models.default {
            Some(default) => means(default, provider),
            None => true,
        };
        named.any(|named| means(named, provider)) || (agent.models.is_empty() && takes())
    };
    let things = names.into_iter().filter_map(|provider| {
        let used_by = agents.iter().filter(|agent| asks(agent, provider));
        Some(Thing {
            used_by: used_by.map(|agent| name(agent)).collect(),
            ..sends::provider(config, provider)?
        })
    });
    things.collect()
}

fn name(agent: &Agent) -> String {
    agent.name.to_string()
}

/// The agents of the project itself that may run commands without walls.
fn unwalled(loaded: &Loaded) -> impl Iterator<Item = &LoadedAgent> {
    let is_open = |wish: &Sandboxed| wish.isolation == Isolation::None;
    loaded.agents.iter().filter(move |one| {
        let runs = one.agent.tools.iter().any(|tool| tool == SHELL);
        let is_open = one.agent.sandbox.as_ref().is_some_and(is_open);
        one.source != Source::BuiltIn && runs && is_open
    })
}

/// What has to be trusted before this agent runs a command: all that its own file
/// says. The rules of the folder are no part of that file, and of a skill only its
/// name is.
pub fn shell(agent: &Agent) -> Thing {
    let skills = agent.skills.iter().map(|skill| Skill {
        name: skill.name.clone(),
        description: String::new(),
    });
    let own = Agent {
        house_rules: String::new(),
        skills: skills.collect(),
        ..agent.clone()
    };
    let name = name(agent);
    let shown = vec![format!(
        "agent {name} may run commands on this machine without walls"
    )];
    let words = [own.version().to_string()];
    let words = words.each_ref().map(String::as_str);
    Thing {
        used_by: vec![name.clone()],
        ..Thing::said(Kind::Shell, &format!("{SHELL}:{name}"), &words, shown)
    }
}
