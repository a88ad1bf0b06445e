//! API handlers that submit and show batches: runs that are submitted together.

use longhaul_api::batch::{BatchView, NewBatchBody};
use longhaul_api::operation::NoQuery;
use longhaul_core::id::BatchId;

use crate::api::create_run::{check_run_body, check_task_agent_and_budget};
use crate::call::{Call, Reply};
use crate::problem::Problem;

pub(crate) async fn submit_batch(
    Call { ctx, body, .. }: Call<(), NewBatchBody, NoQuery>,
) -> Result<Reply<BatchView>, Problem> {
    let mut tasks = Vec::with_capacity(body.runs.len());
    for (index, run) in body.runs.into_iter().enumerate() {
        let at_index = |problem: Problem| {
            let detail = format!("`runs[{index}]`: {}", problem.detail);
            problem.with_detail(detail)
        };
        let task = check_run_body(run, ctx.by()).map_err(at_index)?;
        check_task_agent_and_budget(&ctx, &task).map_err(at_index)?;
        tasks.push(task);
    }
    if let Some(first) = tasks.first_mut() {
        first.idempotency_key = ctx.scoped_idempotency_key()?;
    }
    let batch = ctx.longhaul().submit_batch(tasks, body.mode).await?;
    let (id, runs, caller) = (batch.id, batch.runs.len(), ctx.by());
    tracing::info!(batch = %id, runs, caller, "batch submitted");
    Ok(Reply::created(format!("/v1/batches/{id}"), batch))
}

pub(crate) async fn show_batch(
    Call { ctx, path: batch, .. }: Call<BatchId>,
) -> Result<Reply<BatchView>, Problem> {
    let permit = ctx.app.acquire_journal_read_permit().await?;
    Ok(Reply::ok(ctx.longhaul().batch(batch).await?).holding(permit))
}
