//! A task as a body says it, and what is checked before it is submitted.
//!
//! Never: a task that nobody could do. What is missing is said at once.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use longhaul_core::access::Role;
use longhaul_core::id::{BadId, InboxName, LaneKey, ResourceKey, ThreadKey};
use longhaul_core::message::Message;
use longhaul_core::policy::budget::Raise;
use longhaul_core::raw::RawJson;
use longhaul_core::task::Start;
use longhaul_core::time::{Millis, Timestamp};
use longhaul_core::usage::Micros;
use longhaul_engine::Task;
use longhaul_engine::agent::BudgetPatch;
use longhaul_engine::handle::Known;
use longhaul_engine::schema;
use longhaul_engine::view::RunView;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use utoipa::ToSchema;

use crate::api::history;
use crate::app::App;
use crate::caller::may;
use crate::problem::Problem;

/// A run to be made.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewRun {
    /// Who does it.
    #[schema(value_type = String)]
    agent: Option<String>,
    /// A text or any JSON.
    #[schema(schema_with = schema::any)]
    input: RawJson,
    /// Names that the runtime injects and the model can neither see nor set.
    #[serde(default)]
    #[schema(value_type = BTreeMap<String, serde_json::Value>)]
    context: BTreeMap<String, RawJson>,
    /// A conversation that comes with it, which the user begins.
    #[serde(default, deserialize_with = "history::read")]
    #[schema(schema_with = history::described)]
    history: Vec<Message>,
    /// The conversation it belongs to.
    #[serde(default, alias = "threadId")]
    thread: Option<String>,
    /// Whom the conversation is about.
    #[serde(default, alias = "resourceId")]
    resource: Option<String>,
    /// Only one run of a lane goes at a time.
    #[serde(default)]
    lane: Option<String>,
    /// Where it queues; `default` unless it is said.
    #[serde(default)]
    inbox: Option<String>,
    /// What kind of task it is, for filters.
    #[serde(default, rename = "type")]
    kind: Option<String>,
    /// Higher goes first.
    #[serde(default)]
    priority: i32,
    /// The model, as `provider/model` or a short name.
    #[serde(default)]
    model: Option<String>,
    /// Caps of its own. Above the agent's they need the role approver.
    #[serde(default)]
    budget: BudgetBody,
    /// On whose behalf.
    #[serde(default)]
    #[schema(schema_with = schema::any)]
    actor: Option<RawJson>,
    /// Handles of things elsewhere.
    #[serde(default)]
    #[schema(schema_with = schema::any)]
    links: Option<RawJson>,
    /// Labels to find it by.
    #[serde(default)]
    tags: Vec<String>,
    /// Anything that is wanted back.
    #[serde(default)]
    #[schema(schema_with = schema::any)]
    metadata: Option<RawJson>,
    /// It does not begin before this point.
    #[serde(default, deserialize_with = "moment")]
    #[schema(value_type = Option<String>, format = DateTime)]
    start_at: Option<Timestamp>,
    // What this build does not have yet is refused by name, so that nobody
    // thinks it was heard.
    #[serde(default, alias = "chainId", alias = "chainConfig")]
    #[schema(ignore)]
    chain: Option<RawJson>,
    #[serde(default, alias = "autoApprove")]
    #[schema(ignore)]
    auto_approve: Option<RawJson>,
    #[serde(default)]
    #[schema(ignore)]
    sandbox: Option<RawJson>,
}

/// Caps as a body says them.
#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct BudgetBody {
    /// Money.
    #[schema(minimum = 0, maximum = 1_000_000_000)]
    usd: Option<f64>,
    /// Tokens.
    #[schema(maximum = 9_007_199_254_740_991_u64)]
    tokens: Option<u64>,
    /// Turns.
    #[schema(maximum = 1_000_000_000)]
    turns: Option<u32>,
    /// Active time.
    #[schema(maximum = 9_007_199_254_740_991_u64)]
    active_ms: Option<u64>,
    /// From this share on the agent is told to wrap up.
    #[schema(minimum = 0, maximum = 1)]
    warn_at: Option<f64>,
}

/// More than this is no budget but a slip.
const USD_MAX: f64 = 1_000_000_000.0;
const TURNS_MAX: u32 = 1_000_000_000;

/// The greatest whole number that every reader of JSON can hold.
const WHOLE_MAX: u64 = 9_007_199_254_740_991;

/// A number that is not beyond its bound.
fn within<T: PartialOrd + std::fmt::Display>(
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

impl BudgetBody {
    /// The caps, checked.
    pub(crate) fn read(self) -> Result<BudgetPatch, Problem> {
        let usd = self.usd.map(|usd| match (0.0..=USD_MAX).contains(&usd) {
            true => Ok(Micros((usd * 1_000_000.0).round() as u64)),
            false => Err(Problem::invalid("`budget.usd` is 0 to 1,000,000,000")),
        });
        let warn = self
            .warn_at
            .map(|share| match (0.0..=1.0).contains(&share) {
                true => Ok((share * 100.0).round() as u8),
                false => Err(Problem::invalid("`budget.warn_at` is 0 to 1")),
            });
        Ok(BudgetPatch {
            caps: Raise {
                micros: usd.transpose()?,
                tokens: within("tokens", self.tokens, WHOLE_MAX)?,
                turns: within("turns", self.turns, TURNS_MAX)?,
                active: within("active_ms", self.active_ms, WHOLE_MAX)?.map(Millis),
            },
            warn_percent: warn.transpose()?,
        })
    }
}

impl NewRun {
    /// The task that this caller wants.
    pub(crate) fn read(self, caller: &Known) -> Result<Task, Problem> {
        self.refuse_later_parts()?;
        let Some(agent) = self.agent else {
            return Err(Problem::invalid("missing field `agent`")
                .hint("GET /v1/agents lists what there is"));
        };
        Ok(Task {
            context: self.context,
            history: self.history,
            model: self.model,
            inbox: named("inbox", self.inbox, InboxName::new)?,
            kind: self.kind,
            priority: self.priority,
            lane: named("lane", self.lane, LaneKey::new)?,
            thread: named("thread", self.thread, ThreadKey::new)?,
            resource: named("resource", self.resource, ResourceKey::new)?,
            start: self.start_at.map_or(Start::Now, Start::At),
            budget: self.budget.read()?,
            submitter: Some(caller.principal.name.clone()),
            actor: self.actor,
            links: self.links,
            tags: self.tags,
            metadata: self.metadata,
            ..Task::new(agent, &self.input)
        })
    }
}

impl NewRun {
    fn refuse_later_parts(&self) -> Result<(), Problem> {
        let said = [
            ("chain", &self.chain),
            ("auto_approve", &self.auto_approve),
            ("sandbox", &self.sandbox),
        ];
        match said.iter().find(|(_, value)| value.is_some()) {
            None => Ok(()),
            Some((name, _)) => {
                let words = format!("`{name}` is not in this build yet");
                Err(Problem::new(
                    StatusCode::UNPROCESSABLE_ENTITY,
                    "not_yet",
                    words,
                ))
            }
        }
    }
}

/// A point in time as others write it. Our own journals know one more way, for
/// times that have no date.
pub(crate) fn moment<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Timestamp>, D::Error> {
    let Some(said) = Option::<String>::deserialize(from)? else {
        return Ok(None);
    };
    let dated = said.get(4..5) == Some("-");
    let read = said.parse().ok().filter(|_| dated);
    let words = "a time is written as in RFC 3339, such as 2026-01-31T12:00:00Z";
    read.map(Some).ok_or_else(|| D::Error::custom(words))
}

/// A name, checked.
pub(crate) fn named<T>(
    what: &str,
    said: Option<String>,
    read: impl Fn(String) -> Result<T, BadId>,
) -> Result<Option<T>, Problem> {
    let read = said.map(read).transpose();
    read.map_err(|bad| Problem::invalid(format!("`{what}`: {bad}")))
}

/// Submits a task after a look whether it can be done at all.
pub(crate) async fn submit(app: &App, caller: &Known, task: Task) -> Result<RunView, Problem> {
    let longhaul = app.longhaul();
    let agent = longhaul.agent(&task.agent).map_err(|like| {
        let name = task.agent.clone();
        Problem::from(longhaul_engine::Error::NoAgent { name, like })
    })?;
    let named = task.model.as_deref();
    let named = named.or_else(|| agent.models.first().map(String::as_str));
    if let Err(none) = longhaul.ports().models.find(named) {
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        let words = none.said_of(&agent.name);
        return Err(Problem::new(status, none.code(), words));
    }
    if let Some(odd) = task
        .context
        .keys()
        .find(|name| !agent.context.contains(name))
    {
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
    if longhaul.is_above(&agent, task.budget) {
        may(caller, Role::Approver).map_err(|no| Problem {
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
    fn a_time_is_a_date() {
        let read = |text: &str| moment(&serde_json::json!(text)).is_ok();
        assert!(read("2026-01-31T12:00:00Z"));
        assert!(read("2026-01-31T12:00:00.123456+02:00"));
        for odd in ["5us", "-5us", "", "tomorrow", "2026-13-01T00:00:00Z"] {
            assert!(!read(odd), "{odd}");
        }
        assert_eq!(moment(&serde_json::Value::Null).ok(), Some(None));
    }

    #[test]
    fn a_cap_beyond_all_reason_is_a_slip() {
        let read = |body: serde_json::Value| {
            let body: BudgetBody = serde_json::from_value(body).unwrap();
            body.read().is_ok()
        };
        for (name, most) in [
            ("tokens", WHOLE_MAX),
            ("active_ms", WHOLE_MAX),
            ("turns", u64::from(TURNS_MAX)),
        ] {
            assert!(read(serde_json::json!({ name: most })), "{name}");
            assert!(!read(serde_json::json!({ name: most + 1 })), "{name}");
        }
    }
}
