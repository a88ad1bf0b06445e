//! The HTTP client of the load tests.

use anyhow::{Context as _, ensure};
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use reqwest::{Client, RequestBuilder, Response};
use serde_json::Value;

/// A client of the measured server, with an API key. Each client has its own connections.
#[derive(Debug)]
pub(crate) struct ApiClient {
    client: Client,
    url: String,
    key: String,
}

impl ApiClient {
    pub(crate) fn new(url: &str, api_key: &str) -> anyhow::Result<Self> {
        let client = Client::builder().no_proxy().build()?;
        Ok(Self { client, url: url.to_owned(), key: api_key.to_owned() })
    }

    pub(crate) async fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.send(self.client.get(format!("{}{path}", self.url))).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let request = self.client.post(format!("{}{path}", self.url));
        self.send(request.header(CONTENT_TYPE, "application/json").body(body.to_string())).await
    }

    /// Opens an event stream, which stays open until the response is dropped.
    pub(crate) async fn open_stream(&self, path: &str) -> anyhow::Result<Response> {
        let request = self.client.get(format!("{}{path}", self.url));
        self.send_request(request.header(ACCEPT, "text/event-stream")).await
    }

    async fn send(&self, request: RequestBuilder) -> anyhow::Result<Value> {
        let body = self.send_request(request).await?.bytes().await?;
        serde_json::from_slice(&body).context("the response is not JSON")
    }

    async fn send_request(&self, request: RequestBuilder) -> anyhow::Result<Response> {
        let request = request.header(AUTHORIZATION, format!("Bearer {}", self.key));
        let response = request.send().await.context("the server closed the connection")?;
        let status = response.status();
        ensure!(status.is_success(), "the server returned {status}: {}", response.text().await?);
        Ok(response)
    }
}
