//! Which request is for whom, and what is wrong before anybody is asked.
//!
//! Never: reads more of a body than a request may have.

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Request, Response};
use longhaul_core::time::Clock as _;
use longhaul_engine::clock::SystemClock;
use longhaul_model::mock::{
    ApiKind, BODY_BYTES_MAX, FAULT_HEADER, IncomingRequest, MockProvider, MockResponse, TURN_HEADER,
};

use serde_json::json;

use crate::mock_model::counts::RequestCounts;
use crate::mock_model::response::{ResponseBody, json_response, to_response};

/// What is taken of a body that is too long, so that its sender is still there
/// to be told.
const READ_BYTES_MAX: usize = 2 * BODY_BYTES_MAX;

/// What an address is for.
#[derive(Clone, Copy)]
enum Route {
    Generate(ApiKind),
    Models,
    Live,
    Stats,
}

/// Answers one request.
pub(crate) async fn handle(
    mock: &MockProvider,
    counts: &RequestCounts,
    request: Request<Incoming>,
) -> Result<Response<ResponseBody>, hyper::Error> {
    let path = request.uri().path();
    let Some(place) = parse_route(path) else {
        let dialect = request_api(path, request.headers());
        let words = format!("there is nothing at {path}");
        return Ok(to_response(mock.reject(dialect, 404, &words)).await);
    };
    let method = match place {
        Route::Generate(_) => Method::POST,
        Route::Models | Route::Live | Route::Stats => Method::GET,
    };
    if *request.method() != method {
        let dialect = request_api(path, request.headers());
        let mut answer = mock.reject(dialect, 405, &format!("write {method} {path}"));
        answer.headers.push(("allow", method.to_string()));
        return Ok(to_response(answer).await);
    }
    match place {
        Route::Live => Ok(json_response(&json!({ "status": "ok" }))),
        Route::Stats => Ok(json_response(&counts.to_json())),
        Route::Models => {
            let answer = mock.list_models(request_api(path, request.headers()));
            Ok(to_response(answer).await)
        }
        Route::Generate(dialect) => {
            let (head, body) = request.into_parts();
            let body = read_body(body).await?;
            counts.add(body.as_ref().map_or(0, Bytes::len));
            Ok(to_response(generate(mock, dialect, (&head, body))).await)
        }
    }
}

fn parse_route(path: &str) -> Option<Route> {
    match path {
        "/v1/messages" => Some(Route::Generate(ApiKind::Messages)),
        "/v1/responses" | "/responses" => Some(Route::Generate(ApiKind::Responses)),
        "/v1/chat/completions" | "/chat/completions" => Some(Route::Generate(ApiKind::Chat)),
        "/v1/models" | "/models" => Some(Route::Models),
        "/livez" => Some(Route::Live),
        "/stats" => Some(Route::Stats),
        _ => None,
    }
}

/// Whose words are spoken where the address does not say it.
fn request_api(path: &str, headers: &HeaderMap) -> ApiKind {
    match parse_route(path) {
        Some(Route::Generate(dialect)) => dialect,
        Some(Route::Models | Route::Live | Route::Stats) | None => {
            match headers.contains_key("anthropic-version") {
                true => ApiKind::Messages,
                false => ApiKind::Chat,
            }
        }
    }
}

fn generate(
    mock: &MockProvider,
    dialect: ApiKind,
    (head, body): (&Parts, Option<Bytes>),
) -> MockResponse {
    let Some(body) = body else {
        let words = format!("a request has at most {BODY_BYTES_MAX} bytes");
        let mut answer = mock.reject(dialect, 413, &words);
        answer.headers.push(("connection", "close".to_owned()));
        return answer;
    };
    // What is no text can't be what is meant, and is refused as such.
    let header = |name| {
        let value = head.headers.get(name);
        value.map(|value| value.to_str().unwrap_or_default())
    };
    mock.respond(&IncomingRequest {
        api: dialect,
        turn: header(TURN_HEADER),
        fault: header(FAULT_HEADER),
        body: &body,
        now: SystemClock.now(),
    })
}

/// The whole body; none: it is longer than a request may be.
async fn read_body(mut body: Incoming) -> Result<Option<Bytes>, hyper::Error> {
    let (mut all, mut taken) = (BytesMut::new(), 0_usize);
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else {
            continue;
        };
        taken = taken.saturating_add(data.len());
        if taken > BODY_BYTES_MAX {
            all = BytesMut::new();
        } else if all.is_empty() && body.is_end_stream() {
            return Ok(Some(data));
        } else {
            all.extend_from_slice(&data);
        }
        if taken > READ_BYTES_MAX {
            break;
        }
    }
    Ok((taken <= BODY_BYTES_MAX).then(|| all.freeze()))
}
