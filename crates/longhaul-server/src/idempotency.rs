//! Requests with an `Idempotency-Key`: each counts once, however often it is
//! sent, and every repetition gets the first answer.
//!
//! Never: left half done because the caller went away. Such a request runs to
//! its end in a task of its own.

use std::panic::AssertUnwindSafe;

use axum::body::Body;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::header::{CONTENT_TYPE, HeaderName, LOCATION};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures_util::FutureExt as _;
use http_body_util::BodyExt as _;
use longhaul_core::port::auth::{IdempotencyKey, IdempotencyState, KeyRef, StoredResponse};
use longhaul_core::raw::Hash;
use longhaul_core::request::RequestEffect;
use longhaul_engine::Longhaul;
use longhaul_engine::handle::Identity;

use crate::app::App;
use crate::body;
use crate::limits::IDEMPOTENCY_KEY_BYTES_MAX;
use crate::problem::Problem;
use crate::response::OneTimeSecret;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const IDEMPOTENCY_REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// The handle of one request. What is changed through it is committed together with
/// the request's idempotency key, if it has one.
#[derive(Debug)]
pub(crate) struct RequestHandle {
    pub(crate) app: App,
    pub(crate) longhaul: Longhaul,
    /// What an earlier attempt, whose answer was not kept, has changed.
    pub(crate) effect: Option<RequestEffect>,
}

impl FromRequestParts<App> for RequestHandle {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let attempt = parts.extensions.get::<Attempt>().cloned();
        Ok(match attempt {
            Some(Attempt { key: of, effect }) => {
                Self { app: app.clone(), longhaul: app.longhaul().for_request(of), effect }
            }
            None => Self { app: app.clone(), longhaul: app.longhaul().clone(), effect: None },
        })
    }
}

/// One attempt at a request with an idempotency key.
#[derive(Debug, Clone)]
struct Attempt {
    key: IdempotencyKey,
    effect: Option<RequestEffect>,
}

/// Lets a request pass, once if it asks for that.
pub(crate) async fn idempotent(State(app): State<App>, request: Request, next: Next) -> Response {
    if request.method() != Method::POST {
        return next.run(request).await;
    }
    let known = request.extensions().get::<Identity>().cloned();
    match (header_key(request.headers()), known) {
        (Ok(Some(key)), Some(known)) => {
            let of = IdempotencyKey { principal: key_owner(&known), key };
            run_once(app, of, request, next)
                .await
                .unwrap_or_else(axum::response::IntoResponse::into_response)
        }
        (Ok(_), _) => next.run(request).await,
        (Err(problem), _) => problem.into_response(),
    }
}

/// Whose a key is: another key of the same name is another caller.
fn key_owner(known: &Identity) -> String {
    let name = &known.principal.name;
    match &known.key {
        KeyRef::Local => name.clone(),
        KeyRef::Key(hash) => format!("{name} {hash}"),
    }
}

/// The key under which a task counts once for this caller, and for no other.
/// The machine's own stays as it is said: the command line uses it without a
/// server as well.
pub(crate) fn scoped_key(known: &Identity, said: Option<String>) -> Option<String> {
    said.map(|key| match &known.key {
        KeyRef::Local => key,
        KeyRef::Key(hash) => format!("{hash} {key}"),
    })
}

/// The key that a request names.
pub(crate) fn header_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let mut said = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(key) = said.next() else {
        return Ok(None);
    };
    let plain =
        key.to_str().ok().filter(|key| !key.is_empty() && key.len() <= IDEMPOTENCY_KEY_BYTES_MAX);
    match (plain, said.next()) {
        (Some(key), None) => Ok(Some(key.to_owned())),
        _ => {
            let words = format!(
                "an Idempotency-Key stands there once, with 1 to {IDEMPOTENCY_KEY_BYTES_MAX} plain letters"
            );
            Err(Problem::bad_request("bad_idempotency_key", words))
        }
    }
}

async fn run_once(
    app: App,
    of: IdempotencyKey,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let (parts, came) = request.into_parts();
    let asked = format!("{} {}\n", parts.method, parts.uri.path()).into_bytes();
    let head = Request::from_parts(parts.clone(), came);
    let sent = body::read_body(head, &app).await?;
    let whole = Hash::digest(&[asked, sent.clone()].concat());
    let request = Request::from_parts(parts, Body::from(sent));
    // Whoever waits here may be dropped; the task goes on. It begins the request
    // as well: one that was begun must not be left to nobody.
    let done = app.background_tasks().spawn({
        let app = app.clone();
        async move {
            let effect = match app.longhaul().begin_request(of.clone(), whole).await? {
                IdempotencyState::Acquired => None,
                IdempotencyState::Applied(effect) => Some(effect),
                IdempotencyState::Completed(reply) => return replay(reply),
                IdempotencyState::InProgress => return Err(in_progress()),
                IdempotencyState::Conflict => {
                    return Err(longhaul_engine::Error::IdempotencyKeyReused.into());
                }
            };
            let attempt = Attempt { key: of, effect };
            Ok(run_and_store(app, attempt, request, next).await)
        }
    });
    done.await.map_err(|_| Problem::internal())?
}

fn in_progress() -> Problem {
    let words = "a request with this Idempotency-Key is being answered at this moment";
    Problem::new(StatusCode::CONFLICT, "idempotency_running", words)
        .hint("wait a moment and send it again")
        .retry_after(1)
}

/// Does what was asked, and keeps the answer if it changed anything.
async fn run_and_store(app: App, attempt: Attempt, mut request: Request, next: Next) -> Response {
    let of = attempt.key.clone();
    request.extensions_mut().insert(attempt);
    let answered = AssertUnwindSafe(next.run(request)).catch_unwind().await;
    let response = answered.unwrap_or_else(|_| {
        tracing::error!("a request broke its handler");
        Problem::internal().into_response()
    });
    if !response.status().is_success() {
        // It may be sent again, and as soon as the caller hears of it. What it has
        // changed all the same is known to the store.
        if let Err(error) = app.longhaul().abort_request(of).await {
            tracing::warn!(%error, "a key stays taken until its time is over");
        }
        return response;
    }
    let secret = response.extensions().get::<OneTimeSecret>().is_some();
    let (parts, body) = response.into_parts();
    let bytes = match body.collect().await {
        Ok(body) => body.to_bytes(),
        Err(_) => return Problem::internal().into_response(),
    };
    let location = parts.headers.get(LOCATION);
    let reply = StoredResponse {
        status: parts.status.as_u16(),
        location: location.and_then(|at| at.to_str().ok()).map(str::to_owned),
        // That it was done is kept, the secret is not.
        body: match secret {
            true => Vec::new(),
            false => bytes.to_vec(),
        },
    };
    if let Err(error) = app.longhaul().complete_request(of, reply).await {
        // It is done and said; a repetition would find what it made.
        tracing::warn!(%error, "an answer could not be kept");
    }
    Response::from_parts(parts, Body::from(bytes))
}

/// The first answer once more.
fn replay(reply: StoredResponse) -> Result<Response, Problem> {
    if reply.body.is_empty() {
        let words = "this was done, and its secret was shown once and kept nowhere";
        return Err(Problem::new(StatusCode::CONFLICT, "shown_once", words)
            .hint("make another one, under a new Idempotency-Key"));
    }
    let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::OK);
    let mut response = (status, reply.body).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(IDEMPOTENCY_REPLAYED, HeaderValue::from_static("true"));
    if let Some(at) = reply.location.and_then(|at| HeaderValue::from_str(&at).ok()) {
        headers.insert(LOCATION, at);
    }
    Ok(response)
}
