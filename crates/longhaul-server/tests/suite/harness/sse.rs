//! Reads an event stream and can disconnect at any byte. Incomplete events are not counted.

use serde_json::Value;

use crate::suite::harness::TestServer;
use crate::suite::harness::client::{ChunkedBody, TestConnection, TestRequest, TestResponse};

/// One event or comment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SseEvent {
    pub(crate) id: Option<u64>,
    pub(crate) event: String,
    pub(crate) data: String,
    pub(crate) comment: String,
}

impl SseEvent {
    fn parse(text: &str) -> Self {
        let mut frame = Self::default();
        for line in text.lines() {
            match line.split_once(": ") {
                Some(("id", id)) => frame.id = Some(id.parse().unwrap()),
                Some(("event", event)) => frame.event = event.to_owned(),
                Some(("data", data)) => frame.data = data.to_owned(),
                Some(("", comment)) => frame.comment = comment.to_owned(),
                Some(_) | None => panic!("not a line of an event: {line}"),
            }
        }
        frame
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap()
    }
}

/// A client of an event stream.
#[derive(Debug)]
pub(crate) struct SseClient {
    connection: TestConnection,
    chunks: ChunkedBody,
    /// Number of bytes of the text that are parsed.
    read_bytes: usize,
    pub(crate) head: TestResponse,
}

impl SseClient {
    /// Opens a stream and asserts that the response is one.
    pub(crate) async fn open(server: &TestServer, request: TestRequest) -> Self {
        let stream = Self::request(server, request).await;
        assert_eq!(stream.head.status, 200);
        let kind = stream.head.header("content-type");
        assert_eq!(kind, Some("text/event-stream; charset=utf-8"));
        stream
    }

    /// Requests a stream and accepts any response.
    pub(crate) async fn request(server: &TestServer, request: TestRequest) -> Self {
        let mut connection = TestConnection::connect(server.address).await;
        let request = request.header("accept", "text/event-stream");
        connection.send(&request.bytes(&server.host(), &server.key)).await;
        let head = connection.read_head().await.expect("a response head");
        Self { connection, chunks: ChunkedBody::default(), read_bytes: 0, head }
    }

    fn take_event(&mut self) -> Option<SseEvent> {
        self.chunks.push(&mut self.connection.received);
        let text = &self.chunks.text[self.read_bytes..];
        let Some(end) = text.windows(2).position(|at| at == b"\n\n") else {
            // Only parsed bytes are removed, and rarely.
            self.chunks.text.drain(..self.read_bytes);
            self.read_bytes = 0;
            return None;
        };
        let frame = SseEvent::parse(std::str::from_utf8(&text[..end]).unwrap());
        self.read_bytes += end + 2;
        Some(frame)
    }

    /// Returns the next event. `None` means that the stream has ended.
    pub(crate) async fn next(&mut self) -> Option<SseEvent> {
        loop {
            match self.take_event() {
                Some(frame) => return Some(frame),
                None if self.chunks.is_complete => return None,
                None if self.connection.read().await => {}
                None => return None,
            }
        }
    }

    pub(crate) async fn next_of_type(&mut self, event: &str) -> SseEvent {
        loop {
            let frame = self.next().await;
            let frame = frame.unwrap_or_else(|| panic!("the stream ended without {event}"));
            if frame.event == event {
                return frame;
            }
        }
    }

    pub(crate) async fn next_with_id(&mut self, id: u64) -> SseEvent {
        loop {
            let frame = self.next().await.expect("the stream continues");
            if frame.id == Some(id) {
                return frame;
            }
        }
    }

    /// Returns all events until the end.
    pub(crate) async fn read_to_end(mut self) -> Vec<SseEvent> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next().await {
            frames.push(frame);
        }
        frames
    }

    /// Returns whether there is no unread event. Heartbeat comments do not count.
    pub(crate) fn is_silent(&mut self) -> bool {
        self.connection.has_received();
        std::iter::from_fn(|| self.take_event()).all(|frame| !frame.comment.is_empty())
    }

    /// Returns whether the stream has ended properly and not in the middle.
    pub(crate) fn is_complete(&self) -> bool {
        self.chunks.is_complete
    }

    /// Reads up to this number of further bytes, disconnects, and returns the complete events.
    pub(crate) async fn close_after(mut self, bytes: usize) -> Vec<SseEvent> {
        while self.connection.received.len() < bytes && self.connection.read_soon().await {}
        self.connection.received.truncate(bytes);
        std::iter::from_fn(|| self.take_event()).collect()
    }
}
