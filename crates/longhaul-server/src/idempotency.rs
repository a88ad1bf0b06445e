//! Idempotent requests: a request with an `Idempotency-Key` takes effect once, and every retry gets
//! the first response.
//!
//! Invariant: such a request runs to completion in its own task, even if the client disconnects.

use std::panic::AssertUnwindSafe;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_TYPE, HeaderName, LOCATION};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures_util::FutureExt as _;
use http_body_util::BodyExt as _;
use longhaul_core::port::auth::{
    ApiKeyRef, IdempotencyKey, IdempotentRequestState, StoredHttpResponse,
};
use longhaul_core::raw::Hash;
use longhaul_core::request::IdempotentRequestEffect;
use longhaul_engine::handle::{CallerIdentity, check_idempotency_key};

use crate::app::App;
use crate::body;
use crate::problem::Problem;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const IDEMPOTENCY_REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// One attempt to handle a request with an idempotency key, with the change that an earlier attempt
/// committed.
#[derive(Debug, Clone)]
pub(crate) struct RequestAttempt {
    pub(crate) key: IdempotencyKey,
    pub(crate) effect: Option<IdempotentRequestEffect>,
}

/// Response extension that marks a body with a secret. Such a body is not stored for retries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OneTimeSecretMarker;

/// Middleware that runs a request at most once if it has an `Idempotency-Key`.
pub(crate) async fn handle_key(State(app): State<App>, request: Request, next: Next) -> Response {
    if request.method() != Method::POST {
        return next.run(request).await;
    }
    let identity = request.extensions().get::<CallerIdentity>().cloned();
    match (idempotency_key_header(request.headers()), identity) {
        (Ok(Some(key)), Some(identity)) => {
            let request_key = IdempotencyKey { principal: idempotency_key_owner(&identity), key };
            handle_request_at_most_once(app, request_key, request, next)
                .await
                .unwrap_or_else(axum::response::IntoResponse::into_response)
        }
        (Ok(_), _) => next.run(request).await,
        (Err(problem), _) => problem.into_response(),
    }
}

/// Returns the owner of the caller's idempotency keys. Callers with different API keys of the same
/// name are different owners.
fn idempotency_key_owner(identity: &CallerIdentity) -> String {
    let caller_name = &identity.principal.name;
    match &identity.key {
        ApiKeyRef::Local => caller_name.clone(),
        ApiKeyRef::Key(api_key_hash) => format!("{caller_name} {api_key_hash}"),
    }
}

/// Returns the idempotency key of a task, prefixed so that different callers can't share it. For
/// callers with the local machine key, the idempotency key has no prefix, because the command line
/// uses the same idempotency key without a server.
pub(crate) fn scoped_key(identity: &CallerIdentity, header: Option<String>) -> Option<String> {
    header.map(|idempotency_key| match &identity.key {
        ApiKeyRef::Local => idempotency_key,
        ApiKeyRef::Key(api_key_hash) => format!("{api_key_hash} {idempotency_key}"),
    })
}

/// Returns the value of the request's `Idempotency-Key` header, or an error if it is invalid.
/// `None` means that the request has no such header.
pub(crate) fn idempotency_key_header(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(key) = values.next() else {
        return Ok(None);
    };
    let valid_key = key.to_str().ok().filter(|key| check_idempotency_key(key).is_ok());
    match (valid_key, values.next()) {
        (Some(key), None) => Ok(Some(key.to_owned())),
        _ => Err(Problem::bad_request(
            "invalid_idempotency_key",
            "the Idempotency-Key header must appear once, with 1 to 255 printable ASCII characters",
        )),
    }
}

async fn handle_request_at_most_once(
    app: App,
    request_key: IdempotencyKey,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let (parts, body_stream) = request.into_parts();
    let request_line = format!("{} {}\n", parts.method, parts.uri.path()).into_bytes();
    let head = Request::from_parts(parts.clone(), body_stream);
    let body_bytes = body::read_body(head, &app).await?;
    let hash = Hash::digest(&[request_line, body_bytes.clone()].concat());
    let request = Request::from_parts(parts, Body::from(body_bytes));
    // The future that waits here may be dropped; the task continues. The task also begins the
    // request, so that a begun request always has an owner.
    let request_task = app.state.background_tasks.spawn({
        let app = app.clone();
        async move {
            let effect =
                match app.longhaul().begin_idempotent_request(request_key.clone(), hash).await? {
                    IdempotentRequestState::Acquired => None,
                    IdempotentRequestState::Applied(effect) => Some(effect),
                    IdempotentRequestState::Completed(reply) => return replay_response(reply),
                    IdempotentRequestState::InProgress => return Err(request_in_progress_problem()),
                    IdempotentRequestState::Conflict => {
                        return Err(longhaul_engine::Error::IdempotencyKeyReused.into());
                    }
                };
            let attempt = RequestAttempt { key: request_key, effect };
            Ok(handle_request_and_store_response(app, attempt, request, next).await)
        }
    });
    request_task.await.map_err(|_| Problem::internal_error())?
}

fn request_in_progress_problem() -> Problem {
    let message = "a request with this Idempotency-Key is still in progress";
    Problem::new(StatusCode::CONFLICT, "request_in_progress", message)
        .with_hint("wait a second and send it again")
        .with_retry_after(1)
}

/// Runs the request's handler, and stores the response under the idempotency key if it is a
/// success.
async fn handle_request_and_store_response(
    app: App,
    attempt: RequestAttempt,
    mut request: Request,
    next: Next,
) -> Response {
    let request_key = attempt.key.clone();
    request.extensions_mut().insert(attempt);
    let result = AssertUnwindSafe(next.run(request)).catch_unwind().await;
    let response = result.unwrap_or_else(|_| {
        tracing::error!("a request handler panicked");
        Problem::internal_error().into_response()
    });
    if !response.status().is_success() {
        // The client may retry as soon as it has this response. The store has recorded any
        // change that was committed anyway.
        if let Err(error) = app.longhaul().abort_idempotent_request(request_key).await {
            tracing::warn!(%error, "could not release an idempotency key; it stays reserved until it expires");
        }
        return response;
    }
    let secret = response.extensions().get::<OneTimeSecretMarker>().is_some();
    let (parts, body) = response.into_parts();
    let bytes = match body.collect().await {
        Ok(body) => body.to_bytes(),
        Err(_) => return Problem::internal_error().into_response(),
    };
    let location = parts.headers.get(LOCATION);
    let reply = StoredHttpResponse {
        status: parts.status.as_u16(),
        location: location.and_then(|at| at.to_str().ok()).map(str::to_owned),
        // Only the completion is stored, not the secret.
        body: match secret {
            true => Vec::new(),
            false => bytes.to_vec(),
        },
    };
    if let Err(error) = app.longhaul().complete_idempotent_request(request_key, reply).await {
        // The request has taken effect and is answered; a retry finds the committed change.
        tracing::warn!(%error, "could not store the response of an idempotent request");
    }
    Response::from_parts(parts, Body::from(bytes))
}

/// Rebuilds the stored response of a request that was completed earlier.
fn replay_response(stored: StoredHttpResponse) -> Result<Response, Problem> {
    if stored.body.is_empty() {
        let message = "this request has completed; its secret was shown once and is not stored";
        return Err(Problem::new(StatusCode::CONFLICT, "secret_not_stored", message)
            .with_hint("create another one with a new Idempotency-Key"));
    }
    let status = StatusCode::from_u16(stored.status).unwrap_or(StatusCode::OK);
    let headers = [(CONTENT_TYPE, "application/json"), (IDEMPOTENCY_REPLAYED, "true")];
    let mut response = (status, headers, stored.body).into_response();
    if let Some(at) = stored.location.and_then(|at| HeaderValue::from_str(&at).ok()) {
        response.headers_mut().insert(LOCATION, at);
    }
    Ok(response)
}
