//! What a model's call can fail of, as data to be reasoned about.
//!
//! Never: a fault of ours. A broken database is an error, not a failure.

use serde::{Deserialize, Serialize};

use crate::text_macros::string_enum;
use crate::time::Millis;
use crate::usage::Usage;

string_enum! {
    /// The kinds of failure, by what helps against them.
    pub enum FailureClass {
        /// Too many requests or tokens for now.
        RateLimit = "rate_limit",
        /// The provider is short of machines.
        Overloaded = "overloaded",
        /// Nothing came in time.
        Timeout = "timeout",
        /// The connection broke.
        Network = "network",
        /// The provider failed inside.
        Server = "server",
        /// The conversation is longer than the model's window.
        ContextOverflow = "context_overflow",
        /// The key is missing or wrong.
        Auth = "auth",
        /// The request itself is wrong.
        InvalidRequest = "invalid_request",
        /// The provider will not answer this.
        Refused = "refused",
        /// The account has run out.
        Quota = "quota",
        /// A call was started and its driver died before the answer was recorded.
        Lost = "lost",
        /// We stopped the call ourselves, because the run was told to stop.
        Stopped = "stopped",
    }
}

impl FailureClass {
    /// Whether asking again later may help.
    pub const fn is_transient(self) -> bool {
        match self {
            Self::RateLimit
            | Self::Overloaded
            | Self::Timeout
            | Self::Network
            | Self::Server
            | Self::Lost => true,
            Self::ContextOverflow
            | Self::Auth
            | Self::InvalidRequest
            | Self::Refused
            | Self::Quota
            | Self::Stopped => false,
        }
    }

    /// Whether the failure counts against the tries of a call. A crash of ours
    /// and a stop of ours say nothing about the provider.
    pub const fn counts_as_attempt(self) -> bool {
        !matches!(self, Self::Lost | Self::Stopped)
    }
}

/// One call that did not end in a reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What kind it is.
    pub class: FailureClass,
    /// What was said, for people.
    pub message: String,
    /// The HTTP status, where there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// How long the provider asked us to wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<Millis>,
    /// The provider's own name for the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// What the call has used all the same, as far as it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

impl Failure {
    /// A failure of this kind with these words and nothing else known.
    pub fn new(class: FailureClass, message: impl Into<String>) -> Self {
        Self {
            class,
            message: message.into(),
            status: None,
            retry_after: None,
            request_id: None,
            usage: None,
        }
    }
}
