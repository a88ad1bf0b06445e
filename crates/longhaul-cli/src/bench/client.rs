//! A client that costs as little as it can: one connection, one request after
//! another.
//!
//! Never: for anything but measuring. It understands what our own server says.

use anyhow::{Context as _, bail};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

/// A head is no longer than this many lines.
const HEAD_LINES_MAX: usize = 64;

/// One connection.
#[derive(Debug)]
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
    host: String,
    key: String,
}

impl Client {
    /// A connection to this address, with this key.
    pub(crate) async fn connect(address: &str, key: &str) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            // A stream on which nothing happens needs no room for reading.
            stream: BufReader::with_capacity(1_024, stream),
            host: address.to_owned(),
            key: key.to_owned(),
        })
    }

    /// Sends a request; the answer's status and body.
    pub(crate) async fn ask(
        &mut self,
        method: &str,
        path: &str,
        body: &str,
    ) -> anyhow::Result<(u16, Value)> {
        let kind = match body.is_empty() {
            true => "",
            false => "content-type: application/json\r\n",
        };
        self.send(&format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n{kind}content-length: {}\r\n\r\n{body}",
            self.host, self.key, body.len()
        ))
        .await?;
        let (status, length) = self.head().await?;
        let mut body = vec![0; length.context("an answer without a length")?];
        self.stream.read_exact(&mut body).await?;
        Ok((status, serde_json::from_slice(&body).unwrap_or_default()))
    }

    /// Opens a stream, and returns when its head has come.
    pub(crate) async fn listen(&mut self, path: &str) -> anyhow::Result<()> {
        self.send(&format!(
            "GET {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\naccept: text/event-stream\r\n\r\n",
            self.host, self.key
        ))
        .await?;
        match self.head().await?.0 {
            200 => Ok(()),
            status => bail!("a stream was answered {status}"),
        }
    }

    async fn send(&mut self, text: &str) -> anyhow::Result<()> {
        self.stream.get_mut().write_all(text.as_bytes()).await?;
        Ok(())
    }

    async fn head(&mut self) -> anyhow::Result<(u16, Option<usize>)> {
        let mut status = 0;
        let mut length = None;
        for _ in 0..HEAD_LINES_MAX {
            let mut line = String::new();
            if self.stream.read_line(&mut line).await? == 0 {
                bail!("the server closed the connection");
            }
            let line = line.trim_end();
            if line.is_empty() {
                return Ok((status, length));
            }
            if let Some(rest) = line.strip_prefix("HTTP/1.1 ") {
                status = rest.get(..3).unwrap_or_default().parse()?;
            }
            if let Some(said) = line.strip_prefix("content-length: ") {
                length = Some(said.parse()?);
            }
        }
        bail!("an answer's head had no end")
    }
}
