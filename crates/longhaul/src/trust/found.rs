//! Finds everything that a project would do on its own.
//!
//! Never: what its owner set elsewhere. A setting of the user's own file is no
//! stranger's.

use std::collections::BTreeSet;

use longhaul_engine::agent::Agent;
use longhaul_engine::agent::wish::Eye;
use longhaul_tool::message::Deliver;
use serde_json::Value as Json;

use crate::config::key::DELIVER;
use crate::config::settings::Config;
use crate::config::value::{Origin, Value};
use crate::mcp::file::McpFile;
use crate::mcp::name::named;
use crate::trust::sends;
use crate::trust::thing::{Kind, Thing};

/// The tool whose messages may be handed to a program.
pub const SENDER: &str = "send_message";

/// Everything that would be run, each with the agents that would have it run.
pub fn things(config: &Config, file: &McpFile, agents: &[&Agent]) -> Vec<Thing> {
    let mut things = Vec::new();
    if let Some(thing) = Thing::mcp(file) {
        let asks = |agent: &&&Agent| agent.tools.iter().any(|tool| named(tool).is_some());
        let used_by = agents.iter().filter(asks).map(|agent| name(agent));
        things.push(Thing {
            used_by: used_by.collect(),
            ..thing
        });
    }
    for agent in agents {
        let Some(Eye::Command(words)) = agent.perception.as_ref().map(|sight| &sight.eye) else {
            continue;
        };
        let thing = Thing::command(Kind::Perception, &config.root, words);
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
    if let Some(words) = stranger_s_deliver(config) {
        let sends = |agent: &&&Agent| agent.tools.iter().any(|tool| tool == SENDER);
        let used_by = agents.iter().filter(sends).map(|agent| name(agent));
        things.push(Thing {
            used_by: used_by.collect(),
            ..Thing::command(Kind::Deliver, &config.root, &words)
        });
    }
    things.extend(providers(config, agents));
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

/// The program that messages are handed to, where the project itself names one.
pub fn stranger_s_deliver(config: &Config) -> Option<Vec<String>> {
    let setting = config.settings.get(DELIVER)?;
    match &setting.origin {
        Origin::ProjectFile(..) => {}
        Origin::Default | Origin::UserFile(..) | Origin::Environment(_) | Origin::Flag(_) => {
            return None;
        }
    }
    let Value::Any(Json::String(deliver)) = &setting.value else {
        return None;
    };
    match deliver.parse().ok()? {
        Deliver::Command(words) => Some(words),
        Deliver::File(_) | Deliver::Webhook(_) => None,
    }
}
