//! Handlers: Rust functions that are registered as agents. A run of a handler is journaled like any
//! other run: an internal model calls the function once as a tool, and ends the run with the
//! function's result.
//!
//! Invariant: a call whose result is in the journal is not repeated. A call that a crash
//! interrupted is repeated with the same idempotency key.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use longhaul_core::event::Event;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::id::{AgentName, CallId, IdError, RunId, Seq, ToolName};
use longhaul_core::message::{Block, Part, Reply, StopReason, ToolCall};
use longhaul_core::policy::budget::BudgetRaise;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::model::{CostEstimate, DeltaSink, Model, ModelRequest, ModelResponse};
use longhaul_core::port::records::RecordStore;
use longhaul_core::port::store::{JournalReadRequest, Store, StoreError};
use longhaul_core::port::tool::{Progress, Tool, ToolContext, ToolFailure, ToolSpec};
use longhaul_core::raw::RawJson;
use longhaul_core::time::Millis;
use longhaul_core::usage::{BudgetAmount, MicroUsd, ModelPricing, Price, Usage};
use longhaul_engine::agent::{Agent as AgentDefinition, BudgetPatch};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Maximum duration of one call of a handler.
const CALL_TIMEOUT: Millis = Millis::from_secs(24 * 60 * 60);

/// Maximum active time of a handler's run: enough for every call that a crash may repeat, plus a
/// margin.
const ACTIVE_MAX: Millis = Millis::from_secs(10 * 24 * 60 * 60);

/// Maximum number of turns of a handler's run. Two turns are needed; crashes and messages may add
/// more.
const TURNS_MAX: u32 = 1_000;

/// Name of the tool that ends a run with a result.
const FINISH_TOOL: &str = "finish";

/// Maximum size of a handler's result as JSON in bytes. It follows from the size limit of a call of
/// `finish`.
const RESULT_BYTES_MAX: usize = 4 * 1024 * 1024 - RESULT_FIELD.len() - 1;

/// Start of the JSON input of `finish`. The handler's result follows.
const RESULT_FIELD: &str = "{\"output\":";

/// Number of journal entries that are read at once.
const PAGE_SIZE: usize = 500;

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
pub struct HandlerRequest {
    /// Id of the run that calls the handler.
    pub run: RunId,
    /// Input of the task, as JSON.
    pub input: RawJson,
    /// Number of this call of the function in the run, starting at 1. Greater than 1 if a crash
    /// interrupted earlier calls.
    pub attempt: u32,
    /// Idempotency key: unique per run, and the same at every attempt. An external system can use
    /// it to recognize a repeated request.
    pub key: String,
}

impl HandlerRequest {
    /// Deserializes the input of the task.
    ///
    /// # Errors
    /// The input does not have this type, or is nested too deeply.
    pub fn input<T: DeserializeOwned>(&self) -> Result<T, HandlerError> {
        serde_json::from_str(self.input.as_str()).map_err(|why| {
            HandlerError::new(format!("the input does not have the expected type: {why}"))
        })
    }
}

/// Reason why a handler failed. The run fails with this message. Converts from every
/// `std::error::Error`, so `?` works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandlerError(String);

impl HandlerError {
    /// Creates a handler error with this message.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// `HandlerError` does not implement `std::error::Error`: that would conflict with `impl From<T> for
// T`.
impl<E: std::error::Error> From<E> for HandlerError {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

type HandlerFn = dyn Fn(HandlerRequest, Arc<dyn Progress>) -> BoxFuture<'static, Result<String, HandlerError>>
    + Send
    + Sync;

/// A Rust function that is registered as an agent.
pub(crate) struct Handler {
    pub(crate) name: String,
    function: Arc<HandlerFn>,
}

impl fmt::Debug for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Handler").field(&self.name).finish()
    }
}

/// The agent, tool and model that a handler is converted to.
#[derive(Debug)]
pub(crate) struct HandlerParts {
    pub(crate) agent: AgentDefinition,
    pub(crate) tool: Arc<dyn Tool>,
    pub(crate) model_name: String,
    pub(crate) model: Arc<dyn Model>,
}

impl Handler {
    pub(crate) fn new<F, R, T>(name: String, function: F) -> Self
    where
        F: Fn(HandlerRequest, Arc<dyn Progress>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<T, HandlerError>> + Send + 'static,
        T: Serialize,
    {
        let function = move |request, progress| -> BoxFuture<'static, _> {
            let called = function(request, progress);
            Box::pin(async move { Ok(serde_json::to_string(&called.await?)?) })
        };
        Self { name, function: Arc::new(function) }
    }

    /// Creates the agent, the tool and the model of the handler. `store` contains the journals.
    pub(crate) fn into_parts(
        self,
        store: Arc<dyn Store>,
        records: Arc<dyn RecordStore>,
    ) -> Result<HandlerParts, IdError> {
        let tool = ToolName::new(format!("handler:{}", self.name))?;
        let model_name = format!("handler/{}", self.name);
        let agent = AgentDefinition {
            description: "A function of the program that this runtime is part of.".to_owned(),
            models: vec![model_name.clone()],
            fixed_model: true,
            tools: vec![tool.to_string(), FINISH_TOOL.to_owned()],
            // Only the timeout of the call limits a run: with the agents' default budget a long
            // call would end before its result becomes the run's output.
            budget: BudgetPatch {
                caps: BudgetRaise {
                    turns: Some(TURNS_MAX),
                    active: Some(ACTIVE_MAX),
                    ..BudgetRaise::default()
                },
                warn_percent: None,
            },
            ..AgentDefinition::new(AgentName::new(self.name)?)
        };
        let model = HandlerModel {
            name: model_name.clone(),
            tool: tool.wire_name().into_owned(),
            store: Arc::clone(&store),
            records,
        };
        let spec = ToolSpec {
            name: tool,
            description: agent.description.clone(),
            schema: json!({ "type": "object", "additionalProperties": false }),
            can_verify: false,
            in_doubt: None,
            timeout: Some(CALL_TIMEOUT),
        };
        Ok(HandlerParts {
            tool: Arc::new(HandlerTool {
                spec,
                function: self.function,
                agent: agent.name.clone(),
                store,
            }),
            agent,
            model_name,
            model: Arc::new(model),
        })
    }
}

/// Tool that calls the handler's function.
struct HandlerTool {
    spec: ToolSpec,
    function: Arc<HandlerFn>,
    agent: AgentName,
    store: Arc<dyn Store>,
}

impl fmt::Debug for HandlerTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HandlerTool").field(&self.spec.name).finish()
    }
}

impl HandlerTool {
    /// Returns the input of the run's task. Fails if the run does not belong to this handler.
    async fn task_input(&self, run: RunId) -> Result<RawJson, ToolFailure> {
        let request = JournalReadRequest { run, after: Seq::START, limit: 1 };
        let read = self.store.read_journal(request).await;
        let page = read.map_err(|error| ToolFailure::new(error.to_string()))?;
        match page.entries.into_iter().next().map(|first| first.event) {
            // If the task named another model, that model would make this call.
            Some(Event::RunCreated(created))
                if created.task.agent == self.agent && created.task.model.is_none() =>
            {
                Ok(created.task.input)
            }
            Some(_) | None => Err(ToolFailure::new(format!(
                "this function belongs to the agent `{}`: no other agent can call it",
                self.agent
            ))),
        }
    }
}

#[async_trait]
impl Tool for HandlerTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// The class is `Keyed`, so a call is repeated after a crash: the idempotency key makes that
    /// safe.
    fn class(&self, _input: &Value) -> EffectClass {
        EffectClass::Keyed
    }

    async fn call(&self, _input: Value, ctx: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        let request = HandlerRequest {
            run: ctx.run,
            input: self.task_input(ctx.run).await?,
            attempt: ctx.attempt,
            key: ctx.run.to_string(),
        };
        let called = (self.function)(request, Arc::clone(&ctx.progress)).await;
        let result = called.map_err(|error| ToolFailure::new(error.0))?;
        if result.len() > RESULT_BYTES_MAX {
            return Err(ToolFailure::new(format!(
                "the result has {} bytes as JSON, but the maximum is {RESULT_BYTES_MAX}: write it \
                 to a file, and return the file's name",
                result.len()
            )));
        }
        // Checked in the form that `finish` receives: a result that can't be parsed then must fail
        // now.
        serde_json::from_str::<Value>(&format!("{RESULT_FIELD}{result}}}"))
            .map_err(|why| ToolFailure::new(format!("the result can't be stored: {why}")))?;
        Ok(ToolOutput::text(result))
    }
}

/// Model of a handler, without a provider: it calls the function as a tool, and ends the run with
/// the function's result.
#[derive(Debug)]
struct HandlerModel {
    name: String,
    /// Name of the handler's tool, in the format that models receive.
    tool: String,
    store: Arc<dyn Store>,
    records: Arc<dyn RecordStore>,
}

/// The calls of the handler's function that the journal of a run contains.
#[derive(Debug, Default)]
struct JournaledCalls {
    started: BTreeSet<CallId>,
    result: Option<ToolOutput>,
    failure: Option<ToolOutput>,
}

impl JournaledCalls {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "only the start and the end of calls matter"
    )]
    fn apply_event(&mut self, event: Event) {
        match event {
            Event::ToolStarted(started) => _ = self.started.insert(started.call),
            // Only the first result: `finish` completes as a call too.
            Event::ToolCompleted(ended) => _ = self.result.get_or_insert(ended.output),
            // A call that a message interrupted or prevented is made again: a function can't read
            // messages.
            Event::ToolFailed(ended) if self.started.contains(&ended.call) => {
                self.failure = Some(ended.output);
            }
            _ => {}
        }
    }
}

impl HandlerModel {
    async fn next_call(&self, request: &ModelRequest) -> Result<ToolCall, Failure> {
        let journaled = self.read_journaled_calls(request.run).await.map_err(store_failure)?;
        if let Some(output) = journaled.result {
            let result = self.full_output_text(output).await.map_err(store_failure)?;
            let input = RawJson::parse(format!("{RESULT_FIELD}{result}}}"));
            let input = input.map_err(|why| {
                permanent_failure(format!("the handler's result can't be read: {why}"))
            })?;
            return Ok(tool_call(FINISH_TOOL, input));
        }
        match journaled.failure {
            Some(output) => Err(permanent_failure(join_text_parts(&output.content))),
            None => Ok(tool_call(&self.tool, RawJson::from_serialize(&json!({})))),
        }
    }

    async fn read_journaled_calls(&self, run: RunId) -> Result<JournaledCalls, StoreError> {
        let mut found = JournaledCalls::default();
        let mut after = Seq::START;
        loop {
            let limit = PAGE_SIZE;
            let page = self.store.read_journal(JournalReadRequest { run, after, limit }).await?;
            let Some(last) = page.entries.last() else {
                return Ok(found);
            };
            after = last.seq;
            for entry in page.entries {
                found.apply_event(entry.event);
            }
        }
    }

    /// Returns the full text of a tool output. If the output was truncated, the full text is read
    /// from a blob in the store.
    async fn full_output_text(&self, output: ToolOutput) -> Result<String, StoreError> {
        let stored = match output.full {
            Some(full) => self.records.blob(full.hash).await?,
            None => None,
        };
        Ok(match stored {
            Some(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            None => join_text_parts(&output.content),
        })
    }
}

#[async_trait]
impl Model for HandlerModel {
    fn estimate(&self, _request: &ModelRequest) -> CostEstimate {
        CostEstimate {
            hold: BudgetAmount::default(),
            pricing: ModelPricing {
                price: Some(Price::default()),
                // The conversation is not sent anywhere, so it is never too long.
                window_tokens: u64::from(u32::MAX),
                ..ModelPricing::default()
            },
        }
    }

    async fn generate(
        &self,
        request: &ModelRequest,
        _sink: &dyn DeltaSink,
    ) -> Result<ModelResponse, Failure> {
        let call = self.next_call(request).await?;
        Ok(ModelResponse {
            reply: Arc::new(Reply {
                api: "handler".to_owned(),
                blocks: vec![Block::ToolCall(call)],
            }),
            stop: StopReason::ToolUse,
            usage: Usage::default(),
            cost: Some(MicroUsd::default()),
            model: self.name.clone(),
        })
    }
}

fn tool_call(name: &str, input: RawJson) -> ToolCall {
    ToolCall { id: String::new(), name: name.to_owned(), input, extra: None }
}

fn join_text_parts(content: &[Part]) -> String {
    let texts = content.iter().filter_map(|part| match part {
        Part::Text(text) => Some(&**text),
        Part::Image(_) => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// Creates a failure that is not retried, since a retry would fail again.
fn permanent_failure(message: String) -> Failure {
    Failure::new(FailureClass::InvalidRequest, message)
}

fn store_failure(error: StoreError) -> Failure {
    Failure::new(FailureClass::Server, error.to_string())
}

#[cfg(test)]
mod tests {
    use longhaul_core::event::tool::{ToolEnded, ToolStarted};

    use super::*;

    #[test]
    fn a_failure_of_a_call_that_never_started_is_ignored() {
        let call = |index| CallId { turn: 1, index };
        let failed = |index| {
            Event::ToolFailed(ToolEnded {
                call: call(index),
                output: ToolOutput::text("interrupted by a message"),
                active: Millis::ZERO,
            })
        };
        let mut journaled = JournaledCalls::default();
        // A message arrived before the call started.
        journaled.apply_event(failed(1));
        assert!(journaled.failure.is_none());
        journaled.apply_event(Event::ToolStarted(ToolStarted {
            call: call(2),
            attempt: 1,
            until: None,
        }));
        journaled.apply_event(failed(2));
        assert!(journaled.failure.is_some());
    }
}
