//! Converts request bodies to tasks and validates them before they are submitted.

use std::sync::Arc;

use axum::http::StatusCode;
use longhaul_api::run::{BudgetBody, RunView};
use longhaul_api::submit::NewRunBody;
use longhaul_core::access::Role;
use longhaul_core::id::{IdError, InboxName, LaneKey, ResourceKey, ThreadKey};
use longhaul_core::policy::budget::BudgetRaise;
use longhaul_core::raw::RawJson;
use longhaul_core::task::EarliestStart;
use longhaul_core::time::Millis;
use longhaul_core::usage::MicroUsd;
use longhaul_engine::Task;
use longhaul_engine::agent::{Agent, BudgetPatch};
use longhaul_engine::handle::UnpricedModel;
use longhaul_engine::task::{ChainChoice, TaskChain};

use crate::body::parse_object_field;
use crate::call::{Context, Reply};
use crate::problem::Problem;

/// Maximum amount of money in US dollars and maximum number of turns that a requested budget may
/// have. A larger value is treated as a typing error.
const USD_MAX: f64 = 1_000_000_000.0;

/// Minimum budget in dollars: one millionth, the smallest amount that is counted.
const USD_MIN: f64 = 0.000_001;
const TURNS_MAX: u32 = 1_000_000_000;

/// Largest integer that every JSON parser can represent exactly (2^53 - 1).
const JSON_INTEGER_MAX: u64 = 9_007_199_254_740_991;

/// Checks that the value of a budget field is between 1 and `max`, and returns it. `None` means
/// that the field is not set.
fn check_budget_field<T: PartialOrd + From<u8> + std::fmt::Display>(
    name: &str,
    value: Option<T>,
    max: T,
) -> Result<Option<T>, Problem> {
    match value {
        Some(value) if value < T::from(1) || value > max => {
            Err(Problem::unprocessable(format!("`budget.{name}` must be between 1 and {max}")))
        }
        value => Ok(value),
    }
}

/// Validates the budget in a request body.
pub(crate) fn parse_budget(body: BudgetBody) -> Result<BudgetPatch, Problem> {
    let usd = body.usd.map(|usd| match (USD_MIN..=USD_MAX).contains(&usd) {
        true => Ok(MicroUsd((usd * 1_000_000.0).round() as u64)),
        false => Err(Problem::unprocessable(
            "`budget.usd` must be greater than 0 and at most 1,000,000,000",
        )),
    });
    let warn = body.warn_at.map(|share| match (0.0..=1.0).contains(&share) {
        true => Ok((share * 100.0).round() as u8),
        false => Err(Problem::unprocessable("`budget.warn_at` must be between 0 and 1")),
    });
    Ok(BudgetPatch {
        caps: BudgetRaise {
            micro_usd: usd.transpose()?,
            tokens: check_budget_field("tokens", body.tokens, JSON_INTEGER_MAX)?,
            turns: check_budget_field("turns", body.turns, TURNS_MAX)?,
            active: check_budget_field("active_ms", body.active_ms, JSON_INTEGER_MAX)?.map(Millis),
        },
        warn_percent: warn.transpose()?,
    })
}

/// Converts the request body of a new run to a task that this caller submits.
pub(crate) fn task_from_run_body(body: NewRunBody, submitter: &str) -> Result<Task, Problem> {
    refuse_unsupported_run_fields(&body)?;
    let chain = parse_chain(&body)?;
    let agent = match (body.agent, &chain) {
        (Some(agent), None) => agent,
        (None, Some(_)) => String::new(),
        (Some(_), Some(_)) => {
            return Err(Problem::unprocessable("`agent` and `chain` exclude each other"));
        }
        (None, None) => {
            return Err(Problem::unprocessable("missing field `agent` or `chain`")
                .with_hint("GET /v1/agents lists all agents"));
        }
    };
    if body.event.is_some() && body.kind.is_some() {
        return Err(Problem::unprocessable("`event` and `type` exclude each other"));
    }
    Ok(Task {
        chain,
        event: body.event.is_some(),
        context: body.context,
        history: body.history,
        model: body.model,
        inbox: parse_optional_name_field("inbox", body.inbox, InboxName::new)?,
        kind: body.event.or(body.kind),
        priority: body.priority,
        lane: parse_optional_name_field("lane", body.lane, LaneKey::new)?,
        thread: parse_optional_name_field("thread", body.thread, ThreadKey::new)?,
        resource: parse_optional_name_field("resource", body.resource, ResourceKey::new)?,
        start: body.start_at.map_or(EarliestStart::Now, EarliestStart::At),
        budget: parse_budget(body.budget)?,
        submitter: Some(submitter.to_owned()),
        actor: body.actor,
        links: body.links,
        tags: body.tags,
        metadata: body.metadata,
        ..Task::new(agent, &body.input)
    })
}

fn refuse_unsupported_run_fields(body: &NewRunBody) -> Result<(), Problem> {
    match body.sandbox {
        None => Ok(()),
        Some(_) => {
            let message = "`sandbox` is not supported by this build yet";
            Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "unsupported", message))
        }
    }
}

/// Parses the field `chain` of a request body: the name of a chain, or an object with steps. `None`
/// means that the body has no chain.
fn parse_chain(body: &NewRunBody) -> Result<Option<TaskChain>, Problem> {
    let Some(value) = &body.chain else {
        return match (&body.step, body.auto_approve) {
            (None, None) => Ok(None),
            (Some(_), _) => Err(Problem::unprocessable("`step` needs a `chain`")),
            (None, Some(_)) => Err(Problem::unprocessable("`auto_approve` needs a `chain`")),
        };
    };
    let auto_approve = body.auto_approve == Some(true);
    let chain = if let serde_json::Value::String(name) = value.to_value() {
        ChainChoice::Named(name)
    } else {
        ChainChoice::Inline(parse_object_field("chain", value)?)
    };
    Ok(Some(TaskChain { chain, step: body.step.clone(), auto_approve }))
}

/// Validates an optional name in a request body. `field` is the name of the body's field, for the
/// error message.
pub(crate) fn parse_optional_name_field<T>(
    field: &str,
    value: Option<String>,
    parse: impl Fn(String) -> Result<T, IdError>,
) -> Result<Option<T>, Problem> {
    let result = value.map(parse).transpose();
    result
        .map_err(|error| Problem::unprocessable(format!("the field `{field}` is invalid: {error}")))
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

/// Checks the agent, model, context and budget of a task.
pub(crate) fn check_task_agent_and_budget(ctx: &Context, task: &Task) -> Result<(), Problem> {
    let longhaul = ctx.longhaul();
    let agents = resolve_agents_of_task(ctx, task)?;
    // The process that drives the run may have other keys and models than a command beside it.
    let checked_agents = if ctx.app.is_in_process() { &[] } else { agents.as_slice() };
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
    if let Some(agent) = longhaul.agent_with_exceeded_budget(&agents, task) {
        ctx.require_role(Role::Approver).map_err(|problem| {
            let detail = format!(
                "the run would have a higher budget than its agent `{agent}`: {}",
                problem.detail
            );
            let problem = problem.with_detail(detail);
            match task.chain {
                None => problem,
                Some(_) => problem.with_hint(format!(
                    "all steps of a chain share the highest budget: request at most that of \
                     `{agent}` with `budget`, or use a key with the role approver"
                )),
            }
        })?;
    }
    check_models_have_price(ctx, &agents, task)
}

/// Checks that limits in dollars hold for the task: only an approver may start a run of a model
/// without a price while such a limit applies.
fn check_models_have_price(
    ctx: &Context,
    agents: &[Arc<Agent>],
    task: &Task,
) -> Result<(), Problem> {
    require_approver_for_unpriced_model(
        ctx,
        ctx.longhaul().unpriced_model_under_limit(agents, task),
    )
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
        let detail = format!("{unpriced}: {}", problem.detail);
        problem.with_detail(detail).with_hint(format!(
            "set the price of the model: `longhaul models price {}` shows how; or use a key with \
             the role approver",
            unpriced.model
        ))
    })
}

/// Checks that limits in dollars hold for the runs of a schedule of this agent or chain.
pub(crate) fn check_schedule_models_have_price(
    ctx: &Context,
    (agent, chain): (Option<&str>, Option<&str>),
) -> Result<(), Problem> {
    let input = RawJson::null();
    let task = match (agent, chain) {
        (_, Some(chain)) => Task::for_chain(chain, &input),
        (Some(agent), None) => Task::new(agent, &input),
        (None, None) => return Ok(()),
    };
    let task = Task { charged_to: Some(ctx.by().to_owned()), event: true, ..task };
    // The schedule itself reports an agent or chain that does not exist.
    match resolve_agents_of_task(ctx, &task) {
        Ok(agents) => check_models_have_price(ctx, &agents, &task),
        Err(_) => Ok(()),
    }
}

/// Returns the agent of a task, or the agents of the steps of its chain. Returns an error if the
/// request sets `auto_approve` and the caller is not an approver.
fn resolve_agents_of_task(ctx: &Context, task: &Task) -> Result<Vec<Arc<Agent>>, Problem> {
    let longhaul = ctx.longhaul();
    let names = match &task.chain {
        None => vec![task.agent.clone()],
        Some(chain) => {
            let steps = longhaul.resolve_task_chain(chain)?.steps;
            let is_inline = matches!(chain.chain, ChainChoice::Inline(_));
            if chain.auto_approve || is_inline && steps.iter().any(|step| step.auto_approve) {
                ctx.require_role(Role::Approver).map_err(|problem| {
                    let detail = format!("the request sets `auto_approve`: {}", problem.detail);
                    problem.with_detail(detail)
                })?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_cap_above_its_maximum_is_rejected() {
        let is_accepted = |body: serde_json::Value| {
            let body: BudgetBody = serde_json::from_value(body).unwrap();
            parse_budget(body).is_ok()
        };
        for (name, max) in [
            ("tokens", JSON_INTEGER_MAX),
            ("active_ms", JSON_INTEGER_MAX),
            ("turns", u64::from(TURNS_MAX)),
        ] {
            assert!(is_accepted(serde_json::json!({ name: max })), "{name}");
            assert!(!is_accepted(serde_json::json!({ name: max + 1 })), "{name}");
        }
    }
}
