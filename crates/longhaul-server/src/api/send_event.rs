//! API handler that sends an event to an agent. The event becomes a run.

use longhaul_api::event::NewEventBody;
use longhaul_api::run::RunView;
use longhaul_core::raw::RawJson;
use longhaul_engine::Task;

use crate::api::create_run::{submit_task, submitted_run_reply};
use crate::call::{Call, Reply};
use crate::problem::Problem;

pub(crate) async fn send_event(
    Call { ctx, body, .. }: Call<(), NewEventBody>,
) -> Result<Reply<RunView>, Problem> {
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
