//! The requests that logging in needs: metadata, registration, tokens.
//!
//! Never: follows a redirect by itself (the SDK follows those to the same origin, and
//! each of them is judged here like any other request), reads more than an answer may
//! be long, asks an address that the server has no business to name, or says an
//! address in an error. Behind a proxy there is one exception: where a name leads
//! that this machine can't look up, only the proxy sees.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, ClientBuilder, Response, StatusCode, Url, redirect};
use rmcp::transport::auth::{
    OAuthHttpClient, OAuthHttpClientError, OAuthHttpClientFuture, OAuthHttpRequest,
};

use crate::auth::address_policy::{FilteringResolver, ServerZone};
use crate::request_error::RequestError;
use crate::tls::ensure_provider;

/// The longest answer that is read.
const RESPONSE_BYTES_MAX: usize = 256 * 1024;

/// How long it may take to reach somebody.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long one question may take.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Asks within bounds.
#[derive(Debug)]
pub(super) struct OAuthHttp {
    client: Client,
    zone: ServerZone,
    resolver: Arc<FilteringResolver>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct OAuthHttpError(String);

/// An answer as the SDK wants it: the crate of that type has no name here but through
/// the SDK's own.
pub(super) type OAuthResponse =
    <<OAuthHttpClientFuture<'static> as Future>::Output as OkType>::Value;

/// What stands in a result that is good.
pub(super) trait OkType {
    type Value;
}

impl<T, E> OkType for Result<T, E> {
    type Value = T;
}

impl OAuthHttp {
    /// Whoever asks on behalf of the server at this address.
    pub(super) async fn for_server(server: &Url) -> Result<Self, String> {
        let near = ServerZone::from_url(server).await;
        let sieve = Arc::new(FilteringResolver::new(server, near));
        ensure_provider();
        // A machine without certificates can still talk without TLS.
        let client = match (builder(near, &sieve).build(), near) {
            (Err(_), ServerZone::Loopback) => builder(near, &sieve).tls_certs_only([]).build(),
            (built, _) => built,
        };
        let client = client.map_err(error_text)?;
        Ok(Self { client, zone: near, resolver: sieve })
    }

    /// Where the server stands that this asks for.
    pub(super) const fn zone(&self) -> ServerZone {
        self.zone
    }

    async fn send(&self, asked: OAuthHttpRequest) -> Result<OAuthResponse, OAuthHttpClientError> {
        let (parts, body) = asked.request.into_parts();
        let no = |why: String| -> OAuthHttpClientError { Box::new(OAuthHttpError(why)) };
        let url: Url = parts.uri.to_string().parse().map_err(|_| no(INVALID_URL.into()))?;
        let may = self.check_address(&url).await;
        may.map_err(|why| no(why.to_owned()))?;
        let request = self.client.request(parts.method, url).headers(parts.headers);
        let request = match body.is_empty() {
            true => request,
            false => request.body(body),
        };
        let response = request.send().await.map_err(|error| no(error_text(error)))?;
        read_response(response).await.map_err(no)
    }

    /// Whether this address may be asked; the error says why not.
    pub(super) async fn check_address(&self, url: &Url) -> Result<(), &'static str> {
        self.zone.check_url(url)?;
        match self.resolver.has_proxy() {
            true => self.resolver.check_host(url).await,
            false => Ok(()),
        }
    }

    /// Sends a form, as the client of this name and secret where one is given; only
    /// what came of it is heard.
    pub(super) async fn post(
        &self,
        url: &Url,
        form: String,
        client: Option<(String, String)>,
    ) -> Result<StatusCode, String> {
        self.check_address(url).await.map_err(str::to_owned)?;
        let request = self.client.post(url.clone()).body(form);
        let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        let request = match client {
            Some((name, secret)) => request.basic_auth(name, Some(secret)),
            None => request,
        };
        Ok(request.send().await.map_err(error_text)?.status())
    }
}

fn builder(near: ServerZone, sieve: &Arc<FilteringResolver>) -> ClientBuilder {
    let client = Client::builder()
        .user_agent(concat!("longhaul/", env!("CARGO_PKG_VERSION")))
        .redirect(redirect::Policy::none())
        .referer(false)
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(REQUEST_TIMEOUT)
        .pool_max_idle_per_host(0)
        .dns_resolver(Arc::clone(sieve));
    match near {
        ServerZone::Public => client,
        ServerZone::Private | ServerZone::Loopback => client.no_proxy(),
    }
}

pub(super) const INVALID_URL: &str = "it names an address that is none";

async fn read_response(mut response: Response) -> Result<OAuthResponse, String> {
    let status = response.status();
    let headers = response.headers().clone();
    let said = headers.get(CONTENT_TYPE);
    // A stream of events says nothing of logins, and may have no end.
    let is_stream = said.is_some_and(|said| said.as_bytes().starts_with(b"text/event-stream"));
    let mut all = Vec::new();
    while !is_stream && let Some(some) = response.chunk().await.map_err(error_text)? {
        if all.len() + some.len() > RESPONSE_BYTES_MAX {
            return Err("the answer is too long".to_owned());
        }
        all.extend_from_slice(&some);
    }
    let mut answer = OAuthResponse::new(all);
    *answer.status_mut() = status;
    *answer.headers_mut() = headers;
    Ok(answer)
}

/// What lies behind an error, without where to.
fn error_text(error: reqwest::Error) -> String {
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
    async fn no_request_is_sent_to_an_address_that_a_server_may_not_name() {
        let server: Url = "https://8.8.8.8/mcp".parse().unwrap();
        let sieve = Arc::new(FilteringResolver::new(&server, ServerZone::Public));
        ensure_provider();
        let client = builder(ServerZone::Public, &sieve).tls_certs_only([]).build();
        let asks = OAuthHttp { client: client.unwrap(), zone: ServerZone::Public, resolver: sieve };
        for (url, why) in [
            ("https://10.0.0.9/revoke", "private or reserved"),
            ("https://127.0.0.1/revoke", "private or reserved"),
            ("https://localhost/revoke", "private or reserved"),
            ("http://auth.example/revoke", "not https://"),
        ] {
            let url: Url = url.parse().unwrap();
            let sent = asks.post(&url, "token=t".to_owned(), None).await;
            let error = sent.unwrap_err();
            assert!(error.contains(why), "{url}: {error}");
        }
    }
}
