//! Tasks for inboxes.
//!
//! Never: a task for nobody. An inbox without an agent of its own needs one
//! named.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use longhaul_api::inbox::NewTaskBody;
use longhaul_api::run::RunView;
use longhaul_core::id::{InboxName, LaneKey, ResourceKey, ThreadKey};
use longhaul_core::raw::RawJson;
use longhaul_core::task::Start;
use longhaul_engine::Task;
use longhaul_engine::handle::Identity;

use crate::api::create_run::{parse_name, submit};
use crate::app::App;
use crate::body::Json;
use crate::caller::Operator;
use crate::idempotency::{header_key, scoped_key};
use crate::params::NamePath;
use crate::problem::Problem;
use crate::response::created;

fn to_task(
    body: NewTaskBody,
    inbox: InboxName,
    agent: String,
    caller: &Identity,
) -> Result<Task, Problem> {
    let metadata = body.metadata.as_ref();
    let inside = |name: &str| {
        let said = metadata.and_then(|metadata| metadata.get(name)?.as_str());
        said.map(str::to_owned)
    };
    let thread = body.thread.or_else(|| inside("threadId"));
    let resource = body.resource.or_else(|| inside("resourceId"));
    Ok(Task {
        inbox: Some(inbox),
        kind: body.kind,
        priority: body.priority,
        lane: parse_name("lane", body.lane, LaneKey::new)?,
        thread: parse_name("thread", thread, ThreadKey::new)?,
        resource: parse_name("resource", resource, ResourceKey::new)?,
        start: body.start_at.map_or(Start::Now, Start::At),
        submitter: Some(caller.principal.name.clone()),
        metadata: body.metadata.as_ref().map(RawJson::from_serialize),
        idempotency_key: body.idempotency_key,
        ..Task::new(agent, &body.payload)
    })
}

/// Posts a task. A task is a run.
#[utoipa::path(
    post, path = "/v1/inboxes/{name}/tasks", tag = "inboxes", operation_id = "post_task",
    params(("name" = String, Path, description = "The inbox")),
    request_body = NewTaskBody,
    responses((status = 201, description = "It is on disk", body = RunView)),
)]
pub(crate) async fn post(
    State(app): State<App>,
    Operator(caller): Operator,
    (NamePath(name), headers): (NamePath, HeaderMap),
    Json(body): Json<NewTaskBody>,
) -> Result<Response, Problem> {
    let inbox = InboxName::new(&name).map_err(|bad| Problem::invalid(bad.to_string()))?;
    let own = app.options().inboxes.get(&name).cloned();
    let Some(agent) = body.agent.clone().or(own) else {
        let words =
            format!("the inbox `{name}` has no agent of its own, so the task must name one");
        return Err(Problem::invalid(words)
            .hint(format!("send `agent`, or set `[inboxes.{name}] agent` in longhaul.toml")));
    };
    let mut task = to_task(body, inbox, agent, &caller)?;
    let named = task.idempotency_key.take().or(header_key(&headers)?);
    task.idempotency_key = scoped_key(&caller, named);
    let view = submit(&app, &caller, task).await?;
    created(&format!("/v1/runs/{}", view.id), &view)
}
