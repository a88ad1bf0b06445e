//! Tasks for inboxes.
//!
//! Never: a task for nobody. An inbox without an agent of its own needs one
//! named.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::response::Response;
use longhaul_core::id::{InboxName, LaneKey, ResourceKey, ThreadKey};
use longhaul_core::raw::RawJson;
use longhaul_core::task::Start;
use longhaul_core::time::Timestamp;
use longhaul_engine::Task;
use longhaul_engine::handle::Known;
use longhaul_engine::schema;
use longhaul_engine::view::RunView;
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::api::task::{moment, named, submit};
use crate::app::App;
use crate::body::Json;
use crate::caller::Operator;
use crate::once::{own_key, said_key};
use crate::params::Name;
use crate::problem::Problem;
use crate::reply::made;

/// A task to be posted.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewTask)]
pub(crate) struct TaskBody {
    /// Who does it; unless it is said, the inbox's own.
    #[serde(default)]
    agent: Option<String>,
    /// What kind of task it is, for filters.
    #[serde(default, rename = "type")]
    kind: Option<String>,
    /// A text or any JSON.
    #[schema(schema_with = schema::any)]
    payload: RawJson,
    /// Higher goes first.
    #[serde(default)]
    priority: i32,
    /// Only one run of a lane goes at a time.
    #[serde(default)]
    lane: Option<String>,
    /// The conversation it belongs to; `metadata.threadId` is read too.
    #[serde(default)]
    thread: Option<String>,
    /// Whom the conversation is about; `metadata.resourceId` is read too.
    #[serde(default)]
    resource: Option<String>,
    /// Anything that is wanted back.
    #[serde(default)]
    #[schema(value_type = Option<BTreeMap<String, serde_json::Value>>)]
    metadata: Option<BTreeMap<String, Value>>,
    /// Post it again under the same key, and it counts once.
    #[serde(default)]
    idempotency_key: Option<String>,
    /// It does not begin before this point.
    #[serde(default, deserialize_with = "moment")]
    #[schema(value_type = Option<String>, format = DateTime)]
    start_at: Option<Timestamp>,
}

impl TaskBody {
    fn read(self, inbox: InboxName, agent: String, caller: &Known) -> Result<Task, Problem> {
        let metadata = self.metadata.as_ref();
        let inside = |name: &str| {
            let said = metadata.and_then(|metadata| metadata.get(name)?.as_str());
            said.map(str::to_owned)
        };
        let thread = self.thread.or_else(|| inside("threadId"));
        let resource = self.resource.or_else(|| inside("resourceId"));
        Ok(Task {
            inbox: Some(inbox),
            kind: self.kind,
            priority: self.priority,
            lane: named("lane", self.lane, LaneKey::new)?,
            thread: named("thread", thread, ThreadKey::new)?,
            resource: named("resource", resource, ResourceKey::new)?,
            start: self.start_at.map_or(Start::Now, Start::At),
            submitter: Some(caller.principal.name.clone()),
            metadata: self.metadata.as_ref().map(RawJson::of),
            idempotency_key: self.idempotency_key,
            ..Task::new(agent, &self.payload)
        })
    }
}

/// Posts a task. A task is a run.
#[utoipa::path(
    post, path = "/v1/inboxes/{name}/tasks", tag = "inboxes", operation_id = "post_task",
    params(("name" = String, Path, description = "The inbox")),
    request_body = TaskBody,
    responses((status = 201, description = "It is on disk", body = RunView)),
)]
pub(crate) async fn post(
    State(app): State<App>,
    Operator(caller): Operator,
    To { name, key }: To,
    Json(body): Json<TaskBody>,
) -> Result<Response, Problem> {
    let inbox = InboxName::new(&name).map_err(|bad| Problem::invalid(bad.to_string()))?;
    let own = app.options().inboxes.get(&name).cloned();
    let Some(agent) = body.agent.clone().or(own) else {
        let words =
            format!("the inbox `{name}` has no agent of its own, so the task must name one");
        return Err(Problem::invalid(words).hint(format!(
            "send `agent`, or set `[inboxes.{name}] agent` in longhaul.toml"
        )));
    };
    let mut task = body.read(inbox, agent, &caller)?;
    let named = task.idempotency_key.take().or(key);
    task.idempotency_key = own_key(&caller, named);
    let view = submit(&app, &caller, task).await?;
    made(&format!("/v1/runs/{}", view.id), &view)
}

/// Which inbox, and the key that the request is sent under.
#[derive(Debug)]
pub(crate) struct To {
    name: String,
    key: Option<String>,
}

impl axum::extract::FromRequestParts<App> for To {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut axum::http::request::Parts,
        app: &App,
    ) -> Result<Self, Problem> {
        let Name(name) = Name::from_request_parts(parts, app).await?;
        let key = said_key(&parts.headers)?;
        Ok(Self { name, key })
    }
}
