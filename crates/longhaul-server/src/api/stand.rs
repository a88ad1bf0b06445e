//! Ends, stills and frees runs.
//!
//! Never: returns before the word is on disk.

use axum::response::Response;
use longhaul_api::run::{CancelBody, ResumeBody, RunView};
use longhaul_core::access::Role;
use longhaul_core::id::RunId;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::api::task;
use crate::body::MaybeJson;
use crate::caller::{Operator, may};
use crate::once::RequestHandle;
use crate::params::RunPath;
use crate::problem::Problem;
use crate::reply::ok;
use crate::spelled::RunWord;
use crate::trouble::{after_commit, unread};

/// Nothing more is to be said.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

/// Ends a run.
#[utoipa::path(
    post, path = "/v1/runs/{id}/cancel", tag = "runs", operation_id = "cancel_run",
    params(("id" = inline(RunWord), Path, description = "The run's id")),
    request_body(content = Option<CancelBody>),
    responses((status = 200, description = "The run, ended or about to be", body = RunView)),
)]
pub(crate) async fn cancel(
    request: RequestHandle,
    caller: Operator,
    RunPath(run): RunPath,
    MaybeJson(body): MaybeJson<CancelBody>,
) -> Result<Response, Problem> {
    let reason = match body.reason.trim() {
        "" => format!("cancelled by {}", caller.name()),
        said => said.to_owned(),
    };
    if request.effect.is_none() {
        request.longhaul.cancel(run, caller.name(), &reason).await?;
    }
    tracing::info!(%run, caller = caller.name(), "told to end");
    shown(&request, run).await
}

/// Stills a run until somebody lets it go on.
#[utoipa::path(
    post, path = "/v1/runs/{id}/pause", tag = "runs", operation_id = "pause_run",
    params(("id" = inline(RunWord), Path, description = "The run's id")),
    request_body(content = Option<Nothing>),
    responses((status = 200, description = "The run, paused or about to be", body = RunView)),
)]
pub(crate) async fn pause(
    request: RequestHandle,
    caller: Operator,
    RunPath(run): RunPath,
    MaybeJson(Nothing {}): MaybeJson<Nothing>,
) -> Result<Response, Problem> {
    if request.effect.is_none() {
        request.longhaul.pause(run, caller.name()).await?;
    }
    tracing::info!(%run, caller = caller.name(), "told to stand still");
    shown(&request, run).await
}

/// Lets a run go on, maybe with more to spend.
#[utoipa::path(
    post, path = "/v1/runs/{id}/resume", tag = "runs", operation_id = "resume_run",
    params(("id" = inline(RunWord), Path, description = "The run's id")),
    request_body(content = Option<ResumeBody>),
    responses((status = 200, description = "The run, ready to go on", body = RunView)),
)]
pub(crate) async fn resume(
    request: RequestHandle,
    caller: Operator,
    RunPath(run): RunPath,
    MaybeJson(body): MaybeJson<ResumeBody>,
) -> Result<Response, Problem> {
    let raise = match body.budget {
        None => None,
        Some(budget) => {
            may(&caller.0, Role::Approver)?;
            Some(task::budget(budget)?.caps)
        }
    };
    if request.effect.is_none() {
        request.longhaul.resume(run, raise, caller.name()).await?;
    }
    tracing::info!(%run, caller = caller.name(), "told to go on");
    shown(&request, run).await
}

/// The run after its change was committed.
async fn shown(request: &RequestHandle, run: RunId) -> Result<Response, Problem> {
    let _permit = request.app.fold_permit().await.map_err(|_| unread())?;
    let view = request.longhaul.show(run).await.map_err(after_commit)?;
    ok(&view)
}
