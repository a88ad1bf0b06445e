//! What is to be sent back: a status, headers, and a body or a stream with its pace.
//!
//! Never: sends.

use bytes::Bytes;
use longhaul_core::time::Millis;

use crate::mock::api_kind::ApiKind;

/// What is to be sent back.
#[derive(Debug, Clone)]
pub struct MockResponse {
    /// The status of HTTP.
    pub status: u16,
    /// Headers, in small letters; the length is for whoever sends.
    pub headers: Vec<(&'static str, String)>,
    /// How long to wait before the first byte.
    pub initial_delay: Millis,
    /// How long to wait between two events of a stream.
    pub event_delay: Millis,
    /// What is said.
    pub body: MockBody,
    /// How it ends.
    pub termination: Termination,
}

/// What an answer says.
#[derive(Debug, Clone)]
pub enum MockBody {
    /// A body in one piece.
    Full(Bytes),
    /// Server-sent events, each with the empty line after it.
    Stream(Vec<Bytes>),
}

/// How an answer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Termination {
    /// As it should.
    Clean,
    /// What is there is only the first part: the connection breaks after it.
    Truncated,
    /// What is there is only the first part, and nothing comes after it.
    Stalled,
}

impl MockResponse {
    /// A body in one piece.
    pub(crate) fn json(status: u16, body: String) -> Self {
        Self::new(status, "application/json", MockBody::Full(body.into()))
    }

    /// A stream.
    pub(crate) fn stream(events: Vec<Bytes>) -> Self {
        let kind = "text/event-stream; charset=utf-8";
        let mut answer = Self::new(200, kind, MockBody::Stream(events));
        answer.headers.push(("cache-control", "no-cache".to_owned()));
        answer
    }

    fn new(status: u16, kind: &str, content: MockBody) -> Self {
        Self {
            status,
            headers: vec![("content-type", kind.to_owned())],
            initial_delay: Millis::ZERO,
            event_delay: Millis::ZERO,
            body: content,
            termination: Termination::Clean,
        }
    }

    /// The same under the provider's name for its request.
    pub(crate) fn with_request_id(mut self, dialect: ApiKind, id: &str) -> Self {
        self.headers.push((dialect.request_id_header(), id.to_owned()));
        self
    }
}
