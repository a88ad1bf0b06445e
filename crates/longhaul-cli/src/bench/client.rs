//! A load client: one connection, one request after another, with as little CPU as possible.

use anyhow::{Context as _, bail};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Request, Response, body::Incoming};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

/// One connection to a server.
#[derive(Debug)]
pub(crate) struct BenchClient {
    sender: SendRequest<Full<Bytes>>,
    host: String,
    key: String,
}

impl BenchClient {
    /// A connection to the server at this URL, with this key.
    pub(crate) async fn connect(url: &str, key: &str) -> anyhow::Result<Self> {
        let host = url.trim_start_matches("http://").to_owned();
        let stream = TcpStream::connect(&host).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        #[expect(clippy::disallowed_methods, reason = "it ends with its sender")]
        drop(tokio::spawn(connection));
        let key = key.to_owned();
        Ok(Self { sender, host, key })
    }

    /// Sends a request; the response's status and body.
    pub(crate) async fn send(
        &mut self,
        method: &str,
        path: &str,
        body: &str,
    ) -> anyhow::Result<(u16, Value)> {
        let request =
            Request::builder().method(method).uri(path).header(CONTENT_TYPE, "application/json");
        let response = self.request(request, body).await?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await?.to_bytes();
        Ok((status, serde_json::from_slice(&body).unwrap_or_default()))
    }

    /// Opens a stream of events, which lasts as long as the response.
    pub(crate) async fn open_stream(&mut self, path: &str) -> anyhow::Result<Response<Incoming>> {
        let request = Request::get(path).header(ACCEPT, "text/event-stream");
        let response = self.request(request, "").await?;
        match response.status().as_u16() {
            200 => Ok(response),
            status => bail!("a stream was answered {status}"),
        }
    }

    async fn request(
        &mut self,
        request: hyper::http::request::Builder,
        body: &str,
    ) -> anyhow::Result<Response<Incoming>> {
        let request = request
            .header(HOST, &self.host)
            .header(AUTHORIZATION, format!("Bearer {}", self.key))
            .body(Full::from(body.to_owned()))?;
        self.sender.ready().await?;
        let sent = self.sender.send_request(request).await;
        sent.context("the server closed the connection")
    }
}
