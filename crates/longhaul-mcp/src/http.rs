//! HTTP transport for the SDK's streamable HTTP client.
//!
//! Invariant: redirects to another origin are not followed, messages have a size limit, and errors
//! contain no URL and no header.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use longhaul_core::net;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue};
use reqwest::{Client, RequestBuilder, Response, StatusCode, Url, redirect};
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorData, JsonRpcMessage, ServerJsonRpcMessage,
};
use rmcp::transport::common::client_side_sse::{BoxedSseResponse, ExponentialBackoff};
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, HttpStatusError, SseError, StreamableHttpClient,
    StreamableHttpClientTransportConfig, StreamableHttpClientWorker, StreamableHttpError,
    StreamableHttpPostResponse,
};
use rmcp::transport::worker::WorkerTransport;
use sse_stream::SseByteStream;

use crate::auth::server_login::ServerLogin;
use crate::http_auth::{
    AuthorizedClient, HttpTransportError, permanent_to_auth_required, transport_error,
    www_authenticate_header,
};
use crate::http_client::{RequestError, ResultOkType, client_builder, has_content_type, read_body};
use crate::observe::MESSAGE_BYTES_MAX;
use crate::spec::{ServerSpec, ServerTransport};

/// Maximum number of concurrent HTTP requests. A request that waits for others to end can't be told
/// apart from one that was sent, so its call would be in doubt (outcome unknown) without need. So
/// the limit is higher than what the runs of a worker need.
const REQUESTS_MAX: usize = 4_096;

/// Maximum number of times that a broken event stream is resumed.
const RESUMES_MAX: usize = 5;

/// Maximum delay before a broken event stream is resumed.
const RESUME_DELAY_MAX: Duration = Duration::from_secs(30);

/// Maximum number of redirects followed, all on the same origin.
const REDIRECTS_MAX: usize = 5;

/// Maximum number of bytes that are read of an error response.
const ERROR_BODY_BYTES_MAX: usize = 64 * 1024;

/// HTTP headers that the MCP protocol sets, so the configuration can't.
const RESERVED_HEADERS: [&str; 6] = [
    "accept",
    "content-type",
    "content-length",
    "mcp-session-id",
    "mcp-protocol-version",
    "last-event-id",
];

const SESSION_HEADER: &str = "mcp-session-id";
const ACCEPTED_TYPES: &str = "text/event-stream, application/json";

type Headers = HashMap<HeaderName, HeaderValue>;

/// Creates the HTTP transport to a server. The error says what is wrong with the server's
/// configuration.
pub(super) fn build_transport(
    spec: &ServerSpec,
) -> Result<WorkerTransport<StreamableHttpClientWorker<AuthorizedClient>>, String> {
    let ServerTransport::Http { url, headers, .. } = &spec.transport else {
        return Err("the server has no URL".to_owned());
    };
    let at: Url = url.parse().map_err(|_| "the server's URL is invalid".to_owned())?;
    if !matches!(at.scheme(), "http" | "https") || at.host().is_none() {
        return Err("the server's URL is not an http:// or https:// URL".to_owned());
    }
    let mut retry = ExponentialBackoff::default();
    retry.max_times = Some(RESUMES_MAX);
    retry.max_delay = Some(RESUME_DELAY_MAX);
    let mut config = StreamableHttpClientTransportConfig::with_uri(url.clone())
        .custom_headers(parse_custom_headers(headers)?)
        .max_sse_event_size(MESSAGE_BYTES_MAX)
        .max_concurrent_requests(REQUESTS_MAX);
    config.retry_config = Arc::new(retry);
    let client = build_client(&at).map_err(|error| RequestError::from(error).reason)?;
    let authorized_client =
        AuthorizedClient::new(client, ServerLogin::from_spec(spec), spec.setup_timeout());
    let worker = StreamableHttpClientWorker::new(authorized_client, config);
    Ok(WorkerTransport::spawn(worker))
}

fn parse_custom_headers(headers: &BTreeMap<String, String>) -> Result<Headers, String> {
    let mut parsed = HashMap::new();
    for (name, value) in headers {
        let escaped: String = name.escape_debug().take(100).collect();
        let name = HeaderName::from_bytes(name.as_bytes());
        let name = name.map_err(|_| format!("`{escaped}` is not a valid header name"))?;
        if RESERVED_HEADERS.contains(&name.as_str()) {
            return Err(format!("the header `{escaped}` is reserved for the protocol"));
        }
        let value = HeaderValue::from_str(value);
        let mut value =
            value.map_err(|_| format!("the value of `{escaped}` is not a valid header value"))?;
        value.set_sensitive(true);
        parsed.insert(name, value);
    }
    Ok(parsed)
}

fn build_client(url: &Url) -> reqwest::Result<Client> {
    let redirects = redirect::Policy::custom(follow_same_origin_redirect);
    let client = client_builder().redirect(redirects).tcp_nodelay(true);
    let client = match net::may_use_proxy(url.host_str().unwrap_or_default()) {
        true => client,
        false => client.no_proxy(),
    };
    match url.scheme() {
        // Plain HTTP also works on a machine without certificates.
        "http" => client.tls_certs_only([]).build(),
        _ => client.build(),
    }
}

/// Follows only redirects that keep method and body, and only on the same origin, because headers
/// may hold keys.
fn follow_same_origin_redirect(attempt: redirect::Attempt<'_>) -> redirect::Action {
    let keeps_method =
        matches!(attempt.status(), StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
    let first = attempt.previous().first();
    let is_same_origin = first.is_some_and(|first| first.origin() == attempt.url().origin());
    if keeps_method && is_same_origin && attempt.previous().len() <= REDIRECTS_MAX {
        attempt.follow()
    } else {
        attempt.stop()
    }
}

/// Adds the MCP session id and the given headers to a request.
fn add_session_and_headers(
    request: RequestBuilder,
    session: Option<&str>,
    headers: Headers,
) -> RequestBuilder {
    let request = request.headers(headers.into_iter().collect());
    match session {
        Some(session) => request.header(SESSION_HEADER, session),
        None => request,
    }
}

/// Parses a response body as a stream of server-sent events, each limited to the maximum size of a
/// message.
fn parse_sse_events(response: Response) -> BoxedSseResponse {
    let bytes = limit_sse_event_size(response.bytes_stream(), MESSAGE_BYTES_MAX);
    let events = SseByteStream::new(bytes.boxed());
    let events = events.map(|event| {
        let event = event.map_err(|error| SseError::Body(error.to_string().into()))?;
        Ok(SdkEvent { event: event.event, data: event.data, id: event.id, retry: event.retry })
    });
    events.boxed()
}

/// The SDK's event type. It comes from an older version of the SSE crate and can only be named
/// through the SDK's own types.
type SdkEvent = <<BoxedSseResponse as Stream>::Item as ResultOkType>::Value;

/// Passes the bytes of an event stream through until one event, which ends with an empty line,
/// exceeds `max` bytes.
fn limit_sse_event_size(
    bytes: impl Stream<Item = reqwest::Result<Bytes>> + Send + 'static,
    max: usize,
) -> impl Stream<Item = Result<Bytes, RequestError>> + Send + 'static {
    let mut block = 0;
    let mut after_newline = false;
    bytes.map(move |chunk| {
        let chunk = chunk.map_err(RequestError::from)?;
        for byte in &chunk {
            block = match byte {
                b'\n' if after_newline => 0,
                _ => block + 1,
            };
            after_newline = *byte == b'\n' || (after_newline && *byte == b'\r');
            if block > max {
                return Err(RequestError::new("the server sent an event over the size limit"));
            }
        }
        Ok(chunk)
    })
}

/// Returns whether a status means that the server requires other credentials.
const fn is_auth_failure(status: StatusCode) -> bool {
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
}

/// Returns the error for the HTTP status of a response without a JSON-RPC message.
fn status_error(response: &Response) -> HttpTransportError {
    let status = response.status();
    if is_auth_failure(status) {
        let challenge = www_authenticate_header(response.headers());
        let challenge = AuthRequiredError::new(challenge.chars().take(500).collect());
        return StreamableHttpError::AuthRequired(challenge);
    }
    HttpStatusError::new(status.as_u16(), None).into()
}

/// Translates the rejection of a `server/discover` request into a JSON-RPC error. Servers without
/// that method reject it in various ways. The SDK recognizes only this form and then falls back to
/// `initialize`.
fn discovery_rejection(
    message: &ClientJsonRpcMessage,
    status: StatusCode,
    body: &[u8],
) -> Option<StreamableHttpPostResponse> {
    let JsonRpcMessage::Request(request) = message else {
        return None;
    };
    let is_discovery = matches!(request.request, ClientRequest::DiscoverRequest(_));
    if !is_discovery || !status.is_client_error() {
        return None;
    }
    let error = match serde_json::from_slice::<ServerJsonRpcMessage>(body) {
        Ok(JsonRpcMessage::Error(response)) => response.error,
        Ok(_) | Err(_) => ErrorData::invalid_request(format!("HTTP {status}"), None),
    };
    let response = ServerJsonRpcMessage::error(error, Some(request.id.clone()));
    Some(StreamableHttpPostResponse::Json(response, None))
}

/// Reads the HTTP response to a message that was sent to the server.
async fn read_response(
    mut response: Response,
    message: &ClientJsonRpcMessage,
    in_session: bool,
) -> Result<StreamableHttpPostResponse, HttpTransportError> {
    let status = response.status();
    if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
        return Ok(StreamableHttpPostResponse::Accepted);
    }
    if status == StatusCode::NOT_FOUND && in_session {
        return Err(StreamableHttpError::SessionExpired);
    }
    let session = response.headers().get(SESSION_HEADER);
    let session = session.and_then(|id| id.to_str().ok()).map(str::to_owned);
    let is_request = matches!(message, JsonRpcMessage::Request(_));
    if is_auth_failure(status) {
        return Err(status_error(&response));
    }
    if !status.is_success() {
        // The response may contain the server's own error message.
        let body = read_body(&mut response, ERROR_BODY_BYTES_MAX).await.unwrap_or_default();
        if let Some(json_response) = discovery_rejection(message, status, &body) {
            return Ok(json_response);
        }
        return match serde_json::from_slice(&body) {
            Ok(error @ JsonRpcMessage::Error(_)) => {
                Ok(StreamableHttpPostResponse::Json(error, session))
            }
            Ok(_) | Err(_) => Err(status_error(&response)),
        };
    }
    if has_content_type(&response, "text/event-stream") {
        return Ok(StreamableHttpPostResponse::Sse(parse_sse_events(response), session));
    }
    let is_json = has_content_type(&response, "application/json");
    let body = read_body(&mut response, MESSAGE_BYTES_MAX).await.map_err(transport_error)?;
    match serde_json::from_slice(&body) {
        Ok(parsed) if is_json => Ok(StreamableHttpPostResponse::Json(parsed, session)),
        // A notification needs no response.
        Ok(_) | Err(_) if !is_request => Ok(StreamableHttpPostResponse::Accepted),
        Ok(_) | Err(_) => Err(StreamableHttpError::UnexpectedServerResponse(
            "the response is not a JSON-RPC message".into(),
        )),
    }
}

impl StreamableHttpClient for AuthorizedClient {
    type Error = RequestError;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, HttpTransportError> {
        let json = serde_json::to_vec(&message)?;
        let request = self.client.post(&*uri).header(ACCEPT, ACCEPTED_TYPES);
        let request = request.header(CONTENT_TYPE, "application/json").body(json);
        let max_wait = self.max_token_wait(&message);
        let send = self.send_with_token(
            add_session_and_headers(request, session.as_deref(), headers),
            max_wait,
        );
        read_response(send.await?, &message, session.is_some()).await
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        _: Option<String>,
        headers: Headers,
    ) -> Result<(), HttpTransportError> {
        let request = self.client.delete(&*uri);
        let request = add_session_and_headers(request, Some(&session), headers);
        // Whatever the server answers, the session is over.
        self.send_with_token(request, self.login_timeout).await.map(|_| ())
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        _: Option<String>,
        headers: Headers,
    ) -> Result<BoxedSseResponse, HttpTransportError> {
        let mut request = self.client.get(&*uri).header(ACCEPT, ACCEPTED_TYPES);
        if let Some(last) = last_event {
            request = request.header("last-event-id", last);
        }
        let request = add_session_and_headers(request, session.as_deref(), headers);
        let send = self.send_with_token(request, self.login_timeout);
        let response = send.await.map_err(permanent_to_auth_required)?;
        let status = response.status();
        let is_failure = is_auth_failure(status)
            || status == StatusCode::TOO_MANY_REQUESTS
            || status.is_server_error()
            || status.is_redirection();
        if is_failure {
            return Err(status_error(&response));
        }
        if !status.is_success() || !has_content_type(&response, "text/event-stream") {
            return Err(StreamableHttpError::ServerDoesNotSupportSse);
        }
        Ok(parse_sse_events(response))
    }
}
