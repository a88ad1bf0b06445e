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

use crate::auth::keeper::Keeper;
use crate::lines::MESSAGE_BYTES_MAX;
use crate::request_error::RequestError;
use crate::sent::{Bounded, HttpError, challenge, failed, not_let_in};
use crate::spec::{ServerSpec, Way};
use crate::tls::with_provider;

/// How long it may take to reach the server.
const CONNECT: Duration = Duration::from_secs(10);

/// So many requests may be under way at once. One that waits for its turn looks from
/// outside like one that was sent, and its call would be in doubt for nothing: so this is
/// more than the runs of a worker ask, and costs nothing until they do.
const REQUESTS_MAX: usize = 4_096;

/// A stream that broke off is taken up again so often.
const RESUMES_MAX: usize = 5;

/// The longest wait before that.
const RESUME_WAIT_MAX: Duration = Duration::from_secs(30);

/// Redirects that are followed, on the same origin.
const REDIRECTS_MAX: usize = 5;

/// So much of an answer that is no message is read.
const REFUSAL_BYTES_MAX: usize = 64 * 1024;

/// Headers that are the protocol's own.
const OURS: [&str; 6] = [
    "accept",
    "content-type",
    "content-length",
    "mcp-session-id",
    "mcp-protocol-version",
    "last-event-id",
];

const SESSION: &str = "mcp-session-id";
const BOTH: &str = "text/event-stream, application/json";

/// The way to a server at an address, or what is wrong with how it is written.
pub(super) fn reach(
    spec: &ServerSpec,
) -> Result<WorkerTransport<StreamableHttpClientWorker<Bounded>>, String> {
    let Way::Http { url, headers, .. } = &spec.way else {
        return Err("it has no address".to_owned());
    };
    let at: Url = url
        .parse()
        .map_err(|_| "its address is no URL".to_owned())?;
    if !matches!(at.scheme(), "http" | "https") || at.host().is_none() {
        return Err("its address is no http:// or https:// URL".to_owned());
    }
    let mut retry = ExponentialBackoff::default();
    retry.max_times = Some(RESUMES_MAX);
    retry.max_delay = Some(RESUME_WAIT_MAX);
    let mut config = StreamableHttpClientTransportConfig::with_uri(url.clone())
        .custom_headers(custom(headers)?)
        .max_sse_event_size(MESSAGE_BYTES_MAX)
        .max_concurrent_requests(REQUESTS_MAX);
    config.retry_config = Arc::new(retry);
    let client = client(&at).map_err(|error| RequestError::from(error).why)?;
    let login = spec.way.login();
    let keeper = login.map(|login| Arc::new(Keeper::new(&spec.name, &at, login)));
    let bounded = Bounded::new(client, keeper, spec.patience());
    let worker = StreamableHttpClientWorker::new(bounded, config);
    Ok(WorkerTransport::spawn(worker))
}

fn custom(headers: &BTreeMap<String, String>) -> Result<HashMap<HeaderName, HeaderValue>, String> {
    let mut made = HashMap::new();
    for (name, value) in headers {
        let shown: String = name.escape_debug().take(100).collect();
        let name = HeaderName::from_bytes(name.as_bytes());
        let name = name.map_err(|_| format!("`{shown}` is no name of a header"))?;
        if OURS.contains(&name.as_str()) {
            return Err(format!("the header `{shown}` is the protocol's own"));
        }
        let value = HeaderValue::from_str(value);
        let mut value = value.map_err(|_| format!("the value of `{shown}` can't be sent"))?;
        value.set_sensitive(true);
        made.insert(name, value);
    }
    Ok(made)
}

fn client(at: &Url) -> reqwest::Result<Client> {
    with_provider();
    let client = Client::builder()
        .user_agent(concat!("longhaul/", env!("CARGO_PKG_VERSION")))
        .redirect(redirect::Policy::custom(same_origin))
        .tcp_nodelay(true)
        .connect_timeout(CONNECT)
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
    let keeps = matches!(
        attempt.status(),
        StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT
    );
    let first = attempt.previous().first();
    let same = first.is_some_and(|first| first.origin() == attempt.url().origin());
    if keeps && same && attempt.previous().len() <= REDIRECTS_MAX {
        attempt.follow()
    } else {
        attempt.stop()
    }
}

/// What every request carries.
fn dressed(
    mut request: RequestBuilder,
    session: Option<&str>,
    headers: HashMap<HeaderName, HeaderValue>,
) -> RequestBuilder {
    for (name, value) in headers {
        request = request.header(name, value);
    }
    match session {
        Some(session) => request.header(SESSION, session),
        None => request,
    }
}

fn is(response: &Response, media: &str) -> bool {
    let said = response.headers().get(CONTENT_TYPE);
    said.is_some_and(|said| said.as_bytes().starts_with(media.as_bytes()))
}

/// A body, if it is not longer than this.
async fn body(mut response: Response, max: usize) -> Result<Vec<u8>, HttpError> {
    let mut all = Vec::new();
    while let Some(some) = response.chunk().await.map_err(failed)? {
        if all.len() + some.len() > max {
            let why = "it sent a message that is too long";
            return Err(StreamableHttpError::Client(RequestError::plain(why)));
        }
        all.extend_from_slice(&some);
    }
    Ok(all)
}

/// A stream of events, none of which is longer than a message may be.
fn events(response: Response) -> BoxedSseResponse {
    let bytes = bounded(response.bytes_stream(), MESSAGE_BYTES_MAX);
    let events = SseByteStream::new(bytes.boxed());
    let events = events.map(|event| {
        let event = event.map_err(|error| SseError::Body(error.to_string().into()))?;
        Ok(Event {
            event: event.event,
            data: event.data,
            id: event.id,
            retry: event.retry,
        })
    });
    events.boxed()
}

/// An event as the SDK knows it: it is of an older version of the crate that reads
/// them, which has no name here but through the SDK's own.
type Event = <<BoxedSseResponse as Stream>::Item as Inner>::Inner;

/// What stands in a result that is good.
trait Inner {
    type Inner;
}

impl<T, E> Inner for Result<T, E> {
    type Inner = T;
}

/// Bytes until a block of lines, which ends with an empty one, is longer than this.
fn bounded(
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
                return Err(RequestError::plain("it sent an event that is too long"));
            }
        }
        Ok(some)
    })
}

/// What a status without a message in it means.
fn refused(status: StatusCode, headers: &HeaderMap) -> Option<HttpError> {
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
fn unknown_greeting(
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
async fn answer(
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
    let session = response.headers().get(SESSION);
    let session = session.and_then(|id| id.to_str().ok()).map(str::to_owned);
    let asks = matches!(message, JsonRpcMessage::Request(_));
    if !status.is_success() {
        let refused = refused(status, response.headers());
        if let Some(refused @ StreamableHttpError::AuthRequired(_)) = refused {
            return Err(refused);
        }
        // Its own words about what is wrong, where it has some.
        let body = body(response, REFUSAL_BYTES_MAX).await.unwrap_or_default();
        if let Some(answer) = unknown_greeting(message, status, &body) {
            return Ok(answer);
        }
        if let Ok(said @ JsonRpcMessage::Error(_)) = serde_json::from_slice(&body) {
            return Ok(StreamableHttpPostResponse::Json(said, session));
        }
        let plain = || StreamableHttpError::HttpStatus(HttpStatusError::new(status.as_u16(), None));
        return Err(refused.unwrap_or_else(plain));
    }
    if is(&response, "text/event-stream") {
        return Ok(StreamableHttpPostResponse::Sse(events(response), session));
    }
    let is_json = is(&response, "application/json");
    let body = body(response, MESSAGE_BYTES_MAX).await?;
    match serde_json::from_slice(&body) {
        Ok(said) if is_json => Ok(StreamableHttpPostResponse::Json(said, session)),
        // What asks for no answer needs none.
        Ok(_) | Err(_) if !asks => Ok(StreamableHttpPostResponse::Accepted),
        Ok(_) | Err(_) => Err(StreamableHttpError::UnexpectedServerResponse(
            "it answered with what is no message".into(),
        )),
    }
}

impl StreamableHttpClient for Bounded {
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
        let request = self.client.post(&*uri).header(ACCEPT, BOTH);
        let request = request.header(CONTENT_TYPE, "application/json").body(json);
        let patience = self.patience(&message);
        let sent = self.send(dressed(request, session.as_deref(), headers), patience);
        answer(sent.await?, &message, session.is_some()).await
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), HttpError> {
        let request = self.client.delete(&*uri);
        let request = dressed(request, Some(&session), headers);
        // Whatever it says, the session is over for us.
        self.send(request, self.patience).await.map(|_| ())
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxedSseResponse, HttpError> {
        let mut request = self.client.get(&*uri).header(ACCEPT, BOTH);
        if let Some(last) = last_event {
            request = request.header("last-event-id", last);
        }
        let request = dressed(request, session.as_deref(), headers);
        let sent = self.send(request, self.patience);
        let response = sent.await.map_err(not_let_in)?;
        let status = response.status();
        if status == StatusCode::METHOD_NOT_ALLOWED {
            return Err(StreamableHttpError::ServerDoesNotSupportSse);
        }
        if let Some(refused) = refused(status, response.headers()) {
            return Err(refused);
        }
        if !status.is_success() || !is(&response, "text/event-stream") {
            return Err(StreamableHttpError::ServerDoesNotSupportSse);
        }
        Ok(events(response))
    }
}
