//! A task as a body says it, and what is checked before it is submitted.
//!
//! Never: a task that nobody could do. What is missing is said at once.

use axum::http::StatusCode;
use longhaul_api::run::{BudgetBody, RunView};
use longhaul_api::submit::NewRunBody;
use longhaul_core::access::Role;
use longhaul_core::id::{IdError, InboxName, LaneKey, ResourceKey, ThreadKey};
use longhaul_core::policy::budget::BudgetRaise;
use longhaul_core::task::Start;
use longhaul_core::time::Millis;
use longhaul_core::usage::MicroUsd;
use longhaul_engine::Task;
use longhaul_engine::agent::BudgetPatch;
use longhaul_engine::handle::Identity;

use crate::app::App;
use crate::caller::require_role;
use crate::problem::Problem;

/// More than this is no budget but a slip.
const USD_MAX: f64 = 1_000_000_000.0;
const TURNS_MAX: u32 = 1_000_000_000;

/// The greatest whole number that every reader of JSON can hold.
const JSON_INTEGER_MAX: u64 = 9_007_199_254_740_991;

/// A number that is not beyond its bound.
fn check_max<T: PartialOrd + std::fmt::Display>(
    name: &str,
    said: Option<T>,
    most: T,
) -> Result<Option<T>, Problem> {
    match said {
        Some(said) if said > most => {
            Err(Problem::invalid(format!("`budget.{name}` is 0 to {most}")))
        }
        fits => Ok(fits),
    }
}

/// The caps of a request, checked.
pub(crate) fn parse_budget(body: BudgetBody) -> Result<BudgetPatch, Problem> {
    let usd = body.usd.map(|usd| match (0.0..=USD_MAX).contains(&usd) {
        true => Ok(MicroUsd((usd * 1_000_000.0).round() as u64)),
        false => Err(Problem::invalid("`budget.usd` is 0 to 1,000,000,000")),
    });
    let warn = body.warn_at.map(|share| match (0.0..=1.0).contains(&share) {
        true => Ok((share * 100.0).round() as u8),
        false => Err(Problem::invalid("`budget.warn_at` is 0 to 1")),
    });
    Ok(BudgetPatch {
        caps: BudgetRaise {
            micro_usd: usd.transpose()?,
            tokens: check_max("tokens", body.tokens, JSON_INTEGER_MAX)?,
            turns: check_max("turns", body.turns, TURNS_MAX)?,
            active: check_max("active_ms", body.active_ms, JSON_INTEGER_MAX)?.map(Millis),
        },
        warn_percent: warn.transpose()?,
    })
}

/// The task that this caller wants.
pub(crate) fn to_task(body: NewRunBody, caller: &Identity) -> Result<Task, Problem> {
    refuse_unsupported_fields(&body)?;
    let Some(agent) = body.agent else {
        return Err(
            Problem::invalid("missing field `agent`").hint("GET /v1/agents lists what there is")
        );
    };
    Ok(Task {
        context: body.context,
        history: body.history,
        model: body.model,
        inbox: parse_name("inbox", body.inbox, InboxName::new)?,
        kind: body.kind,
        priority: body.priority,
        lane: parse_name("lane", body.lane, LaneKey::new)?,
        thread: parse_name("thread", body.thread, ThreadKey::new)?,
        resource: parse_name("resource", body.resource, ResourceKey::new)?,
        start: body.start_at.map_or(Start::Now, Start::At),
        budget: parse_budget(body.budget)?,
        submitter: Some(caller.principal.name.clone()),
        actor: body.actor,
        links: body.links,
        tags: body.tags,
        metadata: body.metadata,
        ..Task::new(agent, &body.input)
    })
}

fn refuse_unsupported_fields(body: &NewRunBody) -> Result<(), Problem> {
    let said =
        [("chain", &body.chain), ("auto_approve", &body.auto_approve), ("sandbox", &body.sandbox)];
    match said.iter().find(|(_, value)| value.is_some()) {
        None => Ok(()),
        Some((name, _)) => {
            let words = format!("`{name}` is not in this build yet");
            Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "not_yet", words))
        }
    }
}

/// A name, checked.
pub(crate) fn parse_name<T>(
    what: &str,
    said: Option<String>,
    read: impl Fn(String) -> Result<T, IdError>,
) -> Result<Option<T>, Problem> {
    let read = said.map(read).transpose();
    read.map_err(|bad| Problem::invalid(format!("`{what}`: {bad}")))
}

/// Submits a task after a look whether it can be done at all.
pub(crate) async fn submit(app: &App, caller: &Identity, task: Task) -> Result<RunView, Problem> {
    let longhaul = app.longhaul();
    let agent = longhaul.agent(&task.agent).map_err(|like| {
        let name = task.agent.clone();
        Problem::from(longhaul_engine::Error::AgentNotFound { name, suggestion: like })
    })?;
    let named = task.model.as_deref();
    let named = named.or_else(|| agent.models.first().map(String::as_str));
    if let Err(none) = longhaul.services().models.resolve(named) {
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        let words = none.message_for(&agent.name);
        return Err(Problem::new(status, none.code(), words));
    }
    if let Some(odd) = task.context.keys().find(|name| !agent.context.contains(name)) {
        let lists = match agent.context.is_empty() {
            true => "none".to_owned(),
            false => agent.context.join(", "),
        };
        let words = format!(
            "`context.{odd}`: agent `{}` asks for no such name; its file lists {lists}",
            agent.name
        );
        return Err(Problem::invalid(words));
    }
    if longhaul.exceeds_budget(&agent, task.budget) {
        require_role(caller, Role::Approver).map_err(|no| Problem {
            detail: format!("a budget above the agent's: {}", no.detail),
            ..no
        })?;
    }
    let view = longhaul.submit_and_show(task).await?;
    let (run, caller) = (view.id, &caller.principal.name);
    tracing::info!(%run, agent = %agent.name, caller, "submitted");
    Ok(view)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absurd_cap_is_rejected() {
        let read = |body: serde_json::Value| {
            let body: BudgetBody = serde_json::from_value(body).unwrap();
            parse_budget(body).is_ok()
        };
        for (name, most) in [
            ("tokens", JSON_INTEGER_MAX),
            ("active_ms", JSON_INTEGER_MAX),
            ("turns", u64::from(TURNS_MAX)),
        ] {
            assert!(read(serde_json::json!({ name: most })), "{name}");
            assert!(!read(serde_json::json!({ name: most + 1 })), "{name}");
        }
    }
}
