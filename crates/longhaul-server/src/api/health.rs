//! API handlers for health probes and the version. They need no key and reveal nothing about runs.

use axum::http::StatusCode;
use longhaul_api::health::{LivenessResponse, ReadinessResponse, VersionResponse};

use crate::app::App;
use crate::call::{Replied, Reply};

pub(crate) async fn show_liveness(_: App) -> Replied<LivenessResponse> {
    Ok(Reply::ok(LivenessResponse { status: "ok".into() }))
}

pub(crate) async fn show_readiness(app: App) -> Replied<ReadinessResponse> {
    if app.state.in_process {
        // A command learns from the lock of the store whether another process drives the runs.
        let driven = app.longhaul().has_process_driving_runs().await?;
        return Ok(Reply::ok(ReadinessResponse { status: "ready".into(), driven }));
    }
    let has_worker = app.longhaul().has_live_worker().await;
    let (status, has_worker) = match (app.state.stopping.is_cancelled(), has_worker) {
        (true, has_worker) => ("stopping", has_worker.unwrap_or(false)),
        (false, Err(_)) => ("store", false),
        (false, Ok(false)) => ("worker", false),
        (false, Ok(true)) => ("ready", true),
    };
    let code = match status {
        "ready" => StatusCode::OK,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    let readiness = ReadinessResponse { status: status.into(), driven: has_worker };
    Ok(Reply::with_status(readiness, code))
}

pub(crate) async fn show_version(app: App) -> Replied<VersionResponse> {
    Ok(Reply::ok(VersionResponse {
        name: "longhaul".into(),
        version: app.state.options.version.clone(),
        api: "v1".into(),
    }))
}
