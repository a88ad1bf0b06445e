//! Reads a stream of events, and can be cut anywhere.
//!
//! Never: counts half an event.

use serde_json::Value;

use crate::suite::kit::Server;
use crate::suite::kit::client::{Answer, Ask, Chunks, Wire};

/// One event, or a comment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) id: Option<u64>,
    pub(crate) event: String,
    pub(crate) data: String,
    pub(crate) comment: String,
}

impl Frame {
    fn read(text: &str) -> Self {
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
pub(crate) struct Ears {
    wire: Wire,
    chunks: Chunks,
    /// So much of the text was read.
    read: usize,
    pub(crate) head: Answer,
}

impl Ears {
    /// Opens a stream; it must be one.
    pub(crate) async fn open(server: &Server, asked: Ask) -> Self {
        let ears = Self::knock(server, asked).await;
        assert_eq!(ears.head.status, 200);
        let kind = ears.head.header("content-type");
        assert_eq!(kind, Some("text/event-stream; charset=utf-8"));
        ears
    }

    /// Asks for a stream, whatever comes.
    pub(crate) async fn knock(server: &Server, asked: Ask) -> Self {
        let mut wire = Wire::to(server.address).await;
        let asked = asked.with("accept", "text/event-stream");
        wire.send(&asked.bytes(&server.host(), &server.key)).await;
        let head = wire.head().await.expect("a head");
        Self {
            wire,
            chunks: Chunks::default(),
            read: 0,
            head,
        }
    }

    fn take(&mut self) -> Option<Frame> {
        self.chunks.take_in(&mut self.wire.came);
        let text = &self.chunks.text[self.read..];
        let Some(end) = text.windows(2).position(|at| at == b"\n\n") else {
            // Only what was read is let go of, and seldom.
            self.chunks.text.drain(..self.read);
            self.read = 0;
            return None;
        };
        let frame = Frame::read(std::str::from_utf8(&text[..end]).unwrap());
        self.read += end + 2;
        Some(frame)
    }

    /// The next event; none: the stream is over.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        loop {
            match self.take() {
                Some(frame) => return Some(frame),
                None if self.chunks.over => return None,
                None if self.wire.read().await => {}
                None => return None,
            }
        }
    }

    /// The next event of this kind.
    pub(crate) async fn until(&mut self, event: &str) -> Frame {
        loop {
            let frame = self.next().await;
            let frame = frame.unwrap_or_else(|| panic!("it ended without {event}"));
            if frame.event == event {
                return frame;
            }
        }
    }

    /// The event with this id.
    pub(crate) async fn until_id(&mut self, id: u64) -> Frame {
        loop {
            let frame = self.next().await.expect("it goes on");
            if frame.id == Some(id) {
                return frame;
            }
        }
    }

    /// All that comes until the end.
    pub(crate) async fn all(mut self) -> Vec<Frame> {
        let mut heard = Vec::new();
        while let Some(frame) = self.next().await {
            heard.push(frame);
        }
        heard
    }

    /// Whether no event has come that was not read. The comment of every ten seconds is none.
    pub(crate) fn is_silent(&mut self) -> bool {
        self.wire.has_come();
        std::iter::from_fn(|| self.take()).all(|frame| !frame.comment.is_empty())
    }

    /// Whether it ended as it should, and not in the middle.
    pub(crate) fn is_over(&self) -> bool {
        self.chunks.over
    }

    /// Reads so many bytes more, if there are, and is cut there: the events that
    /// came whole.
    pub(crate) async fn cut_after(mut self, bytes: usize) -> Vec<Frame> {
        while self.wire.came.len() < bytes && self.wire.read_soon().await {}
        self.wire.came.truncate(bytes);
        std::iter::from_fn(|| self.take()).collect()
    }
}
