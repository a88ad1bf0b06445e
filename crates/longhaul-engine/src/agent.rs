//! An agent as data: prompt, models, tools, policies. Its canonical bytes are
//! its definition, and the hash of those is its version.
//!
//! Never: what is not data. A model's adapter, a key or a tool's code is looked
//! up when a run is claimed.

pub mod config;

use std::collections::BTreeMap;

use longhaul_core::change::Blob;
use longhaul_core::id::AgentName;
use longhaul_core::policy::budget::{Budget, BudgetRaise};
use longhaul_core::policy::effect::{EffectClass, InDoubtPolicy};
use longhaul_core::policy::gate::{GateRule, ResultGate};
use longhaul_core::policy::retry::RetryPolicy;
use longhaul_core::policy::{LaneOnPark, Policy};
use longhaul_core::raw::{Hash, RawJson, canonical_json};
use longhaul_core::suggest::closest;
use longhaul_core::time::Millis;
use serde::{Deserialize, Serialize};

use crate::agent::config::{
    LoopGuardConfig, PerceptionConfig, PerceptionInterval, SandboxConfig, Skill,
};

/// Everything that defines an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Agent {
    /// Its name.
    pub name: AgentName,
    /// What it is for, in a sentence.
    #[serde(default)]
    pub description: String,
    /// Models as `provider/model` or short names, tried in order; empty: the project's.
    #[serde(default)]
    pub models: Vec<String>,
    /// Whether a task may name no other model: the agent is a function of a program.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fixed_model: bool,
    /// Models for runs that an `idle_tick` made, tried in order; empty: the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub idle_models: Vec<String>,
    /// The tools it may use, by our names.
    #[serde(default)]
    pub tools: Vec<String>,
    /// Names that the runtime injects and the model can neither see nor set.
    #[serde(default)]
    pub context: Vec<String>,
    /// Caps of its own.
    #[serde(default)]
    pub budget: BudgetPatch,
    /// Retries of its own.
    #[serde(default)]
    pub retry: RetryPatch,
    /// After so many turns a run of it ends.
    pub max_turns: Option<u32>,
    /// Which calls need a person; the first match wins.
    #[serde(default)]
    pub rules: Vec<GateRule>,
    /// What its calls do to the world, where it knows better than the tool.
    #[serde(default)]
    pub effects: Vec<EffectRule>,
    /// What happens to a call in doubt that no rule speaks of.
    pub in_doubt: Option<InDoubtPolicy>,
    /// The final answer is itself a gate.
    pub result_gate: Option<ResultGate>,
    /// A run that would end stays open for follow-ups this long.
    pub keep_open: Option<Millis>,
    /// The lane of its runs, a template over `input` and `context`.
    pub lane: Option<String>,
    /// What a parked run does with its lane.
    #[serde(default)]
    pub lane_on_park: LaneOnPark,
    /// The skills it may read, as their files introduce themselves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<Skill>,
    /// Where its commands run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxConfig>,
    /// When it is told, or stopped, because it turns in circles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guards: Option<LoopGuardConfig>,
    /// Who looks at the world for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub perception: Option<PerceptionConfig>,
    /// The JSON Schema of its result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<RawJson>,
    /// What the model reads of an event, by its kind: templates.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub events: BTreeMap<String, String>,
    /// The rules of the folder that it works in, as people wrote them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub project_rules: String,
    /// The system prompt, a template over `input`, `context`, `perception` and `memory`.
    #[serde(default)]
    pub prompt: String,
}

/// A word about what calls of a tool do, where the agent knows better.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectRule {
    /// A glob over the tool's name.
    pub tool: String,
    /// A glob over the call's subject; none matches every call.
    #[serde(default, rename = "match")]
    pub subject: Option<String>,
    /// What such a call does.
    pub class: EffectClass,
}

/// Caps that replace others where they are named.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BudgetPatch {
    /// The caps.
    pub caps: BudgetRaise,
    /// From this share on, in percent, the agent is told to wrap up.
    pub warn_percent: Option<u8>,
}

impl BudgetPatch {
    /// These caps over those.
    pub fn apply_to(self, budget: Budget) -> Budget {
        Budget {
            warn_percent: self.warn_percent.unwrap_or(budget.warn_percent),
            ..budget.with_raise(self.caps)
        }
    }
}

/// Retries that replace others where they are named.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RetryPatch {
    /// So many further attempts.
    pub max_retries: Option<u32>,
    /// Before the first of them.
    pub initial_delay: Option<Millis>,
    /// Never longer.
    pub max_delay: Option<Millis>,
    /// Longer by this factor each time, in hundredths.
    pub multiplier_percent: Option<u32>,
    /// After this much active time an attempt is called overdue.
    pub soft_timeout: Option<Millis>,
    /// After this much active time an attempt ends.
    pub hard_timeout: Option<Millis>,
}

impl RetryPatch {
    /// These over those.
    pub fn apply_to(self, retry: RetryPolicy) -> RetryPolicy {
        RetryPolicy {
            max_retries: self.max_retries.unwrap_or(retry.max_retries),
            initial_delay: self.initial_delay.unwrap_or(retry.initial_delay),
            max_delay: self.max_delay.unwrap_or(retry.max_delay),
            multiplier_percent: self.multiplier_percent.unwrap_or(retry.multiplier_percent),
            soft_timeout: self.soft_timeout.or(retry.soft_timeout),
            hard_timeout: self.hard_timeout.or(retry.hard_timeout),
        }
    }
}

/// What binds a run where neither agent nor task says otherwise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Defaults {
    /// Caps.
    pub budget: Budget,
    /// Retries.
    pub retry: RetryPolicy,
}

impl Default for Defaults {
    fn default() -> Self {
        Self { budget: Budget::PROJECT_DEFAULT, retry: RetryPolicy::default() }
    }
}

impl Agent {
    /// An agent of this name that says nothing else.
    pub fn new(name: AgentName) -> Self {
        Self {
            name,
            description: String::new(),
            models: Vec::new(),
            fixed_model: false,
            idle_models: Vec::new(),
            tools: Vec::new(),
            context: Vec::new(),
            budget: BudgetPatch::default(),
            retry: RetryPatch::default(),
            max_turns: None,
            rules: Vec::new(),
            effects: Vec::new(),
            in_doubt: None,
            result_gate: None,
            keep_open: None,
            lane: None,
            lane_on_park: LaneOnPark::default(),
            skills: Vec::new(),
            sandbox: None,
            guards: None,
            perception: None,
            output: None,
            events: BTreeMap::new(),
            project_rules: String::new(),
            prompt: String::new(),
        }
    }

    /// Its bytes in the one form that is hashed and kept.
    pub fn definition(&self) -> Blob {
        let value = serde_json::to_value(self).unwrap_or_default();
        Blob::new(canonical_json(&value).into_bytes())
    }

    /// The hash of what defines it.
    pub fn version(&self) -> Hash {
        self.definition().hash()
    }

    /// The agent that these bytes define.
    pub fn parse(definition: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(definition)
    }

    /// What binds its runs, with the caps that a task names on top.
    pub fn policy(&self, defaults: &Defaults, task: BudgetPatch) -> Policy {
        Policy {
            budget: task.apply_to(self.budget.apply_to(defaults.budget)),
            retry: self.retry.apply_to(defaults.retry),
            max_turns: self.max_turns,
            rules: self.rules.clone(),
            in_doubt: self.in_doubt,
            result_gate: self.result_gate.clone(),
            keep_open: self.keep_open,
            lane_on_park: self.lane_on_park,
            refresh_perception_each_turn: self
                .perception
                .as_ref()
                .is_some_and(|sight| sight.every == PerceptionInterval::Turn),
        }
    }
}

/// The agents that this process knows by name.
#[derive(Debug, Clone, Default)]
pub struct AgentRegistry(BTreeMap<AgentName, std::sync::Arc<Agent>>);

impl AgentRegistry {
    /// Takes an agent in, in the place of one of the same name.
    pub fn register(&mut self, agent: Agent) {
        self.0.insert(agent.name.clone(), std::sync::Arc::new(agent));
    }

    /// The agent of this name.
    pub fn find(&self, name: &str) -> Option<&std::sync::Arc<Agent>> {
        self.0.iter().find(|(known, _)| known.as_str() == name).map(|(_, agent)| agent)
    }

    /// All of them, by name.
    pub fn all(&self) -> impl Iterator<Item = &std::sync::Arc<Agent>> {
        self.0.values()
    }

    /// The known name that is most like this one, if any is.
    pub fn suggest(&self, name: &str) -> Option<&str> {
        closest(name, self.0.keys().map(AgentName::as_str))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent() -> Agent {
        Agent { prompt: "You tidy.".into(), ..Agent::new(AgentName::new("tidy").unwrap()) }
    }

    #[test]
    fn an_agent_definition_round_trips() {
        let agent = agent();
        assert_eq!(Agent::parse(&agent.definition().content).unwrap(), agent);
        assert_eq!(agent.version(), agent.definition().hash());
        let other = Agent { prompt: "You tidy!".into(), ..agent.clone() };
        assert_ne!(agent.version(), other.version());
    }

    #[test]
    fn caps_of_a_task_override_the_agents_and_the_projects() {
        let turns = |turns| BudgetPatch {
            caps: BudgetRaise { turns: Some(turns), ..BudgetRaise::default() },
            warn_percent: None,
        };
        let agent = Agent { budget: turns(7), ..agent() };
        let policy = agent.policy(&Defaults::default(), BudgetPatch::default());
        assert_eq!(policy.budget.turns, Some(7));
        assert_eq!(policy.budget.micro_usd, Budget::PROJECT_DEFAULT.micro_usd);
        let policy = agent.policy(&Defaults::default(), turns(9));
        assert_eq!(policy.budget.turns, Some(9));
    }

    #[test]
    fn a_misspelled_agent_name_gets_a_suggestion() {
        let mut roster = AgentRegistry::default();
        roster.register(agent());
        assert_eq!(roster.suggest("tidi"), Some("tidy"));
        assert_eq!(roster.suggest("research"), None);
    }
}
