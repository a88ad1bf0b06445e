//! Limits that a task passes only with an approver's key: the budgets of its agents, and limits in
//! dollars on models without a price.

use std::fmt;
use std::sync::Arc;

use longhaul_core::id::{AgentName, InboxName, RunId};
use longhaul_core::policy::budget::{Budget, BudgetCap};
use longhaul_core::port::model::ModelRequest;
use longhaul_core::raw::{RawJson, StoredText};
use longhaul_core::task::TaskSpec;
use longhaul_run::explain::dollars_text;
use longhaul_run::spend_caps::counts_call_in_dollars;

use crate::agent::{Agent, BudgetPatch};
use crate::handle::Longhaul;
use crate::handle::chains::set_highest_caps_for_all_steps;
use crate::handle::submit::DEFAULT_INBOX;
use crate::task::{ChainChoice, Task};

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
            set_highest_caps_for_all_steps(requested.iter_mut());
            if matches!(chain.chain, ChainChoice::Named(_)) {
                set_highest_caps_for_all_steps(own.iter_mut());
            }
        }
        let mut pairs = agents.iter().zip(own.iter().zip(&requested));
        let exceeded = pairs.find(|(_, (own, requested))| exceeds_budget(requested, own));
        exceeded.map(|(agent, _)| agent.name.clone())
    }

    /// Returns a model of the task that has no price although a limit in dollars applies: a spend
    /// cap, or the budget if the task itself asks for the budget or for the model. An agent whose
    /// file names both is the choice of its author.
    pub fn unpriced_model_under_limit(&self, agent: &Agent, task: &Task) -> Option<UnpricedModel> {
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
        let idle_models = agent.idle_models.iter().filter(|_| task.event);
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
    let kinds = [BudgetCap::Money, BudgetCap::Tokens, BudgetCap::Turns, BudgetCap::ActiveTime];
    kinds.into_iter().any(|kind| {
        let limit = limit.limit_of_cap(kind);
        limit.is_some_and(|limit| budget.limit_of_cap(kind).is_none_or(|value| value > limit))
    })
}
