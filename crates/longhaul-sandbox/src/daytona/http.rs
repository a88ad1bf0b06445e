//! HTTP client of Daytona's API and of the toolboxes of its sandboxes: authentication, bounded
//! responses, and retries of transient failures.
//!
//! Invariant: every request can be sent twice. A response can be lost after Daytona has carried out
//! the request.

use std::time::Duration;

use bytes::Bytes;
use longhaul_core::port::sandbox::SandboxError;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Certificate, Client, Method, Response, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::DaytonaOptions;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout for the next bytes of a response.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum number of times that a request is sent.
const ATTEMPTS_MAX: u32 = 5;

/// Delay before the first retry. Each later one is twice as long.
const RETRY_DELAY: Duration = Duration::from_millis(200);

/// Maximum delay that is waited for when Daytona limits the rate of requests.
const RATE_LIMIT_DELAY_MAX: Duration = Duration::from_secs(30);

/// Maximum number of bytes of a JSON response.
const RESPONSE_BYTES_MAX: usize = 16 << 20;

/// Maximum number of characters of a message that is taken from a response.
const MESSAGE_CHARS_MAX: usize = 500;

/// Failure of a request to Daytona.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum ApiError {
    /// Daytona refused the request.
    #[error("{message} (HTTP {status})")]
    Status { status: u16, message: String },
    /// There is no response, or none that can be used.
    #[error("{0}")]
    NoResponse(String),
    /// The response is larger than this number of bytes.
    #[error("the response has more than {0} bytes")]
    TooLarge(u64),
}

impl ApiError {
    pub(super) fn is_status(&self, expected: u16) -> bool {
        matches!(self, Self::Status { status, .. } if *status == expected)
    }

    /// Returns whether a limit of the organization was reached. Daytona reports it only as text.
    fn is_quota(&self) -> bool {
        let Self::Status { status: 400 | 403 | 503, message } = self else { return false };
        let message = message.to_ascii_lowercase();
        let texts = ["limit exceeded", "quota", "no available runners"];
        texts.iter().any(|text| message.contains(text))
    }

    fn is_transient(&self) -> bool {
        match self {
            Self::Status { status, .. } => matches!(status, 429 | 502..=504),
            Self::NoResponse(_) => true,
            Self::TooLarge(_) => false,
        }
    }
}

impl From<ApiError> for SandboxError {
    fn from(error: ApiError) -> Self {
        match &error {
            ApiError::Status { message, .. } if error.is_quota() => {
                Self::NoCapacity(message.clone())
            }
            ApiError::Status { status: 401 | 403, message } => Self::Refused(format!(
                "Daytona refuses the API key: {message}; create a key that may write and delete \
                 sandboxes and volumes at https://app.daytona.io/dashboard/keys, and set \
                 DAYTONA_API_KEY"
            )),
            ApiError::Status { status: 404, .. } => Self::NotFound,
            ApiError::Status { status: 409 | 429 | 500.., .. } | ApiError::NoResponse(_) => {
                Self::Unavailable(error.to_string())
            }
            ApiError::Status { .. } => Self::Refused(format!("Daytona refuses: {error}")),
            ApiError::TooLarge(_) => Self::File(error.to_string()),
        }
    }
}

/// A request that can be sent several times.
#[derive(Debug, Clone)]
pub(super) struct ApiRequest {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) content_type: &'static str,
    pub(super) body: Bytes,
}

impl ApiRequest {
    pub(super) fn new(method: Method, url: Url) -> Self {
        Self { method, url, content_type: "application/json", body: Bytes::new() }
    }

    pub(super) fn json(url: Url, body: &serde_json::Value) -> Self {
        Self { body: body.to_string().into(), ..Self::new(Method::POST, url) }
    }

    pub(super) fn file(url: Url, body: Bytes) -> Self {
        let content_type = "application/octet-stream";
        Self { content_type, body, ..Self::new(Method::POST, url) }
    }
}

/// Client of Daytona's API and of the toolboxes of its sandboxes.
#[derive(Debug, Clone)]
pub(super) struct ApiClient {
    client: Client,
    base: Url,
}

impl ApiClient {
    pub(super) fn new(options: &DaytonaOptions) -> Result<Self, SandboxError> {
        let refuse =
            |problem: &str| SandboxError::Refused(format!("Daytona can't be used: {problem}"));
        let base = parse_base_url(&options.url).map_err(refuse)?;
        let mut key = HeaderValue::try_from(format!("Bearer {}", options.api_key))
            .map_err(|_| refuse("DAYTONA_API_KEY contains characters that no key has"))?;
        if options.api_key.is_empty() {
            return Err(refuse("there is no API key; set DAYTONA_API_KEY"));
        }
        key.set_sensitive(true);
        let client = Client::builder()
            .user_agent(concat!("longhaul/", env!("CARGO_PKG_VERSION")))
            .default_headers(HeaderMap::from_iter([(AUTHORIZATION, key)]))
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(READ_TIMEOUT)
            .no_proxy();
        // An error means that a provider is already installed.
        _ = rustls::crypto::ring::default_provider().install_default();
        let client = match (base.scheme(), &options.ca_pem) {
            // Without TLS no certificates are needed, and the machine may have none.
            ("http", _) => client.tls_certs_only([]),
            (_, None) => client,
            (_, Some(pem)) => {
                let certs = Certificate::from_pem_bundle(pem)
                    .ok()
                    .filter(|certs| !certs.is_empty())
                    .ok_or_else(|| refuse("its CA certificates are not valid PEM"))?;
                client.tls_certs_merge(certs)
            }
        };
        let client = client.build().map_err(|error| refuse(&error_text(&error)))?;
        Ok(Self { client, base })
    }

    /// Returns the address of a resource of the API.
    pub(super) fn url(&self, segments: &[&str]) -> Url {
        extend_url(&self.base, segments)
    }

    /// Parses the address of a toolbox. The API key is sent there, so TLS is needed if the API has
    /// it.
    pub(super) fn toolbox_url(&self, proxy: &str, handle: &str) -> Result<Url, SandboxError> {
        let url = parse_base_url(proxy).map_err(str::to_owned).and_then(|url| {
            match url.scheme() == self.base.scheme() || url.scheme() == "https" {
                true => Ok(extend_url(&url, &[handle])),
                false => Err("its connection is not encrypted".to_owned()),
            }
        });
        url.map_err(|problem| {
            SandboxError::Refused(format!(
                "the toolbox address that Daytona names can't be used: {problem}"
            ))
        })
    }

    /// Sends a request and parses the JSON of its response.
    pub(super) async fn json<T: DeserializeOwned>(
        &self,
        request: ApiRequest,
    ) -> Result<T, ApiError> {
        let bytes = self.bytes(request, RESPONSE_BYTES_MAX as u64).await?;
        serde_json::from_slice(&bytes)
            .map_err(|error| ApiError::NoResponse(format!("the response is not valid: {error}")))
    }

    /// Sends a request and returns its response, which has a limited size.
    pub(super) async fn bytes(&self, request: ApiRequest, max: u64) -> Result<Vec<u8>, ApiError> {
        let mut delay = RETRY_DELAY;
        let mut attempt = 1;
        loop {
            let mut wait = delay;
            let result = match self.send(&request).await {
                Err(error) => Err(error),
                Ok(response) => {
                    wait = rate_limit_delay(response.headers()).unwrap_or(delay);
                    read_response(response, max).await
                }
            };
            let error = match result {
                Err(error) if error.is_transient() && !error.is_quota() => error,
                Err(_) | Ok(_) => return result,
            };
            if attempt == ATTEMPTS_MAX || wait > RATE_LIMIT_DELAY_MAX {
                return Err(error);
            }
            tokio::time::sleep(wait).await;
            attempt += 1;
            delay *= 2;
        }
    }

    /// Sends a request once, and returns its response as soon as its head has arrived.
    pub(super) async fn stream(&self, request: ApiRequest) -> Result<Response, ApiError> {
        accept_response(self.send(&request).await?).await
    }

    /// Sends a body of unknown length once.
    pub(super) async fn upload(&self, url: Url, body: reqwest::Body) -> Result<(), ApiError> {
        let request = self.client.post(url).header(CONTENT_TYPE, "application/octet-stream");
        let response = request.body(body).send().await.map_err(|error| no_response(&error))?;
        read_response(response, RESPONSE_BYTES_MAX as u64).await.map(drop)
    }

    async fn send(&self, request: &ApiRequest) -> Result<Response, ApiError> {
        let mut builder = self.client.request(request.method.clone(), request.url.clone());
        if !request.body.is_empty() || request.content_type != "application/json" {
            builder = builder.header(CONTENT_TYPE, request.content_type);
        }
        let response = builder.body(request.body.clone()).send().await;
        response.map_err(|error| no_response(&error))
    }
}

fn parse_base_url(text: &str) -> Result<Url, &'static str> {
    let url: Url = text.trim().parse().map_err(|_| "its address is not a valid URL")?;
    match (url.scheme(), url.host()) {
        ("http" | "https", Some(_)) => Ok(url),
        _ => Err("its address must begin with https://"),
    }
}

/// Returns the address below `base` with these path segments.
pub(super) fn extend_url(base: &Url, segments: &[&str]) -> Url {
    let mut url = base.clone();
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty().extend(segments);
    }
    url
}

fn no_response(error: &reqwest::Error) -> ApiError {
    ApiError::NoResponse(error_text(error))
}

/// Returns the text of an error and its causes, without the address of the request.
fn error_text(error: &reqwest::Error) -> String {
    let mut causes =
        std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    let first = match error.is_timeout() {
        true => "the request timed out",
        false => "the request failed",
    };
    causes.by_ref().fold(first.to_owned(), |text, cause| format!("{text}: {cause}"))
}

/// Returns how long to wait until the rate of requests is below the limit. The names of these
/// headers end with the name of the limit.
fn rate_limit_delay(headers: &HeaderMap) -> Option<Duration> {
    let delays = headers.iter().filter(|(name, _)| name.as_str().starts_with("retry-after"));
    let seconds = delays.filter_map(|(_, value)| value.to_str().ok()?.parse().ok());
    seconds.max().map(Duration::from_secs)
}

async fn read_response(response: Response, max: u64) -> Result<Vec<u8>, ApiError> {
    read_body(accept_response(response).await?, max).await
}

async fn read_body(mut response: Response, max: u64) -> Result<Vec<u8>, ApiError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| no_response(&error))? {
        if (body.len() + chunk.len()) as u64 > max {
            return Err(ApiError::TooLarge(max));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// Turns a response with an error status into an error.
async fn accept_response(response: Response) -> Result<Response, ApiError> {
    #[derive(Default, Deserialize)]
    struct ErrorBody {
        #[serde(default)]
        message: serde_json::Value,
    }
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let body = read_body(response, RESPONSE_BYTES_MAX as u64).await.unwrap_or_default();
    let message = match serde_json::from_slice::<ErrorBody>(&body).unwrap_or_default().message {
        serde_json::Value::Null => status.canonical_reason().unwrap_or("no reason given").into(),
        serde_json::Value::String(message) => message,
        other => other.to_string(),
    };
    let message = message.chars().take(MESSAGE_CHARS_MAX).collect();
    Err(ApiError::Status { status: status.as_u16(), message })
}
