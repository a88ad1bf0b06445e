//! A server that is asked over HTTP: the requests that the SDK wants made.
//!
//! Never: follows a redirect to another origin, reads more than a message may be
//! long, or says an address or a header in an error.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use longhaul_core::net;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
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

use crate::auth::token_provider::TokenProvider;
use crate::http_auth::{AuthorizedClient, HttpError, as_auth_required, challenge, transport_error};
use crate::lines::MESSAGE_BYTES_MAX;
use crate::request_error::RequestError;
use crate::spec::{ServerSpec, ServerTransport};
use crate::tls::ensure_provider;

/// How long it may take to reach the server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// So many requests may be under way at once. One that waits for its turn looks from
/// outside like one that was sent, and its call would be in doubt for nothing: so this is
/// more than the runs of a worker ask, and costs nothing until they do.
const REQUESTS_MAX: usize = 4_096;

/// A stream that broke off is taken up again so often.
const RESUMES_MAX: usize = 5;

/// The longest wait before that.
const RESUME_DELAY_MAX: Duration = Duration::from_secs(30);

/// Redirects that are followed, on the same origin.
const REDIRECTS_MAX: usize = 5;

/// So much of an answer that is no message is read.
const ERROR_BODY_BYTES_MAX: usize = 64 * 1024;

/// Headers that are the protocol's own.
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

/// The way to a server at an address, or what is wrong with how it is written.
pub(super) fn transport(
    spec: &ServerSpec,
) -> Result<WorkerTransport<StreamableHttpClientWorker<AuthorizedClient>>, String> {
    let ServerTransport::Http { url, headers, .. } = &spec.transport else {
        return Err("it has no address".to_owned());
    };
    let at: Url = url.parse().map_err(|_| "its address is no URL".to_owned())?;
    if !matches!(at.scheme(), "http" | "https") || at.host().is_none() {
        return Err("its address is no http:// or https:// URL".to_owned());
    }
    let mut retry = ExponentialBackoff::default();
    retry.max_times = Some(RESUMES_MAX);
    retry.max_delay = Some(RESUME_DELAY_MAX);
    let mut config = StreamableHttpClientTransportConfig::with_uri(url.clone())
        .custom_headers(custom_headers(headers)?)
        .max_sse_event_size(MESSAGE_BYTES_MAX)
        .max_concurrent_requests(REQUESTS_MAX);
    config.retry_config = Arc::new(retry);
    let client = build_client(&at).map_err(|error| RequestError::from(error).reason)?;
    let login = spec.transport.login();
    let keeper = login.map(|login| Arc::new(TokenProvider::new(&spec.name, &at, login)));
    let bounded = AuthorizedClient::new(client, keeper, spec.setup_timeout());
    let worker = StreamableHttpClientWorker::new(bounded, config);
    Ok(WorkerTransport::spawn(worker))
}

fn custom_headers(
    headers: &BTreeMap<String, String>,
) -> Result<HashMap<HeaderName, HeaderValue>, String> {
    let mut made = HashMap::new();
    for (name, value) in headers {
        let shown: String = name.escape_debug().take(100).collect();
        let name = HeaderName::from_bytes(name.as_bytes());
        let name = name.map_err(|_| format!("`{shown}` is no name of a header"))?;
        if RESERVED_HEADERS.contains(&name.as_str()) {
            return Err(format!("the header `{shown}` is the protocol's own"));
        }
        let value = HeaderValue::from_str(value);
        let mut value = value.map_err(|_| format!("the value of `{shown}` can't be sent"))?;
        value.set_sensitive(true);
        made.insert(name, value);
    }
    Ok(made)
}

fn build_client(at: &Url) -> reqwest::Result<Client> {
    ensure_provider();
    let client = Client::builder()
        .user_agent(concat!("longhaul/", env!("CARGO_PKG_VERSION")))
        .redirect(redirect::Policy::custom(same_origin))
        .tcp_nodelay(true)
        .connect_timeout(CONNECT_TIMEOUT)
        // Streams that are cut off in their middle leave connections that stall.
        .pool_max_idle_per_host(0);
    let client = match net::may_use_proxy(at.host_str().unwrap_or_default()) {
        true => client,
        false => client.no_proxy(),
    };
    match at.scheme() {
        // A machine without certificates can still talk without TLS.
        "http" => client.tls_certs_only([]).build(),
        _ => client.build(),
    }
}

/// Only redirects that keep the message, and only to where it was meant to go:
/// headers hold keys.
fn same_origin(attempt: redirect::Attempt<'_>) -> redirect::Action {
    let keeps =
        matches!(attempt.status(), StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
    let first = attempt.previous().first();
    let same = first.is_some_and(|first| first.origin() == attempt.url().origin());
    if keeps && same && attempt.previous().len() <= REDIRECTS_MAX {
        attempt.follow()
    } else {
        attempt.stop()
    }
}

/// What every request carries.
fn with_headers(
    mut request: RequestBuilder,
    session: Option<&str>,
    headers: HashMap<HeaderName, HeaderValue>,
) -> RequestBuilder {
    for (name, value) in headers {
        request = request.header(name, value);
    }
    match session {
        Some(session) => request.header(SESSION_HEADER, session),
        None => request,
    }
}

fn has_content_type(response: &Response, media: &str) -> bool {
    let said = response.headers().get(CONTENT_TYPE);
    said.is_some_and(|said| said.as_bytes().starts_with(media.as_bytes()))
}

/// A body, if it is not longer than this.
async fn read_body(mut response: Response, max: usize) -> Result<Vec<u8>, HttpError> {
    let mut all = Vec::new();
    while let Some(some) = response.chunk().await.map_err(transport_error)? {
        if all.len() + some.len() > max {
            let why = "it sent a message that is too long";
            return Err(StreamableHttpError::Client(RequestError::new(why)));
        }
        all.extend_from_slice(&some);
    }
    Ok(all)
}

/// A stream of events, none of which is longer than a message may be.
fn sse_events(response: Response) -> BoxedSseResponse {
    let bytes = limit_event_size(response.bytes_stream(), MESSAGE_BYTES_MAX);
    let events = SseByteStream::new(bytes.boxed());
    let events = events.map(|event| {
        let event = event.map_err(|error| SseError::Body(error.to_string().into()))?;
        Ok(SdkEvent { event: event.event, data: event.data, id: event.id, retry: event.retry })
    });
    events.boxed()
}

/// An event as the SDK knows it: it is of an older version of the crate that reads
/// them, which has no name here but through the SDK's own.
type SdkEvent = <<BoxedSseResponse as Stream>::Item as OkType>::Value;

/// What stands in a result that is good.
trait OkType {
    type Value;
}

impl<T, E> OkType for Result<T, E> {
    type Value = T;
}

/// Bytes until a block of lines, which ends with an empty one, is longer than this.
fn limit_event_size(
    bytes: impl Stream<Item = reqwest::Result<Bytes>> + Send + 'static,
    max: usize,
) -> impl Stream<Item = Result<Bytes, RequestError>> + Send + 'static {
    let mut block = 0;
    let mut after_end = false;
    bytes.map(move |some| {
        let some = some.map_err(RequestError::from)?;
        for byte in &some {
            block = match byte {
                b'\n' if after_end => 0,
                _ => block + 1,
            };
            after_end = *byte == b'\n' || (after_end && *byte == b'\r');
            if block > max {
                return Err(RequestError::new("it sent an event that is too long"));
            }
        }
        Ok(some)
    })
}

/// What a status without a message in it means.
fn status_error(status: StatusCode, headers: &HeaderMap) -> Option<HttpError> {
    let challenge = challenge(headers);
    if status == StatusCode::UNAUTHORIZED || status == StatusCode::FORBIDDEN {
        let challenge = AuthRequiredError::new(challenge.chars().take(500).collect());
        return Some(StreamableHttpError::AuthRequired(challenge));
    }
    let fails = status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error();
    (fails || status.is_redirection()).then(|| HttpStatusError::new(status.as_u16(), None).into())
}

/// A server that does not know how it is greeted in the newer manner may say so
/// in any way; the SDK is told in the one it knows, and greets in the older.
fn unsupported_discovery(
    message: &ClientJsonRpcMessage,
    status: StatusCode,
    body: &[u8],
) -> Option<StreamableHttpPostResponse> {
    let JsonRpcMessage::Request(asked) = message else {
        return None;
    };
    let is_greeting = matches!(asked.request, ClientRequest::DiscoverRequest(_));
    if !is_greeting || !status.is_client_error() {
        return None;
    }
    let error = match serde_json::from_slice::<ServerJsonRpcMessage>(body) {
        Ok(JsonRpcMessage::Error(said)) => said.error,
        Ok(_) | Err(_) => ErrorData::invalid_request(format!("HTTP {status}"), None),
    };
    let answer = ServerJsonRpcMessage::error(error, Some(asked.id.clone()));
    Some(StreamableHttpPostResponse::Json(answer, None))
}

/// The answer to a message.
async fn read_response(
    response: Response,
    message: &ClientJsonRpcMessage,
    in_session: bool,
) -> Result<StreamableHttpPostResponse, HttpError> {
    let status = response.status();
    if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
        return Ok(StreamableHttpPostResponse::Accepted);
    }
    if status == StatusCode::NOT_FOUND && in_session {
        return Err(StreamableHttpError::SessionExpired);
    }
    let session = response.headers().get(SESSION_HEADER);
    let session = session.and_then(|id| id.to_str().ok()).map(str::to_owned);
    let asks = matches!(message, JsonRpcMessage::Request(_));
    if !status.is_success() {
        let refused = status_error(status, response.headers());
        if let Some(refused @ StreamableHttpError::AuthRequired(_)) = refused {
            return Err(refused);
        }
        // Its own words about what is wrong, where it has some.
        let body = read_body(response, ERROR_BODY_BYTES_MAX).await.unwrap_or_default();
        if let Some(answer) = unsupported_discovery(message, status, &body) {
            return Ok(answer);
        }
        if let Ok(said @ JsonRpcMessage::Error(_)) = serde_json::from_slice(&body) {
            return Ok(StreamableHttpPostResponse::Json(said, session));
        }
        let plain = || StreamableHttpError::HttpStatus(HttpStatusError::new(status.as_u16(), None));
        return Err(refused.unwrap_or_else(plain));
    }
    if has_content_type(&response, "text/event-stream") {
        return Ok(StreamableHttpPostResponse::Sse(sse_events(response), session));
    }
    let is_json = has_content_type(&response, "application/json");
    let body = read_body(response, MESSAGE_BYTES_MAX).await?;
    match serde_json::from_slice(&body) {
        Ok(said) if is_json => Ok(StreamableHttpPostResponse::Json(said, session)),
        // What asks for no answer needs none.
        Ok(_) | Err(_) if !asks => Ok(StreamableHttpPostResponse::Accepted),
        Ok(_) | Err(_) => Err(StreamableHttpError::UnexpectedServerResponse(
            "it answered with what is no message".into(),
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
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let json = serde_json::to_vec(&message)?;
        let request = self.client.post(&*uri).header(ACCEPT, ACCEPTED_TYPES);
        let request = request.header(CONTENT_TYPE, "application/json").body(json);
        let patience = self.timeout_for(&message);
        let sent = self.send(with_headers(request, session.as_deref(), headers), patience);
        read_response(sent.await?, &message, session.is_some()).await
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), HttpError> {
        let request = self.client.delete(&*uri);
        let request = with_headers(request, Some(&session), headers);
        // Whatever it says, the session is over for us.
        self.send(request, self.login_timeout).await.map(|_| ())
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxedSseResponse, HttpError> {
        let mut request = self.client.get(&*uri).header(ACCEPT, ACCEPTED_TYPES);
        if let Some(last) = last_event {
            request = request.header("last-event-id", last);
        }
        let request = with_headers(request, session.as_deref(), headers);
        let sent = self.send(request, self.login_timeout);
        let response = sent.await.map_err(as_auth_required)?;
        let status = response.status();
        if status == StatusCode::METHOD_NOT_ALLOWED {
            return Err(StreamableHttpError::ServerDoesNotSupportSse);
        }
        if let Some(refused) = status_error(status, response.headers()) {
            return Err(refused);
        }
        if !status.is_success() || !has_content_type(&response, "text/event-stream") {
            return Err(StreamableHttpError::ServerDoesNotSupportSse);
        }
        Ok(sse_events(response))
    }
}
