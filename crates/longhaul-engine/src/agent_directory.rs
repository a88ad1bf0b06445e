//! The agents of this process and its default policies, shared by handles and drivers: handles submit
//! tasks of agents, drivers start child runs of them.

use std::sync::{Arc, PoisonError, RwLock};

use crate::agent::{Agent, AgentRegistry, RunPolicyDefaults};

/// The agents of this process and its default policies. Cheap to clone; clones share the agents.
#[derive(Debug, Clone, Default)]
pub struct AgentDirectory {
    agents: Arc<RwLock<AgentRegistry>>,
    /// Policies of runs for which neither the agent nor the task sets any.
    pub(crate) defaults: RunPolicyDefaults,
}

impl AgentDirectory {
    /// Creates a directory with these agents and default policies.
    pub fn new(agents: AgentRegistry, defaults: RunPolicyDefaults) -> Self {
        Self { agents: Arc::new(RwLock::new(agents)), defaults }
    }

    /// Adds an agent, replacing an existing agent with the same name.
    pub(crate) fn register(&self, agent: Agent) {
        self.agents.write().unwrap_or_else(PoisonError::into_inner).register(agent);
    }

    /// Replaces all agents.
    pub(crate) fn replace_agents(&self, agents: AgentRegistry) {
        *self.agents.write().unwrap_or_else(PoisonError::into_inner) = agents;
    }

    /// Returns all agents in the order of their names.
    pub(crate) fn agents(&self) -> Vec<Arc<Agent>> {
        let agents = self.agents.read().unwrap_or_else(PoisonError::into_inner);
        agents.agents().cloned().collect()
    }

    /// Returns the agent with this name. The error is the most similar agent name, if there is one.
    pub(crate) fn get_agent(&self, name: &str) -> Result<Arc<Agent>, Option<String>> {
        let agents = self.agents.read().unwrap_or_else(PoisonError::into_inner);
        match agents.find_agent(name) {
            Some(agent) => Ok(Arc::clone(agent)),
            None => Err(agents.find_similar_name(name).map(str::to_owned)),
        }
    }
}
