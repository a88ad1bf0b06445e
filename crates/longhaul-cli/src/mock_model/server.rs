//! The HTTP side of the mock model: its routes, and responses that wait, end normally, break off or
//! stall. Nothing of a request's content is kept.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, HeaderValue, Method, Uri};
use axum::response::Response;
use axum::routing::{get, post};
use futures_util::stream;
use longhaul_core::time::{Clock as _, Millis};
use longhaul_engine::clock::SystemClock;
use longhaul_model::mock::{
    ApiKind, BODY_BYTES_MAX, FAULT_HEADER, IncomingRequest, MockBody, MockProvider, MockResponse,
    ResponseTermination, TURN_HEADER,
};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

/// Maximum number of bytes that are read of a body that is too long, so that its sender can still
/// receive the error.
const READ_BYTES_MAX: usize = 2 * BODY_BYTES_MAX;

/// Paths at which a model reply is requested, with their APIs.
const REPLY_PATHS: [(&str, ApiKind); 5] = [
    ("/v1/messages", ApiKind::Messages),
    ("/v1/responses", ApiKind::Responses),
    ("/responses", ApiKind::Responses),
    ("/v1/chat/completions", ApiKind::Chat),
    ("/chat/completions", ApiKind::Chat),
];

/// The mock provider, and the number and length of the requests for a reply.
#[derive(Debug)]
struct MockState {
    provider: MockProvider,
    requests: AtomicU64,
    body_bytes: AtomicU64,
}

type SharedMock = State<Arc<MockState>>;
type LimitedBody = Result<Bytes, BytesRejection>;

/// Returns the routes of the mock.
pub(super) fn router(provider: MockProvider) -> Router {
    let mut router = Router::new()
        .route("/livez", get(async || json_response(&json!({ "status": "ok" }))))
        .route("/stats", get(stats))
        .route("/v1/models", get(list_models))
        .route("/models", get(list_models));
    for (path, api) in REPLY_PATHS {
        let handler = async move |mock: SharedMock, headers: HeaderMap, body: LimitedBody| {
            reply(api, (mock, headers, body)).await
        };
        router = router.route(path, post(handler));
    }
    router
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(READ_BYTES_MAX))
        .with_state(Arc::new(MockState {
            provider,
            requests: AtomicU64::new(0),
            body_bytes: AtomicU64::new(0),
        }))
}

async fn stats(State(mock): SharedMock) -> Response {
    let cpu = clock_gettime(ClockId::ProcessCPUTime);
    json_response(&json!({
        "requests": mock.requests.load(Ordering::Relaxed),
        "body_bytes": mock.body_bytes.load(Ordering::Relaxed),
        "cpu_us": cpu.tv_sec * 1_000_000 + cpu.tv_nsec / 1_000,
    }))
}

async fn list_models(State(mock): SharedMock, uri: Uri, headers: HeaderMap) -> Response {
    send(mock.provider.list_models(api_of_error(&uri, &headers))).await
}

async fn unknown_path(State(mock): SharedMock, uri: Uri, headers: HeaderMap) -> Response {
    let message = format!("there is no endpoint {}", uri.path());
    send(mock.provider.reject_request(api_of_error(&uri, &headers), 404, &message)).await
}

async fn wrong_method(State(mock): SharedMock, uri: Uri, headers: HeaderMap) -> Response {
    let path = uri.path();
    let is_reply = REPLY_PATHS.iter().any(|(reply_path, _)| *reply_path == path);
    let method = if is_reply { Method::POST } else { Method::GET };
    let message = format!("use {method} {path}");
    let mut response = mock.provider.reject_request(api_of_error(&uri, &headers), 405, &message);
    response.headers.push(("allow", method.to_string()));
    send(response).await
}

/// Returns the API in whose format an error is sent, from the path or else the headers.
fn api_of_error(uri: &Uri, headers: &HeaderMap) -> ApiKind {
    let of_path = REPLY_PATHS.iter().find(|(path, _)| *path == uri.path());
    match (of_path, headers.contains_key("anthropic-version")) {
        (Some((_, api)), _) => *api,
        (None, true) => ApiKind::Messages,
        (None, false) => ApiKind::Chat,
    }
}

async fn reply(
    api: ApiKind,
    (State(mock), headers, body): (SharedMock, HeaderMap, LimitedBody),
) -> Response {
    mock.requests.fetch_add(1, Ordering::Relaxed);
    let Some(body) = body.ok().filter(|body| body.len() <= BODY_BYTES_MAX) else {
        let message = format!("a request body may have at most {BODY_BYTES_MAX} bytes");
        let mut response = mock.provider.reject_request(api, 413, &message);
        response.headers.push(("connection", "close".to_owned()));
        return send(response).await;
    };
    mock.body_bytes.fetch_add(body.len() as u64, Ordering::Relaxed);
    // A header that is not text becomes empty, which is rejected as invalid.
    let header = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let response = mock.provider.respond(&IncomingRequest {
        api,
        turn: header(TURN_HEADER),
        fault: header(FAULT_HEADER),
        body: &body,
        now: SystemClock.now(),
    });
    send(response).await
}

/// Builds the JSON response of one of the mock's own endpoints, which no provider has.
fn json_response(body: &Value) -> Response {
    let mut response = Response::new(Body::from(body.to_string()));
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert("content-type", kind);
    response
}

/// Waits for the delay of a mock response, then builds the HTTP response.
async fn send(mock_response: MockResponse) -> Response {
    sleep(mock_response.initial_delay).await;
    let termination = mock_response.termination;
    let body = match mock_response.body {
        MockBody::Full(body) if termination == ResponseTermination::Clean => Body::from(body),
        MockBody::Full(body) => stream_body(vec![body], Millis::ZERO, termination),
        MockBody::Stream(events) => stream_body(events, mock_response.event_delay, termination),
    };
    let mut response = Response::new(body);
    // Every status here is between 200 and 599, so the conversion can't fail.
    *response.status_mut() = mock_response.status.try_into().unwrap_or_default();
    for (name, value) in mock_response.headers {
        if let Ok(value) = HeaderValue::try_from(value) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

fn stream_body(events: Vec<Bytes>, event_delay: Millis, termination: ResponseTermination) -> Body {
    let initial_state = Some((events.into_iter(), Millis::ZERO));
    Body::from_stream(stream::unfold(initial_state, move |state| async move {
        let (mut events, delay) = state?;
        if let Some(event) = events.next() {
            sleep(delay).await;
            return Some((Ok(event), Some((events, event_delay))));
        }
        match termination {
            ResponseTermination::Clean => None,
            ResponseTermination::Truncated => {
                // Lets the earlier events be sent first; they would be lost with the connection.
                tokio::task::yield_now().await;
                Some((Err(io::Error::from(io::ErrorKind::ConnectionAborted)), None))
            }
            ResponseTermination::Stalled => std::future::pending().await,
        }
    }))
}

async fn sleep(duration: Millis) {
    if duration > Millis::ZERO {
        SystemClock.sleep(duration).await;
    }
}
