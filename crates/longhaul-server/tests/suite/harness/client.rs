//! A client made of bytes: it can send what no decent client would.
//!
//! Never: repairs what it is told to send.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::suite::harness::TIMEOUT;

/// Which key is shown.
#[derive(Debug, Clone)]
enum TestCredential {
    Local,
    Key(String),
    None,
}

/// A request as a test writes it.
#[derive(Debug, Clone)]
pub(crate) struct TestRequest {
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    credential: TestCredential,
}

/// A request with the machine's own key.
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
    /// With this key instead of the machine's own.
    pub(crate) fn with_key(mut self, key: &str) -> Self {
        self.credential = TestCredential::Key(key.to_owned());
        self
    }

    /// Without a key.
    pub(crate) fn without_key(mut self) -> Self {
        self.credential = TestCredential::None;
        self
    }

    /// With a header.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With several headers.
    pub(crate) fn headers(self, headers: &[(&str, &str)]) -> Self {
        let add = |ask: Self, (name, value): &(&str, &str)| ask.header(name, value);
        headers.iter().fold(self, add)
    }

    /// With a session.
    pub(crate) fn cookie(self, cookie: &str) -> Self {
        self.without_key().header("cookie", cookie)
    }

    /// Under an idempotency key.
    pub(crate) fn idempotency_key(self, key: &str) -> Self {
        self.header("idempotency-key", key)
    }

    /// With a JSON body.
    pub(crate) fn json(self, body: &Value) -> Self {
        self.body("application/json", body.to_string())
    }

    /// With a body of some kind.
    pub(crate) fn body(self, kind: &str, body: impl Into<Vec<u8>>) -> Self {
        let mut asked = self.header("content-type", kind);
        asked.body = body.into();
        asked
    }

    /// As it goes over the wire.
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

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TestResponse {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl TestResponse {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        let read = serde_json::from_slice(&self.body);
        read.unwrap_or_else(|_| panic!("no JSON: {} {}", self.status, self.text()))
    }

    /// The JSON of an answer that has this status.
    pub(crate) fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        self.json()
    }

    /// The code of a problem, which must be a whole one.
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

/// A connection.
#[derive(Debug)]
pub(crate) struct TestConnection {
    stream: TcpStream,
    pub(crate) received: Vec<u8>,
}

impl TestConnection {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let came = Vec::new();
        Self { stream, received: came }
    }

    /// Sends bytes; false: the other side has closed.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).await.is_ok()
    }

    /// Says that no more will be sent.
    pub(crate) async fn close(&mut self) {
        _ = self.stream.shutdown().await;
    }

    /// Reads what is there; false: the other side has closed.
    pub(crate) async fn read(&mut self) -> bool {
        self.received.reserve(256 * 1024);
        let reading = self.stream.read_buf(&mut self.received);
        let read = tokio::time::timeout(TIMEOUT, reading).await;
        let read =
            read.unwrap_or_else(|_| panic!("nothing comes after {:?}", self.received_text()));
        read.is_ok_and(|count| count > 0)
    }

    /// Reads what comes within a moment; false: nothing does.
    pub(crate) async fn read_soon(&mut self) -> bool {
        let reading = self.stream.read_buf(&mut self.received);
        let read = tokio::time::timeout(Duration::from_millis(5), reading).await;
        matches!(read, Ok(Ok(1..)))
    }

    /// Whether the other side has closed.
    pub(crate) fn is_closed(&mut self) -> bool {
        matches!(self.stream.try_read_buf(&mut self.received), Ok(0))
    }

    /// Whether anything is there to be read.
    pub(crate) fn has_received(&mut self) -> bool {
        self.stream.try_read_buf(&mut self.received).is_ok()
    }

    /// Reads until the other side closes.
    pub(crate) async fn read_all(&mut self) -> Vec<u8> {
        while self.read().await {}
        std::mem::take(&mut self.received)
    }

    fn received_text(&self) -> String {
        let start = self.received.get(..400).unwrap_or(&self.received);
        String::from_utf8_lossy(start).into_owned()
    }

    /// The head of an answer; none: the other side has closed.
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

    /// A whole answer; none: the other side has closed.
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

    /// Sends a request that may be larger than the other side will read, and
    /// reads the answer meanwhile.
    pub(crate) async fn send_slowly(self, bytes: Vec<u8>) -> Option<TestResponse> {
        let (reads, mut writes) = self.stream.into_split();
        let writing = async {
            // Whether it takes all of it is for the other side to say.
            _ = writes.write_all(&bytes).await;
            std::future::pending::<()>().await;
        };
        let reading = async {
            let (mut came, mut reads) = (Vec::new(), reads);
            while let Ok(1..) = reads.read_buf(&mut came).await {}
            came
        };
        let both = async {
            tokio::select! {
                () = writing => Vec::new(),
                came = reading => came,
            }
        };
        let came = tokio::time::timeout(TIMEOUT, both).await;
        parse_response(&came.expect("it is answered or closed"))
    }
}

/// The answer that some bytes hold, to their end.
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

/// A body in chunks, as far as it came.
#[derive(Debug, Default)]
pub(crate) struct ChunkedBody {
    pub(crate) text: Vec<u8>,
    pub(crate) is_complete: bool,
    /// So much of the chunk under way is still to come.
    remaining: usize,
}

impl ChunkedBody {
    /// Takes in what came, also a part of a chunk.
    pub(crate) fn push(&mut self, came: &mut Vec<u8>) {
        while !self.is_complete {
            if self.remaining > 0 {
                let now = self.remaining.min(came.len());
                self.text.extend(came.drain(..now));
                self.remaining -= now;
                if self.remaining > 0 {
                    return;
                }
            }
            // The end of the chunk before stands before a size.
            let start = if came.starts_with(b"\r\n") { 2 } else { 0 };
            let found = came[start..].windows(2).position(|at| at == b"\r\n");
            let Some(end) = found else { return };
            let size = std::str::from_utf8(&came[start..start + end]).unwrap();
            self.remaining = usize::from_str_radix(size, 16).unwrap();
            self.is_complete = self.remaining == 0;
            came.drain(..start + end + 2);
        }
        came.clear();
    }
}

/// One answer to one request, on a connection of its own.
pub(crate) async fn send_request(
    address: SocketAddr,
    asked: &TestRequest,
    local: &str,
) -> TestResponse {
    let mut wire = TestConnection::connect(address).await;
    let host = format!("localhost:{}", address.port());
    wire.send(&asked.bytes(&host, local)).await;
    let answer = match asked.is_head() {
        true => wire.read_head().await,
        false => wire.read_response().await,
    };
    answer.unwrap_or_else(|| panic!("closed without an answer to {asked:?}"))
}
