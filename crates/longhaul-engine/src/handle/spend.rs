//! Spend caps: how much of each cap is used, and raising the limit of a cap for its current window
//! (such as a day).
//!
//! Also checks the limits that a task passes only with an approver's key: the budgets of its agents, and limits in
//! dollars on models without a price.

use std::fmt;
use std::sync::Arc;

use longhaul_api::spend::{
    RaiseCapBody, SpendCapAmount, SpendCapUsageView, SpendCapView, SpendView,
};
use longhaul_api::task::{ChainChoice, Task};
use longhaul_core::glob;
use longhaul_core::id::{AgentName, InboxName, RunId};
use longhaul_core::policy::budget::{Budget, BudgetCap};
use longhaul_core::policy::spend_cap::{
    CapCounterKey, CapCounterRow, CapLimitChange, CapRefusal, CapUsageGrouping, CapWithWindow,
    SPEND_ROWS_MAX,
};
use longhaul_core::port::model::ModelRequest;
use longhaul_core::port::records::{DAY_MICROS, UsageQuery};
use longhaul_core::port::store::CreateRunsRequest;
use longhaul_core::raw::RawJson;
use longhaul_core::suggest::most_similar_name;
use longhaul_core::task::TaskSpec;
use longhaul_core::time::Timestamp;
use longhaul_run::RUN_AGENT;
use longhaul_run::explain::dollars_text;
use longhaul_run::spend_caps::{SUBJECT_BYTES_MAX, counts_call_in_dollars, reservations_for_task};

use crate::agent::{Agent, BudgetPatch};
use crate::drive::run_env::load_run_agent;
use crate::error::{Error, Result};
use crate::handle::Longhaul;
use crate::handle::chains::share_highest_caps;
use crate::handle::submit::DEFAULT_INBOX;
use crate::replay::replay_run_state;

/// Maximum number of keys, actors, agents or models that an error message about a spend cap lists.
const NAMED_SUBJECTS_MAX: usize = 10;

/// A model without a price, and the limit in dollars that it would pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnpricedModel {
    /// Full name of the model.
    pub model: String,
    /// Description of the limit, such as a spend cap.
    pub limit: String,
}

/// Maximum number of sums of usage that are returned.
const USAGE_SUMS_MAX: usize = 1_000;

impl Longhaul {
    /// Returns the configured spend caps, each with the usage in its current window (such as a
    /// day).
    pub async fn list_spend_caps(&self) -> Result<Vec<SpendCapView>> {
        let rows = self.services.records.cap_counter_rows().await?;
        let caps = self.services.caps.caps_with_windows_at(self.store_time().await?);
        Ok(caps.iter().map(|current| cap_view(current, &rows)).collect())
    }

    /// Returns the spend caps, and the usage of all runs by day, agent and model since a time; `None`
    /// means the last 7 days.
    pub async fn spend(&self, since: Option<Timestamp>) -> Result<SpendView> {
        let week = Timestamp::from_micros(self.store_time().await?.as_micros() - 7 * DAY_MICROS);
        let query = UsageQuery { since: since.unwrap_or(week), limit: USAGE_SUMS_MAX };
        let sums = self.services.records.usage_sums(query).await?;
        let data = self.list_spend_caps().await?;
        Ok(SpendView { data, next: None, usage: sums.into_iter().map(Into::into).collect() })
    }

    /// Raises the limit of a spend cap for one key, actor, agent or model, or for all runs if the
    /// cap counts them together, until the current window (such as a day) ends. Runs that wait at
    /// the cap continue if the new limit covers their next call.
    pub async fn raise_cap(&self, id: &str, raise: &RaiseCapBody) -> Result<SpendCapView> {
        let caps = self.services.caps.caps_with_windows_at(self.store_time().await?);
        let ids: Vec<String> = caps.iter().map(|current| current.cap.cap_id()).collect();
        let Some(current) = caps.iter().find(|current| current.cap.cap_id() == id) else {
            let suggestion = most_similar_name(id, ids.iter().map(String::as_str));
            return Err(Error::CapNotFound {
                id: id.to_owned(),
                suggestion: suggestion.map(str::to_owned),
            });
        };
        let limit = raise.limit_in_store_unit(current.cap.unit).map_err(Error::InvalidRaise)?;
        let subject = subject_of_raised_cap(current, raise.subject.as_deref())?;
        let key = CapCounterKey { cap: id.to_owned(), subject, window_start: current.period.start };
        let rows = self.services.records.cap_counter_rows().await?;
        check_cap_counts_subject(current, &key, &rows).map_err(Error::InvalidRaise)?;
        let row = rows.into_iter().find(|row| row.key == key);
        let row = row.unwrap_or_else(|| new_count(current, key));
        let current_limit = row.effective_limit().max(current.cap.limit);
        if limit <= current_limit {
            let current_limit = SpendCapAmount::new(current.cap.unit, current_limit);
            let reason =
                format!("the new limit must be higher than the current one, {current_limit}");
            return Err(Error::InvalidRaise(reason));
        }
        let change = CapLimitChange {
            cap: row.key.cap,
            subject: Some(row.key.subject),
            period: current.period,
            limit,
        };
        self.services.records.set_cap_limit(change).await?;
        let rows = self.services.records.cap_counter_rows().await?;
        Ok(cap_view(current, &rows))
    }

    /// Adds to each run of a request the spend caps that apply to its task. The store refuses to
    /// create a run whose cap is reached.
    pub(super) async fn add_cap_reservations(
        &self,
        mut request: CreateRunsRequest,
    ) -> Result<CreateRunsRequest> {
        if !self.services.caps.is_empty() {
            let caps = self.services.caps.caps_with_windows_at(self.store_time().await?);
            for run in &mut request.runs {
                run.caps = reservations_for_task(&caps, &run.task);
            }
        }
        Ok(request)
    }

    /// Returns the error for a task that a spend cap refuses.
    pub(super) fn over_cap_error(&self, refusal: CapRefusal) -> Error {
        let CapRefusal { key, window_end, .. } = refusal;
        let retry_after = window_end.duration_since(self.services.clock.now());
        Error::OverCap { cap: key.cap, subject: key.subject, until: window_end, retry_after }
    }

    /// Returns the first of the task's agents that would get a higher budget than it has by itself,
    /// because the task asks for it or because it shares the budget of an agent of the same chain.
    /// The steps of a chain that has a name may share the highest of their budgets.
    pub fn agent_over_budget(&self, agents: &[Arc<Agent>], task: &Task) -> Option<AgentName> {
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
    pub fn unpriced_model(&self, agents: &[Arc<Agent>], task: &Task) -> Option<UnpricedModel> {
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
        Ok(self.unpriced_model(&[agent], &task))
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
        let request =
            |model: &str| ModelRequest { model: model.to_owned(), ..ModelRequest::default() };
        let unpriced = found
            .filter(|found| found.model.estimate(&request(&found.name)).pricing.price.is_none());
        unpriced.map(|found| found.name).collect()
    }
}

/// Returns the key, actor, agent or model whose limit is raised. Empty for a cap that counts all
/// usage together. Fails if `subject` is missing, or given for a cap that counts all usage
/// together.
fn subject_of_raised_cap(current: &CapWithWindow, subject: Option<&str>) -> Result<String> {
    let per = current.cap.per.as_str();
    let reason = match (current.cap.per == CapUsageGrouping::All, subject) {
        (true, None) => return Ok(String::new()),
        (false, Some(subject)) => return Ok(subject.to_owned()),
        (true, Some(_)) => "the cap counts all runs together: name no subject".to_owned(),
        (false, None) => format!("the cap counts per {per}: name the {per} whose limit is raised"),
    };
    Err(Error::InvalidRaise(reason))
}

/// Checks that a spend cap counts the key, actor, agent or model whose limit is raised, so that a
/// misspelled name is found. The error says which names the cap counts.
fn check_cap_counts_subject(
    current: &CapWithWindow,
    key: &CapCounterKey,
    rows: &[CapCounterRow],
) -> Result<(), String> {
    let CapCounterKey { cap, subject, window_start } = key;
    let per = current.cap.per;
    if per == CapUsageGrouping::All || rows.iter().any(|row| row.key == *key) {
        return Ok(());
    }
    if subject.len() > SUBJECT_BYTES_MAX {
        let per = per.as_str();
        return Err(format!("the name of the {per} is longer than {SUBJECT_BYTES_MAX} bytes"));
    }
    let pattern = current.cap.pattern.as_deref();
    if let Some(pattern) = pattern.filter(|pattern| glob::matches(pattern, subject) == Some(false))
    {
        return Err(format!("the cap applies only to `{pattern}`, not to `{subject}`"));
    }
    if rows.len() >= SPEND_ROWS_MAX {
        // The list is not complete, so it does not prove that the subject has no count.
        return Ok(());
    }
    let subjects = rows
        .iter()
        .filter(|row| row.key.cap == *cap && row.key.window_start == *window_start)
        .map(|row| format!("`{}`", row.key.subject));
    let subjects: Vec<String> = subjects.take(NAMED_SUBJECTS_MAX).collect();
    Err(match subjects.is_empty() {
        true => format!("the cap has counted no usage of any {} yet", per.as_str()),
        false => {
            format!("the cap has counted no usage of `{subject}`, only of {}", subjects.join(", "))
        }
    })
}

const fn new_count(current: &CapWithWindow, key: CapCounterKey) -> CapCounterRow {
    CapCounterRow::new(key, current.period.end, current.cap.limit)
}

/// Returns the view of a spend cap with the usage of each key, actor, agent or model. A cap on all
/// runs together has an entry even if nothing was used yet.
fn cap_view(current: &CapWithWindow, rows: &[CapCounterRow]) -> SpendCapView {
    let CapWithWindow { cap, period } = current;
    let id = cap.cap_id();
    let key = CapCounterKey { cap: id.clone(), subject: String::new(), window_start: period.start };
    let mut counts: Vec<CapCounterRow> = rows.to_vec();
    counts.retain(|row| row.key.cap == id && row.key.window_start == period.start);
    counts.iter_mut().for_each(|row| row.limit = cap.limit);
    if counts.is_empty() && cap.per == CapUsageGrouping::All {
        counts.push(new_count(current, key));
    }
    let amount = |amount| SpendCapAmount::new(cap.unit, amount);
    let counts = counts.iter().map(|row| SpendCapUsageView {
        subject: row.key.subject.clone(),
        limit: amount(row.effective_limit()),
        used: amount(row.spent.saturating_add(row.lost)),
        held: amount(row.held),
        left: amount(row.remaining_amount()),
        waiting: row.waiting,
    });
    SpendCapView {
        counts: counts.collect(),
        id,
        window: cap.window.as_str().to_owned(),
        tz: cap.tz.clone(),
        per: cap.per.as_str().to_owned(),
        pattern: cap.pattern.clone(),
        unit: cap.unit.as_str().to_owned(),
        limit: amount(cap.limit),
        at_cap: cap.at_cap.as_str().to_owned(),
        resets_at: period.end,
    }
}

impl fmt::Display for UnpricedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the model `{}` has no price, so {} can't limit it", self.model, self.limit)
    }
}

/// Whether any cap of the budget is higher than that of the other, where no cap is the highest.
fn exceeds_budget(budget: &Budget, limit: &Budget) -> bool {
    BudgetCap::ALL.into_iter().any(|kind| {
        let limit = limit.limit_of_cap(kind);
        limit.is_some_and(|limit| budget.limit_of_cap(kind).is_none_or(|value| value > limit))
    })
}
