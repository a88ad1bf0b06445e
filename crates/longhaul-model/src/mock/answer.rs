//! What is to be sent back: a status, headers, and a body or a stream with its pace.
//!
//! Never: sends.

use bytes::Bytes;
use longhaul_core::time::Millis;

use crate::mock::dialect::Dialect;

/// What is to be sent back.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status of HTTP.
    pub status: u16,
    /// Headers, in small letters; the length is for whoever sends.
    pub headers: Vec<(&'static str, String)>,
    /// How long to wait before the first byte.
    pub before: Millis,
    /// How long to wait between two events of a stream.
    pub between: Millis,
    /// What is said.
    pub content: Content,
    /// How it ends.
    pub ending: Ending,
}

/// What an answer says.
#[derive(Debug, Clone)]
pub enum Content {
    /// A body in one piece.
    Whole(Bytes),
    /// Server-sent events, each with the empty line after it.
    Stream(Vec<Bytes>),
}

/// How an answer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// As it should.
    Clean,
    /// What is there is only the first part: the connection breaks after it.
    Cut,
    /// What is there is only the first part, and nothing comes after it.
    Stall,
}

impl Answer {
    /// A body in one piece.
    pub(crate) fn whole(status: u16, body: String) -> Self {
        Self::new(status, "application/json", Content::Whole(body.into()))
    }

    /// A stream.
    pub(crate) fn stream(events: Vec<Bytes>) -> Self {
        let kind = "text/event-stream; charset=utf-8";
        let mut answer = Self::new(200, kind, Content::Stream(events));
        answer
            .headers
            .push(("cache-control", "no-cache".to_owned()));
        answer
    }

    fn new(status: u16, kind: &str, content: Content) -> Self {
        Self {
            status,
            headers: vec![("content-type", kind.to_owned())],
            before: Millis::ZERO,
            between: Millis::ZERO,
            content,
            ending: Ending::Clean,
        }
    }

    /// The same under the provider's name for its request.
    pub(crate) fn named(mut self, dialect: Dialect, id: &str) -> Self {
        self.headers.push((dialect.id_header(), id.to_owned()));
        self
    }
}
