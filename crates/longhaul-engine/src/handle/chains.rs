//! Lists the chains that the process knows, and builds the first run of a submitted chain.
//!
//! Invariant: a chain is resolved as a whole when it is submitted. The agent version and the policy
//! of every step are pinned then, so a later change of a file does not change a chain that runs.
//!
//! Also builds child runs: tasks that a run gives to another agent, and the grading of a run's result.
//!
//! A child run of another agent has the inbox, type, priority, context values, resource, submitter
//! and actor of its parent. Every child has the budget account and the lane of its root, and no
//! thread: it works in a conversation of its own.

use std::sync::Arc;

use longhaul_api::agent::{ChainStepView, ChainView};
use longhaul_api::task::{ChainChoice, Task};
use longhaul_core::chain::{
    AUTO_APPROVE_DELAY, Chain, ChainRepeat, ChainSpec, ChainStep, ChainStepCondition,
    PositionInChain,
};
use longhaul_core::change::{Blob, NewRun};
use longhaul_core::id::RunId;
use longhaul_core::policy::budget::{Budget, BudgetRaise};
use longhaul_core::policy::gate::AutoApproval;
use longhaul_core::policy::{ParkedLanePolicy, RunPolicy};
use longhaul_core::raw::RawJson;
use longhaul_core::task::{RunBatchPosition, TaskSpec};
use longhaul_run::submit::new_run_from_task;
use longhaul_run::{Rejection, Run};

use crate::agent::{Agent, ChainRegistry};
use crate::error::{Error, Result, invalid_task};
use crate::handle::Longhaul;
use crate::handle::submit::{check_sandbox_for_repo, resolve_lane};
use crate::services::Services;

/// Chain of a submitted task, from which the stored steps and the first run are built.
struct ChainToBuild {
    spec: ChainSpec,
    /// Name of the chain. `None` means that the steps were given in the request itself.
    name: Option<String>,
    /// Submitted task, with its field `chain` removed.
    task: Task,
    first_run: RunId,
    batch: Option<RunBatchPosition>,
}

/// A step of a chain with the task and the agent of its run.
struct BuiltChainStep {
    step: ChainStep,
    task: TaskSpec,
    agent: Arc<Agent>,
    definition: Blob,
}

impl Longhaul {
    /// Replaces all chains that can be submitted through this handle.
    pub fn replace_chains(&self, chains: ChainRegistry) {
        self.services.agents.replace_chains(chains);
    }

    /// Returns all chains that can be submitted through this handle, in the order of their names.
    pub fn chains(&self) -> Vec<ChainView> {
        let chains = self.services.agents.chains();
        chains.iter().map(|(name, spec)| chain_view(name, spec)).collect()
    }

    pub fn chain(&self, name: &str) -> Result<ChainView> {
        Ok(chain_view(name, &*self.find_chain(name)?))
    }

    fn find_chain(&self, name: &str) -> Result<Arc<ChainSpec>> {
        let found = self.services.agents.get_chain(name);
        found.map_err(|suggestion| Error::ChainNotFound { name: name.to_owned(), suggestion })
    }

    /// Returns the steps that a task runs: all steps of its chain, or only the step that the task
    /// names. `None` means that the task has no chain.
    pub fn resolve_task_chain(&self, task: &Task) -> Result<Option<ChainSpec>> {
        let mut spec = match &task.chain {
            None => return Ok(None),
            Some(ChainChoice::Named(name)) => ChainSpec::clone(&*self.find_chain(name)?),
            Some(ChainChoice::Inline(spec)) => spec.clone(),
        };
        if let Some(problem) = spec.problems().into_iter().next() {
            let step_prefix =
                problem.step.map(|step| format!("step {} of ", step + 1)).unwrap_or_default();
            return invalid_task(format!("{step_prefix}the chain is invalid: {}", problem.message));
        }
        for step in &mut spec.steps {
            step.auto_approve |= task.auto_approve == Some(true);
        }
        if let Some(name) = &task.step {
            let found = spec.steps.iter().find(|step| step.step_name() == name).cloned();
            let Some(mut step) = found else {
                let names: Vec<&str> = spec.steps.iter().map(|step| step.step_name()).collect();
                let names = names.join("`, `");
                return invalid_task(format!("the chain has no step `{name}`: it has `{names}`"));
            };
            step.condition = ChainStepCondition::Always;
            step.repeat = None;
            spec.steps = vec![step];
        }
        Ok(Some(spec))
    }

    /// Builds the first run of a chain. Also returns the definitions of all agents of the chain, to
    /// be stored.
    pub(super) fn build_chain_run(
        &self,
        mut task: Task,
        first_run: RunId,
        batch: Option<RunBatchPosition>,
    ) -> Result<(NewRun, Vec<Blob>)> {
        let spec = self.resolve_task_chain(&task)?.ok_or(Rejection::Empty("a chain"))?;
        let name = match task.chain.take() {
            Some(ChainChoice::Named(name)) => Some(name),
            Some(ChainChoice::Inline(_)) | None => None,
        };
        let chain = ChainToBuild { spec, name, task, first_run, batch };
        let mut built = Vec::with_capacity(chain.spec.steps.len());
        for index in 0..chain.spec.steps.len() {
            built.push(self.build_chain_step(&chain, index)?);
        }
        share_highest_caps(built.iter_mut().map(|built| &mut built.step.policy.budget));
        let definitions = built.iter().map(|built| built.definition.clone()).collect();
        if let Some(first) = built.first() {
            check_sandbox_for_repo(&first.task, built.iter().map(|built| &*built.agent))?;
        }
        let steps = built.iter().map(|built| built.step.clone()).collect();
        let Some(BuiltChainStep { step, mut task, agent, .. }) = built.into_iter().next() else {
            return Err(Rejection::Empty("a chain").into());
        };
        task.policy = step.policy;
        task.lane = resolve_lane(&agent, &task)?;
        let chain = Chain { name: chain.name, steps };
        task.chain = Some(Box::new(PositionInChain::first(chain, first_run)));
        let lane_depth_max = self.services.agents.defaults.lane_depth_max;
        Ok((NewRun { lane_depth_max, ..new_run_from_task(first_run, task)? }, definitions))
    }

    fn build_chain_step(&self, chain: &ChainToBuild, index: usize) -> Result<BuiltChainStep> {
        let step_spec = &chain.spec.steps[index];
        let task = Task { agent: Some(step_spec.agent.clone()), ..chain.task.clone() };
        let (task, agent, definition) = self.build_task_spec(task, chain.first_run, chain.batch)?;
        let repeat = step_spec.repeat.as_ref().map(|repeat| {
            let from = chain.spec.find_repeat_start_step(index, &repeat.from);
            let from = from.map_err(Rejection::InvalidTask)?;
            Ok::<_, Rejection>(ChainRepeat { from, until: repeat.until, max: repeat.max })
        });
        let mut policy = task.policy.clone();
        // The lane belongs to the chain and is taken until its last step has ended.
        policy.lane_on_park = ParkedLanePolicy::Keep;
        // The next step waits for the result, so that a step does not stay open for messages.
        policy.keep_open = None;
        if step_spec.auto_approve {
            set_result_auto_approval(&mut policy, chain.name.as_deref());
        }
        let step = ChainStep {
            name: step_spec.step_name().to_owned(),
            agent: agent.name.clone(),
            definition: definition.hash(),
            policy,
            condition: step_spec.condition,
            repeat: repeat.transpose()?,
        };
        Ok(BuiltChainStep { step, task, agent, definition })
    }

    /// Returns the newest run of the chain of a run that has ended. `None` means that the run has
    /// not ended, that it belongs to no chain, or that it is the newest run itself.
    pub async fn newest_run_of_chain(&self, run: RunId) -> Result<Option<RunId>> {
        let row = self.run_row(run).await?;
        let chain = row.chain.filter(|_| row.status.is_terminal());
        Ok(chain.map(|chain| chain.current).filter(|current| *current != run))
    }

    /// Returns a handle that uses these services and knows their agents.
    pub(crate) fn handle_from_services(services: &Services) -> Self {
        Self { services: services.clone(), request: None }
    }

    /// Builds a child run of `parent` for a task. Also returns the definition of its agent, to be
    /// stored.
    pub(crate) fn build_child_run(
        &self,
        parent: &Run,
        agent: &str,
        input: RawJson,
    ) -> Result<(NewRun, Blob)> {
        let parent_task = parent.task();
        let id = self.new_run_id();
        let task = Task {
            context: parent_task.context.clone(),
            inbox: Some(parent_task.inbox.clone()),
            kind: parent_task.kind.clone(),
            priority: parent_task.priority,
            resource: parent_task.resource.clone(),
            submitter: parent_task.submitter.clone(),
            actor: parent_task.actor.clone(),
            links: parent_task.links.clone(),
            ..Task::new(agent, input)
        };
        let (spec, agent, definition) = self.build_task_spec(task, id, None)?;
        // The parent waits for the result, so that a child does not stay open for messages.
        let policy = RunPolicy { keep_open: None, ..spec.policy };
        let spec = child_task_spec(parent, TaskSpec { policy, ..spec }, &agent);
        Ok((new_run_from_task(id, spec)?, definition))
    }

    /// Builds the run that grades the result of `parent`. Also returns the definition of its agent, to
    /// be stored.
    pub(crate) fn build_grading_run(
        &self,
        parent: &Run,
        agent: Agent,
        input: RawJson,
    ) -> Result<(NewRun, Blob)> {
        let parent_task = parent.task();
        let id = self.new_run_id();
        let task = self.redact_task(Task {
            inbox: Some(parent_task.inbox.clone()),
            priority: parent_task.priority,
            submitter: parent_task.submitter.clone(),
            ..Task::new(agent.name.as_str(), input)
        })?;
        let (spec, definition) = self.build_task_spec_of_agent(task, &agent, id)?;
        Ok((new_run_from_task(id, child_task_spec(parent, spec, &agent))?, definition))
    }
}

/// Changes the policy of a step so that its result is approved automatically. Does nothing if the
/// result needs several approvers, or an approver who is not the submitter.
fn set_result_auto_approval(policy: &mut RunPolicy, chain_name: Option<&str>) {
    if let Some(gate) = &mut policy.result_gate
        && gate.approvers.count <= 1
        && !gate.approvers.not_submitter
    {
        let approver =
            chain_name.map_or_else(|| "chain".to_owned(), |name| format!("chain:{name}"));
        gate.auto_approve = Some(AutoApproval { after: AUTO_APPROVE_DELAY, by: approver });
    }
}

/// Sets the caps on money and tokens of all steps to the highest cap of any step, because the steps
/// share one budget account. If one step has no cap, the cap of all steps is removed.
pub(super) fn share_highest_caps<'a>(budgets: impl Iterator<Item = &'a mut Budget>) {
    let mut budgets: Vec<&mut Budget> = budgets.collect();
    let highest =
        |caps: Vec<Option<u64>>| caps.into_iter().collect::<Option<Vec<_>>>()?.into_iter().max();
    let usd = highest(budgets.iter().map(|budget| budget.micro_usd.map(|usd| usd.0)).collect());
    let tokens = highest(budgets.iter().map(|budget| budget.tokens).collect());
    for budget in &mut budgets {
        budget.micro_usd = usd.map(longhaul_core::usage::MicroUsd);
        budget.tokens = tokens;
    }
}

fn chain_view(name: &str, spec: &ChainSpec) -> ChainView {
    let steps = spec.steps.iter().map(|step| ChainStepView {
        name: step.step_name().to_owned(),
        agent: step.agent.clone(),
        auto_approve: step.auto_approve,
        condition: step.condition,
        repeat: step.repeat.clone(),
    });
    let description = spec.description.clone();
    ChainView { name: name.to_owned(), description, steps: steps.collect() }
}

/// Completes the task specification of a child run with the fields that it inherits from `parent`.
fn child_task_spec(parent: &Run, spec: TaskSpec, agent: &Agent) -> TaskSpec {
    let parent_task = parent.task();
    // The budget of the root is the default, so that only caps of the agent's own file count.
    let BudgetRaise { micro_usd, tokens, .. } = agent.budget.caps;
    let budget = Budget { micro_usd, tokens, ..spec.policy.budget };
    TaskSpec {
        policy: RunPolicy { budget, ..spec.policy },
        parent: Some(parent.id()),
        root: parent_task.root,
        depth: parent_task.depth.saturating_add(1),
        charged_to: parent_task.charged_to.clone(),
        earlier_submitters: parent.submitters().names_except(parent_task.submitter.as_deref()),
        ..spec
    }
}
