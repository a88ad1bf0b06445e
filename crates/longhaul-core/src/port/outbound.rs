//! The outbound HTTP port. All requests caused by agents and webhooks go through it.
//!
//! Invariant: private addresses are only reachable if the caller explicitly allows them.

use async_trait::async_trait;

use crate::time::Millis;

/// HTTP client that only connects to allowed addresses.
#[async_trait]
pub trait OutboundHttpClient: Send + Sync + std::fmt::Debug {
    /// Sends one request and returns the complete response, up to the size limit.
    async fn send(&self, request: OutboundRequest) -> Result<OutboundResponse, OutboundError>;
}

/// An outbound HTTP request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboundRequest {
    /// HTTP method, such as `GET`.
    pub method: String,
    /// URL that the request is sent to.
    pub url: String,
    /// Headers of the request, in addition to those that the client sets.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Timeout of the whole request.
    pub timeout: Millis,
    /// Maximum size of the decoded response body in bytes.
    pub bytes_max: u64,
    /// Networks that the request may reach.
    pub network_scope: NetworkScope,
}

/// Networks that a request may reach.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NetworkScope {
    /// The request may only reach publicly routable addresses.
    #[default]
    Public,
    /// The request may also reach private and loopback addresses.
    Private,
}

/// Response to an outbound HTTP request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboundResponse {
    /// HTTP status code of the response.
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// Failure of an outbound request.
#[derive(Debug, thiserror::Error)]
pub enum OutboundError {
    /// The address policy forbids the request.
    #[error("`{url}` is not allowed: {reason}")]
    Forbidden { url: String, reason: String },
    /// No response was received.
    #[error("`{url}` did not answer: {reason}")]
    Failed { url: String, reason: String },
    /// The response uses a content encoding that was not requested.
    #[error("`{url}` answered with the unexpected content encoding `{encoding}`")]
    UnexpectedEncoding { url: String, encoding: String },
    /// The response body exceeds the size limit.
    #[error("the response of `{url}` is longer than {bytes_max} bytes")]
    TooLong { url: String, bytes_max: u64 },
}
