//! All routes, and the guards before them.
//!
//! Never: a route of the API that is not described. They are added in one way.

use axum::Router;
use axum::http::{StatusCode, Uri};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::Response;
use axum::routing::get;

use crate::app::App;
use crate::caller::Viewer;
use crate::described::described;
use crate::guard::finish::finish;
use crate::guard::host::host;
use crate::guard::key::key;
use crate::guard::origin::origin;
use crate::guard::patience::patience;
use crate::once::once;
use crate::openapi::document;
use crate::page;
use crate::problem::Problem;
use crate::reply::ok;

/// Everything that is served, behind its guards. The last guard added is the
/// first that a request meets.
pub(crate) fn router(app: App) -> Router {
    described()
        .split_for_parts()
        .0
        .route("/openapi.json", get(openapi))
        .route("/", get(page::start::start))
        .route("/style.css", get(page::style::style))
        .route("/a/{token}", get(page::link::show).post(page::link::decide))
        .fallback(nothing)
        .method_not_allowed_fallback(not_so)
        .layer(from_fn_with_state(app.clone(), once))
        .layer(from_fn_with_state(app.clone(), key))
        .layer(from_fn_with_state(app.clone(), patience))
        .layer(from_fn(origin))
        .layer(from_fn_with_state(app.clone(), host))
        .layer(from_fn_with_state(app.clone(), finish))
        .with_state(app)
}

/// The description of the API.
async fn openapi(_: Viewer) -> Result<Response, Problem> {
    ok(&document())
}

async fn nothing(uri: Uri) -> Problem {
    let shown: String = uri.path().chars().take(80).collect();
    Problem::not_found("not_found", format!("there is nothing at `{shown}`"))
        .hint("GET /openapi.json lists what there is")
}

async fn not_so() -> Problem {
    let words = "this path takes another method";
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", words)
        .hint("the `Allow` header and GET /openapi.json say which")
}
