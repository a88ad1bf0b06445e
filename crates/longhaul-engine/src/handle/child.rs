//! Builds child runs: tasks that a run gives to another agent, and the grading of a run's result.
//!
//! A child run of another agent has the inbox, type, priority, context values, resource, submitter
//! and actor of its parent. Every child has the budget account and the lane of its root, and no
//! thread: it works in a conversation of its own.

use longhaul_api::task::Task;
use longhaul_core::change::{Blob, NewRun};
use longhaul_core::policy::RunPolicy;
use longhaul_core::policy::budget::{Budget, BudgetRaise};
use longhaul_core::raw::RawJson;
use longhaul_core::task::TaskSpec;
use longhaul_run::Run;
use longhaul_run::submit::new_run_from_task;

use crate::agent::Agent;
use crate::error::Result;
use crate::handle::Longhaul;
use crate::services::Services;

impl Longhaul {
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
