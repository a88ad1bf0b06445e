//! HTTP requests of the OAuth login: metadata, registration, tokens.
//!
//! Invariant: responses have a size limit, errors contain no URL, and every address is checked
//! against the address policy. Redirects are not followed here. The SDK follows those to the same
//! origin, and each is checked like any other request. One exception: with a proxy, a name that
//! this machine can't resolve is checked only by the proxy.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, ClientBuilder, Response, StatusCode, Url, redirect};
use rmcp::transport::auth::{
    OAuthHttpClient, OAuthHttpClientError, OAuthHttpClientFuture, OAuthHttpRequest,
};

use crate::auth::address_policy::{OAuthHostResolver, ServerNetworkZone};
use crate::request_error::RequestError;
use crate::tls::ensure_crypto_provider;

/// Maximum length of a response to an OAuth request, in bytes.
const RESPONSE_BYTES_MAX: usize = 256 * 1024;

/// Timeout for connecting to an authorization server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// HTTP client for OAuth requests on behalf of one MCP server.
#[derive(Debug)]
pub(super) struct OAuthHttp {
    client: Client,
    zone: ServerNetworkZone,
    resolver: Arc<OAuthHostResolver>,
}

/// Why an OAuth request has no response.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct OAuthHttpError(String);

/// The SDK's response type, which can only be named through the SDK's own types.
pub(super) type OAuthResponse =
    <<OAuthHttpClientFuture<'static> as Future>::Output as ResultOkType>::Value;

/// Gives access to the `Ok` type of a result type.
pub(super) trait ResultOkType {
    type Value;
}

impl<T, E> ResultOkType for Result<T, E> {
    type Value = T;
}

impl OAuthHttp {
    /// Creates the HTTP client for logins at the MCP server with this URL.
    pub(super) async fn new_for_server(server: &Url) -> Result<Self, String> {
        let zone = ServerNetworkZone::zone_of_url(server).await;
        let resolver = Arc::new(OAuthHostResolver::new(server, zone));
        ensure_crypto_provider();
        // A local server without TLS also works on a machine without certificates.
        let client = match (client_builder(zone, &resolver).build(), zone) {
            (Err(_), ServerNetworkZone::Loopback) => {
                client_builder(zone, &resolver).tls_certs_only([]).build()
            }
            (result, _) => result,
        };
        let client = client.map_err(innermost_error_text)?;
        Ok(Self { client, zone, resolver })
    }

    /// Returns the network zone of the MCP server.
    pub(super) const fn zone(&self) -> ServerNetworkZone {
        self.zone
    }

    async fn send(
        &self,
        oauth_request: OAuthHttpRequest,
    ) -> Result<OAuthResponse, OAuthHttpClientError> {
        let (parts, body) = oauth_request.request.into_parts();
        let to_error =
            |reason: String| -> OAuthHttpClientError { Box::new(OAuthHttpError(reason)) };
        let url: Url = parts.uri.to_string().parse().map_err(|_| to_error(INVALID_URL.into()))?;
        let result = self.check_address_allowed(&url).await;
        result.map_err(|reason| to_error(reason.to_owned()))?;
        let request = self.client.request(parts.method, url).headers(parts.headers);
        let request = match body.is_empty() {
            true => request,
            false => request.body(body),
        };
        let response =
            request.send().await.map_err(|error| to_error(innermost_error_text(error)))?;
        read_response(response).await.map_err(to_error)
    }

    /// Checks whether the address policy allows requests to this URL. The error says why not.
    pub(super) async fn check_address_allowed(&self, url: &Url) -> Result<(), &'static str> {
        self.zone.check_url_allowed(url)?;
        match self.resolver.uses_proxy() {
            true => self.resolver.check_proxied_url(url).await,
            false => Ok(()),
        }
    }

    /// Posts a form, with HTTP basic authentication if client credentials are given. Returns only
    /// the status of the response.
    pub(super) async fn post_form(
        &self,
        url: &Url,
        form: String,
        client: Option<(String, String)>,
    ) -> Result<StatusCode, String> {
        self.check_address_allowed(url).await.map_err(str::to_owned)?;
        let request = self.client.post(url.clone()).body(form);
        let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        let request = match client {
            Some((name, secret)) => request.basic_auth(name, Some(secret)),
            None => request,
        };
        Ok(request.send().await.map_err(innermost_error_text)?.status())
    }
}

fn client_builder(zone: ServerNetworkZone, resolver: &Arc<OAuthHostResolver>) -> ClientBuilder {
    let client = Client::builder()
        .user_agent(concat!("longhaul/", env!("CARGO_PKG_VERSION")))
        .redirect(redirect::Policy::none())
        .referer(false)
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(REQUEST_TIMEOUT)
        .pool_max_idle_per_host(0)
        .dns_resolver(Arc::clone(resolver));
    match zone {
        ServerNetworkZone::Public => client,
        ServerNetworkZone::Private | ServerNetworkZone::Loopback => client.no_proxy(),
    }
}

pub(super) const INVALID_URL: &str = "an OAuth endpoint is not a valid URL";

async fn read_response(mut response: Response) -> Result<OAuthResponse, String> {
    let status = response.status();
    let headers = response.headers().clone();
    let content_type = headers.get(CONTENT_TYPE);
    // A stream of events is not an OAuth response and may be endless.
    let is_stream = content_type
        .is_some_and(|content_type| content_type.as_bytes().starts_with(b"text/event-stream"));
    let mut body = Vec::new();
    while !is_stream && let Some(chunk) = response.chunk().await.map_err(innermost_error_text)? {
        if body.len() + chunk.len() > RESPONSE_BYTES_MAX {
            return Err("the response is too long".to_owned());
        }
        body.extend_from_slice(&chunk);
    }
    let mut oauth_response = OAuthResponse::new(body);
    *oauth_response.status_mut() = status;
    *oauth_response.headers_mut() = headers;
    Ok(oauth_response)
}

/// Returns the message of the innermost error, without the URL.
fn innermost_error_text(error: reqwest::Error) -> String {
    RequestError::from(error).reason
}

impl OAuthHttpClient for OAuthHttp {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        Box::pin(self.send(request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn no_request_is_sent_to_a_forbidden_address() {
        let server: Url = "https://8.8.8.8/mcp".parse().unwrap();
        let resolver = Arc::new(OAuthHostResolver::new(&server, ServerNetworkZone::Public));
        ensure_crypto_provider();
        let client =
            client_builder(ServerNetworkZone::Public, &resolver).tls_certs_only([]).build();
        let http = OAuthHttp { client: client.unwrap(), zone: ServerNetworkZone::Public, resolver };
        for (url, expected) in [
            ("https://10.0.0.9/revoke", "private or reserved"),
            ("https://127.0.0.1/revoke", "private or reserved"),
            ("https://localhost/revoke", "private or reserved"),
            ("http://auth.example/revoke", "not https://"),
        ] {
            let url: Url = url.parse().unwrap();
            let result = http.post_form(&url, "token=t".to_owned(), None).await;
            let error = result.unwrap_err();
            assert!(error.contains(expected), "{url}: {error}");
        }
    }
}
