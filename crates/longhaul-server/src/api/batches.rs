//! API handlers that submit and show batches: runs that are submitted together.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use longhaul_api::batch::{BatchView, NewBatchBody};

use crate::api::create_run::{check_task_agent_and_budget, task_from_run_body};
use crate::app::App;
use crate::body::Json;
use crate::caller::{Operator, Viewer};
use crate::idempotency::{caller_scoped_idempotency_key, idempotency_key_header};
use crate::params::BatchPath;
use crate::problem::Problem;
use crate::response::{created_response, ok_response_with_memory_permit};

/// Creates a batch of runs: all of them or none.
#[utoipa::path(
    post, path = "/v1/runs/batch", tag = "runs", operation_id = "submit_batch",
    request_body = NewBatchBody,
    responses((status = 201, description = "The new batch; its runs are on disk", body = BatchView)),
)]
pub(crate) async fn submit_batch(
    State(app): State<App>,
    Operator(caller): Operator,
    headers: HeaderMap,
    Json(body): Json<NewBatchBody>,
) -> Result<Response, Problem> {
    let mut tasks = Vec::with_capacity(body.runs.len());
    for (index, run) in body.runs.into_iter().enumerate() {
        let at_index = |problem: Problem| Problem {
            detail: format!("`runs[{index}]`: {}", problem.detail),
            ..problem
        };
        let task = task_from_run_body(run, &caller.principal.name).map_err(at_index)?;
        check_task_agent_and_budget(&app, &caller, &task).map_err(at_index)?;
        tasks.push(task);
    }
    if let Some(first) = tasks.first_mut() {
        first.idempotency_key =
            caller_scoped_idempotency_key(&caller, idempotency_key_header(&headers)?);
    }
    let batch = app.longhaul().submit_batch(tasks, body.mode).await?;
    let (id, runs, caller) = (batch.id, batch.runs.len(), &caller.principal.name);
    tracing::info!(batch = %id, runs, caller, "batch submitted");
    created_response(&format!("/v1/batches/{id}"), &batch)
}

/// Shows a batch with its runs.
#[utoipa::path(
    get, path = "/v1/batches/{id}", tag = "runs", operation_id = "show_batch",
    params(("id" = String, Path, description = "The batch's id")),
    responses((status = 200, description = "The batch", body = BatchView)),
)]
pub(crate) async fn show_batch(
    State(app): State<App>,
    _: Viewer,
    BatchPath(batch): BatchPath,
) -> Result<Response, Problem> {
    let permit = app.acquire_journal_read_permit().await?;
    ok_response_with_memory_permit(&app.longhaul().batch(batch).await?, permit)
}
