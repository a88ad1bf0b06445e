//! The HTTP client of the load tests: one connection, one request after another, with as little CPU
//! time as possible.

use anyhow::{Context as _, bail};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Request, Response, body::Incoming};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

/// A connection to the measured server, with an API key.
#[derive(Debug)]
pub(crate) struct BenchClient {
    sender: SendRequest<Full<Bytes>>,
    host: String,
    key: String,
}

impl BenchClient {
    /// Connects to the server at this URL. Requests carry this API key.
    pub(crate) async fn connect(url: &str, api_key: &str) -> anyhow::Result<Self> {
        let host = url.trim_start_matches("http://").to_owned();
        let stream = TcpStream::connect(&host).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        #[expect(clippy::disallowed_methods, reason = "the task ends when its sender is dropped")]
        drop(tokio::spawn(connection));
        let key = api_key.to_owned();
        Ok(Self { sender, host, key })
    }

    /// Sends a request and returns the status and body of the response.
    pub(crate) async fn send_and_read_response(
        &mut self,
        method: &str,
        path: &str,
        body: &str,
    ) -> anyhow::Result<(u16, Value)> {
        let request =
            Request::builder().method(method).uri(path).header(CONTENT_TYPE, "application/json");
        let response = self.send_request(request, body).await?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await?.to_bytes();
        Ok((status, serde_json::from_slice(&body).unwrap_or_default()))
    }

    /// Opens an event stream. The stream stays open until the response is dropped.
    pub(crate) async fn open_event_stream(
        &mut self,
        path: &str,
    ) -> anyhow::Result<Response<Incoming>> {
        let request = Request::get(path).header(ACCEPT, "text/event-stream");
        let response = self.send_request(request, "").await?;
        match response.status().as_u16() {
            200 => Ok(response),
            status => bail!("the event stream returned {status}"),
        }
    }

    async fn send_request(
        &mut self,
        request: hyper::http::request::Builder,
        body: &str,
    ) -> anyhow::Result<Response<Incoming>> {
        let request = request
            .header(HOST, &self.host)
            .header(AUTHORIZATION, format!("Bearer {}", self.key))
            .body(Full::from(body.to_owned()))?;
        self.sender.ready().await?;
        let response = self.sender.send_request(request).await;
        response.context("the server closed the connection")
    }
}
