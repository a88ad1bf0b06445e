//! Limits that a task passes only with an approver's key: the budgets of its agents, and limits in
//! dollars on models without a price.

use std::fmt;
use std::sync::Arc;

use longhaul_api::task::{ChainChoice, Task};
use longhaul_core::id::{AgentName, InboxName, RunId};
use longhaul_core::policy::budget::{Budget, BudgetCap};
use longhaul_core::port::model::ModelRequest;
use longhaul_core::raw::{RawJson, StoredText};
use longhaul_core::task::TaskSpec;
use longhaul_run::RUN_AGENT;
use longhaul_run::explain::dollars_text;
use longhaul_run::spend_caps::counts_call_in_dollars;

use crate::agent::{Agent, BudgetPatch};
use crate::drive::run_env::load_run_agent;
use crate::error::Error;
use crate::handle::Longhaul;
use crate::handle::chains::share_highest_caps;
use crate::handle::submit::DEFAULT_INBOX;
use crate::replay::replay_run_state;

/// A model without a price, and the limit in dollars that it would pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnpricedModel {
    /// Full name of the model.
    pub model: String,
    /// Description of the limit, such as a spend cap.
    pub limit: String,
}

impl fmt::Display for UnpricedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the model `{}` has no price, so {} can't limit it", self.model, self.limit)
    }
}

impl Longhaul {
    /// Returns the first of the task's agents that would get a higher budget than it has by itself,
    /// because the task asks for it or because it shares the budget of an agent of the same chain.
    /// The steps of a chain that has a name may share the highest of their budgets.
    pub fn agent_with_exceeded_budget(
        &self,
        agents: &[Arc<Agent>],
        task: &Task,
    ) -> Option<AgentName> {
        let budgets = |patch: BudgetPatch| -> Vec<Budget> {
            let defaults = &self.services.agents.defaults;
            agents.iter().map(|agent| agent.run_policy(defaults, patch).budget).collect()
        };
        let (mut own, mut requested) = (budgets(BudgetPatch::default()), budgets(task.budget));
        if let Some(chain) = &task.chain {
            share_highest_caps(requested.iter_mut());
            if matches!(chain, ChainChoice::Named(_)) {
                share_highest_caps(own.iter_mut());
            }
        }
        let mut pairs = agents.iter().zip(own.iter().zip(&requested));
        let exceeded = pairs.find(|(_, (own, requested))| exceeds_budget(requested, own));
        exceeded.map(|(agent, _)| agent.name.clone())
    }

    /// Returns a model of the task's agents, or of agents that they may start as child runs, that has
    /// no price although a limit in dollars applies: a spend cap, or the budget if the task itself
    /// asks for the budget or for the model. An agent whose file names both is the choice of its
    /// author.
    pub fn unpriced_model_under_limit(
        &self,
        agents: &[Arc<Agent>],
        task: &Task,
    ) -> Option<UnpricedModel> {
        let own = agents.iter().find_map(|agent| self.unpriced_model_of_agent(agent, task));
        // The model of the task is not that of its child runs.
        let task = Task { model: None, event: None, ..task.clone() };
        let of_child = |agent: &Arc<Agent>| self.unpriced_model_of_agent(agent, &task);
        own.or_else(|| self.agents_that_may_be_started(agents).iter().find_map(of_child))
    }

    /// Returns such a model of the retry of a failed run, which has the budget and the model of that
    /// run.
    pub async fn unpriced_model_of_retry(
        &self,
        run: RunId,
        by: &str,
    ) -> Result<Option<UnpricedModel>, Error> {
        let failed = self.run_to_retry(run).await?;
        let (folded, _) = replay_run_state(&self.services, failed).await?;
        let Ok(agent) = load_run_agent(&self.services, &folded).await? else { return Ok(None) };
        let spec = folded.task();
        let mut task = Task {
            model: spec.model.clone(),
            submitter: Some(by.to_owned()),
            actor: spec.actor.clone(),
            ..Task::new(agent.name.as_str(), RawJson::null())
        };
        let own = agent.run_policy(&self.services.agents.defaults, BudgetPatch::default()).budget;
        let caps = folded.control().budget.caps;
        task.budget.caps.micro_usd = caps.micro_usd.filter(|cap| own.micro_usd != Some(*cap));
        Ok(self.unpriced_model_under_limit(&[agent], &task))
    }

    /// Returns the agents that runs of these agents may start as child runs, and those that these
    /// may start.
    fn agents_that_may_be_started(&self, agents: &[Arc<Agent>]) -> Vec<Arc<Agent>> {
        let known = self.services.agents.agents();
        let mut found: Vec<Arc<Agent>> = Vec::new();
        let mut open = agents.to_vec();
        while let Some(agent) = open.pop() {
            let is_new = |child: &&Arc<Agent>| found.iter().all(|known| known.name != child.name);
            let children = known.iter().filter(|child| agent.may_start_agent(child.name.as_str()));
            let new: Vec<Arc<Agent>> = match agent.tools.iter().any(|tool| tool == RUN_AGENT) {
                true => children.filter(is_new).cloned().collect(),
                false => Vec::new(),
            };
            open.extend(new.iter().cloned());
            found.extend(new);
        }
        found
    }

    fn unpriced_model_of_agent(&self, agent: &Agent, task: &Task) -> Option<UnpricedModel> {
        let budget = agent.run_policy(&self.services.agents.defaults, task.budget).budget;
        let relies_on_budget = task.budget.caps.micro_usd.is_some() || task.model.is_some();
        let budget = budget.micro_usd.filter(|_| relies_on_budget);
        if budget.is_none() && self.services.caps.is_empty() {
            return None;
        }
        let spec = TaskSpec {
            submitter: task.submitter.clone(),
            charged_to: task.charged_to.clone(),
            actor: task.actor.clone(),
            ..TaskSpec::new(
                RunId::from_bits(0),
                agent.name.clone(),
                RawJson::null(),
                InboxName::new(DEFAULT_INBOX).ok()?,
            )
        };
        self.models_without_price(agent, task).into_iter().find_map(|model| {
            let mut caps = self.services.caps.iter();
            let cap = caps.find(|cap| counts_call_in_dollars(cap, &spec, &model));
            let limit = match (cap, budget) {
                (Some(cap), _) => format!("the spend cap `{}`", cap.cap_id()),
                (None, Some(budget)) => format!("the budget of ${}", dollars_text(budget.0)),
                (None, None) => return None,
            };
            Some(UnpricedModel { model, limit })
        })
    }

    /// Returns the full names of the models that a run of the task may call and that have no price.
    fn models_without_price(&self, agent: &Agent, task: &Task) -> Vec<String> {
        let idle_models = agent.idle_models.iter().filter(|_| task.event.is_some());
        let mut names: Vec<Option<&str>> = match &task.model {
            Some(model) => vec![Some(model)],
            None => {
                agent.models.iter().chain(idle_models).map(|name| Some(name.as_str())).collect()
            }
        };
        if names.is_empty() {
            // The default model of the project.
            names.push(None);
        }
        // Another check reports a model that is not available.
        let models = &self.services.models;
        let found = names.into_iter().filter_map(|name| models.resolve_model_name(name).ok());
        let request = |model: &str| ModelRequest {
            run: RunId::from_bits(0),
            turn: 1,
            attempt: 1,
            model: model.to_owned(),
            system: StoredText::new_inline(""),
            tools: StoredText::new_inline(""),
            messages: Arc::default(),
            max_tokens: 0,
        };
        let unpriced = found
            .filter(|found| found.model.estimate(&request(&found.name)).pricing.price.is_none());
        unpriced.map(|found| found.name).collect()
    }
}

/// Whether any cap of the budget is higher than that of the other, where no cap is the highest.
fn exceeds_budget(budget: &Budget, limit: &Budget) -> bool {
    BudgetCap::ALL.into_iter().any(|kind| {
        let limit = limit.limit_of_cap(kind);
        limit.is_some_and(|limit| budget.limit_of_cap(kind).is_none_or(|value| value > limit))
    })
}
