//! Failures of model requests, as data.
//!
//! Failures of Longhaul itself, such as a broken database, are errors and not represented here.

use serde::{Deserialize, Serialize};

use crate::text_macros::string_enum;
use crate::time::Millis;
use crate::usage::Usage;

string_enum! {
    /// Class of a failed model request. Failures of one class are handled in the same way.
    pub enum FailureClass {
        /// The account sent too many requests or tokens in a short time.
        RateLimit = "rate_limit",
        /// The provider is temporarily out of capacity.
        Overloaded = "overloaded",
        /// No response arrived within the timeout.
        Timeout = "timeout",
        /// The connection to the provider failed.
        Network = "network",
        /// The provider had an internal error.
        Server = "server",
        /// The conversation exceeds the model's context window.
        ContextOverflow = "context_overflow",
        /// The API key is missing or invalid.
        Auth = "auth",
        /// The provider rejected the request as invalid.
        InvalidRequest = "invalid_request",
        /// The provider refuses to answer.
        Refused = "refused",
        /// The account at the provider has no credit left.
        Quota = "quota",
        /// The worker died before the response was recorded.
        Lost = "lost",
        /// The runtime cancelled the request because the run was stopped.
        Stopped = "stopped",
        /// A handler (a Rust function that is registered as an agent) failed permanently.
        HandlerFailed = "handler_failed",
        /// A handler (a Rust function that is registered as an agent) failed for a reason that may
        /// pass.
        HandlerFailedTransiently = "handler_failed_transiently",
    }
}

impl FailureClass {
    /// Returns whether a retry of the request may succeed.
    pub const fn is_transient(self) -> bool {
        match self {
            Self::RateLimit
            | Self::Overloaded
            | Self::Timeout
            | Self::Network
            | Self::Server
            | Self::HandlerFailedTransiently
            | Self::Lost => true,
            Self::ContextOverflow
            | Self::Auth
            | Self::InvalidRequest
            | Self::Refused
            | Self::Quota
            | Self::HandlerFailed
            | Self::Stopped => false,
        }
    }

    /// Returns whether the failure counts towards the maximum number of attempts. A crash or a
    /// cancellation by Longhaul itself does not count, because it says nothing about the provider.
    pub const fn counts_as_attempt(self) -> bool {
        !matches!(self, Self::Lost | Self::Stopped)
    }
}

/// Failure of a model request that ended without a reply.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Class of the failure, which determines how it is handled.
    pub class: FailureClass,
    /// Description of the failure for people.
    pub message: String,
    /// HTTP status code of the response. `None` if there was no response.
    pub status: Option<u16>,
    /// Delay before a retry, as requested by the provider. `None` if the provider requested none.
    pub retry_after: Option<Millis>,
    /// Id that the provider assigned to the request. `None` if the provider reported no id.
    pub request_id: Option<String>,
    /// Tokens used by the failed request. `None` means that the usage is unknown.
    pub usage: Option<Usage>,
}

impl Failure {
    /// Creates a failure with a class and a message, without further details.
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
