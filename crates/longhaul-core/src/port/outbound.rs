//! The one way out: every request that an agent or a webhook causes.
//!
//! Never: an address inside the house, unless the caller spelled it out.

use async_trait::async_trait;

use crate::time::Millis;

/// The guarded client.
#[async_trait]
pub trait Outbound: Send + Sync + std::fmt::Debug {
    /// Sends one request and gives the whole, bounded answer.
    async fn send(&self, request: Request) -> Result<Response, OutboundError>;
}

/// A request to the world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Such as `GET`.
    pub method: String,
    /// Where to.
    pub url: String,
    /// Further headers.
    pub headers: Vec<(String, String)>,
    /// What is sent.
    pub body: Vec<u8>,
    /// How long at most.
    pub timeout: Millis,
    /// The most bytes of an answer, unpacked.
    pub bytes_max: u64,
    /// Whether private and loopback addresses may be asked.
    pub network_scope: NetworkScope,
}

/// Which addresses a request may reach.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NetworkScope {
    /// Only those that anybody can route to.
    #[default]
    Public,
    /// Also private and loopback ones.
    Private,
}

/// The world's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The status.
    pub status: u16,
    /// Its headers.
    pub headers: Vec<(String, String)>,
    /// Its body.
    pub body: Vec<u8>,
}

/// A request that was not made, or came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum OutboundError {
    /// The guard says no.
    #[error("`{url}` may not be asked: {why}")]
    Forbidden {
        /// Where to.
        url: String,
        /// Why not.
        why: String,
    },
    /// Nobody answered.
    #[error("`{url}` did not answer: {why}")]
    Failed {
        /// Where to.
        url: String,
        /// What happened.
        why: String,
    },
    /// The answer is packed though that was not asked for.
    #[error(
        "`{url}` answered, but packed as `{encoding}`, which was not asked for and is not read"
    )]
    UnexpectedEncoding {
        /// Where to.
        url: String,
        /// How.
        encoding: String,
    },
    /// The answer is longer than the bound.
    #[error("the answer of `{url}` is longer than {bytes_max} bytes")]
    TooLong {
        /// Where to.
        url: String,
        /// The bound.
        bytes_max: u64,
    },
}
