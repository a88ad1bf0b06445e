//! HTTP client for a provider's server.
//!
//! Invariant: redirects are not followed, and every wait and every read is bounded. A request is
//! sent once, with one exception: it is sent again if its connection was a reused one that was
//! closed before any response arrived.

mod client;
pub(crate) mod error;
pub(crate) mod response;

use std::sync::Arc;

use bytes::Bytes;
use reqwest::header::HeaderMap;
use reqwest::{Client, RequestBuilder, Url};
use tokio::sync::OnceCell;

use crate::http::client::ConnectionCounter;
use crate::http::response::LimitedResponse;

pub use crate::http::error::HttpError;
pub use crate::http::response::HttpLimits;

type ResponseResult = Result<LimitedResponse, HttpError>;

/// HTTP client for the server at one base URL. Cheap to clone; clones share connections.
#[derive(Debug, Clone)]
pub struct HttpClient {
    /// The HTTP client, created on first use, because creating it loads the system's certificates.
    client: Arc<OnceCell<Client>>,
    base: Url,
    limits: HttpLimits,
    conn_counter: ConnectionCounter,
}

impl HttpClient {
    /// Creates a client for the server at this base URL, such as `https://api.anthropic.com`.
    pub fn new(base_url: &str, limits: HttpLimits) -> Result<Self, HttpError> {
        Ok(Self {
            client: Arc::default(),
            base: client::parse_base_url(base_url)?,
            limits,
            conn_counter: ConnectionCounter::default(),
        })
    }

    async fn get_or_build_client(&self) -> Result<&Client, HttpError> {
        let build =
            || async { client::build_client(&self.base, self.limits.connect, &self.conn_counter) };
        self.client.get_or_try_init(build).await
    }

    /// Returns the timeouts and size limits of each exchange.
    pub(crate) const fn limits(&self) -> &HttpLimits {
        &self.limits
    }

    /// Returns the URL of an operation of the API. The version is not added if the base URL already
    /// ends in it, since people configure both forms. An empty `api_version` means that the base
    /// URL includes the version.
    pub(crate) fn endpoint_url(&self, api_version: &str, path: &str) -> Url {
        let mut url = self.base.clone();
        let base_path = self.base.path().trim_end_matches('/');
        let is_in_base = base_path.rsplit('/').next() == Some(api_version);
        let version_path = match api_version.is_empty() || is_in_base {
            true => String::new(),
            false => format!("/{api_version}"),
        };
        url.set_path(&format!("{base_path}{version_path}/{path}"));
        url
    }

    /// Sends a GET request, without retries.
    pub(crate) async fn get(&self, url: &Url, headers: &HeaderMap) -> ResponseResult {
        let request = self.get_or_build_client().await?.get(url.clone()).headers(headers.clone());
        self.execute(request).await
    }

    /// Sends a POST request. If the server closes a pooled connection just as it is reused, and
    /// nothing was received, the request is sent once more.
    ///
    /// The connection came from the pool if no new connection was opened meanwhile. If a connection
    /// was opened meanwhile for another request, the error is returned instead.
    pub(crate) async fn post(&self, url: &Url, headers: &HeaderMap, body: Bytes) -> ResponseResult {
        let connections_before = self.conn_counter.total_connections();
        let result = self.send_post(url, headers, body.clone()).await;
        let is_closed = result.as_ref().is_err_and(|error| error.is_connection_closed);
        match is_closed && self.conn_counter.total_connections() == connections_before {
            true => self.send_post(url, headers, body).await,
            false => result,
        }
    }

    async fn send_post(&self, url: &Url, headers: &HeaderMap, body: Bytes) -> ResponseResult {
        let request = self.get_or_build_client().await?.post(url.clone()).headers(headers.clone());
        self.execute(request.body(body)).await
    }

    async fn execute(&self, request: RequestBuilder) -> ResponseResult {
        let response = tokio::time::timeout(self.limits.first_byte, request.send()).await;
        let response = response.map_err(|_| HttpError::response_timeout(self.limits.first_byte))?;
        let response =
            response.map_err(|error| HttpError::from_send_error(error, self.limits.connect))?;
        Ok(LimitedResponse::new(response, self.limits))
    }
}
