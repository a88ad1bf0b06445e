//! API handlers for health probes and the version. They need no key and reveal nothing about runs.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use longhaul_api::health::{LivenessResponse, ReadinessResponse, VersionResponse};

use crate::app::App;
use crate::problem::Problem;
use crate::response::{json_response, ok_response};

/// Returns 200 as long as the server process can answer requests.
#[utoipa::path(
    get, path = "/livez", tag = "health", operation_id = "live", security(()),
    responses((status = 200, description = "The process is alive", body = LivenessResponse)),
)]
pub(crate) async fn show_liveness() -> Result<Response, Problem> {
    ok_response(&LivenessResponse { status: "ok".into() })
}

/// Returns whether runs can make progress: a worker is alive and its heartbeats are stored.
#[utoipa::path(
    get, path = "/readyz", tag = "health", operation_id = "ready", security(()),
    responses(
        (status = 200, description = "The server is ready", body = ReadinessResponse),
        (status = 503, description = "The server is not ready", body = ReadinessResponse),
    ),
)]
pub(crate) async fn show_readiness(State(app): State<App>) -> Result<Response, Problem> {
    let has_worker = app.longhaul().has_live_worker().await;
    let (status, has_worker) = match (app.is_stopping(), has_worker) {
        (true, has_worker) => ("stopping", has_worker.unwrap_or(false)),
        (false, Err(_)) => ("store", false),
        (false, Ok(false)) => ("worker", false),
        (false, Ok(true)) => ("ready", true),
    };
    let code = match status {
        "ready" => StatusCode::OK,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    let status = status.into();
    json_response(code, &ReadinessResponse { status, driven: has_worker })
}

/// Returns the version of this server.
#[utoipa::path(
    get, path = "/version", tag = "health", operation_id = "version", security(()),
    responses((status = 200, description = "The version", body = VersionResponse)),
)]
pub(crate) async fn show_version(State(app): State<App>) -> Result<Response, Problem> {
    ok_response(&VersionResponse {
        name: "longhaul".into(),
        version: app.options().version.clone(),
        api: "v1".into(),
    })
}
