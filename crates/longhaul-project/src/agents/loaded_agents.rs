//! The loaded agents of a project: usable agents, invalid agents, and agents hidden by another one
//! with the same name.

use std::path::{Path, PathBuf};

use longhaul_core::suggest;
use longhaul_engine::agent::{Agent, AgentRegistry};
use serde::Serialize;

use crate::agents::problem::AgentFileProblem;
use crate::chains::LoadedChains;

/// Where an agent comes from. The variants are in order of precedence, highest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AgentSource {
    /// A file in the project's folder `agents/`.
    Project,
    /// A file in the project's folder `.claude/agents/`.
    Claude,
    /// An agent that is part of the binary.
    BuiltIn,
}

impl AgentSource {
    /// Returns the name of the place where the agent comes from, such as `project`, for output.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Project => "project",
            Self::Claude => "claude",
            Self::BuiltIn => "built-in",
        }
    }
}

/// A usable agent, with the file that defines it.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadedAgent {
    pub agent: Agent,
    /// Path of the agent's file.
    pub path: PathBuf,
    /// Where the agent's file was found.
    pub source: AgentSource,
    /// Remarks about how the agent's file was interpreted, where that is not obvious.
    pub notes: Vec<String>,
}

/// An agent whose file is invalid, so it can't be used. `LoadedAgents::problems` has the reasons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokenAgent {
    /// Name of the invalid agent.
    pub name: String,
    /// Path of the invalid agent's file.
    pub path: PathBuf,
    /// Where the invalid agent's file was found.
    pub source: AgentSource,
}

/// An agent that is not used because an agent of higher precedence has the same name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ShadowedAgent {
    /// Name of the agent that is not used.
    pub name: String,
    /// Path of the file of the agent that is not used.
    pub path: PathBuf,
    /// Where the file of the agent that is not used was found.
    pub source: AgentSource,
    /// Path of the file that is used instead, because it has higher precedence.
    pub hidden_by: PathBuf,
}

/// All agents of a project, sorted by name.
#[derive(Debug, Clone, Default)]
pub struct LoadedAgents {
    /// Usable agents.
    pub agents: Vec<LoadedAgent>,
    /// Agents whose files are invalid.
    pub broken: Vec<BrokenAgent>,
    /// Problems that make agent files invalid.
    pub problems: Vec<AgentFileProblem>,
    /// References in agent files to things that do not exist, such as MCP servers. The agents can
    /// be used, but their runs wait until the things exist.
    pub missing_references: Vec<AgentFileProblem>,
    /// Agents that are not used because an agent of higher precedence has the same name.
    pub hidden: Vec<ShadowedAgent>,
    /// Remarks about files that are not agents, with the path of each file.
    pub notes: Vec<(PathBuf, String)>,
    /// Path of the project rules (`AGENTS.md` or `CLAUDE.md`) if that file can't be read. Then no agent can be
    /// used.
    pub unreadable_rules: Option<PathBuf>,
    /// Names of the MCP servers that agent files could refer to.
    pub mcp_servers: Vec<String>,
    /// Files that are part of the definition of an agent, such as output schemas.
    pub files: Vec<PathBuf>,
    /// Chains of the project: sequences of steps that the agents execute.
    pub chains: LoadedChains,
}

/// Reason why a named agent can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AgentError {
    /// There is no agent with the requested name. The text is the complete message.
    #[error("{0}")]
    Unknown(String),
    /// The file of the agent has problems.
    #[error("the agent `{name}` can't be used:\n{}", .problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Broken {
        /// Name of the agent that can't be used.
        name: String,
        /// Problems of the agent's file.
        problems: Vec<AgentFileProblem>,
    },
}

impl LoadedAgents {
    /// Returns the agent with this name.
    ///
    /// # Errors
    /// There is no agent with this name, or its file has problems.
    pub fn find_loaded_agent(&self, name: &str) -> Result<&LoadedAgent, AgentError> {
        let found = self.agents.iter().find(|one| one.agent.name.as_str() == name);
        found.ok_or_else(|| match self.broken.iter().find(|one| one.name == name) {
            Some(broken) => AgentError::Broken {
                name: name.to_owned(),
                problems: self.problems_in(&broken.path).cloned().collect(),
            },
            None => AgentError::Unknown(suggest::unknown_name_message(
                "agent",
                name,
                &self.agent_names(),
            )),
        })
    }

    /// Returns the problems because of which the agent in the file `path` can't be used.
    pub fn problems_in<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = &'a AgentFileProblem> {
        self.problems.iter().filter(move |problem| {
            problem.path == path || self.unreadable_rules.as_ref() == Some(&problem.path)
        })
    }

    /// Returns the references of this agent to things that do not exist.
    pub fn missing_references_of_agent<'a>(
        &'a self,
        name: &'a str,
    ) -> impl Iterator<Item = &'a AgentFileProblem> {
        let usable = self.agents.iter();
        let usable = usable.map(|one| (one.agent.name.as_str(), &one.path));
        let broken = self.broken.iter().map(|one| (one.name.as_str(), &one.path));
        let mut files = usable.chain(broken);
        let file = files.find(|(other, _)| *other == name).map(|(_, file)| file);
        let problems = self.missing_references.iter();
        problems.filter(move |problem| Some(&problem.path) == file)
    }

    /// Returns a registry of the usable agents, for the engine.
    pub fn to_agent_registry(&self) -> AgentRegistry {
        let mut agents = AgentRegistry::default();
        for one in &self.agents {
            agents.register(one.agent.clone());
        }
        agents
    }

    /// Returns the names of all agents, including those that can't be used.
    pub fn agent_names(&self) -> Vec<&str> {
        let usable = self.agents.iter().map(|one| one.agent.name.as_str());
        let broken = self.broken.iter().map(|one| one.name.as_str());
        usable.chain(broken).collect()
    }
}
