//! API handler that sends an event to an agent. The event becomes a run.

use longhaul_api::event::NewEventBody;
use longhaul_api::run::RunView;
use longhaul_core::id::{LaneKey, ResourceKey, ThreadKey};
use longhaul_core::raw::RawJson;
use longhaul_engine::Task;

use crate::api::create_run::{parse_optional_name_field, submit_task, submitted_run_reply};
use crate::call::{Call, Reply};
use crate::problem::Problem;

fn task_from_event_body(body: NewEventBody, submitter: &str) -> Result<Task, Problem> {
    let payload = body.payload.unwrap_or_else(|| RawJson::from_serialize(&""));
    Ok(Task {
        event: true,
        kind: Some(body.kind),
        actor: body.actor,
        links: body.links,
        lane: parse_optional_name_field("lane", body.lane, LaneKey::new)?,
        thread: parse_optional_name_field("thread", body.thread, ThreadKey::new)?,
        resource: parse_optional_name_field("resource", body.resource, ResourceKey::new)?,
        submitter: Some(submitter.to_owned()),
        ..Task::new(body.agent, &payload)
    })
}

pub(crate) async fn send_event(
    Call { ctx, body, .. }: Call<(), NewEventBody>,
) -> Result<Reply<RunView>, Problem> {
    let mut task = task_from_event_body(body, ctx.by())?;
    task.idempotency_key = ctx.scoped_idempotency_key()?;
    Ok(submitted_run_reply(submit_task(&ctx, task).await?))
}
