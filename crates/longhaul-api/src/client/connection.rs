//! The connection to one server: sends requests, repeats those that may be sent twice, and
//! reads responses of a bounded length. The key goes to no other server: redirects are not
//! followed.

use std::fmt;
use std::sync::Once;
use std::time::Duration;

use futures_util::StreamExt as _;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response, StatusCode, Url};
use serde::de::DeserializeOwned;

use crate::client::request::Request;
use crate::problem::Problem;

/// Timeout of a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Timeout of a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(35);

/// Maximum number of retries of a request that may be sent twice.
const RETRIES_MAX: u32 = 3;

/// Delay before the first retry; it doubles with each further one.
const RETRY_DELAY: Duration = Duration::from_millis(200);

/// Maximum length of a response in bytes.
const RESPONSE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The header that says who is at the terminal.
const USER_HEADER: HeaderName = HeaderName::from_static("x-longhaul-as");

/// The header that makes a request count once.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// A connection to a server.
pub(super) struct Connection {
    client: Client,
    base: Url,
    headers: HeaderMap,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connection").field(&self.base.as_str()).finish()
    }
}

/// What became of one attempt to send a request.
enum Attempt {
    /// The server responded.
    Response(StatusCode, Vec<u8>),
    /// There is no response.
    Lost(LostResponse),
}

/// Why there is no response.
struct LostResponse {
    why: String,
    /// The request never left this machine.
    unsent: bool,
    /// A timeout has passed.
    timed_out: bool,
}

impl From<reqwest::Error> for LostResponse {
    fn from(error: reqwest::Error) -> Self {
        let (unsent, late) = (error.is_connect(), error.is_timeout());
        // The address is said elsewhere, and its query is nobody's business.
        let why = match late {
            true => "no answer in time".to_owned(),
            false => root_cause(&error.without_url()),
        };
        Self { why, unsent, timed_out: late }
    }
}

impl Connection {
    /// A connection to this address with this key, on behalf of this person.
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
                .map_err(|_| Problem::new("unauthorized", "the key has letters that no key has"))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let client = http_client(&base).map_err(|error| {
            let why = root_cause(&error);
            Problem::new("tls_unavailable", format!("no connection can be made here: {why}"))
        })?;
        Ok(Self { client, base, headers })
    }

    /// The server's address.
    pub(super) const fn base(&self) -> &Url {
        &self.base
    }

    /// The server sent an event that this build can't read.
    pub(super) fn unreadable_event(&self, why: &impl fmt::Display) -> Problem {
        let base = &self.base;
        let detail = format!("{base} tells what this build can't read: {why}");
        Problem::new("unexpected_response", detail)
    }

    /// Sends, and reads what comes back.
    pub(super) async fn send<T: DeserializeOwned>(&self, request: &Request) -> Result<T, Problem> {
        let (status, body) = self.with_retries(request).await?;
        if !status.is_success() {
            return Err(self.parse_problem(status, &body));
        }
        serde_json::from_slice(&body).map_err(|bad| self.unexpected_response(&bad.to_string()))
    }

    /// Opens a stream of events; it is as long as it likes.
    pub(super) async fn stream(&self, request: &Request, after: u64) -> Result<Response, Problem> {
        let sent = self
            .client
            .get(request.url(&self.base))
            .headers(self.headers.clone())
            .header(ACCEPT, "text/event-stream")
            .header("last-event-id", after)
            .send();
        let sent = tokio::time::timeout(RESPONSE_TIMEOUT, sent).await;
        let lost = |lost| self.lost_problem(request, &lost);
        let Ok(sent) = sent else {
            return Err(lost(timeout_error()));
        };
        let response = sent.map_err(|error| lost(error.into()))?;
        let status = response.status();
        let kind = response.headers().get(CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        match (status.is_success(), kind.starts_with("text/event-stream")) {
            (true, true) => return Ok(response),
            (true, false) => return Err(self.unexpected_response("it sends no events")),
            (false, _) => {}
        }
        let Ok(body) = tokio::time::timeout(RESPONSE_TIMEOUT, read_bounded(response)).await else {
            return Err(lost(timeout_error()));
        };
        let body = body.map_err(lost)?;
        Err(self.parse_problem(status, &body))
    }

    async fn with_retries(&self, request: &Request) -> Result<(StatusCode, Vec<u8>), Problem> {
        let mut repeats = 0;
        loop {
            let again = request.retries && repeats < RETRIES_MAX;
            match self.attempt(request).await {
                Attempt::Response(status, body) => {
                    let busy = status == StatusCode::SERVICE_UNAVAILABLE
                        || request.idempotency_key.is_some() && is_in_progress(status, &body);
                    if !(again && busy && request.may_repeat()) {
                        return Ok((status, body));
                    }
                }
                Attempt::Lost(lost) => {
                    // Whoever waited long for a look has waited long enough; a word
                    // that counts once is said until it is known that it was heard.
                    let waits = lost.unsent || !lost.timed_out || request.idempotency_key.is_some();
                    let harmless = lost.unsent || request.may_repeat();
                    if !(again && waits && harmless) {
                        return Err(self.lost_problem(request, &lost));
                    }
                }
            }
            tokio::time::sleep(RETRY_DELAY * 2_u32.pow(repeats)).await;
            repeats += 1;
        }
    }

    async fn attempt(&self, request: &Request) -> Attempt {
        let mut sent = self
            .client
            .request(request.method.clone(), request.url(&self.base))
            .headers(self.headers.clone())
            .timeout(RESPONSE_TIMEOUT);
        if let Some(key) = &request.idempotency_key {
            sent = sent.header(IDEMPOTENCY_KEY, key);
        }
        if let Some(body) = &request.body {
            sent = sent.header(CONTENT_TYPE, "application/json").body(body.clone());
        }
        let response = match sent.send().await {
            Ok(response) => response,
            Err(error) => return Attempt::Lost(error.into()),
        };
        let status = response.status();
        match read_bounded(response).await {
            Ok(body) => Attempt::Response(status, body),
            Err(lost) => Attempt::Lost(lost),
        }
    }

    fn lost_problem(&self, request: &Request, lost: &LostResponse) -> Problem {
        let (base, why) = (&self.base, &lost.why);
        match lost.unsent || request.may_repeat() {
            true => {
                Problem::new("unreachable", format!("the server at {base} can't be reached: {why}"))
            }
            false => Problem::new(
                "response_lost",
                format!(
                    "the answer of {base} was lost, so nobody knows whether it was done: {why}"
                ),
            ),
        }
    }

    /// What a server's no says; something between may have said it.
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
        Problem::new(code, format!("{base} answered {status} without a reason"))
    }

    /// Something answers that is no server of ours.
    fn unexpected_response(&self, why: &str) -> Problem {
        let base = &self.base;
        let detail = format!("{base} answers, but not as this build understands it: {why}");
        Problem::new("unexpected_response", detail)
    }
}

/// Whether a server answers at this address. It does so without a key.
pub async fn is_alive(base: &Url) -> bool {
    let Ok(client) = http_client(base) else {
        return false;
    };
    let url = Request::get(&["livez"]).url(base);
    let answer = client.get(url).timeout(CONNECT_TIMEOUT).send().await;
    answer.is_ok_and(|answer| answer.status() == StatusCode::OK)
}

fn http_client(base: &Url) -> reqwest::Result<Client> {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| {
        // An error says that there is one already, which is as good.
        _ = rustls::crypto::ring::default_provider().install_default();
    });
    let client = Client::builder()
        .user_agent(concat!("longhaul/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT);
    match base.scheme() {
        // A machine without certificates can still talk to itself, and no proxy
        // stands between.
        "http" => client.tls_certs_only([]).no_proxy().build(),
        _ => client.build(),
    }
}

async fn read_bounded(response: Response) -> Result<Vec<u8>, LostResponse> {
    let mut body = Vec::new();
    let mut chunks = response.bytes_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk?;
        if body.len() + chunk.len() > RESPONSE_BYTES_MAX {
            return Err(LostResponse {
                why: format!("the answer is longer than {RESPONSE_BYTES_MAX} bytes"),
                unsent: false,
                timed_out: true,
            });
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

fn timeout_error() -> LostResponse {
    LostResponse {
        why: format!("no answer in {} s", RESPONSE_TIMEOUT.as_secs()),
        unsent: false,
        timed_out: true,
    }
}

/// The first of two that say the same is still at it.
fn is_in_progress(status: StatusCode, body: &[u8]) -> bool {
    let problem = serde_json::from_slice::<Problem>(body);
    status == StatusCode::CONFLICT
        && problem.is_ok_and(|problem| problem.code == "idempotency_running")
}

/// What lies behind an error: the rest only says how deep it came from.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut deepest = error;
    while let Some(deeper) = deepest.source() {
        deepest = deeper;
    }
    deepest.to_string()
}
