//! API handler that submits a task to an inbox. A task must name an agent unless its inbox has a
//! default agent.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use longhaul_api::inbox::NewTaskBody;
use longhaul_api::run::RunView;
use longhaul_core::id::{InboxName, LaneKey, ResourceKey, ThreadKey};
use longhaul_core::raw::RawJson;
use longhaul_core::task::EarliestStart;
use longhaul_engine::Task;
use longhaul_engine::handle::CallerIdentity;

use crate::api::create_run::{parse_name, submit_task, submitted_response};
use crate::app::App;
use crate::body::Json;
use crate::caller::Operator;
use crate::idempotency::{idempotency_key_header, scope_key_to_caller};
use crate::params::NamePath;
use crate::problem::Problem;

fn to_task(
    body: NewTaskBody,
    inbox: InboxName,
    agent: String,
    caller: &CallerIdentity,
) -> Result<Task, Problem> {
    let metadata = body.metadata.as_ref();
    let inside = |name: &str| {
        let value = metadata.and_then(|metadata| metadata.get(name)?.as_str());
        value.map(str::to_owned)
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
        start: body.start_at.map_or(EarliestStart::Now, EarliestStart::At),
        submitter: Some(caller.principal.name.clone()),
        metadata: body.metadata.as_ref().map(RawJson::from_serialize),
        idempotency_key: body.idempotency_key,
        ..Task::new(agent, &body.payload)
    })
}

/// Submits a task to an inbox. The task becomes a run.
#[utoipa::path(
    post, path = "/v1/inboxes/{name}/tasks", tag = "inboxes", operation_id = "post_task",
    params(("name" = String, Path, description = "Name of the inbox")),
    request_body = NewTaskBody,
    responses(
        (status = 201, description = "The new run; it is on disk", body = RunView),
        (status = 200, description = "The run to which the task was added as a message, because its lane is busy", body = RunView),
    ),
)]
pub(crate) async fn post_task(
    State(app): State<App>,
    Operator(caller): Operator,
    (NamePath(name), headers): (NamePath, HeaderMap),
    Json(body): Json<NewTaskBody>,
) -> Result<Response, Problem> {
    let inbox = InboxName::new(&name).map_err(|bad| Problem::unprocessable(bad.to_string()))?;
    let own = app.options().inboxes.get(&name).cloned();
    let Some(agent) = body.agent.clone().or(own) else {
        let message = format!("the inbox `{name}` has no default agent, so the task must name one");
        return Err(Problem::unprocessable(message)
            .hint(format!("send `agent`, or set `[inboxes.{name}] agent` in longhaul.toml")));
    };
    let mut task = to_task(body, inbox, agent, &caller)?;
    let named = task.idempotency_key.take().or(idempotency_key_header(&headers)?);
    task.idempotency_key = scope_key_to_caller(&caller, named);
    submitted_response(&submit_task(&app, &caller, task).await?)
}
