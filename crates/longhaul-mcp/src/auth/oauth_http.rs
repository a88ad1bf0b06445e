//! HTTP requests of the OAuth login: metadata, registration, tokens.
//!
//! Invariant: responses have a size limit, errors contain no URL, and every address is checked
//! against the address policy. Redirects are not followed here. The SDK follows those to the same
//! origin, and each is checked like any other request. One exception: with a proxy, a name that
//! this machine can't resolve is checked only by the proxy.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::HeaderMap;
use reqwest::{Client, Method, Url, redirect};
use rmcp::transport::auth::{
    AuthorizationMetadata, OAuthHttpClient, OAuthHttpClientFuture, OAuthHttpRequest,
};

use crate::auth::address_policy::{AddressCheck, OAuthHostResolver, ServerNetworkZone};
use crate::http_client::{RequestError, ResultOkType, client_builder, has_content_type, read_body};

/// Maximum length of a response to an OAuth request, in bytes.
const RESPONSE_BYTES_MAX: usize = 256 * 1024;

pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

const INVALID_URL: &str = "an OAuth endpoint is not a valid URL";

/// HTTP client for OAuth requests on behalf of one MCP server.
#[derive(Debug)]
pub(super) struct OAuthHttp {
    client: Client,
    zone: ServerNetworkZone,
    resolver: Arc<OAuthHostResolver>,
}

/// The SDK's response type.
pub(super) type OAuthResponse =
    <<OAuthHttpClientFuture<'static> as Future>::Output as ResultOkType>::Value;

impl OAuthHttp {
    /// Creates the HTTP client for logins at the MCP server with this URL, in this network zone.
    pub(super) fn new(server: &Url, zone: ServerNetworkZone) -> Result<Self, String> {
        let resolver = Arc::new(OAuthHostResolver::new(server, zone));
        let builder = || {
            let client = client_builder()
                .redirect(redirect::Policy::none())
                .referer(false)
                .timeout(REQUEST_TIMEOUT)
                .dns_resolver(Arc::clone(&resolver));
            match zone {
                ServerNetworkZone::Public => client,
                ServerNetworkZone::Private | ServerNetworkZone::Loopback => client.no_proxy(),
            }
        };
        let client = match (builder().build(), zone) {
            // A local server without TLS also works on a machine without certificates.
            (Err(_), ServerNetworkZone::Loopback) => builder().tls_certs_only([]).build(),
            (result, _) => result,
        };
        let client = client.map_err(|error| RequestError::from(error).reason)?;
        Ok(Self { client, zone, resolver })
    }

    /// Checks whether secrets may be sent to this URL of the MCP server or of its authorization
    /// server. The error says why not.
    pub(super) fn check_url_allowed(&self, url: &Url) -> AddressCheck {
        self.zone.check_url_allowed(url)
    }

    /// Checks whether requests to the endpoints of an authorization server are allowed. The error
    /// says why not.
    pub(super) fn check_endpoints(&self, metadata: &AuthorizationMetadata) -> AddressCheck {
        let registration = metadata.registration_endpoint.as_ref();
        let endpoints = [&metadata.authorization_endpoint, &metadata.token_endpoint];
        endpoints.into_iter().chain(registration).try_for_each(|endpoint| {
            let url: Url = endpoint.parse().map_err(|_| INVALID_URL)?;
            self.check_url_allowed(&url)
        })
    }

    async fn send(
        &self,
        (method, url): (Method, &str),
        headers: HeaderMap,
        body: Vec<u8>,
    ) -> Result<OAuthResponse, String> {
        let url: Url = url.parse().map_err(|_| INVALID_URL)?;
        self.check_url_allowed(&url)?;
        if self.resolver.uses_proxy() {
            self.resolver.check_proxied_url(&url).await?;
        }
        let request = self.client.request(method, url).headers(headers);
        let request = match body.is_empty() {
            true => request,
            false => request.body(body),
        };
        let mut response =
            request.send().await.map_err(|error| RequestError::from(error).reason)?;
        // A stream of events is not an OAuth response and may be endless.
        let body = match has_content_type(&response, "text/event-stream") {
            true => Ok(Vec::new()),
            false => read_body(&mut response, RESPONSE_BYTES_MAX).await,
        };
        let body = body.map_err(|error| error.reason)?;
        let mut oauth_response = OAuthResponse::new(body);
        *oauth_response.status_mut() = response.status();
        *oauth_response.headers_mut() = std::mem::take(response.headers_mut());
        Ok(oauth_response)
    }
}

impl OAuthHttpClient for OAuthHttp {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        let (parts, body) = request.request.into_parts();
        Box::pin(async move {
            let url = parts.uri.to_string();
            let response = self.send((parts.method, &url), parts.headers, body).await;
            response.map_err(Into::into)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn no_request_is_sent_to_a_forbidden_address() {
        let server: Url = "https://8.8.8.8/mcp".parse().unwrap();
        let http = OAuthHttp::new(&server, ServerNetworkZone::Public).unwrap();
        for (url, expected) in [
            ("https://10.0.0.9/token", "private or reserved"),
            ("https://127.0.0.1/token", "private or reserved"),
            ("https://localhost/token", "private or reserved"),
            ("http://auth.example/token", "not https://"),
        ] {
            let result =
                http.send((Method::POST, url), HeaderMap::new(), b"token=t".to_vec()).await;
            let error = result.unwrap_err();
            assert!(error.contains(expected), "{url}: {error}");
        }
    }
}
