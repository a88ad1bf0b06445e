//! Response of the mock provider: status, headers, and a body or stream with its delays.

use bytes::Bytes;
use longhaul_core::time::Millis;

/// API that a request to the mock provider uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApiKind {
    /// The Messages API of Anthropic.
    Messages,
    /// The Responses API of OpenAI.
    Responses,
    /// The Chat Completions API of OpenAI.
    Chat,
}

impl ApiKind {
    /// Returns the name of the response header with the request ID.
    pub(crate) const fn request_id_header(self) -> &'static str {
        match self {
            Self::Messages => "request-id",
            Self::Responses | Self::Chat => "x-request-id",
        }
    }
}

/// HTTP response of the mock provider. The HTTP server that asked for it sends it to its client.
#[derive(Debug, Clone)]
pub struct MockResponse {
    /// HTTP status of the response.
    pub status: u16,
    /// Headers of the response, with lower-case names. The sender adds the content length.
    pub headers: Vec<(&'static str, String)>,
    /// Delay before the first byte of the response.
    pub initial_delay: Millis,
    /// Delay between two events of a stream.
    pub event_delay: Millis,
    /// Body of the response, complete or as a stream of events.
    pub body: MockBody,
    /// How the response ends: normally, truncated or stalled.
    pub termination: ResponseTermination,
}

/// Body of a response: complete, or a stream of events.
#[derive(Debug, Clone)]
pub enum MockBody {
    /// Complete response body.
    Full(Bytes),
    /// Server-sent events, each including the blank line that ends it.
    Stream(Vec<Bytes>),
}

/// How a response of the mock provider ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseTermination {
    /// The response is sent completely.
    Clean,
    /// Only a part of the body is sent, then the connection is closed.
    Truncated,
    /// Only a part of the body is sent, then the connection stays open without sending more.
    Stalled,
}

impl MockResponse {
    /// Returns a response with a complete JSON body.
    pub(crate) fn with_json_body(status: u16, body: String) -> Self {
        Self::new(status, "application/json", MockBody::Full(body.into()))
    }

    pub(crate) fn with_event_stream(events: Vec<Bytes>) -> Self {
        let kind = "text/event-stream; charset=utf-8";
        let mut response = Self::new(200, kind, MockBody::Stream(events));
        response.headers.push(("cache-control", "no-cache".to_owned()));
        response
    }

    fn new(status: u16, content_type: &str, content: MockBody) -> Self {
        Self {
            status,
            headers: vec![("content-type", content_type.to_owned())],
            initial_delay: Millis::ZERO,
            event_delay: Millis::ZERO,
            body: content,
            termination: ResponseTermination::Clean,
        }
    }

    /// Adds the header with the request ID, named as the API names it.
    pub(crate) fn with_request_id(mut self, api: ApiKind, id: &str) -> Self {
        self.headers.push((api.request_id_header(), id.to_owned()));
        self
    }
}
