//! The outermost guard: gives a request its id, catches what breaks, writes
//! problems down and says in the log what was refused.
//!
//! Never: a path in the log that may hold a secret. Routes are named as they
//! are declared.

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

/// Who has shown nothing that counts.
const ANONYMOUS: &str = "anonymous";

/// Lets a request pass and finishes its answer.
pub(crate) async fn finish_response(
    State(app): State<App>,
    request: Request,
    next: Next,
) -> Response {
    let id = format!("req_{:032x}", app.longhaul().services().ids.next_bits());
    let route = request.extensions().get::<MatchedPath>();
    let route = route.map_or("(no route)", MatchedPath::as_str).to_owned();
    let method = request.method().clone();
    let run = run_in_path(request.uri().path());
    let answered = AssertUnwindSafe(next.run(request)).catch_unwind().await;
    let mut response = answered.unwrap_or_else(|_| {
        tracing::error!(%method, route, request_id = id, "a request broke its handler");
        axum::response::IntoResponse::into_response(Problem::internal())
    });
    let caller = response.extensions().get::<CallerName>();
    let caller = caller.map_or_else(|| ANONYMOUS.to_owned(), |caller| caller.0.clone());
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        let (status, code) = (problem.status.as_u16(), problem.code);
        if caller != ANONYMOUS || app.rates().may_log_anonymous() {
            tracing::info!(run, %method, route, status, code, caller, request_id = id, "refused");
        }
        let kept = std::mem::take(response.headers_mut());
        response = problem.to_response(&id);
        response.headers_mut().extend(kept);
    } else if response.status() >= StatusCode::INTERNAL_SERVER_ERROR {
        let status = response.status().as_u16();
        tracing::warn!(%method, route, status, caller, request_id = id, "failed");
    }
    set_common_headers(response.headers_mut(), &id);
    response
}

/// The run that a path names, so that a log can be read by run.
fn run_in_path(path: &str) -> Option<String> {
    let rest = path.strip_prefix("/v1/runs/")?;
    let run: RunId = rest.split('/').next()?.parse().ok()?;
    Some(run.to_string())
}

/// What every answer says to browsers and caches.
fn set_common_headers(headers: &mut HeaderMap, id: &str) {
    if let Ok(id) = HeaderValue::from_str(id) {
        headers.insert(REQUEST_ID, id);
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
