//! Tasks for inboxes.
//!
//! Never: a task for nobody. An inbox without an agent of its own needs one
//! named.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use longhaul_api::inbox::NewTask;
use longhaul_api::run::RunView;
use longhaul_core::id::{InboxName, LaneKey, ResourceKey, ThreadKey};
use longhaul_core::raw::RawJson;
use longhaul_core::task::Start;
use longhaul_engine::Task;
use longhaul_engine::handle::Known;

use crate::api::task::{named, submit};
use crate::app::App;
use crate::body::Json;
use crate::caller::Operator;
use crate::once::{own_key, said_key};
use crate::params::Name;
use crate::problem::Problem;
use crate::reply::made;

fn task(body: NewTask, inbox: InboxName, agent: String, caller: &Known) -> Result<Task, Problem> {
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
        lane: named("lane", body.lane, LaneKey::new)?,
        thread: named("thread", thread, ThreadKey::new)?,
        resource: named("resource", resource, ResourceKey::new)?,
        start: body.start_at.map_or(Start::Now, Start::At),
        submitter: Some(caller.principal.name.clone()),
        metadata: body.metadata.as_ref().map(RawJson::of),
        idempotency_key: body.idempotency_key,
        ..Task::new(agent, &body.payload)
    })
}

/// Posts a task. A task is a run.
#[utoipa::path(
    post, path = "/v1/inboxes/{name}/tasks", tag = "inboxes", operation_id = "post_task",
    params(("name" = String, Path, description = "The inbox")),
    request_body = NewTask,
    responses((status = 201, description = "It is on disk", body = RunView)),
)]
pub(crate) async fn post(
    State(app): State<App>,
    Operator(caller): Operator,
    (Name(name), headers): (Name, HeaderMap),
    Json(body): Json<NewTask>,
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
    let mut task = task(body, inbox, agent, &caller)?;
    let named = task.idempotency_key.take().or(said_key(&headers)?);
    task.idempotency_key = own_key(&caller, named);
    let view = submit(&app, &caller, task).await?;
    made(&format!("/v1/runs/{}", view.id), &view)
}
