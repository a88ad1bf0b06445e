//! Outermost middleware: assigns the request id, catches panics, writes error responses, and logs
//! rejected requests.
//!
//! Invariant: the log has the declared route, never the path, because a path may contain a secret.

use std::panic::AssertUnwindSafe;

use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{
    CACHE_CONTROL, HeaderName, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use futures_util::FutureExt as _;
use longhaul_core::id::RunId;

use crate::app::App;
use crate::middleware::auth::CallerName;
use crate::problem::Problem;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Name that the log shows for callers without a valid credential.
const ANONYMOUS: &str = "anonymous";

/// Middleware that runs the request, writes its error response, logs it and sets the common
/// headers.
pub(crate) async fn assign_id(State(app): State<App>, request: Request, next: Next) -> Response {
    let id = format!("req_{:032x}", app.longhaul().services().ids.next_id_bits());
    let route = request.extensions().get::<MatchedPath>();
    let route = route.map_or("(no route)", MatchedPath::as_str).to_owned();
    let method = request.method().clone();
    let run = run_id_in_path(request.uri().path());
    let result = AssertUnwindSafe(next.run(request)).catch_unwind().await;
    let mut response = result.unwrap_or_else(|_| {
        tracing::error!(%method, route, request_id = id, "a request handler panicked");
        axum::response::IntoResponse::into_response(Problem::internal_error())
    });
    let caller = response.extensions().get::<CallerName>();
    let caller = caller.map_or_else(|| ANONYMOUS.to_owned(), |caller| caller.0.clone());
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        let (status, code) = (problem.status.as_u16(), problem.code);
        if caller != ANONYMOUS || app.state.rates().may_log_anonymous_request() {
            tracing::info!(run, %method, route, status, code, caller, request_id = id, "request rejected");
        }
        if let Some(error) = problem.error.as_ref().filter(|_| code == "internal") {
            tracing::error!(%error, request_id = id, "internal error while handling a request");
        }
        let headers = std::mem::take(response.headers_mut());
        response = problem.to_response(&id);
        response.headers_mut().extend(headers);
    } else if response.status() >= StatusCode::INTERNAL_SERVER_ERROR {
        let status = response.status().as_u16();
        tracing::warn!(%method, route, status, caller, request_id = id, "request failed");
    }
    set_common_response_headers(response.headers_mut(), &id);
    response
}

/// Returns the run id in a request path, so that the log can be filtered by run. `None` means that
/// the path is not about a run.
fn run_id_in_path(path: &str) -> Option<String> {
    let rest = path.strip_prefix("/v1/runs/")?;
    let run: RunId = rest.split('/').next()?.parse().ok()?;
    Some(run.to_string())
}

/// Adds the headers that every response has: request id, caching and browser protection.
fn set_common_response_headers(headers: &mut HeaderMap, request_id: &str) {
    if let Ok(request_id) = HeaderValue::from_str(request_id) {
        headers.insert(REQUEST_ID, request_id);
    }
    for (name, value) in [
        (CACHE_CONTROL, "no-store"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
    ] {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
}
