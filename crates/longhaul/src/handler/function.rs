//! A Rust function as an agent, with its settings.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use longhaul_core::port::tool::Progress;
use longhaul_engine::agent::RetryPatch;
use serde::Serialize;

use crate::handler::journaled_calls::{
    EncodedHandlerResult, encode_handler_value, encode_run_output,
};
use crate::handler::request::{HandlerError, HandlerRequest};
use crate::handler::response::Response;

pub(crate) type HandlerFn = dyn Fn(
        HandlerRequest,
        Arc<dyn Progress>,
    ) -> BoxFuture<'static, Result<EncodedHandlerResult, HandlerError>>
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
                match (&value as &dyn Any).downcast_ref::<Response>() {
                    Some(response) => encode_run_output(response.run_output()?),
                    None => encode_handler_value(&value),
                }
            })
        };
        Self {
            name: name.into(),
            function: Arc::new(function),
            once: false,
            retry: RetryPatch::default(),
        }
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
