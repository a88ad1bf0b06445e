//! The request that the function of a handler receives, and the error that the function returns.

use std::error::Error as StdError;
use std::fmt;

use longhaul_core::id::{ResourceKey, RunId, ThreadKey};
use longhaul_core::raw::RawJson;
use serde::de::DeserializeOwned;

use crate::handler::error_causes::message_and_is_transient;

/// A call of a handler: the argument of the handler's function.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use longhaul::tools::Progress;
/// use longhaul::{HandlerError, HandlerRequest, Runtime};
///
/// /// Sends a letter. The post office recognizes a repeated request by the key.
/// async fn send(request: HandlerRequest, _: Arc<dyn Progress>) -> Result<String, HandlerError> {
///     let address: String = request.input()?;
///     Ok(format!("sent letter {} to {address}, attempt {}", request.key, request.attempt))
/// }
///
/// let builder = Runtime::builder().store("sqlite:agents.db").handler("send", send);
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct HandlerRequest {
    /// Id of the run that calls the handler.
    pub run: RunId,
    /// Input of the task, as JSON.
    pub input: RawJson,
    /// Number of this call of the function for the task, starting at 1. Greater than 1 if a crash or a
    /// timeout interrupted earlier calls, if they failed transiently, or if a failed run is retried: the
    /// attempts of the failed run count, too.
    pub attempt: u32,
    /// Idempotency key: unique per task, and the same at every attempt and in every retry of a failed
    /// run. An external system can use it to recognize a repeated request.
    pub key: String,
    /// Type of the task, by which workers select tasks. `None` means that the task has no type.
    pub kind: Option<String>,
    /// Person or system on whose behalf the run acts.
    pub actor: Option<RawJson>,
    /// References to related objects in other systems.
    pub links: Option<RawJson>,
    /// Arbitrary data that the submitter of the task has added.
    pub metadata: Option<RawJson>,
    /// Thread (conversation) that the run belongs to.
    pub thread: Option<ThreadKey>,
    /// Resource: the person or thing that the thread is about.
    pub resource: Option<ResourceKey>,
}

impl HandlerRequest {
    /// Deserializes the input of the task.
    ///
    /// # Errors
    /// The input does not have this type, or is nested too deeply.
    pub fn input<T: DeserializeOwned>(&self) -> Result<T, HandlerError> {
        serde_json::from_str(self.input.as_str()).map_err(|error| {
            HandlerError::permanent(format!("the input does not have the expected type: {error}"))
        })
    }
}

/// Reason why a handler failed. Converts from every `std::error::Error`, so `?` works.
///
/// After a transient failure the run is retried, as the retry settings say. After a permanent failure
/// the run fails. An error that is converted is transient if it or one of its causes is a timeout, a
/// network or DNS failure, or the HTTP status 408, 429 or 5xx, and permanent otherwise. Its message
/// includes the causes.
///
/// ```
/// use longhaul::HandlerError;
///
/// let busy = HandlerError::transient("the printer is busy");
/// assert!(busy.is_transient());
/// let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
/// assert!(HandlerError::from(reset).is_transient());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandlerError {
    message: String,
    is_transient: bool,
}

impl HandlerError {
    /// Creates a permanent error with this message.
    pub fn new(error_message: impl Into<String>) -> Self {
        Self::permanent(error_message)
    }

    /// Creates an error that a retry can't fix, such as invalid input or a missing permission.
    pub fn permanent(error_message: impl Into<String>) -> Self {
        Self { message: error_message.into(), is_transient: false }
    }

    /// Creates an error that a retry may fix: a network error, a rate limit, a timeout, or a failure of
    /// a server.
    pub fn transient(error_message: impl Into<String>) -> Self {
        Self { message: error_message.into(), is_transient: true }
    }

    /// Returns whether a retry may fix the error.
    pub const fn is_transient(&self) -> bool {
        self.is_transient
    }

    pub(crate) fn into_message(self) -> String {
        self.message
    }
}

impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

// `HandlerError` does not implement `std::error::Error`: that would conflict with `impl From<T> for
// T`.
impl<E: StdError + 'static> From<E> for HandlerError {
    fn from(error: E) -> Self {
        let (message, is_transient) = message_and_is_transient(&error);
        Self { message, is_transient }
    }
}
