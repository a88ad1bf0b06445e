//! Connection to one server, or to the API in the same process: sends requests, retries requests that
//! are safe to repeat, and limits the size of responses. Redirects are not followed, so the key is
//! sent to no other server.

use std::fmt;
use std::sync::{Arc, Once};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response, StatusCode, Url};
use serde::de::DeserializeOwned;

use crate::client::request::RequestParts;
use crate::operations::LIVE;
use crate::problem::Problem;

/// Timeout for connecting to the server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Timeout for the complete response to a request.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(35);

/// Maximum number of retries of a request that is safe to repeat.
const RETRIES_MAX: u32 = 3;

/// Delay before the first retry of a request. The delay doubles with each further retry.
const RETRY_DELAY: Duration = Duration::from_millis(200);

/// Maximum size of a response in bytes.
const RESPONSE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// HTTP header with the name of the person who runs the command.
const USER_HEADER: HeaderName = HeaderName::from_static("x-longhaul-as");

/// Header with the idempotency key of a request.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Name of the last event that a client of an event stream has received.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The API in the same process, called without a socket.
pub trait InProcess: fmt::Debug + Send + Sync {
    /// Handles a request. The host of its URL has no meaning.
    ///
    /// # Errors
    /// The request is rejected, or failed.
    fn call(&self, request: reqwest::Request) -> BoxFuture<'_, Result<Response, Problem>>;
}

/// Connection to one server with the headers of all requests, or to the API in the same process.
pub(super) struct ApiConnection {
    transport: Transport,
    base: Url,
}

/// How requests are sent.
enum Transport {
    Http { client: Client, headers: HeaderMap },
    InProcess(Arc<dyn InProcess>),
}

impl fmt::Debug for ApiConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connection").field(&self.base.as_str()).finish()
    }
}

/// Why there is no response to a request.
enum SendError {
    /// No complete response was received.
    Lost {
        reason: String,
        /// Whether the server could not be connected to, so that the request was never sent.
        unsent: bool,
        /// Whether a timeout or the size limit was exceeded, so that another attempt would probably
        /// take as long and fail, too.
        timed_out: bool,
    },
    /// The API in this process rejected the request.
    Rejected(Problem),
}

impl SendError {
    /// Returns the error of a response that took too long or is too long.
    const fn limit_exceeded(reason: String) -> Self {
        Self::Lost { reason, unsent: false, timed_out: true }
    }
}

impl From<reqwest::Error> for SendError {
    fn from(error: reqwest::Error) -> Self {
        let (unsent, timed_out) = (error.is_connect(), error.is_timeout());
        // The error message already contains the server's address, and the query may be
        // confidential.
        let reason = match timed_out {
            true => "the request timed out".to_owned(),
            false => root_cause_message(&error.without_url()),
        };
        Self::Lost { reason, unsent, timed_out }
    }
}

impl ApiConnection {
    /// Creates a connection to the server with this base URL. Every request carries the API key and
    /// the name of the user.
    pub(super) fn new(base: Url, key: Option<&str>, user: Option<&str>) -> Result<Self, Problem> {
        let mut headers = HeaderMap::new();
        if let Some(user) = user
            && let Ok(user) = HeaderValue::from_bytes(user.as_bytes())
        {
            headers.insert(USER_HEADER, user);
        }
        if let Some(key) = key {
            let value = HeaderValue::from_str(&format!("Bearer {key}"));
            let mut value = value
                .map_err(|_| Problem::new("unauthorized", "the key has invalid characters"))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let client = build_http_client(&base).map_err(|error| {
            let reason = root_cause_message(&error);
            Problem::new("tls_unavailable", format!("could not set up the HTTP client: {reason}"))
        })?;
        Ok(Self { transport: Transport::Http { client, headers }, base })
    }

    /// Creates a connection to the API in this process.
    pub(super) fn in_process(api: Arc<dyn InProcess>) -> Result<Self, Problem> {
        let base = Url::parse("http://in-process/");
        let base = base.map_err(|error| Problem::new("internal", error.to_string()))?;
        Ok(Self { transport: Transport::InProcess(api), base })
    }

    /// Returns what the connection leads to, for messages.
    pub(super) fn peer_name(&self) -> String {
        match self.transport {
            Transport::Http { .. } => self.base.to_string(),
            Transport::InProcess(_) => "the store".to_owned(),
        }
    }

    /// Returns a maximum number of bytes that is meant for another process. The API in this process
    /// has no such limit.
    pub(super) const fn bytes_max(&self, bytes_max: usize) -> usize {
        match self.transport {
            Transport::Http { .. } => bytes_max,
            Transport::InProcess(_) => usize::MAX,
        }
    }

    /// Returns the error for an event from the server that this build can't read.
    pub(super) fn unreadable_event_problem(&self, reason: &impl fmt::Display) -> Problem {
        let peer = self.peer_name();
        let detail = format!("{peer} sent an event that this build can't read: {reason}");
        Problem::new("unexpected_response", detail)
    }

    /// Sends a request and parses the body of the response.
    pub(super) async fn send_and_parse<T: DeserializeOwned>(
        &self,
        mut request: RequestParts,
    ) -> Result<T, Problem> {
        // A request in this process has no response that can be lost.
        if request.once && matches!(self.transport, Transport::Http { .. }) {
            let key = &mut request.idempotency_key;
            key.get_or_insert_with(|| uuid::Uuid::now_v7().to_string());
        }
        let (status, body) = self.send_with_retries(&request).await?;
        if !status.is_success() {
            return Err(self.parse_problem(status, &body));
        }
        serde_json::from_slice(&body)
            .map_err(|error| self.unexpected_response_problem(&error.to_string()))
    }

    /// Opens a stream of the events that follow the sequence number `after`. The stream may stay
    /// open for any time.
    pub(super) async fn open_event_stream(
        &self,
        request: &RequestParts,
        after: u64,
    ) -> Result<Response, Problem> {
        let mut http_request = self.http_request(request);
        let headers = http_request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        headers.insert(LAST_EVENT_ID, HeaderValue::from(after));
        let problem = |error| self.no_response_problem(request, error);
        let response = within_timeout(self.execute(http_request)).await.map_err(problem)?;
        let status = response.status();
        if !status.is_success() {
            let body = within_timeout(self.read_bounded_body(response)).await.map_err(problem)?;
            return Err(self.parse_problem(status, &body));
        }
        let kind = response.headers().get(CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        match kind.starts_with("text/event-stream") {
            true => Ok(response),
            false => Err(self.unexpected_response_problem("it is not an event stream")),
        }
    }

    fn http_request(&self, request: &RequestParts) -> reqwest::Request {
        let url = request.url(&self.base);
        let mut http_request = reqwest::Request::new(request.method.clone(), url);
        let headers = http_request.headers_mut();
        if let Transport::Http { headers: common, .. } = &self.transport {
            headers.clone_from(common);
        }
        if let Some(key) = &request.idempotency_key
            && let Ok(key) = HeaderValue::from_str(key)
        {
            headers.insert(IDEMPOTENCY_KEY, key);
        }
        if let Some(body) = &request.body {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            *http_request.body_mut() = Some(body.clone().into());
        }
        http_request
    }

    async fn execute(&self, request: reqwest::Request) -> Result<Response, SendError> {
        match &self.transport {
            Transport::Http { client, .. } => Ok(client.execute(request).await?),
            Transport::InProcess(api) => api.call(request).await.map_err(SendError::Rejected),
        }
    }

    async fn send_with_retries(
        &self,
        request: &RequestParts,
    ) -> Result<(StatusCode, Vec<u8>), Problem> {
        let (has_key, is_safe) = (request.idempotency_key.is_some(), request.is_safe_to_retry());
        let mut retries = 0;
        loop {
            let sent = self.send_once(request).await;
            let is_worth_retrying = match &sent {
                Ok((status, body)) => {
                    let is_busy = *status == StatusCode::SERVICE_UNAVAILABLE
                        || has_key && is_earlier_request_in_progress(*status, body);
                    is_busy && is_safe
                }
                // A read that timed out is not retried, because the user has waited long enough. A
                // request with an idempotency key is retried until its outcome is known.
                Err(SendError::Lost { unsent, timed_out, .. }) => {
                    (*unsent || !timed_out || has_key) && (*unsent || is_safe)
                }
                Err(SendError::Rejected(_)) => false,
            };
            if !(request.retries && retries < RETRIES_MAX && is_worth_retrying) {
                return sent.map_err(|error| self.no_response_problem(request, error));
            }
            tokio::time::sleep(RETRY_DELAY * 2_u32.pow(retries)).await;
            retries += 1;
        }
    }

    async fn send_once(&self, request: &RequestParts) -> Result<(StatusCode, Vec<u8>), SendError> {
        let mut http_request = self.http_request(request);
        *http_request.timeout_mut() = Some(RESPONSE_TIMEOUT + request.extra_time);
        let response = self.execute(http_request).await?;
        Ok((response.status(), self.read_bounded_body(response).await?))
    }

    async fn read_bounded_body(&self, response: Response) -> Result<Vec<u8>, SendError> {
        let mut body = Vec::new();
        let mut chunks = response.bytes_stream();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk?;
            if body.len() + chunk.len() > self.bytes_max(RESPONSE_BYTES_MAX) {
                let reason = format!("the response is longer than {RESPONSE_BYTES_MAX} bytes");
                return Err(SendError::limit_exceeded(reason));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    fn no_response_problem(&self, request: &RequestParts, error: SendError) -> Problem {
        let base = &self.base;
        match error {
            SendError::Rejected(problem) => problem,
            SendError::Lost { reason, unsent, .. } if unsent || request.is_safe_to_retry() => {
                let detail = format!("the server at {base} can't be reached: {reason}");
                Problem::new("unreachable", detail)
            }
            SendError::Lost { reason, .. } => Problem::new(
                "response_lost",
                format!(
                    "the response of {base} was lost, so it is unknown whether the request took effect: {reason}"
                ),
            ),
        }
    }

    /// Parses the body of an error response. If the body, for example from a proxy, does not
    /// describe a problem, returns a problem with a code for the HTTP status.
    fn parse_problem(&self, status: StatusCode, body: &[u8]) -> Problem {
        if let Ok(problem) = serde_json::from_slice(body) {
            return problem;
        }
        let code = match status {
            StatusCode::UNAUTHORIZED => "unauthorized",
            StatusCode::FORBIDDEN => "forbidden",
            StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => "draining",
            _ => "unexpected_response",
        };
        let base = &self.base;
        Problem::new(code, format!("{base} returned {status} without an explanation"))
    }

    /// Returns the error for a response that does not come from a compatible Longhaul server.
    fn unexpected_response_problem(&self, reason: &str) -> Problem {
        let base = &self.base;
        let detail = format!("{base} returned an unexpected response: {reason}");
        Problem::new("unexpected_response", detail)
    }
}

/// Returns whether a Longhaul server answers at this address. No key is needed.
pub async fn is_server_alive(base_url: &Url) -> bool {
    let Ok(client) = build_http_client(base_url) else {
        return false;
    };
    let url = LIVE.at(()).parts.url(base_url);
    let answer = client.get(url).timeout(CONNECT_TIMEOUT).send().await;
    answer.is_ok_and(|answer| answer.status() == StatusCode::OK)
}

fn build_http_client(base_url: &Url) -> reqwest::Result<Client> {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| {
        // An error means that a provider is installed already, which is fine.
        _ = rustls::crypto::ring::default_provider().install_default();
    });
    let client = Client::builder()
        .user_agent(concat!("longhaul/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT);
    match base_url.scheme() {
        // Plain HTTP needs no certificates, so a machine without any can still reach its own
        // server. No proxy is used.
        "http" => client.tls_certs_only([]).no_proxy().build(),
        _ => client.build(),
    }
}

/// Waits for a part of a response, at most `RESPONSE_TIMEOUT`.
async fn within_timeout<T>(
    response: impl Future<Output = Result<T, SendError>>,
) -> Result<T, SendError> {
    tokio::time::timeout(RESPONSE_TIMEOUT, response).await.unwrap_or_else(|_| {
        let seconds = RESPONSE_TIMEOUT.as_secs();
        let reason = format!("the server did not respond within {seconds} s");
        Err(SendError::limit_exceeded(reason))
    })
}

/// Returns whether the response says that an earlier request with the same idempotency key is still
/// in progress.
fn is_earlier_request_in_progress(status: StatusCode, body: &[u8]) -> bool {
    let problem = serde_json::from_slice::<Problem>(body);
    status == StatusCode::CONFLICT
        && problem.is_ok_and(|problem| problem.code == "request_in_progress")
}

/// Returns the message of the innermost error in a chain; the outer errors add nothing useful.
fn root_cause_message(error: &dyn std::error::Error) -> String {
    let mut root_cause = error;
    while let Some(source) = root_cause.source() {
        root_cause = source;
    }
    root_cause.to_string()
}
