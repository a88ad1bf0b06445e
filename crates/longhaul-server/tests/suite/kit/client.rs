//! A client made of bytes: it can send what no decent client would.
//!
//! Never: repairs what it is told to send.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::suite::kit::PATIENCE;

/// Which key is shown.
#[derive(Debug, Clone)]
enum Shows {
    Local,
    Key(String),
    Nothing,
}

/// A request as a test writes it.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    shows: Shows,
}

/// A request with the machine's own key.
pub(crate) fn ask(method: &str, path: impl Into<String>) -> Ask {
    Ask {
        method: method.to_owned(),
        path: path.into(),
        headers: Vec::new(),
        body: Vec::new(),
        shows: Shows::Local,
    }
}

pub(crate) fn get(path: impl Into<String>) -> Ask {
    ask("GET", path)
}

pub(crate) fn post(path: impl Into<String>, body: &Value) -> Ask {
    ask("POST", path).json(body)
}

impl Ask {
    /// With this key instead of the machine's own.
    pub(crate) fn shows(mut self, key: &str) -> Self {
        self.shows = Shows::Key(key.to_owned());
        self
    }

    /// Without a key.
    pub(crate) fn bare(mut self) -> Self {
        self.shows = Shows::Nothing;
        self
    }

    /// With a header.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With several headers.
    pub(crate) fn with_all(self, headers: &[(&str, &str)]) -> Self {
        let add = |ask: Self, (name, value): &(&str, &str)| ask.with(name, value);
        headers.iter().fold(self, add)
    }

    /// With a session.
    pub(crate) fn cookie(self, cookie: &str) -> Self {
        self.bare().with("cookie", cookie)
    }

    /// Under an idempotency key.
    pub(crate) fn once(self, key: &str) -> Self {
        self.with("idempotency-key", key)
    }

    /// With a JSON body.
    pub(crate) fn json(self, body: &Value) -> Self {
        self.typed("application/json", body.to_string())
    }

    /// With a body of some kind.
    pub(crate) fn typed(self, kind: &str, body: impl Into<Vec<u8>>) -> Self {
        let mut asked = self.with("content-type", kind);
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
        match &self.shows {
            Shows::Local => line("authorization", &format!("Bearer {local}")),
            Shows::Key(key) => line("authorization", &format!("Bearer {key}")),
            Shows::Nothing => {}
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
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
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
pub(crate) struct Wire {
    stream: TcpStream,
    pub(crate) came: Vec<u8>,
}

impl Wire {
    pub(crate) async fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let came = Vec::new();
        Self { stream, came }
    }

    /// Sends bytes; false: the other side has closed.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).await.is_ok()
    }

    /// Says that no more will be sent.
    pub(crate) async fn hang_up(&mut self) {
        _ = self.stream.shutdown().await;
    }

    /// Reads what is there; false: the other side has closed.
    pub(crate) async fn read(&mut self) -> bool {
        self.came.reserve(256 * 1024);
        let reading = self.stream.read_buf(&mut self.came);
        let read = tokio::time::timeout(PATIENCE, reading).await;
        let read = read.unwrap_or_else(|_| panic!("nothing comes after {:?}", self.shown()));
        read.is_ok_and(|count| count > 0)
    }

    /// Reads what comes within a moment; false: nothing does.
    pub(crate) async fn read_soon(&mut self) -> bool {
        let reading = self.stream.read_buf(&mut self.came);
        let read = tokio::time::timeout(Duration::from_millis(5), reading).await;
        matches!(read, Ok(Ok(1..)))
    }

    /// Whether the other side has closed.
    pub(crate) fn is_closed(&mut self) -> bool {
        matches!(self.stream.try_read_buf(&mut self.came), Ok(0))
    }

    /// Whether anything is there to be read.
    pub(crate) fn has_come(&mut self) -> bool {
        self.stream.try_read_buf(&mut self.came).is_ok()
    }

    /// Reads until the other side closes.
    pub(crate) async fn read_all(&mut self) -> Vec<u8> {
        while self.read().await {}
        std::mem::take(&mut self.came)
    }

    fn shown(&self) -> String {
        let start = self.came.get(..400).unwrap_or(&self.came);
        String::from_utf8_lossy(start).into_owned()
    }

    /// The head of an answer; none: the other side has closed.
    pub(crate) async fn head(&mut self) -> Option<Answer> {
        let end = loop {
            let found = self.came.windows(4).position(|at| at == b"\r\n\r\n");
            match found {
                Some(end) => break end + 4,
                None if self.read().await => {}
                None => return None,
            }
        };
        let head: Vec<u8> = self.came.drain(..end).collect();
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
        Some(Answer {
            status,
            headers,
            body,
        })
    }

    /// A whole answer; none: the other side has closed.
    pub(crate) async fn answer(&mut self) -> Option<Answer> {
        let mut answer = self.head().await?;
        let length = answer.header("content-length");
        let length = length.map(|length| length.parse::<usize>().unwrap());
        let chunked = answer.header("transfer-encoding") == Some("chunked");
        answer.body = match (length, chunked) {
            (Some(length), _) => {
                while self.came.len() < length && self.read().await {}
                let length = length.min(self.came.len());
                self.came.drain(..length).collect()
            }
            (None, true) => {
                let mut chunks = Chunks::default();
                while !chunks.over {
                    chunks.take_in(&mut self.came);
                    if !chunks.over && !self.read().await {
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
    pub(crate) async fn push(self, bytes: Vec<u8>) -> Option<Answer> {
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
        let came = tokio::time::timeout(PATIENCE, both).await;
        read_answer(&came.expect("it is answered or closed"))
    }
}

/// The answer that some bytes hold, to their end.
pub(crate) fn read_answer(bytes: &[u8]) -> Option<Answer> {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut lines = head.lines();
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let pair = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_ascii_lowercase(), value.trim().to_owned()))
    };
    Some(Answer {
        status,
        headers: lines.filter_map(pair).collect(),
        body: body.as_bytes().to_vec(),
    })
}

/// A body in chunks, as far as it came.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    pub(crate) text: Vec<u8>,
    pub(crate) over: bool,
    /// So much of the chunk under way is still to come.
    left: usize,
}

impl Chunks {
    /// Takes in what came, also a part of a chunk.
    pub(crate) fn take_in(&mut self, came: &mut Vec<u8>) {
        while !self.over {
            if self.left > 0 {
                let now = self.left.min(came.len());
                self.text.extend(came.drain(..now));
                self.left -= now;
                if self.left > 0 {
                    return;
                }
            }
            // The end of the chunk before stands before a size.
            let start = if came.starts_with(b"\r\n") { 2 } else { 0 };
            let found = came[start..].windows(2).position(|at| at == b"\r\n");
            let Some(end) = found else { return };
            let size = std::str::from_utf8(&came[start..start + end]).unwrap();
            self.left = usize::from_str_radix(size, 16).unwrap();
            self.over = self.left == 0;
            came.drain(..start + end + 2);
        }
        came.clear();
    }
}

/// One answer to one request, on a connection of its own.
pub(crate) async fn exchange(address: SocketAddr, asked: &Ask, local: &str) -> Answer {
    let mut wire = Wire::to(address).await;
    let host = format!("localhost:{}", address.port());
    wire.send(&asked.bytes(&host, local)).await;
    let answer = match asked.is_head() {
        true => wire.head().await,
        false => wire.answer().await,
    };
    answer.unwrap_or_else(|| panic!("closed without an answer to {asked:?}"))
}
