//! Routes requests to the mock and rejects invalid ones. Only a limited part of a long body is
//! read.

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
use crate::mock_model::response::{ResponseBody, json_response, wait_and_build_response};

/// Maximum number of bytes that are read of a body that is too long, so that its sender can still
/// receive the error.
const READ_BYTES_MAX: usize = 2 * BODY_BYTES_MAX;

/// Endpoint of the mock that a request path names.
#[derive(Clone, Copy)]
enum MockEndpoint {
    Generate(ApiKind),
    Models,
    Live,
    Stats,
}

pub(crate) async fn handle_request(
    mock: &MockProvider,
    counts: &RequestCounts,
    request: Request<Incoming>,
) -> Result<Response<ResponseBody>, hyper::Error> {
    let path = request.uri().path();
    let Some(route) = parse_endpoint_path(path) else {
        let api = api_of_error_response(path, request.headers());
        let message = format!("there is no endpoint {path}");
        return Ok(wait_and_build_response(mock.reject_request(api, 404, &message)).await);
    };
    let method = match route {
        MockEndpoint::Generate(_) => Method::POST,
        MockEndpoint::Models | MockEndpoint::Live | MockEndpoint::Stats => Method::GET,
    };
    if *request.method() != method {
        let api = api_of_error_response(path, request.headers());
        let mut answer = mock.reject_request(api, 405, &format!("use {method} {path}"));
        answer.headers.push(("allow", method.to_string()));
        return Ok(wait_and_build_response(answer).await);
    }
    match route {
        MockEndpoint::Live => Ok(json_response(&json!({ "status": "ok" }))),
        MockEndpoint::Stats => Ok(json_response(&counts.to_json())),
        MockEndpoint::Models => {
            let answer = mock.list_models(api_of_error_response(path, request.headers()));
            Ok(wait_and_build_response(answer).await)
        }
        MockEndpoint::Generate(api) => {
            let (parts, body) = request.into_parts();
            let body = read_request_body(body).await?;
            counts.add_request(body.as_ref().map_or(0, Bytes::len));
            Ok(wait_and_build_response(generate_mock_reply(mock, api, (&parts, body))).await)
        }
    }
}

fn parse_endpoint_path(path: &str) -> Option<MockEndpoint> {
    match path {
        "/v1/messages" => Some(MockEndpoint::Generate(ApiKind::Messages)),
        "/v1/responses" | "/responses" => Some(MockEndpoint::Generate(ApiKind::Responses)),
        "/v1/chat/completions" | "/chat/completions" => Some(MockEndpoint::Generate(ApiKind::Chat)),
        "/v1/models" | "/models" => Some(MockEndpoint::Models),
        "/livez" => Some(MockEndpoint::Live),
        "/stats" => Some(MockEndpoint::Stats),
        _ => None,
    }
}

/// Returns the provider API in whose format errors are sent, from the path or else the headers.
fn api_of_error_response(path: &str, headers: &HeaderMap) -> ApiKind {
    match parse_endpoint_path(path) {
        Some(MockEndpoint::Generate(api)) => api,
        Some(MockEndpoint::Models | MockEndpoint::Live | MockEndpoint::Stats) | None => {
            match headers.contains_key("anthropic-version") {
                true => ApiKind::Messages,
                false => ApiKind::Chat,
            }
        }
    }
}

fn generate_mock_reply(
    mock: &MockProvider,
    api: ApiKind,
    (parts, body): (&Parts, Option<Bytes>),
) -> MockResponse {
    let Some(body) = body else {
        let message = format!("a request body may have at most {BODY_BYTES_MAX} bytes");
        let mut answer = mock.reject_request(api, 413, &message);
        answer.headers.push(("connection", "close".to_owned()));
        return answer;
    };
    // A header that is not text becomes empty, which is rejected as invalid.
    let header = |name| {
        let value = parts.headers.get(name);
        value.map(|value| value.to_str().unwrap_or_default())
    };
    mock.respond(&IncomingRequest {
        api,
        turn: header(TURN_HEADER),
        fault: header(FAULT_HEADER),
        body: &body,
        now: SystemClock.now(),
    })
}

/// Reads the whole body of a request. `None` means that the body is longer than allowed.
async fn read_request_body(mut body: Incoming) -> Result<Option<Bytes>, hyper::Error> {
    let (mut bytes, mut byte_count) = (BytesMut::new(), 0_usize);
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else {
            continue;
        };
        byte_count = byte_count.saturating_add(data.len());
        if byte_count > BODY_BYTES_MAX {
            bytes = BytesMut::new();
        } else if bytes.is_empty() && body.is_end_stream() {
            return Ok(Some(data));
        } else {
            bytes.extend_from_slice(&data);
        }
        if byte_count > READ_BYTES_MAX {
            break;
        }
    }
    Ok((byte_count <= BODY_BYTES_MAX).then(|| bytes.freeze()))
}
