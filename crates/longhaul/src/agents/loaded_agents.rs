//! The agents of a project, as far as they can be used, and why the others can't.
//!
//! Never: reads a file.

use std::path::{Path, PathBuf};

use longhaul_core::suggest;
use longhaul_engine::agent::{Agent, AgentRegistry};

use crate::agents::problem::Problem;

/// Where an agent comes from, the strongest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AgentSource {
    /// The project's `agents/`.
    Project,
    /// The project's `.claude/agents/`.
    Claude,
    /// The binary.
    BuiltIn,
}

impl AgentSource {
    /// The source's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Project => "project",
            Self::Claude => "claude",
            Self::BuiltIn => "built-in",
        }
    }
}

/// An agent that can be used.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadedAgent {
    /// What the file says.
    pub agent: Agent,
    /// The file.
    pub path: PathBuf,
    /// Where it comes from.
    pub source: AgentSource,
    /// How the file was understood, where that is not plain from reading it.
    pub notes: Vec<String>,
}

/// An agent that can't be used; the problems of its file say why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokenAgent {
    /// Its name.
    pub name: String,
    /// The file.
    pub path: PathBuf,
    /// Where it comes from.
    pub source: AgentSource,
}

/// An agent that nobody gets, since a stronger one has its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HiddenAgent {
    /// Its name.
    pub name: String,
    /// Its file.
    pub path: PathBuf,
    /// Where it comes from.
    pub source: AgentSource,
    /// The file that hides it.
    pub hidden_by: PathBuf,
}

/// All agents, by name.
#[derive(Debug, Clone, Default)]
pub struct LoadedAgents {
    /// Those that can be used.
    pub agents: Vec<LoadedAgent>,
    /// Those that can't.
    pub broken: Vec<BrokenAgent>,
    /// Every problem of every file.
    pub problems: Vec<Problem>,
    /// What files name and is not there: it keeps no agent from being used, but
    /// its runs would wait for it.
    pub missing: Vec<Problem>,
    /// Those that are hidden by others.
    pub hidden: Vec<HiddenAgent>,
    /// What there is to say of files that are no agents.
    pub notes: Vec<(PathBuf, String)>,
    /// The file of the project's rules, where it can't be read: no agent is used
    /// without them.
    pub unreadable_rules: Option<PathBuf>,
    /// Files that agents name and that are part of what they are.
    pub files: Vec<PathBuf>,
}

/// Why an agent can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AgentError {
    /// There is none of this name.
    #[error("{0}")]
    Unknown(String),
    /// Its file has problems.
    #[error("the agent `{name}` can't be used:\n{}", .problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Broken {
        /// Its name.
        name: String,
        /// What is wrong.
        problems: Vec<Problem>,
    },
}

impl LoadedAgents {
    /// The agent of this name, or why it can't be used.
    ///
    /// # Errors
    /// There is none of this name, or its file has problems.
    pub fn find(&self, name: &str) -> Result<&LoadedAgent, AgentError> {
        let found = self.agents.iter().find(|one| one.agent.name.as_str() == name);
        found.ok_or_else(|| match self.broken.iter().find(|one| one.name == name) {
            Some(broken) => AgentError::Broken {
                name: name.to_owned(),
                problems: self.problems_in(&broken.path).cloned().collect(),
            },
            None => AgentError::Unknown(suggest::unknown_message("agent", name, &self.names())),
        })
    }

    /// What keeps the agent of this file from being used.
    pub fn problems_in<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = &'a Problem> {
        self.problems.iter().filter(move |problem| {
            problem.path == path || self.unreadable_rules.as_ref() == Some(&problem.path)
        })
    }

    /// What the file of this agent names and is not there.
    pub fn missing_for<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Problem> {
        let used = self.agents.iter();
        let used = used.map(|one| (one.agent.name.as_str(), &one.path));
        let broken = self.broken.iter().map(|one| (one.name.as_str(), &one.path));
        let mut files = used.chain(broken);
        let file = files.find(|(other, _)| *other == name).map(|(_, file)| file);
        let lacks = self.missing.iter();
        lacks.filter(move |problem| Some(&problem.path) == file)
    }

    /// The agents that can be used, as the engine takes them.
    pub fn registry(&self) -> AgentRegistry {
        let mut roster = AgentRegistry::default();
        for one in &self.agents {
            roster.register(one.agent.clone());
        }
        roster
    }

    fn names(&self) -> Vec<&str> {
        let usable = self.agents.iter().map(|one| one.agent.name.as_str());
        let broken = self.broken.iter().map(|one| one.name.as_str());
        usable.chain(broken).collect()
    }
}
