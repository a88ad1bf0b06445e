//! A Rust function as an agent, with its settings, and the response that it may return.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use longhaul_core::port::tool::Progress;
use longhaul_core::raw::RawJson;
use longhaul_core::status::RunOutput;
use longhaul_engine::agent::RetryPatch;
use serde::{Serialize, Serializer};

use crate::handler::journaled_calls::HandlerResult;
use crate::handler::request::{HandlerError, HandlerRequest};

/// A handler's function, which returns its encoded result.
pub(crate) type HandlerFn = dyn Fn(HandlerRequest, Arc<dyn Progress>) -> BoxFuture<'static, Result<String, HandlerError>>
    + Send
    + Sync;

/// A Rust function that is registered as an agent, with its settings.
///
/// ```no_run
/// use std::time::Duration;
///
/// use longhaul::{Handler, Runtime};
///
/// let pay = Handler::new("pay", |request, _| async move {
///     let amount: u32 = request.input()?;
///     Ok(format!("paid {amount}"))
/// });
/// let builder = Runtime::builder().register(pay.once().hard_timeout(Duration::from_secs(30)));
/// ```
#[must_use = "a handler has an effect only if it is registered"]
pub struct Handler {
    pub(crate) name: String,
    pub(crate) function: Arc<HandlerFn>,
    pub(crate) once: bool,
    pub(crate) retry: RetryPatch,
}

impl fmt::Debug for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Handler").field(&self.name).finish()
    }
}

impl Handler {
    /// Creates a handler from an async function. A [`Response`](crate::Response) that the function
    /// returns is the output of the run; any other value is serialized to become the output.
    pub fn new<F, R, T>(name: impl Into<String>, function: F) -> Self
    where
        F: Fn(HandlerRequest, Arc<dyn Progress>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<T, HandlerError>> + Send + 'static,
        T: Serialize + 'static,
    {
        let function = move |request, progress| -> BoxFuture<'static, _> {
            let future = function(request, progress);
            Box::pin(async move {
                let value = future.await?;
                let result = match (&value as &dyn Any).downcast_ref::<Response>() {
                    Some(response) => HandlerResult::Response(Box::new(response.run_output()?)),
                    None => HandlerResult::Value(RawJson::parse(serde_json::to_string(&value)?)?),
                };
                result.encode()
            })
        };
        let retry = RetryPatch::default();
        Self { name: name.into(), function: Arc::new(function), once: false, retry }
    }

    /// Never calls the function again after a crash. The run then fails with the code `in_doubt`,
    /// because nobody knows whether the function has had its effect.
    pub const fn once(mut self) -> Self {
        self.once = true;
        self
    }

    /// Sets the duration of one attempt after which it is reported as overdue. Default: the project's
    /// setting, or 2 minutes.
    pub fn soft_timeout(mut self, timeout: Duration) -> Self {
        self.retry.soft_timeout = Some(timeout.into());
        self
    }

    /// Sets the duration of one attempt after which it is ended. Default: the project's setting, or 5
    /// minutes.
    pub fn hard_timeout(mut self, timeout: Duration) -> Self {
        self.retry.hard_timeout = Some(timeout.into());
        self
    }

    /// Sets the maximum number of retries of a run after transient errors and hard timeouts.
    /// Default: the project's setting, or 1.
    pub const fn max_retries(mut self, retries: u32) -> Self {
        self.retry.max_retries = Some(retries);
        self
    }
}

/// Response of a handler with all fields of a run's output. A handler may also return any other value
/// that can be serialized.
///
/// ```
/// use longhaul::{Response, Runtime};
///
/// let builder = Runtime::builder().handler("summarize", |request, _| async move {
///     let path: String = request.input()?;
///     Ok(Response::text("Three pages about birds.")
///         .data(["heron", "wren"])
///         .confidence(0.8)
///         .artifact(serde_json::json!({ "path": path })))
/// });
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
#[must_use = "a response has an effect only if the handler returns it"]
pub struct Response {
    output: RunOutput,
    error: Option<String>,
}

impl Response {
    /// Creates a response with this text and no structured result.
    pub fn text(response_text: impl Into<String>) -> Self {
        let output = RunOutput { text: response_text.into(), ..RunOutput::default() };
        Self { output, error: None }
    }

    /// Sets the structured result.
    pub fn data(mut self, data: impl Serialize) -> Self {
        self.output.data = self.serialize_field("the data", &data);
        self
    }

    /// Sets the confidence in the result, from 0 to 1. It is rounded to percent.
    pub fn confidence(mut self, confidence: f64) -> Self {
        match (0.0..=1.0).contains(&confidence) {
            true => self.output.confidence = Some((confidence * 100.0).round() as u8),
            false => {
                let message = format!("the confidence is {confidence}, but must be from 0 to 1");
                self.error.get_or_insert(message);
            }
        }
        self
    }

    /// Adds an artifact, such as a reference to a file that the handler wrote.
    pub fn artifact(mut self, artifact: impl Serialize) -> Self {
        let artifact = self.serialize_field("an artifact", &artifact);
        self.output.artifacts.extend(artifact);
        self
    }

    /// Serializes a part of the response. `None` means that an error was recorded.
    fn serialize_field(&mut self, part_name: &str, value: &impl Serialize) -> Option<RawJson> {
        match serde_json::to_string(value).and_then(RawJson::parse) {
            Ok(json) => Some(json),
            Err(error) => {
                self.error.get_or_insert(format!("{part_name} can't be stored: {error}"));
                None
            }
        }
    }

    /// Returns the output of the run, or the first error of a builder method.
    fn run_output(&self) -> Result<RunOutput, HandlerError> {
        match &self.error {
            Some(reason) => {
                Err(HandlerError::permanent(format!("the response is invalid: {reason}")))
            }
            None => Ok(self.output.clone()),
        }
    }
}

impl Serialize for Response {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.output.serialize(serializer)
    }
}
