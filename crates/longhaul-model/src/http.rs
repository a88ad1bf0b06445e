//! The way to a provider's server: sends one question, hands over what comes back.
//!
//! Never: follows a redirect, waits without an end, reads without one, or sends a
//! question twice, but for one case: it went out on a connection that had been used
//! before, and that was closed before anything came back.

mod client;
mod conn_counter;
pub(crate) mod error;
mod limits;
pub(crate) mod response;

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use reqwest::header::HeaderMap;
use reqwest::{Client, RequestBuilder, Url};

use crate::http::conn_counter::ConnCounter;
use crate::http::response::BoundedResponse;

pub use crate::http::error::HttpError;
pub use crate::http::limits::Limits;

/// A server that questions go to. A copy shares its connections.
#[derive(Debug, Clone)]
pub struct Http {
    /// Made when first used: a client for TLS reads the machine's certificates.
    client: Arc<OnceLock<Client>>,
    base: Url,
    limits: Limits,
    conn_counter: ConnCounter,
}

impl Http {
    /// The way to the server at this address, such as `https://api.anthropic.com`.
    pub fn new(base: &str, limits: Limits) -> Result<Self, HttpError> {
        Ok(Self {
            client: Arc::default(),
            base: client::parse_base_url(base)?,
            limits,
            conn_counter: ConnCounter::default(),
        })
    }

    fn client(&self) -> Result<&Client, HttpError> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let client = client::build(&self.base, self.limits.connect, &self.conn_counter)?;
        Ok(self.client.get_or_init(|| client))
    }

    /// What binds each exchange.
    pub(crate) const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The address of an operation. A base that ends in the version already
    /// stays as it is: people copy both spellings. Without a version the base is
    /// believed to hold one, whatever it looks like.
    pub(crate) fn endpoint_url(&self, version: &str, path: &str) -> Url {
        let mut url = self.base.clone();
        let base = self.base.path().trim_end_matches('/');
        let version = match version.is_empty() || base.rsplit('/').next() == Some(version) {
            true => String::new(),
            false => format!("/{version}"),
        };
        url.set_path(&format!("{base}{version}/{path}"));
        url
    }

    /// The address of what lies right below the base.
    pub(crate) fn child_url(&self, path: &str) -> Url {
        let mut url = self.base.clone();
        let base = self.base.path().trim_end_matches('/');
        url.set_path(&format!("{base}/{path}"));
        url
    }

    /// Asks for what lies at an address, once.
    pub(crate) async fn get(
        &self,
        url: &Url,
        headers: &HeaderMap,
    ) -> Result<BoundedResponse, HttpError> {
        let request = self.client()?.get(url.clone()).headers(headers.clone());
        self.execute(request).await
    }

    /// Sends a question. A server may close a connection of the pool in the
    /// moment we take it; then, with nothing received, it is sent once more. It
    /// was of the pool when none was made meanwhile. One that was made for somebody
    /// else hides that, and the failure is an ordinary one.
    pub(crate) async fn post(
        &self,
        url: &Url,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<BoundedResponse, HttpError> {
        let before = self.conn_counter.total();
        let sent = self.send(url, headers, body.clone()).await;
        match sent {
            Err(HttpError::ConnectionClosed(_)) if self.conn_counter.total() == before => {
                self.send(url, headers, body).await
            }
            Ok(_) | Err(_) => sent,
        }
    }

    async fn send(
        &self,
        url: &Url,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<BoundedResponse, HttpError> {
        let request = self.client()?.post(url.clone()).headers(headers.clone());
        self.execute(request.body(body)).await
    }

    async fn execute(&self, request: RequestBuilder) -> Result<BoundedResponse, HttpError> {
        let sent = tokio::time::timeout(self.limits.first_byte, request.send()).await;
        let sent = sent.map_err(|_| HttpError::ResponseTimeout(self.limits.first_byte))?;
        let response =
            sent.map_err(|error| HttpError::from_send_error(error, self.limits.connect))?;
        Ok(BoundedResponse::new(response, self.limits))
    }
}
