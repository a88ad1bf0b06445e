//! All routes, and the guards before them.
//!
//! Never: a route of the API that is not described. They are added in one way.

use axum::Router;
use axum::http::{StatusCode, Uri};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::Response;
use axum::routing::get;

use crate::api_router::api_router;
use crate::app::App;
use crate::caller::Viewer;
use crate::idempotency::idempotent;
use crate::middleware::auth::authenticate;
use crate::middleware::host::check_host;
use crate::middleware::origin::check_origin;
use crate::middleware::request_id::finish_response;
use crate::middleware::timeout::request_timeout;
use crate::openapi::document;
use crate::page;
use crate::problem::Problem;
use crate::response::ok;

/// Everything that is served, behind its guards. The last guard added is the
/// first that a request meets.
pub(crate) fn router(app: App) -> Router {
    api_router()
        .split_for_parts()
        .0
        .route("/openapi.json", get(openapi))
        .route("/", get(page::index::index))
        .route("/style.css", get(page::style::style))
        .route("/a/{token}", get(page::link::show).post(page::link::decide))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(from_fn_with_state(app.clone(), idempotent))
        .layer(from_fn_with_state(app.clone(), authenticate))
        .layer(from_fn_with_state(app.clone(), request_timeout))
        .layer(from_fn(check_origin))
        .layer(from_fn_with_state(app.clone(), check_host))
        .layer(from_fn_with_state(app.clone(), finish_response))
        .with_state(app)
}

/// The description of the API.
async fn openapi(_: Viewer) -> Result<Response, Problem> {
    ok(&document())
}

async fn not_found(uri: Uri) -> Problem {
    let shown: String = uri.path().chars().take(80).collect();
    Problem::not_found("not_found", format!("there is nothing at `{shown}`"))
        .hint("GET /openapi.json lists what there is")
}

async fn method_not_allowed() -> Problem {
    let words = "this path takes another method";
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", words)
        .hint("the `Allow` header and GET /openapi.json say which")
}
