//! The definition of an agent as plain data: prompt, models, tools and policies.
//!
//! The definition is stored as the canonical JSON of an [`Agent`], and the hash of that JSON is the
//! agent's version. Model adapters, keys and tool code are not part of the definition: they are
//! looked up when a worker claims a run.
//!
//! The directory of the agents, chains and default policies of this process is shared by handles
//! (which submit tasks) and drivers (which execute runs and start child runs).

pub mod check;
pub mod config;
pub mod template_check;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use longhaul_core::chain::ChainSpec;
use longhaul_core::change::{Blob, LANE_DEPTH_MAX};
use longhaul_core::event::run::CompactionPolicy;
use longhaul_core::id::AgentName;
use longhaul_core::policy::budget::Budget;
use longhaul_core::policy::effect::{EffectClass, InDoubtPolicy};
use longhaul_core::policy::gate::{GateRule, GateTimeout, ResultApprovalGate};
use longhaul_core::policy::retry::RetryPolicy;
use longhaul_core::policy::{LaneBusyPolicy, ParkedLanePolicy, RunPolicy};
use longhaul_core::raw::{Hash, RawJson, canonical_json, is_default};
use longhaul_core::suggest::most_similar_name;
use longhaul_core::time::Millis;
use serde::{Deserialize, Serialize};

use crate::agent::config::{
    ChildRunsConfig, GradingConfig, LoopGuardConfig, PerceptionConfig, PerceptionInterval,
    SandboxConfig, Skill,
};

pub use longhaul_core::policy::budget::BudgetPatch;

/// Complete definition of an agent, as its file sets it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Agent {
    /// Name of the agent, unique in the project.
    pub name: AgentName,
    /// One-sentence description of the agent's purpose.
    pub description: String,
    /// Models as `provider/model` or alias, tried in this order. An empty list means the project's
    /// default model.
    pub models: Vec<String>,
    /// Whether tasks are forbidden to choose another model, because the agent is a handler (a
    /// function of the program) and uses no model.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub fixed_model: bool,
    /// Models for runs that an `idle_tick` event (sent to an agent that has nothing else to do)
    /// starts, tried in this order. An empty list means the idle model of the agent's provider, or
    /// else `models`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub idle_models: Vec<String>,
    /// Names of the tools that the agent may use, as Longhaul (not the model API) spells them.
    pub tools: Vec<String>,
    /// Names in `tools` whose tools are deferred: the model knows only their names and the first
    /// lines of their descriptions until it loads them with `find_tools`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deferred_tools: Vec<String>,
    /// Names of context values that the runtime injects into tool calls. The model can neither see
    /// nor set them.
    pub context: Vec<String>,
    /// Budget caps of the agent, which override those of the project.
    pub budget: BudgetPatch,
    /// Retry settings of the agent, which override those of the project.
    pub retry: RetryPatch,
    /// Maximum number of turns per run. `None` means no limit.
    pub max_turns: Option<u32>,
    /// Rules that decide which tool calls a person must approve. The first matching rule wins.
    pub rules: Vec<GateRule>,
    /// Rules that set the effect class (whether a call may be repeated) or the effect key of tool
    /// calls. The class overrides what the tools declare.
    pub effects: Vec<EffectRule>,
    /// What to do with a call in doubt (started, outcome unknown after a crash) if no rule covers
    /// it.
    pub in_doubt: Option<InDoubtPolicy>,
    /// Gate at which a person must approve the final answer before it is accepted. `None` means
    /// that no approval is needed.
    pub result_gate: Option<ResultApprovalGate>,
    /// Rubric against which the result is graded before it is accepted. `None` means that it is not
    /// graded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<GradingConfig>,
    /// Time within which questions, requests for help and signals of the agent must be answered.
    /// `None` means the default of the project.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub question_timeout: Option<GateTimeout>,
    /// How long a run that would complete stays open for follow-up messages. `None` means not at
    /// all.
    pub keep_open: Option<Millis>,
    /// Template for the name of the lane of the agent's runs, with the values `input` and
    /// `context`. Only one run of a lane is driven at a time. `None` means that the agent sets no
    /// lane.
    pub lane: Option<String>,
    /// Whether a run that waits (is parked) keeps or releases its lane.
    pub lane_on_park: ParkedLanePolicy,
    /// What happens with a new task whose lane is busy.
    #[serde(skip_serializing_if = "is_default")]
    pub lane_busy: LaneBusyPolicy,
    /// Child runs that the agent may start with the tool `run_agent`.
    #[serde(skip_serializing_if = "is_default")]
    pub children: ChildRunsConfig,
    /// Skills that the agent may read, with the name and description from their files.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<Skill>,
    /// Settings of the sandbox in which the agent's commands run. `None` if the agent file has
    /// none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxConfig>,
    /// Settings of the loop guard, which warns the model and then ends a run that repeats itself.
    /// `None` means the defaults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guards: Option<LoopGuardConfig>,
    /// When the conversation is compacted (its older part replaced by a summary), and what the
    /// summary keeps. `None` means the defaults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compaction: Option<CompactionPolicy>,
    /// Context provider, which supplies the current state of what the agent works with, such as a
    /// shop. `None` means that the agent has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub perception: Option<PerceptionConfig>,
    /// JSON Schema of the agent's result. `None` means that the result is free text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<RawJson>,
    /// Templates of the texts that describe an event to the model, by kind of event.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub events: BTreeMap<String, String>,
    /// Instructions from the `AGENTS.md` file of the project folder, for all agents.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub project_rules: String,
    /// Template of the system prompt, with the values `input`, `context`, `perception` and
    /// `memory`.
    pub prompt: String,
}

/// Rule that sets the effect class of matching tool calls (whether a call may be repeated), their
/// effect key (calls with the same key take effect at most once), or both.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectRule {
    /// Glob for the names of tools to which the rule applies.
    pub tool: String,
    /// Glob that every rule match text of the call, such as its path or command, must match. `None`
    /// matches every call.
    #[serde(default, rename = "match")]
    pub match_glob: Option<String>,
    /// Effect class (whether a call may be repeated after a crash) of calls that match the rule.
    /// `None` means the class that the tool declares.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<EffectClass>,
    /// Template of the effect key of calls that match the rule, with the values `input` and
    /// `context`. Calls with the same key take effect at most once over all runs. `None` means that
    /// the rule sets no key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// Retry settings that override other settings. A setting that is `None` overrides nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RetryPatch {
    /// Maximum number of retries of a run after its first attempt. `None` leaves it unchanged.
    pub max_retries: Option<u32>,
    /// Delay before the first retry of a run. `None` leaves it unchanged.
    pub initial_delay: Option<Millis>,
    /// Maximum delay before a retry of a run. `None` leaves it unchanged.
    pub max_delay: Option<Millis>,
    /// Factor in percent by which the delay grows with each retry. `None` leaves it unchanged.
    pub multiplier_percent: Option<u32>,
    /// Active time (while a worker drives the run) after which an attempt of a run is reported as
    /// overdue. `None` leaves it unchanged.
    pub soft_timeout: Option<Millis>,
    /// Active time (while a worker drives the run) after which an attempt of a run is ended. `None`
    /// leaves it unchanged.
    pub hard_timeout: Option<Millis>,
    /// Maximum time for which a run waits for a provider that is unavailable. `None` leaves it
    /// unchanged.
    pub outage: Option<Millis>,
}

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

impl RetryPatch {
    /// Returns `retry`, with every setting that this patch sets replaced by the setting of the
    /// patch.
    pub fn apply_to_retry_policy(self, retry: RetryPolicy) -> RetryPolicy {
        RetryPolicy {
            max_retries: self.max_retries.unwrap_or(retry.max_retries),
            initial_delay: self.initial_delay.unwrap_or(retry.initial_delay),
            max_delay: self.max_delay.unwrap_or(retry.max_delay),
            multiplier_percent: self.multiplier_percent.unwrap_or(retry.multiplier_percent),
            soft_timeout: self.soft_timeout.or(retry.soft_timeout),
            hard_timeout: self.hard_timeout.or(retry.hard_timeout),
            outage: self.outage.unwrap_or(retry.outage),
        }
    }
}

/// Default time that a run with `lane_busy: collect` waits after the last message before it starts.
const COLLECT_WINDOW: Millis = Millis::from_secs(1);

/// Budget, retry policy and gate timeout of runs for which neither the agent nor the task sets any,
/// and the limits of lanes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RunPolicyDefaults {
    /// Budget caps of runs without caps of their own.
    pub budget: Budget,
    /// Retry policy of runs without a policy of their own.
    pub retry: RetryPolicy,
    /// Time within which gates must be answered, if the agent's file sets none.
    pub gate_timeout: GateTimeout,
    /// Maximum number of runs in one lane.
    pub lane_depth_max: u32,
    /// How long a run that collects messages (`lane_busy: collect`) waits after the last message
    /// before it starts.
    pub collect_window: Millis,
}

impl Default for RunPolicyDefaults {
    fn default() -> Self {
        Self {
            budget: Budget::PROJECT_DEFAULT,
            retry: RetryPolicy::default(),
            gate_timeout: GateTimeout::default(),
            lane_depth_max: LANE_DEPTH_MAX,
            collect_window: COLLECT_WINDOW,
        }
    }
}

impl Agent {
    /// Creates an agent with this name and defaults for everything else.
    pub fn new(name: AgentName) -> Self {
        Self { name, ..Self::default() }
    }

    /// Returns the model that a task names for a run of this agent: `scripted` alone stands for the
    /// script with the agent's name.
    pub fn requested_model(&self, name: &str) -> String {
        match name {
            "scripted" => format!("scripted/{}", self.name),
            name => name.to_owned(),
        }
    }

    /// Returns the canonical JSON of the agent, which is hashed and stored.
    pub fn definition_blob(&self) -> Blob {
        let value = serde_json::to_value(self).unwrap_or_default();
        Blob::new(canonical_json(&value).into_bytes())
    }

    /// Returns the agent's version: the hash of its definition.
    pub fn definition_hash(&self) -> Hash {
        self.definition_blob().hash()
    }

    /// Parses an agent from the bytes of its definition.
    pub fn parse_agent_definition(definition: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(definition)
    }

    /// Returns whether the agent may start child runs of the agent with this name.
    pub fn may_start_agent(&self, name: &str) -> bool {
        let allowed = &self.children.agents;
        allowed.is_empty() || allowed.iter().any(|listed| listed == name)
    }

    /// Returns the policy of the agent's runs: `defaults`, overridden by the agent, overridden by
    /// the budget caps of the task.
    pub fn run_policy(&self, defaults: &RunPolicyDefaults, task_budget: BudgetPatch) -> RunPolicy {
        // What is not set has the default value already.
        let project = Some(defaults.gate_timeout);
        let project = project.filter(|timeout| *timeout != GateTimeout::default());
        let (mut rules, mut result_gate) = (self.rules.clone(), self.result_gate.clone());
        let rule_timeouts = rules.iter_mut().map(|rule| &mut rule.timeout);
        for timeout in rule_timeouts.chain(result_gate.as_mut().map(|gate| &mut gate.timeout)) {
            *timeout = timeout.or(project);
        }
        let interval = self.perception.as_ref().map(|perception| perception.every);
        RunPolicy {
            budget: task_budget.apply_to_budget(self.budget.apply_to_budget(defaults.budget)),
            retry: self.retry.apply_to_retry_policy(defaults.retry),
            max_turns: self.max_turns,
            rules,
            in_doubt: self.in_doubt,
            result_gate,
            question_timeout: self.question_timeout.or(project),
            outcome_rounds: self.outcome.as_ref().map(|outcome| outcome.max_rounds),
            keep_open: self.keep_open,
            lane_on_park: self.lane_on_park,
            children_on_cancel: self.children.on_cancel,
            refresh_perception_each_turn: interval == Some(PerceptionInterval::Turn),
        }
    }
}

/// The agents that this process knows, by name.
#[derive(Debug, Clone, Default)]
pub struct AgentRegistry(BTreeMap<AgentName, std::sync::Arc<Agent>>);

impl AgentRegistry {
    /// Adds an agent, replacing an existing agent with the same name.
    pub fn register(&mut self, agent: Agent) {
        self.0.insert(agent.name.clone(), std::sync::Arc::new(agent));
    }

    pub fn find_agent(&self, name: &str) -> Option<&std::sync::Arc<Agent>> {
        self.0.iter().find(|(key, _)| key.as_str() == name).map(|(_, agent)| agent)
    }

    /// Iterates over all agents in the order of their names.
    pub fn agents(&self) -> impl Iterator<Item = &std::sync::Arc<Agent>> {
        self.0.values()
    }

    /// Returns the registered agent name that is most similar to `name`, for error messages. `None`
    /// if no registered name is similar.
    pub fn find_similar_agent_name(&self, name: &str) -> Option<&str> {
        most_similar_name(name, self.0.keys().map(AgentName::as_str))
    }
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

#[cfg(test)]
mod tests {
    use longhaul_core::policy::budget::BudgetRaise;

    use super::*;

    fn test_agent() -> Agent {
        Agent { prompt: "You tidy.".into(), ..Agent::new(AgentName::new("tidy").unwrap()) }
    }

    #[test]
    fn an_agent_definition_round_trips() {
        let agent = test_agent();
        assert_eq!(Agent::parse_agent_definition(&agent.definition_blob().content).unwrap(), agent);
        assert_eq!(agent.definition_hash(), agent.definition_blob().hash());
        let other = Agent { prompt: "You tidy!".into(), ..agent.clone() };
        assert_ne!(agent.definition_hash(), other.definition_hash());
    }

    #[test]
    fn budget_caps_of_a_task_override_those_of_agent_and_project() {
        let turns = |turns| BudgetPatch {
            caps: BudgetRaise { turns: Some(turns), ..BudgetRaise::default() },
            warn_percent: None,
        };
        let agent = Agent { budget: turns(7), ..test_agent() };
        let policy = agent.run_policy(&RunPolicyDefaults::default(), BudgetPatch::default());
        assert_eq!(policy.budget.turns, Some(7));
        assert_eq!(policy.budget.micro_usd, Budget::PROJECT_DEFAULT.micro_usd);
        let policy = agent.run_policy(&RunPolicyDefaults::default(), turns(9));
        assert_eq!(policy.budget.turns, Some(9));
    }

    #[test]
    fn a_misspelled_agent_name_gets_a_suggestion() {
        let mut registry = AgentRegistry::default();
        registry.register(test_agent());
        assert_eq!(registry.find_similar_agent_name("tidi"), Some("tidy"));
        assert_eq!(registry.find_similar_agent_name("research"), None);
    }
}
