//! A server with real sockets that does what it is told, byte by byte.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use longhaul_core::port::model::DeltaSink;
use longhaul_core::time::{Clock, Millis, Timestamp};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// What a server does for one request.
#[derive(Debug, Clone)]
pub(crate) enum ServerAction {
    /// Sends these bytes.
    Send(Vec<u8>),
    /// Waits for a sign.
    Wait(Arc<Notify>),
    /// Sends these bytes until nobody reads them.
    SendForever(Vec<u8>),
    /// Sends these bytes over and over, each time after this time, until nobody
    /// reads them.
    Drip(Vec<u8>, Duration),
    /// Closes the connection.
    Close,
    /// Breaks it.
    Reset,
}

/// A server that says this to whoever connects, before it is asked.
pub(crate) async fn unsolicited_server(words: &'static [u8]) -> (String, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            stream.write_all(words).await.unwrap();
            // Reads until the client has had enough.
            while stream.read(&mut [0; 1_024]).await.is_ok_and(|read| read > 0) {}
        }
    });
    (address, tasks)
}

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedRequest {
    pub(crate) head: String,
    pub(crate) body: String,
}

type Shared<T> = Arc<Mutex<T>>;

/// A server on this machine. It ends with its last owner.
#[derive(Debug)]
pub(crate) struct Server {
    port: u16,
    requests: Shared<Vec<ReceivedRequest>>,
    connections: Shared<usize>,
    _tasks: JoinSet<()>,
}

impl Server {
    /// A server that does these things, one list for each request.
    pub(crate) async fn new(plans: Vec<Vec<ServerAction>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Shared::default();
        let plans: Shared<VecDeque<Vec<ServerAction>>> = Arc::new(Mutex::new(plans.into()));
        let mut tasks = JoinSet::new();
        let noted = Arc::clone(&seen);
        let connections = Shared::default();
        let count = Arc::clone(&connections);
        tasks.spawn(async move {
            let mut calls = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                *count.lock().unwrap() += 1;
                let (plans, noted) = (Arc::clone(&plans), Arc::clone(&noted));
                calls.spawn(async move {
                    // A client that goes away is no fault of the server's.
                    _ = serve(stream, &plans, &noted).await;
                });
            }
        });
        Self { port, requests: seen, connections, _tasks: tasks }
    }

    pub(crate) fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// So many connections were made.
    pub(crate) fn connections(&self) -> usize {
        *self.connections.lock().unwrap()
    }

    pub(crate) fn requests(&self) -> Vec<ReceivedRequest> {
        self.requests.lock().unwrap().clone()
    }
}

async fn serve(
    mut stream: TcpStream,
    plans: &Mutex<VecDeque<Vec<ServerAction>>>,
    noted: &Mutex<Vec<ReceivedRequest>>,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    while let Some(seen) = request(&mut stream).await? {
        noted.lock().unwrap().push(seen);
        let plan = plans.lock().unwrap().pop_front();
        for act in plan.expect("a request that nobody planned") {
            match act {
                ServerAction::Send(bytes) => stream.write_all(&bytes).await?,
                ServerAction::Wait(sign) => sign.notified().await,
                ServerAction::SendForever(bytes) => loop {
                    stream.write_all(&bytes).await?;
                },
                ServerAction::Drip(bytes, every) => {
                    let mut ticks = tokio::time::interval(every);
                    loop {
                        ticks.tick().await;
                        stream.write_all(&bytes).await?;
                    }
                }
                ServerAction::Close => return stream.shutdown().await,
                ServerAction::Reset => return stream.set_zero_linger(),
            }
        }
    }
    Ok(())
}

async fn request(stream: &mut TcpStream) -> std::io::Result<Option<ReceivedRequest>> {
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(&mut bytes).await? == 0 {
            return Ok(None);
        }
    };
    let text = String::from_utf8(bytes[..head].to_vec()).unwrap();
    let length = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().unwrap())
    });
    let whole = head + length.unwrap_or(0);
    while bytes.len() < whole {
        if stream.read_buf(&mut bytes).await? == 0 {
            return Ok(None);
        }
    }
    let body = String::from_utf8(bytes[head..].to_vec()).unwrap();
    Ok(Some(ReceivedRequest { head: text, body }))
}

/// The head of an answer whose body comes in chunks.
pub(crate) const STREAM_HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                                 request-id: req_7\r\ntransfer-encoding: chunked\r\n\r\n";

/// The end of such a body.
pub(crate) const LAST_CHUNK: &str = "0\r\n\r\n";

/// One chunk.
pub(crate) fn chunk(bytes: &[u8]) -> Vec<u8> {
    if bytes.is_empty() {
        return Vec::new();
    }
    let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
    chunk.extend_from_slice(bytes);
    chunk.extend_from_slice(b"\r\n");
    chunk
}

/// An answer that streams these bytes, whole and in one piece.
pub(crate) fn stream_response(bytes: &[u8]) -> Vec<ServerAction> {
    let answer = [STREAM_HEAD.as_bytes(), &chunk(bytes), LAST_CHUNK.as_bytes()].concat();
    vec![ServerAction::Send(answer)]
}

/// An answer with this status, these headers and this body.
pub(crate) fn full_response(
    status: u16,
    headers: &[(&str, &str)],
    body: &str,
) -> Vec<ServerAction> {
    let headers: String =
        headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let length = body.len();
    let answer =
        format!("HTTP/1.1 {status} Word\r\n{headers}content-length: {length}\r\n\r\n{body}");
    vec![ServerAction::Send(answer.into_bytes())]
}

/// An ear that keeps what it hears.
#[derive(Debug, Default)]
pub(crate) struct TextSink(Mutex<String>);

impl TextSink {
    pub(crate) fn text(&self) -> String {
        self.0.lock().unwrap().clone()
    }
}

impl DeltaSink for TextSink {
    fn on_text(&self, text: &str) {
        self.0.lock().unwrap().push_str(text);
    }
}

/// A clock that stands still at 2026-11-15, 12:00.
#[derive(Debug)]
pub(crate) struct FixedClock;

#[async_trait]
impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        "2026-11-15T12:00:00Z".parse().unwrap()
    }

    async fn sleep(&self, _: Millis) {}
}
