//! Connection to one server: sends requests, retries requests that are safe to repeat, and limits
//! the size of responses. Redirects are not followed, so the key is sent to no other server.

use std::fmt;
use std::sync::Once;
use std::time::Duration;

use futures_util::StreamExt as _;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response, StatusCode, Url};
use serde::de::DeserializeOwned;

use crate::client::request::ApiRequest;
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

/// HTTP connection to one server, with the headers of all requests.
pub(super) struct ApiConnection {
    client: Client,
    base: Url,
    headers: HeaderMap,
}

impl fmt::Debug for ApiConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connection").field(&self.base.as_str()).finish()
    }
}

/// Result of one attempt to send a request.
enum SendAttemptOutcome {
    /// The server responded with this status and body.
    Response(StatusCode, Vec<u8>),
    /// No complete response was received, for this reason.
    Lost(NoResponseReason),
}

/// Reason why no complete response was received.
struct NoResponseReason {
    reason: String,
    /// Whether the server could not be connected to, so that the request was never sent.
    unsent: bool,
    /// Whether a timeout or the size limit was exceeded, so that another attempt would probably
    /// take as long and fail, too.
    timed_out: bool,
}

impl From<reqwest::Error> for NoResponseReason {
    fn from(error: reqwest::Error) -> Self {
        let (is_unsent, is_timeout) = (error.is_connect(), error.is_timeout());
        // The error message already contains the server's address, and the query may be
        // confidential.
        let reason = match is_timeout {
            true => "the request timed out".to_owned(),
            false => root_cause_message(&error.without_url()),
        };
        Self { reason, unsent: is_unsent, timed_out: is_timeout }
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
        Ok(Self { client, base, headers })
    }

    /// Returns the base URL of the server.
    pub(super) const fn base_url(&self) -> &Url {
        &self.base
    }

    /// Returns the error for an event from the server that this build can't read.
    pub(super) fn unreadable_event_problem(&self, reason: &impl fmt::Display) -> Problem {
        let base = &self.base;
        let detail = format!("{base} sent an event that this build can't read: {reason}");
        Problem::new("unexpected_response", detail)
    }

    /// Sends a request and parses the body of the response.
    pub(super) async fn send_and_parse<T: DeserializeOwned>(
        &self,
        request: &ApiRequest,
    ) -> Result<T, Problem> {
        let (status, body) = self.send_with_retries(request).await?;
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
        request: &ApiRequest,
        after: u64,
    ) -> Result<Response, Problem> {
        let response = self
            .client
            .get(request.url(&self.base))
            .headers(self.headers.clone())
            .header(ACCEPT, "text/event-stream")
            .header("last-event-id", after)
            .send();
        let response = tokio::time::timeout(RESPONSE_TIMEOUT, response).await;
        let no_response = |reason| self.no_response_problem(request, &reason);
        let Ok(response) = response else {
            return Err(no_response(response_timeout_reason()));
        };
        let response = response.map_err(|error| no_response(error.into()))?;
        let status = response.status();
        let kind = response.headers().get(CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        match (status.is_success(), kind.starts_with("text/event-stream")) {
            (true, true) => return Ok(response),
            (true, false) => {
                return Err(self.unexpected_response_problem("it is not an event stream"));
            }
            (false, _) => {}
        }
        let Ok(body) = tokio::time::timeout(RESPONSE_TIMEOUT, read_bounded_body(response)).await
        else {
            return Err(no_response(response_timeout_reason()));
        };
        let body = body.map_err(no_response)?;
        Err(self.parse_problem(status, &body))
    }

    async fn send_with_retries(
        &self,
        request: &ApiRequest,
    ) -> Result<(StatusCode, Vec<u8>), Problem> {
        let mut retries = 0;
        loop {
            let may_retry = request.retries && retries < RETRIES_MAX;
            match self.send_once(request).await {
                SendAttemptOutcome::Response(status, body) => {
                    let is_busy = status == StatusCode::SERVICE_UNAVAILABLE
                        || request.idempotency_key.is_some()
                            && is_earlier_request_in_progress(status, &body);
                    if !(may_retry && is_busy && request.is_safe_to_retry()) {
                        return Ok((status, body));
                    }
                }
                SendAttemptOutcome::Lost(reason) => {
                    // A read that timed out is not retried, because the user has waited long
                    // enough. A request with an idempotency key is retried until its outcome is
                    // known.
                    let is_worth_retrying =
                        reason.unsent || !reason.timed_out || request.idempotency_key.is_some();
                    let is_safe = reason.unsent || request.is_safe_to_retry();
                    if !(may_retry && is_worth_retrying && is_safe) {
                        return Err(self.no_response_problem(request, &reason));
                    }
                }
            }
            tokio::time::sleep(RETRY_DELAY * 2_u32.pow(retries)).await;
            retries += 1;
        }
    }

    async fn send_once(&self, request: &ApiRequest) -> SendAttemptOutcome {
        let mut builder = self
            .client
            .request(request.method.clone(), request.url(&self.base))
            .headers(self.headers.clone())
            .timeout(RESPONSE_TIMEOUT);
        if let Some(key) = &request.idempotency_key {
            builder = builder.header(IDEMPOTENCY_KEY, key);
        }
        if let Some(body) = &request.body {
            builder = builder.header(CONTENT_TYPE, "application/json").body(body.clone());
        }
        let response = match builder.send().await {
            Ok(response) => response,
            Err(error) => return SendAttemptOutcome::Lost(error.into()),
        };
        let status = response.status();
        match read_bounded_body(response).await {
            Ok(body) => SendAttemptOutcome::Response(status, body),
            Err(reason) => SendAttemptOutcome::Lost(reason),
        }
    }

    fn no_response_problem(&self, request: &ApiRequest, no_response: &NoResponseReason) -> Problem {
        let (base, reason) = (&self.base, &no_response.reason);
        match no_response.unsent || request.is_safe_to_retry() {
            true => Problem::new(
                "unreachable",
                format!("the server at {base} can't be reached: {reason}"),
            ),
            false => Problem::new(
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
    let url = ApiRequest::get(&["livez"]).url(base_url);
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

async fn read_bounded_body(response: Response) -> Result<Vec<u8>, NoResponseReason> {
    let mut body = Vec::new();
    let mut chunks = response.bytes_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk?;
        if body.len() + chunk.len() > RESPONSE_BYTES_MAX {
            return Err(NoResponseReason {
                reason: format!("the response is longer than {RESPONSE_BYTES_MAX} bytes"),
                unsent: false,
                timed_out: true,
            });
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

fn response_timeout_reason() -> NoResponseReason {
    NoResponseReason {
        reason: format!("the server did not respond within {} s", RESPONSE_TIMEOUT.as_secs()),
        unsent: false,
        timed_out: true,
    }
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
