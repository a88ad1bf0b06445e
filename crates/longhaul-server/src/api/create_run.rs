//! API handlers that submit tasks: as a run, as a batch of runs, or as an event for an agent. Tasks are
//! checked before they are submitted.

use std::sync::Arc;

use axum::http::StatusCode;
use longhaul_api::inbox::NewEventBody;
use longhaul_api::run::RunView;
use longhaul_api::task::{BatchView, ChainChoice, NewBatchBody, Task};
use longhaul_core::access::Role;
use longhaul_core::chain::ChainSpec;
use longhaul_core::raw::RawJson;
use longhaul_engine::agent::Agent;
use longhaul_engine::handle::UnpricedModel;

use crate::call::{Call, Context, Replied, Reply};
use crate::problem::Problem;

pub(crate) async fn submit_run(Call { ctx, body, .. }: Call<(), Task>) -> Replied<RunView> {
    let mut task = check_run_body(body, ctx.by())?;
    task.idempotency_key = ctx.scoped_idempotency_key()?;
    Ok(submitted_run_reply(submit_task(&ctx, task).await?))
}

pub(crate) async fn submit_batch(
    Call { ctx, body, .. }: Call<(), NewBatchBody>,
) -> Replied<BatchView> {
    let mut tasks = Vec::with_capacity(body.runs.len());
    for (index, run) in body.runs.into_iter().enumerate() {
        let at_index = |problem: Problem| problem.prefixed(format!("`runs[{index}]`"));
        let task = check_run_body(run, ctx.by()).map_err(at_index)?;
        check_task_agent_and_budget(&ctx, &task).map_err(at_index)?;
        tasks.push(task);
    }
    if let Some(first) = tasks.first_mut() {
        first.idempotency_key = ctx.scoped_idempotency_key()?;
    }
    let batch = ctx.longhaul().submit_batch(tasks, body.mode).await?;
    let (id, runs, caller) = (batch.id, batch.runs.len(), ctx.by());
    tracing::info!(batch = %id, runs, caller, "batch submitted");
    Ok(Reply::created(format!("/v1/batches/{id}"), batch))
}

pub(crate) async fn send_event(Call { ctx, body, .. }: Call<(), NewEventBody>) -> Replied<RunView> {
    let task = Task {
        agent: Some(body.agent),
        input: body.payload.unwrap_or_else(|| RawJson::from_serialize(&"")),
        event: Some(body.kind),
        actor: body.actor,
        links: body.links,
        lane: body.lane,
        thread: body.thread,
        resource: body.resource,
        submitter: Some(ctx.by().to_owned()),
        idempotency_key: ctx.scoped_idempotency_key()?,
        ..Task::default()
    };
    Ok(submitted_run_reply(submit_task(&ctx, task).await?))
}

/// Checks which fields of the body of a new run exclude or need each other, and returns it as a task
/// that this caller submits.
fn check_run_body(body: Task, submitter: &str) -> Result<Task, Problem> {
    if body.sandbox.is_some() {
        let message = "`sandbox` is not supported by this build yet";
        return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "unsupported", message));
    }
    let detail = match (&body.agent, &body.chain) {
        (None, None) => {
            return Err(Problem::unprocessable("missing field `agent` or `chain`")
                .with_hint("GET /v1/agents lists all agents"));
        }
        (Some(_), Some(_)) => "`agent` and `chain` exclude each other",
        (Some(_), None) if body.step.is_some() => "`step` needs a `chain`",
        (Some(_), None) if body.auto_approve.is_some() => "`auto_approve` needs a `chain`",
        _ if body.event.is_some() && body.kind.is_some() => "`event` and `type` exclude each other",
        _ => return Ok(Task { submitter: Some(submitter.to_owned()), ..body }),
    };
    Err(Problem::unprocessable(detail))
}

/// Submits a task after checking its agent, model, context and budget.
pub(crate) async fn submit_task(ctx: &Context, task: Task) -> Result<RunView, Problem> {
    check_task_agent_and_budget(ctx, &task)?;
    let view = ctx.longhaul().submit_and_view_run(task).await?;
    let (run, agent) = (view.id, &view.agent);
    tracing::info!(%run, agent, caller = ctx.by(), "run submitted");
    Ok(view)
}

/// Returns the reply to a submitted task: 201 for a new run, 200 if the task was added to a run.
pub(crate) fn submitted_run_reply(view: RunView) -> Reply<RunView> {
    match view.added {
        true => Reply::ok(view),
        false => Reply::created(format!("/v1/runs/{}", view.id), view),
    }
}

/// Checks that the caller may use the repository of a task. The worker reads it with its own rights
/// and credentials.
fn check_repo(ctx: &Context, task: &Task) -> Result<(), Problem> {
    match &task.repo {
        Some(repo) if !repo.is_public_url() => ctx.require_role(Role::Admin).map_err(|problem| {
            let reason = "`repo` is a path, a private address or no https URL";
            problem.prefixed(reason).with_hint("use an https URL of a public host")
        }),
        Some(_) | None => Ok(()),
    }
}

/// Checks the agent, model, context, budget and repository of a task.
fn check_task_agent_and_budget(ctx: &Context, task: &Task) -> Result<(), Problem> {
    check_repo(ctx, task)?;
    let longhaul = ctx.longhaul();
    let agents = resolve_agents_of_task(ctx, task)?;
    // The process that drives the run may have other keys and models than a command beside it.
    let checked_agents = if ctx.app.state.in_process { &[] } else { agents.as_slice() };
    for agent in checked_agents {
        let model_name = task.model.as_deref();
        let model_name = model_name.or_else(|| agent.models.first().map(String::as_str));
        if let Err(error) = longhaul.services().models.resolve_model_name(model_name) {
            let status = StatusCode::UNPROCESSABLE_ENTITY;
            let message = error.message_for_agent(&agent.name);
            return Err(Problem::new(status, error.code(), message));
        }
    }
    let is_declared = |name: &String| agents.iter().any(|agent| agent.context.contains(name));
    if let Some(undeclared_name) = task.context.keys().find(|name| !is_declared(name)) {
        return Err(Problem::unprocessable(undeclared_context_message(undeclared_name, &agents)));
    }
    if let Some(agent) = longhaul.agent_over_budget(&agents, task) {
        ctx.require_role(Role::Approver).map_err(|problem| {
            let reason = format!("the run would have a higher budget than its agent `{agent}`");
            let problem = problem.prefixed(reason);
            match task.chain {
                None => problem,
                Some(_) => problem.with_hint(format!(
                    "all steps of a chain share the highest budget: request at most that of \
                     `{agent}` with `budget`, or use a key with the role approver"
                )),
            }
        })?;
    }
    require_approver_for_unpriced_model(ctx, longhaul.unpriced_model(&agents, task))
}

/// Requires the role approver if there is a model without a price under a limit in dollars.
pub(crate) fn require_approver_for_unpriced_model(
    ctx: &Context,
    unpriced: Option<UnpricedModel>,
) -> Result<(), Problem> {
    let Some(unpriced) = unpriced else {
        return Ok(());
    };
    ctx.require_role(Role::Approver).map_err(|problem| {
        problem.prefixed(&unpriced).with_hint(format!(
            "set the price of the model: `longhaul models price {}` shows how; or use a key with \
             the role approver",
            unpriced.model
        ))
    })
}

/// Checks that the models of a schedule of this agent or chain have a price if a limit in dollars
/// applies: without prices the limit could not be enforced.
pub(crate) fn check_schedule_models_have_price(
    ctx: &Context,
    (agent, chain): (Option<&str>, Option<&str>),
) -> Result<(), Problem> {
    let task = Task {
        agent: agent.map(str::to_owned),
        chain: chain.map(ChainChoice::from),
        charged_to: Some(ctx.by().to_owned()),
        event: Some(String::new()),
        ..Task::default()
    };
    // The schedule itself reports an agent or chain that does not exist.
    match resolve_agents_of_task(ctx, &task) {
        Ok(agents) => {
            let unpriced = ctx.longhaul().unpriced_model(&agents, &task);
            require_approver_for_unpriced_model(ctx, unpriced)
        }
        Err(_) => Ok(()),
    }
}

/// Returns the agent of a task, or the agents of the steps of its chain. Returns an error if the
/// request sets `auto_approve` and the caller is not an approver.
fn resolve_agents_of_task(ctx: &Context, task: &Task) -> Result<Vec<Arc<Agent>>, Problem> {
    let longhaul = ctx.longhaul();
    let names = match longhaul.resolve_task_chain(task)? {
        None => vec![task.agent.clone().unwrap_or_default()],
        Some(ChainSpec { steps, .. }) => {
            let is_inline = matches!(task.chain, Some(ChainChoice::Inline(_)));
            let auto_approves_step = is_inline && steps.iter().any(|step| step.auto_approve);
            if task.auto_approve == Some(true) || auto_approves_step {
                ctx.require_role(Role::Approver)
                    .map_err(|problem| problem.prefixed("the request sets `auto_approve`"))?;
            }
            steps.into_iter().map(|step| step.agent).collect()
        }
    };
    let find = |name: String| {
        longhaul.get_agent(&name).map_err(|suggestion| {
            Problem::from(longhaul_engine::Error::AgentNotFound { name, suggestion })
        })
    };
    names.into_iter().map(find).collect()
}

fn undeclared_context_message(value_name: &str, agents: &[Arc<Agent>]) -> String {
    let describe = |agent: &Arc<Agent>| {
        let names = match agent.context.is_empty() {
            true => "none".to_owned(),
            false => agent.context.join(", "),
        };
        format!(
            "agent `{}` does not declare the context value `{value_name}`; its file lists {names}",
            agent.name
        )
    };
    let messages: Vec<String> = agents.iter().map(describe).collect();
    format!("`context.{value_name}`: {}", messages.join("; "))
}
