//! A raw HTTP client that can send invalid requests unchanged.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::suite::harness::TIMEOUT;

/// Credential of a request.
#[derive(Debug, Clone)]
enum TestCredential {
    Local,
    Key(String),
    None,
}

#[derive(Debug, Clone)]
pub(crate) struct TestRequest {
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    credential: TestCredential,
}

/// Creates a request with the local machine key.
pub(crate) fn request(method: &str, path: impl Into<String>) -> TestRequest {
    TestRequest {
        method: method.to_owned(),
        path: path.into(),
        headers: Vec::new(),
        body: Vec::new(),
        credential: TestCredential::Local,
    }
}

pub(crate) fn get(path: impl Into<String>) -> TestRequest {
    request("GET", path)
}

pub(crate) fn post(path: impl Into<String>, body: &Value) -> TestRequest {
    request("POST", path).json(body)
}

impl TestRequest {
    /// Uses this key instead of the local machine key.
    pub(crate) fn with_key(mut self, key: &str) -> Self {
        self.credential = TestCredential::Key(key.to_owned());
        self
    }

    /// Sends no key.
    pub(crate) fn without_key(mut self) -> Self {
        self.credential = TestCredential::None;
        self
    }

    /// Adds a header.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds several headers.
    pub(crate) fn headers(self, headers: &[(&str, &str)]) -> Self {
        let add_header = |request: Self, (name, value): &(&str, &str)| request.header(name, value);
        headers.iter().fold(self, add_header)
    }

    /// Uses a session cookie.
    pub(crate) fn cookie(self, cookie: &str) -> Self {
        self.without_key().header("cookie", cookie)
    }

    pub(crate) fn idempotency_key(self, key: &str) -> Self {
        self.header("idempotency-key", key)
    }

    pub(crate) fn json(self, body: &Value) -> Self {
        self.body("application/json", body.to_string())
    }

    /// Sets a body with this content type.
    pub(crate) fn body(self, kind: &str, body: impl Into<Vec<u8>>) -> Self {
        let mut request = self.header("content-type", kind);
        request.body = body.into();
        request
    }

    pub(crate) fn bytes(&self, host: &str, local: &str) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        let mut line = |name: &str, value: &str| head.push_str(&format!("{name}: {value}\r\n"));
        if !self.headers.iter().any(|(name, _)| name == "host") {
            line("host", host);
        }
        match &self.credential {
            TestCredential::Local => line("authorization", &format!("Bearer {local}")),
            TestCredential::Key(key) => line("authorization", &format!("Bearer {key}")),
            TestCredential::None => {}
        }
        for (name, value) in &self.headers {
            line(name, value);
        }
        if !self.body.is_empty() || self.method != "GET" {
            line("content-length", &self.body.len().to_string());
        }
        head.push_str("\r\n");
        [head.into_bytes(), self.body.clone()].concat()
    }

    fn is_head(&self) -> bool {
        self.method == "HEAD"
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TestResponse {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl TestResponse {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(header_name, _)| header_name == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        let result = serde_json::from_slice(&self.body);
        result.unwrap_or_else(|_| panic!("not JSON: {} {}", self.status, self.text()))
    }

    /// Returns the JSON body of a response and asserts its status.
    pub(crate) fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        self.json()
    }

    /// Returns the code of a problem and asserts that all its fields are set.
    pub(crate) fn problem(&self) -> String {
        let kind = self.header("content-type");
        assert_eq!(kind, Some("application/problem+json"), "{}", self.text());
        let problem = self.json();
        assert_eq!(problem["status"], self.status);
        let text = |name: &str| problem[name].as_str().unwrap_or_default().to_owned();
        for name in ["type", "title", "detail", "code", "hint", "request_id"] {
            assert_ne!(text(name), "", "{name} of {problem}");
        }
        let id = self.header("x-request-id");
        assert_eq!(id, Some(text("request_id").as_str()));
        text("code")
    }
}

#[derive(Debug)]
pub(crate) struct TestConnection {
    stream: TcpStream,
    pub(crate) received: Vec<u8>,
}

impl TestConnection {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let received = Vec::new();
        Self { stream, received }
    }

    /// Sends bytes. Returns `false` if the server has closed the connection.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).await.is_ok()
    }

    /// Closes the sending side of the connection.
    pub(crate) async fn close(&mut self) {
        _ = self.stream.shutdown().await;
    }

    /// Reads the available data. Returns `false` if the server has closed the connection.
    pub(crate) async fn read(&mut self) -> bool {
        self.received.reserve(256 * 1024);
        let read_future = self.stream.read_buf(&mut self.received);
        let result = tokio::time::timeout(TIMEOUT, read_future).await;
        let result = result.unwrap_or_else(|_| panic!("no data after {:?}", self.received_text()));
        result.is_ok_and(|count| count > 0)
    }

    /// Reads what arrives within a short time. Returns `false` if nothing does.
    pub(crate) async fn read_soon(&mut self) -> bool {
        let read_future = self.stream.read_buf(&mut self.received);
        let result = tokio::time::timeout(Duration::from_millis(5), read_future).await;
        matches!(result, Ok(Ok(1..)))
    }

    /// Returns whether the server has closed the connection.
    pub(crate) fn is_closed(&mut self) -> bool {
        matches!(self.stream.try_read_buf(&mut self.received), Ok(0))
    }

    /// Returns whether there is anything to read.
    pub(crate) fn has_received(&mut self) -> bool {
        self.stream.try_read_buf(&mut self.received).is_ok()
    }

    /// Reads until the server closes the connection.
    pub(crate) async fn read_all(&mut self) -> Vec<u8> {
        while self.read().await {}
        std::mem::take(&mut self.received)
    }

    fn received_text(&self) -> String {
        let start = self.received.get(..400).unwrap_or(&self.received);
        String::from_utf8_lossy(start).into_owned()
    }

    /// Reads the head of a response. `None` means that the connection was closed.
    pub(crate) async fn read_head(&mut self) -> Option<TestResponse> {
        let end = loop {
            let found = self.received.windows(4).position(|at| at == b"\r\n\r\n");
            match found {
                Some(end) => break end + 4,
                None if self.read().await => {}
                None => return None,
            }
        };
        let head: Vec<u8> = self.received.drain(..end).collect();
        let head = String::from_utf8(head).unwrap();
        let mut lines = head.lines();
        let first = lines.next().unwrap();
        let status = first.split(' ').nth(1).unwrap().parse().unwrap();
        let pair = |line: &str| {
            let (name, value) = line.split_once(':')?;
            Some((name.to_ascii_lowercase(), value.trim().to_owned()))
        };
        let headers = lines.filter_map(pair).collect();
        let body = Vec::new();
        Some(TestResponse { status, headers, body })
    }

    /// Reads a whole response. `None` means that the connection was closed.
    pub(crate) async fn read_response(&mut self) -> Option<TestResponse> {
        let mut answer = self.read_head().await?;
        let length = answer.header("content-length");
        let length = length.map(|length| length.parse::<usize>().unwrap());
        let chunked = answer.header("transfer-encoding") == Some("chunked");
        answer.body = match (length, chunked) {
            (Some(length), _) => {
                while self.received.len() < length && self.read().await {}
                let length = length.min(self.received.len());
                self.received.drain(..length).collect()
            }
            (None, true) => {
                let mut chunks = ChunkedBody::default();
                while !chunks.is_complete {
                    chunks.push(&mut self.received);
                    if !chunks.is_complete && !self.read().await {
                        break;
                    }
                }
                chunks.text
            }
            (None, false) => self.read_all().await,
        };
        Some(answer)
    }

    /// Sends a request that may be larger than the server accepts, and reads the response at
    /// the same time.
    pub(crate) async fn send_slowly(self, bytes: Vec<u8>) -> Option<TestResponse> {
        let (reader, mut writer) = self.stream.into_split();
        let write = async {
            // The server decides whether it reads everything.
            _ = writer.write_all(&bytes).await;
            std::future::pending::<()>().await;
        };
        let read = async {
            let (mut received, mut reader) = (Vec::new(), reader);
            while let Ok(1..) = reader.read_buf(&mut received).await {}
            received
        };
        let read_and_write = async {
            tokio::select! {
                () = write => Vec::new(),
                received = read => received,
            }
        };
        let received = tokio::time::timeout(TIMEOUT, read_and_write).await;
        parse_response(&received.expect("the server responds or closes"))
    }
}

/// Parses the response in these bytes, which extends to their end.
pub(crate) fn parse_response(bytes: &[u8]) -> Option<TestResponse> {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut lines = head.lines();
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let pair = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_ascii_lowercase(), value.trim().to_owned()))
    };
    Some(TestResponse {
        status,
        headers: lines.filter_map(pair).collect(),
        body: body.as_bytes().to_vec(),
    })
}

/// A chunked body, as far as it was received.
#[derive(Debug, Default)]
pub(crate) struct ChunkedBody {
    pub(crate) text: Vec<u8>,
    pub(crate) is_complete: bool,
    /// Number of missing bytes of the current chunk.
    remaining: usize,
}

impl ChunkedBody {
    /// Decodes the received bytes, also a part of a chunk.
    pub(crate) fn push(&mut self, received: &mut Vec<u8>) {
        while !self.is_complete {
            if self.remaining > 0 {
                let length = self.remaining.min(received.len());
                self.text.extend(received.drain(..length));
                self.remaining -= length;
                if self.remaining > 0 {
                    return;
                }
            }
            // A chunk size follows the end of the previous chunk.
            let start = if received.starts_with(b"\r\n") { 2 } else { 0 };
            let found = received[start..].windows(2).position(|at| at == b"\r\n");
            let Some(end) = found else { return };
            let size = std::str::from_utf8(&received[start..start + end]).unwrap();
            self.remaining = usize::from_str_radix(size, 16).unwrap();
            self.is_complete = self.remaining == 0;
            received.drain(..start + end + 2);
        }
        received.clear();
    }
}

/// Sends one request on its own connection and returns the response.
pub(crate) async fn send_request(
    address: SocketAddr,
    request: &TestRequest,
    local: &str,
) -> TestResponse {
    let mut connection = TestConnection::connect(address).await;
    let host = format!("localhost:{}", address.port());
    connection.send(&request.bytes(&host, local)).await;
    let answer = match request.is_head() {
        true => connection.read_head().await,
        false => connection.read_response().await,
    };
    answer.unwrap_or_else(|| panic!("closed without a response to {request:?}"))
}
