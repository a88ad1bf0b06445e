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
    /// Returns a response with a complete JSON body. `request_id` is the ID of the request to an
    /// API.
    pub(crate) fn json(status: u16, body: String, request_id: (ApiKind, &str)) -> Self {
        Self::new(status, "application/json", MockBody::Full(body.into()), request_id)
    }

    pub(crate) fn event_stream(events: Vec<Bytes>, request_id: (ApiKind, &str)) -> Self {
        let kind = "text/event-stream; charset=utf-8";
        let mut response = Self::new(200, kind, MockBody::Stream(events), request_id);
        response.headers.push(("cache-control", "no-cache".to_owned()));
        response
    }

    fn new(
        status: u16,
        content_type: &str,
        body: MockBody,
        (api, request_id): (ApiKind, &str),
    ) -> Self {
        let request_id_header = match api {
            ApiKind::Messages => "request-id",
            ApiKind::Responses | ApiKind::Chat => "x-request-id",
        };
        Self {
            status,
            headers: vec![
                ("content-type", content_type.to_owned()),
                (request_id_header, request_id.to_owned()),
            ],
            initial_delay: Millis::ZERO,
            event_delay: Millis::ZERO,
            body,
            termination: ResponseTermination::Clean,
        }
    }
}
