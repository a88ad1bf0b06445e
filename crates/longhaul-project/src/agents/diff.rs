//! Compares the agents of a project before and after a reload, and describes each change in one
//! line.

use crate::agents::load;
use crate::agents::loaded_agents::{LoadedAgent, LoadedAgents};
use crate::agents::problem::AgentFileProblem;

/// Differences between the agents before and after a reload.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct AgentChanges {
    /// Messages about new, changed and removed agents.
    pub messages: Vec<String>,
    /// Problems that the agents did not have before the reload.
    pub problems: Vec<AgentFileProblem>,
}

impl AgentChanges {
    /// Whether the reload changed nothing.
    pub const fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.problems.is_empty()
    }
}

/// Returns the first eight characters of an agent version (the hash of the agent's definition), for
/// display.
pub fn short_agent_version(definition_hash: &longhaul_core::raw::Hash) -> String {
    let mut version = definition_hash.to_string();
    version.truncate(8);
    version
}

/// Compares the agents before a reload with those after it.
pub fn compare_agents(before: &LoadedAgents, now: &LoadedAgents) -> AgentChanges {
    let mut messages = Vec::new();
    let rules =
        |loaded: &LoadedAgents| loaded.agents.first().map(|one| one.agent.project_rules.clone());
    let rules_changed = matches!((rules(before), rules(now)), (Some(old), Some(new)) if old != new);
    if rules_changed {
        let count = now.agents.len();
        let files = load::RULES_FILES[..2].join(" or ");
        messages.push(format!(
            "{files} changed: {count} agents have new versions; existing runs keep the old one"
        ));
    }
    for one in &now.agents {
        match find_agent(before, one.agent.name.as_str()) {
            None => messages.push(describe_agent_change(one, "is ready")),
            Some(old) if old.agent.definition_hash() == one.agent.definition_hash() => {}
            Some(old) if rules_changed && differs_only_in_agents_md(old, one) => {}
            Some(_) => messages.push(format!(
                "{}; existing runs keep the old version",
                describe_agent_change(one, "changed")
            )),
        }
    }
    let still_exists = |name: &str| {
        find_agent(now, name).is_some() || now.broken.iter().any(|broken| broken.name == name)
    };
    let previous = before.agents.iter();
    for one in previous.filter(|one| !still_exists(one.agent.name.as_str())) {
        let (path, name) = (one.path.display(), &one.agent.name);
        messages.push(format!("{path} was removed: no new runs of `{name}` can start"));
    }
    let new_problems = now.problems.iter();
    let new_problems = new_problems.filter(|problem| !before.problems.contains(problem));
    AgentChanges { messages, problems: new_problems.cloned().collect() }
}

fn find_agent<'a>(loaded: &'a LoadedAgents, name: &str) -> Option<&'a LoadedAgent> {
    let mut agents = loaded.agents.iter();
    agents.find(|one| one.agent.name.as_str() == name)
}

/// Returns a message such as `agents/a.md changed: version 1234abcd`.
fn describe_agent_change(agent: &LoadedAgent, change: &str) -> String {
    let (path, version) =
        (agent.path.display(), short_agent_version(&agent.agent.definition_hash()));
    format!("{path} {change}: version {version}")
}

fn differs_only_in_agents_md(old: &LoadedAgent, new: &LoadedAgent) -> bool {
    let mut old_with_new_rules = old.agent.clone();
    old_with_new_rules.project_rules.clone_from(&new.agent.project_rules);
    old_with_new_rules == new.agent
}
