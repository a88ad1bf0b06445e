//! The agents and chains of this process and its default policies, shared by handles (which submit
//! tasks) and drivers (which execute runs and start child runs).

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use longhaul_core::chain::ChainSpec;
use longhaul_core::suggest::most_similar_name;

use crate::agent::{Agent, AgentRegistry, RunPolicyDefaults};

/// Chains by name.
pub type ChainRegistry = BTreeMap<String, Arc<ChainSpec>>;

/// Known name that is most similar to an unknown name. `None` if no known name is similar enough.
pub type SimilarName = Option<String>;

/// The agents and chains of this process and its default policies. Cheap to clone; clones share the agents
/// and chains.
#[derive(Debug, Clone, Default)]
pub struct AgentDirectory {
    agents: Arc<RwLock<AgentRegistry>>,
    chains: Arc<RwLock<ChainRegistry>>,
    /// Policies of runs for which neither the agent nor the task sets any.
    pub(crate) defaults: RunPolicyDefaults,
}

impl AgentDirectory {
    pub fn new(agents: AgentRegistry, defaults: RunPolicyDefaults) -> Self {
        Self { agents: Arc::new(RwLock::new(agents)), defaults, ..Self::default() }
    }

    /// Adds an agent, replacing an existing agent with the same name.
    pub(crate) fn register(&self, agent: Agent) {
        self.agents.write().unwrap_or_else(PoisonError::into_inner).register(agent);
    }

    pub(crate) fn replace_agents(&self, agents: AgentRegistry) {
        *self.agents.write().unwrap_or_else(PoisonError::into_inner) = agents;
    }

    /// Replaces all chains (sequences of runs that work on one task, with conditions between them).
    pub(crate) fn replace_chains(&self, chains: ChainRegistry) {
        *self.chains.write().unwrap_or_else(PoisonError::into_inner) = chains;
    }

    /// Returns all chains by name.
    pub(crate) fn chains(&self) -> ChainRegistry {
        self.chains.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the chain with this name. The error is the most similar name, if there is one.
    pub(crate) fn get_chain(&self, name: &str) -> Result<Arc<ChainSpec>, SimilarName> {
        let chains = self.chains();
        let similar =
            || most_similar_name(name, chains.keys().map(String::as_str)).map(str::to_owned);
        chains.get(name).cloned().ok_or_else(similar)
    }

    /// Returns all agents in the order of their names.
    pub(crate) fn agents(&self) -> Vec<Arc<Agent>> {
        let agents = self.agents.read().unwrap_or_else(PoisonError::into_inner);
        agents.agents().cloned().collect()
    }

    /// Returns the agent with this name. The error is the most similar agent name, if there is one.
    pub(crate) fn get_agent(&self, name: &str) -> Result<Arc<Agent>, SimilarName> {
        let agents = self.agents.read().unwrap_or_else(PoisonError::into_inner);
        match agents.find_agent(name) {
            Some(agent) => Ok(Arc::clone(agent)),
            None => Err(agents.find_similar_agent_name(name).map(str::to_owned)),
        }
    }
}
