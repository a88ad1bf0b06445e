//! API handler that sends an event to an agent. The event becomes a run.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use longhaul_api::event::NewEventBody;
use longhaul_api::run::RunView;
use longhaul_core::id::{LaneKey, ResourceKey, ThreadKey};
use longhaul_core::raw::RawJson;
use longhaul_engine::Task;
use longhaul_engine::handle::CallerIdentity;

use crate::api::create_run::{parse_optional_name_field, submit_task, submitted_run_response};
use crate::app::App;
use crate::body::Json;
use crate::caller::Operator;
use crate::idempotency::{caller_scoped_idempotency_key, idempotency_key_header};
use crate::problem::Problem;

fn task_from_event_body(body: NewEventBody, caller: &CallerIdentity) -> Result<Task, Problem> {
    let payload = body.payload.unwrap_or_else(|| RawJson::from_serialize(&""));
    Ok(Task {
        event: true,
        kind: Some(body.kind),
        actor: body.actor,
        links: body.links,
        lane: parse_optional_name_field("lane", body.lane, LaneKey::new)?,
        thread: parse_optional_name_field("thread", body.thread, ThreadKey::new)?,
        resource: parse_optional_name_field("resource", body.resource, ResourceKey::new)?,
        submitter: Some(caller.principal.name.clone()),
        ..Task::new(body.agent, &payload)
    })
}

/// Sends an event to an agent, which gets the event as text: in a new run, or in a running one as a
/// message if the lane is busy.
#[utoipa::path(
    post, path = "/v1/events", tag = "events", operation_id = "send_event",
    request_body = NewEventBody,
    responses(
        (status = 201, description = "The new run; it is on disk", body = RunView),
        (status = 200, description = "The run to which the event was added as a message, because its lane is busy", body = RunView),
    ),
)]
pub(crate) async fn send_event(
    State(app): State<App>,
    Operator(caller): Operator,
    headers: HeaderMap,
    Json(body): Json<NewEventBody>,
) -> Result<Response, Problem> {
    let mut task = task_from_event_body(body, &caller)?;
    task.idempotency_key =
        caller_scoped_idempotency_key(&caller, idempotency_key_header(&headers)?);
    submitted_run_response(&submit_task(&app, &caller, task).await?)
}
