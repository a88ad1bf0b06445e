//! Whether the server lives, whether it can work, and which one it is.
//!
//! Never: anything about a run. These need no key.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use longhaul_api::health::{Live, Ready, Version};

use crate::app::App;
use crate::problem::Problem;
use crate::response::{json, ok};

/// Says that the process answers.
#[utoipa::path(
    get, path = "/livez", tag = "health", operation_id = "live", security(()),
    responses((status = 200, description = "It lives", body = Live)),
)]
pub(crate) async fn live() -> Result<Response, Problem> {
    ok(&Live { status: "ok".into() })
}

/// Says whether it can work: a worker beats, which it does by writing to the store.
#[utoipa::path(
    get, path = "/readyz", tag = "health", operation_id = "ready", security(()),
    responses(
        (status = 200, description = "It can", body = Ready),
        (status = 503, description = "It can't now", body = Ready),
    ),
)]
pub(crate) async fn ready(State(app): State<App>) -> Result<Response, Problem> {
    let driven = app.longhaul().has_live_worker().await;
    let (status, driven) = match (app.is_stopping(), driven) {
        (true, driven) => ("stopping", driven.unwrap_or(false)),
        (false, Err(_)) => ("store", false),
        (false, Ok(false)) => ("worker", false),
        (false, Ok(true)) => ("ready", true),
    };
    let code = match status {
        "ready" => StatusCode::OK,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    let status = status.into();
    json(code, &Ready { status, driven })
}

/// Says which build this is.
#[utoipa::path(
    get, path = "/version", tag = "health", operation_id = "version", security(()),
    responses((status = 200, description = "The build", body = Version)),
)]
pub(crate) async fn version(State(app): State<App>) -> Result<Response, Problem> {
    ok(&Version {
        name: "longhaul".into(),
        version: app.options().version.clone(),
        api: "v1".into(),
    })
}
