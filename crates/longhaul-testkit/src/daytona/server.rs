//! The HTTP server of the fake: authentication, faults, and the record of all exchanges.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::daytona::{API_KEY, Exchange, Fault, Shared, control_plane, toolbox};

/// A request with its body.
#[derive(Debug)]
pub(super) struct FakeRequest {
    pub(super) method: String,
    pub(super) segments: Vec<String>,
    pub(super) query: Vec<(String, String)>,
    pub(super) body: Bytes,
}

impl FakeRequest {
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    pub(super) fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// A response of the fake.
#[derive(Debug)]
pub(super) struct FakeResponse {
    pub(super) status: u16,
    pub(super) body: Bytes,
    pub(super) retry_after_secs: Option<u64>,
}

impl FakeResponse {
    pub(super) fn json(status: u16, body: &Value) -> Self {
        Self::bytes(status, body.to_string())
    }

    pub(super) fn empty(status: u16) -> Self {
        Self::bytes(status, Bytes::new())
    }

    pub(super) fn bytes(status: u16, body: impl Into<Bytes>) -> Self {
        Self { status, body: body.into(), retry_after_secs: None }
    }

    /// Returns an error with the fields of the control plane and of the toolbox.
    pub(super) fn error(status: u16, message: &str) -> Self {
        let body = json!({
            "path": "/", "timestamp": "2026-01-01T00:00:00Z", "statusCode": status,
            "error": "Error", "message": message,
        });
        Self::json(status, &body)
    }
}

/// Accepts connections for as long as the fake exists.
pub(super) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let shared = shared.clone();
        connections.spawn(async move {
            let service = service_fn(move |request| respond(shared.clone(), request));
            let server = hyper::server::conn::http1::Builder::new();
            // Errors are those of closed connections, which clients and faults cause.
            _ = server.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn respond(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, io::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let method = head.method.to_string();
    let full_path = head.uri.path().trim_start_matches('/').to_owned();
    let mut segments: Vec<String> = full_path.split('/').map(decode).collect();
    let is_toolbox = segments.remove(0) == "toolbox";
    let query = form_urlencoded::parse(head.uri.query().unwrap_or_default().as_bytes());
    let query = query.into_owned().collect();
    let expected = format!("Bearer {API_KEY}");
    let is_authorized = head.headers.get("authorization").is_some_and(|key| *key == *expected);
    let fault = take_fault(&shared, &method, &full_path);
    let request = FakeRequest { method, segments, query, body };
    let response = match &fault {
        Some(Fault::LostRequest) => return Err(io::ErrorKind::ConnectionAborted.into()),
        Some(Fault::Status { status, message, retry_after_secs }) => {
            let retry_after_secs = *retry_after_secs;
            FakeResponse { retry_after_secs, ..FakeResponse::error(*status, message) }
        }
        _ if !is_authorized => FakeResponse::error(401, "Unauthorized"),
        _ if is_toolbox => toolbox::respond(&shared, &request).await,
        _ => control_plane::respond(&shared, &request).await,
    };
    let path = request.segments[usize::from(is_toolbox)..].iter();
    let path = path.map(|segment| format!("/{}", segment.replace('/', "%2F"))).collect();
    shared.exchanges.lock().expect("exchanges").push(Exchange {
        path,
        request: request.json(),
        method: request.method,
        is_toolbox,
        query: request.query,
        status: response.status,
        response: serde_json::from_slice(&response.body).unwrap_or_default(),
        is_fault: fault.is_some(),
    });
    if matches!(fault, Some(Fault::LostResponse)) {
        return Err(io::ErrorKind::ConnectionAborted.into());
    }
    let mut builder = Response::builder().status(response.status);
    if let Some(seconds) = response.retry_after_secs {
        builder = builder.header("Retry-After-sandbox-lifecycle", seconds);
    }
    builder.body(Full::new(response.body)).map_err(io::Error::other)
}

fn take_fault(shared: &Shared, method: &str, path: &str) -> Option<Fault> {
    let mut faults = shared.faults.lock().expect("faults");
    let is_match = |(fault_method, part, _): &(&str, &str, Fault)| {
        *fault_method == method && path.contains(part)
    };
    let index = faults.iter().position(is_match)?;
    faults.remove(index).map(|(_, _, fault)| fault)
}

/// Decodes a segment of a path.
fn decode(segment: &str) -> String {
    let segment = segment.replace('+', "%2B");
    let mut pairs = form_urlencoded::parse(segment.as_bytes());
    pairs.next().map(|(key, _)| key.into_owned()).unwrap_or_default()
}
