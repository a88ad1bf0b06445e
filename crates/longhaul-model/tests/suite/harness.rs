//! A test server with real sockets that performs scripted actions.

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

#[derive(Debug, Clone)]
pub(crate) enum ServerAction {
    /// Sends these bytes.
    Send(Vec<u8>),
    /// Waits for a notification.
    Wait(Arc<Notify>),
    /// Sends these bytes repeatedly until the client disconnects.
    SendForever(Vec<u8>),
    /// Sends these bytes repeatedly, each time after this delay, until the client disconnects.
    Drip(Vec<u8>, Duration),
    /// Closes the connection.
    Close,
    /// Resets the connection.
    Reset,
}

/// Starts a server that sends this text on every connection, before any request.
pub(crate) async fn unsolicited_server(greeting: &'static [u8]) -> (String, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            stream.write_all(greeting).await.unwrap();
            // Reads until the client disconnects.
            while stream.read(&mut [0; 1_024]).await.is_ok_and(|read| read > 0) {}
        }
    });
    (address, tasks)
}

#[derive(Debug, Clone)]
pub(crate) struct ReceivedRequest {
    pub(crate) head: String,
    pub(crate) body: String,
}

type Shared<T> = Arc<Mutex<T>>;

/// A local server. It stops when it is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    port: u16,
    requests: Shared<Vec<ReceivedRequest>>,
    connections: Shared<usize>,
    _tasks: JoinSet<()>,
}

impl Server {
    /// Starts a server with one list of actions per request.
    pub(crate) async fn new(plans: Vec<Vec<ServerAction>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Shared::default();
        let plans: Shared<VecDeque<Vec<ServerAction>>> = Arc::new(Mutex::new(plans.into()));
        let mut tasks = JoinSet::new();
        let recorded_requests = Arc::clone(&requests);
        let connections = Shared::default();
        let count = Arc::clone(&connections);
        tasks.spawn(async move {
            let mut calls = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                *count.lock().unwrap() += 1;
                let (plans, recorded_requests) =
                    (Arc::clone(&plans), Arc::clone(&recorded_requests));
                calls.spawn(async move {
                    // A client may disconnect at any time.
                    _ = serve(stream, &plans, &recorded_requests).await;
                });
            }
        });
        Self { port, requests, connections, _tasks: tasks }
    }

    pub(crate) fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Returns the number of connections accepted.
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
    recorded_requests: &Mutex<Vec<ReceivedRequest>>,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    while let Some(received) = request(&mut stream).await? {
        recorded_requests.lock().unwrap().push(received);
        let plan = plans.lock().unwrap().pop_front();
        for action in plan.expect("an unexpected request") {
            match action {
                ServerAction::Send(bytes) => stream.write_all(&bytes).await?,
                ServerAction::Wait(notify) => notify.notified().await,
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
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
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
    let total_length = head + length.unwrap_or(0);
    while bytes.len() < total_length {
        if stream.read_buf(&mut bytes).await? == 0 {
            return Ok(None);
        }
    }
    let body = String::from_utf8(bytes[head..].to_vec()).unwrap();
    Ok(Some(ReceivedRequest { head: text, body }))
}

/// Headers of a response with a chunked body.
pub(crate) const STREAM_HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                                 request-id: req_7\r\ntransfer-encoding: chunked\r\n\r\n";

/// End of a chunked body.
pub(crate) const LAST_CHUNK: &str = "0\r\n\r\n";

/// Encodes one chunk.
pub(crate) fn chunk(bytes: &[u8]) -> Vec<u8> {
    if bytes.is_empty() {
        return Vec::new();
    }
    let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
    chunk.extend_from_slice(bytes);
    chunk.extend_from_slice(b"\r\n");
    chunk
}

/// Returns a response that streams these bytes in one chunk.
pub(crate) fn stream_response(bytes: &[u8]) -> Vec<ServerAction> {
    let answer = [STREAM_HEAD.as_bytes(), &chunk(bytes), LAST_CHUNK.as_bytes()].concat();
    vec![ServerAction::Send(answer)]
}

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

/// A sink that collects the text it receives.
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

/// A clock that is fixed at 2026-11-15, 12:00.
#[derive(Debug)]
pub(crate) struct FixedClock;

#[async_trait]
impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        "2026-11-15T12:00:00Z".parse().unwrap()
    }

    async fn sleep(&self, _: Millis) {}
}
