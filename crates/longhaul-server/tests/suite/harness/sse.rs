//! Reads a stream of events, and can be cut anywhere.
//!
//! Never: counts half an event.

use serde_json::Value;

use crate::suite::harness::TestServer;
use crate::suite::harness::client::{ChunkedBody, TestConnection, TestRequest, TestResponse};

/// One event, or a comment.
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
                Some(_) | None => panic!("no line of an event: {line}"),
            }
        }
        frame
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap()
    }
}

/// Somebody who listens.
#[derive(Debug)]
pub(crate) struct SseClient {
    connection: TestConnection,
    chunks: ChunkedBody,
    /// So much of the text was read.
    read_bytes: usize,
    pub(crate) head: TestResponse,
}

impl SseClient {
    /// Opens a stream; it must be one.
    pub(crate) async fn open(server: &TestServer, asked: TestRequest) -> Self {
        let ears = Self::request(server, asked).await;
        assert_eq!(ears.head.status, 200);
        let kind = ears.head.header("content-type");
        assert_eq!(kind, Some("text/event-stream; charset=utf-8"));
        ears
    }

    /// Asks for a stream, whatever comes.
    pub(crate) async fn request(server: &TestServer, asked: TestRequest) -> Self {
        let mut wire = TestConnection::connect(server.address).await;
        let asked = asked.header("accept", "text/event-stream");
        wire.send(&asked.bytes(&server.host(), &server.key)).await;
        let head = wire.read_head().await.expect("a head");
        Self { connection: wire, chunks: ChunkedBody::default(), read_bytes: 0, head }
    }

    fn take_event(&mut self) -> Option<SseEvent> {
        self.chunks.push(&mut self.connection.received);
        let text = &self.chunks.text[self.read_bytes..];
        let Some(end) = text.windows(2).position(|at| at == b"\n\n") else {
            // Only what was read is let go of, and seldom.
            self.chunks.text.drain(..self.read_bytes);
            self.read_bytes = 0;
            return None;
        };
        let frame = SseEvent::parse(std::str::from_utf8(&text[..end]).unwrap());
        self.read_bytes += end + 2;
        Some(frame)
    }

    /// The next event; none: the stream is over.
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

    /// The next event of this kind.
    pub(crate) async fn until(&mut self, event: &str) -> SseEvent {
        loop {
            let frame = self.next().await;
            let frame = frame.unwrap_or_else(|| panic!("it ended without {event}"));
            if frame.event == event {
                return frame;
            }
        }
    }

    /// The event with this id.
    pub(crate) async fn until_id(&mut self, id: u64) -> SseEvent {
        loop {
            let frame = self.next().await.expect("it goes on");
            if frame.id == Some(id) {
                return frame;
            }
        }
    }

    /// All that comes until the end.
    pub(crate) async fn all(mut self) -> Vec<SseEvent> {
        let mut heard = Vec::new();
        while let Some(frame) = self.next().await {
            heard.push(frame);
        }
        heard
    }

    /// Whether no event has come that was not read. The comment of every ten seconds is none.
    pub(crate) fn is_silent(&mut self) -> bool {
        self.connection.has_received();
        std::iter::from_fn(|| self.take_event()).all(|frame| !frame.comment.is_empty())
    }

    /// Whether it ended as it should, and not in the middle.
    pub(crate) fn is_complete(&self) -> bool {
        self.chunks.is_complete
    }

    /// Reads so many bytes more, if there are, and is cut there: the events that
    /// came whole.
    pub(crate) async fn close_after(mut self, bytes: usize) -> Vec<SseEvent> {
        while self.connection.received.len() < bytes && self.connection.read_soon().await {}
        self.connection.received.truncate(bytes);
        std::iter::from_fn(|| self.take_event()).collect()
    }
}
