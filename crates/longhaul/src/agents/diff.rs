//! What became of the agents between two looks, in a line for each.
//!
//! Never: speaks of what stayed as it was.

use crate::agents::loaded_agents::{LoadedAgent, LoadedAgents};
use crate::agents::problem::Problem;
use crate::agents::project_rules;

/// What became of the agents.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct AgentChanges {
    /// What is new, for people.
    pub messages: Vec<String>,
    /// What is wrong and was not before.
    pub problems: Vec<Problem>,
}

impl AgentChanges {
    /// Nothing became of them.
    pub const fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.problems.is_empty()
    }
}

/// The first letters of a version, which are enough for eyes.
pub fn short_version(version: &longhaul_core::raw::Hash) -> String {
    let mut version = version.to_string();
    version.truncate(8);
    version
}

/// What became of the agents between these two looks.
pub fn changes(before: &LoadedAgents, now: &LoadedAgents) -> AgentChanges {
    let mut told = Vec::new();
    let rules =
        |loaded: &LoadedAgents| loaded.agents.first().map(|one| one.agent.project_rules.clone());
    let ruled = matches!((rules(before), rules(now)), (Some(old), Some(new)) if old != new);
    if ruled {
        let count = now.agents.len();
        let file = project_rules::RULES_FILE;
        told.push(format!(
            "{file} changed: {count} agents have new versions; runs under way keep theirs"
        ));
    }
    for one in &now.agents {
        match find_agent(before, one.agent.name.as_str()) {
            None => told.push(describe(one, "is ready")),
            Some(old) if old.agent.version() == one.agent.version() => {}
            Some(old) if ruled && differs_only_in_rules(old, one) => {}
            Some(_) => {
                told.push(format!("{}; runs under way keep theirs", describe(one, "changed")))
            }
        }
    }
    let known = |name: &str| {
        find_agent(now, name).is_some() || now.broken.iter().any(|broken| broken.name == name)
    };
    let gone = before.agents.iter();
    for one in gone.filter(|one| !known(one.agent.name.as_str())) {
        let (path, name) = (one.path.display(), &one.agent.name);
        told.push(format!("{path} is gone: there are no new runs of `{name}`"));
    }
    let new = now.problems.iter();
    let new = new.filter(|problem| !before.problems.contains(problem));
    AgentChanges { messages: told, problems: new.cloned().collect() }
}

fn find_agent<'a>(loaded: &'a LoadedAgents, name: &str) -> Option<&'a LoadedAgent> {
    let mut agents = loaded.agents.iter();
    agents.find(|one| one.agent.name.as_str() == name)
}

fn describe(one: &LoadedAgent, what: &str) -> String {
    let (path, version) = (one.path.display(), short_version(&one.agent.version()));
    format!("{path} {what}: version {version}")
}

fn differs_only_in_rules(old: &LoadedAgent, new: &LoadedAgent) -> bool {
    let mut ruled = old.agent.clone();
    ruled.project_rules.clone_from(&new.agent.project_rules);
    ruled == new.agent
}
