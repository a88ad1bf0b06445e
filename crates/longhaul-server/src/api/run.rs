//! One run: whole, its conversation, and why it stands as it does.
//!
//! Never: changes anything.

use axum::extract::State;
use axum::response::Response;
use longhaul_api::run::RunView;
use longhaul_api::transcript::TranscriptView;
use longhaul_api::why::WhyView;

use crate::app::App;
use crate::caller::Viewer;
use crate::params::RunPath;
use crate::problem::Problem;
use crate::reply::{ok, ok_with_permit};
use crate::spelled::RunWord;

/// Shows a run.
#[utoipa::path(
    get, path = "/v1/runs/{id}", tag = "runs", operation_id = "show_run",
    params(("id" = inline(RunWord), Path, description = "The run's id")),
    responses((status = 200, description = "The run", body = RunView)),
)]
pub(crate) async fn show(
    State(app): State<App>,
    _: Viewer,
    RunPath(run): RunPath,
) -> Result<Response, Problem> {
    let _permit = app.fold_permit().await?;
    ok(&app.longhaul().show(run).await?)
}

/// Shows what was said.
#[utoipa::path(
    get, path = "/v1/runs/{id}/transcript", tag = "runs", operation_id = "show_transcript",
    params(("id" = inline(RunWord), Path, description = "The run's id")),
    responses((status = 200, description = "The conversation", body = TranscriptView)),
)]
pub(crate) async fn transcript(
    State(app): State<App>,
    _: Viewer,
    RunPath(run): RunPath,
) -> Result<Response, Problem> {
    let permit = app.transcript_permit().await?;
    let view = app.longhaul().transcript(run).await?;
    // It is in memory until it is sent.
    ok_with_permit(&view, permit)
}

/// Says why a run stands as it does, and what helps.
#[utoipa::path(
    get, path = "/v1/runs/{id}/why", tag = "runs", operation_id = "why",
    params(("id" = inline(RunWord), Path, description = "The run's id")),
    responses((status = 200, description = "A sentence and a command", body = WhyView)),
)]
pub(crate) async fn why(
    State(app): State<App>,
    _: Viewer,
    RunPath(run): RunPath,
) -> Result<Response, Problem> {
    let _permit = app.fold_permit().await?;
    ok(&app.longhaul().why_view(run).await?)
}
