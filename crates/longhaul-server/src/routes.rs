//! All routes of the server and the middleware before them. API routes come only from the OpenAPI
//! router, so each of them is documented.

use std::sync::LazyLock;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::http::{StatusCode, Uri};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;

use crate::api_router::{api_routes, openapi_document};
use crate::app::App;
use crate::idempotency::handle_key;
use crate::middleware::auth::authentication_middleware;
use crate::middleware::guards::{check_host, limit_time, reject_cross_site_requests};
use crate::middleware::request_id::assign_id;
use crate::page;
use crate::problem::Problem;

/// Builds the router with all routes and middleware. The middleware added last runs first.
pub(crate) fn build_router(app: App) -> Router {
    api_routes()
        .router
        .route("/openapi.json", get(serve_openapi_document))
        .route("/", get(page::index::serve_start_page))
        .route("/style.css", get(page::serve_style_sheet))
        .route("/a/{token}", get(page::link::show).post(page::link::answer))
        .fallback(unknown_path_problem)
        .method_not_allowed_fallback(method_not_allowed_problem)
        .layer(from_fn_with_state(app.clone(), handle_key))
        .layer(from_fn_with_state(app.clone(), authentication_middleware))
        .layer(from_fn_with_state(app.clone(), limit_time))
        .layer(from_fn(reject_cross_site_requests))
        .layer(from_fn_with_state(app.clone(), check_host))
        .layer(from_fn_with_state(app.clone(), assign_id))
        .with_state(app)
}

/// Serves the OpenAPI document of the API, which is the same for every caller and needs no key.
async fn serve_openapi_document() -> Response {
    static DOCUMENT: LazyLock<String> = LazyLock::new(|| openapi_document().to_string());
    ([(CONTENT_TYPE, "application/json")], DOCUMENT.as_str()).into_response()
}

async fn unknown_path_problem(uri: Uri) -> Problem {
    let display_path: String = uri.path().chars().take(80).collect();
    Problem::not_found("not_found", format!("there is no endpoint `{display_path}`"))
        .with_hint("GET /openapi.json lists all paths")
}

async fn method_not_allowed_problem() -> Problem {
    let message = "this path does not support this method";
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
        .with_hint("the `Allow` header and GET /openapi.json list the supported methods")
}
