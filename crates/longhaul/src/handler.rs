//! A plain Rust function as an agent. A run of it is journaled like any other: a model that
//! asks nobody calls the function as a tool, once, and ends the run with its result.
//!
//! Never: a second result. A call that has a result in the journal is not made again; one that
//! was cut off by a crash is, under the same key.

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
use longhaul_core::port::store::{ReadRequest, Store, StoreError};
use longhaul_core::port::tool::{Progress, Tool, ToolContext, ToolFailure, ToolSpec};
use longhaul_core::raw::RawJson;
use longhaul_core::time::Millis;
use longhaul_core::usage::{Hold, MicroUsd, ModelPricing, Price, Usage};
use longhaul_engine::agent::{Agent as AgentDefinition, BudgetPatch};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// How long one call of a handler may take.
const CALL_TIMEOUT: Millis = Millis::from_secs(24 * 60 * 60);

/// Maximum active time of a run: every call that a crash may repeat, and time to spare.
const ACTIVE_MAX: Millis = Millis::from_secs(10 * 24 * 60 * 60);

/// Maximum number of turns of a run. Two are needed; a crash or a message may add some.
const TURNS_MAX: u32 = 1_000;

/// The control tool that ends a run.
const FINISH_TOOL: &str = "finish";

/// Maximum number of bytes of a result as JSON: what a call of `finish` may hold.
const RESULT_BYTES_MAX: usize = 4 * 1024 * 1024 - RESULT_FIELD.len() - 1;

/// How the input of `finish` begins, before the result.
const RESULT_FIELD: &str = "{\"output\":";

/// Number of journal entries that are read at once.
const PAGE_SIZE: usize = 500;

/// What a handler is called with.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use longhaul::tools::Progress;
/// use longhaul::{HandlerError, HandlerRequest, Runtime};
///
/// /// Sends a letter; the post office knows by the key which one it has already.
/// async fn send(request: HandlerRequest, _: Arc<dyn Progress>) -> Result<String, HandlerError> {
///     let address: String = request.input()?;
///     Ok(format!("letter {} to {address}, try {}", request.key, request.attempt))
/// }
///
/// let builder = Runtime::builder().store("sqlite:agents.db").handler("send", send);
/// ```
#[derive(Debug, Clone)]
pub struct HandlerRequest {
    /// The run.
    pub run: RunId,
    /// The task's input.
    pub input: RawJson,
    /// Which call this is, from 1. It is more than 1 after a crash in the middle of a call.
    pub attempt: u32,
    /// The same at every attempt, and another in every run: with it an effect is made once,
    /// however often the handler is called.
    pub key: String,
}

impl HandlerRequest {
    /// The task's input as a type.
    ///
    /// # Errors
    /// The input is not of this type, or nested too deep to be read.
    pub fn input<T: DeserializeOwned>(&self) -> Result<T, HandlerError> {
        serde_json::from_str(self.input.as_str())
            .map_err(|why| HandlerError::new(format!("the input is not what was expected: {why}")))
    }
}

/// Why a handler failed: the words that the run fails with. Every `std::error::Error` becomes
/// one by `?`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandlerError(String);

impl HandlerError {
    /// A failure in these words.
    pub fn new(words: impl Into<String>) -> Self {
        Self(words.into())
    }
}

impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// `HandlerError` is no `std::error::Error` itself: else this would be a second `From<Self>`.
impl<E: std::error::Error> From<E> for HandlerError {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

type HandlerFn = dyn Fn(HandlerRequest, Arc<dyn Progress>) -> BoxFuture<'static, Result<String, HandlerError>>
    + Send
    + Sync;

/// A function under the name of an agent.
pub(crate) struct Handler {
    pub(crate) name: String,
    function: Arc<HandlerFn>,
}

impl fmt::Debug for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Handler").field(&self.name).finish()
    }
}

/// The parts that a handler is made of.
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

    /// The agent, its tool and its model, over the store that has the journals.
    pub(crate) fn into_parts(
        self,
        store: Arc<dyn Store>,
        shelves: Arc<dyn RecordStore>,
    ) -> Result<HandlerParts, IdError> {
        let tool = ToolName::new(format!("handler:{}", self.name))?;
        let model_name = format!("handler/{}", self.name);
        let agent = AgentDefinition {
            description: "A function of the program that this runtime is part of.".to_owned(),
            models: vec![model_name.clone()],
            fixed_model: true,
            tools: vec![tool.to_string(), FINISH_TOOL.to_owned()],
            // The time limit of the call is the only one: with the agents' usual budget a long
            // call would end before its result is the run's output.
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
            records: shelves,
        };
        let card = ToolSpec {
            name: tool,
            description: agent.description.clone(),
            schema: json!({ "type": "object", "additionalProperties": false }),
            can_verify: false,
            in_doubt: None,
            timeout: Some(CALL_TIMEOUT),
        };
        Ok(HandlerParts {
            tool: Arc::new(HandlerTool {
                spec: card,
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

/// The function behind the port of tools.
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
    /// The input of the run's task, if the run is one of this handler.
    async fn input(&self, run: RunId) -> Result<RawJson, ToolFailure> {
        let ask = ReadRequest { run, after: Seq::START, limit: 1 };
        let read = self.store.read(ask).await;
        let page = read.map_err(|error| ToolFailure::new(error.to_string()))?;
        match page.entries.into_iter().next().map(|first| first.event) {
            // With a model of the task's own it would be that model that calls.
            Some(Event::RunCreated(created))
                if created.task.agent == self.agent && created.task.model.is_none() =>
            {
                Ok(created.task.input)
            }
            Some(_) | None => Err(ToolFailure::new(format!(
                "this is the function of the agent `{}`: no other agent can call it",
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

    /// Called again after a crash: the function has the key to make that harmless.
    fn class(&self, _input: &Value) -> EffectClass {
        EffectClass::Keyed
    }

    async fn call(&self, _input: Value, ctx: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        let request = HandlerRequest {
            run: ctx.run,
            input: self.input(ctx.run).await?,
            attempt: ctx.attempt,
            key: ctx.run.to_string(),
        };
        let called = (self.function)(request, Arc::clone(&ctx.progress)).await;
        let result = called.map_err(|error| ToolFailure::new(error.0))?;
        if result.len() > RESULT_BYTES_MAX {
            return Err(ToolFailure::new(format!(
                "the result has {} bytes as JSON, and at most {RESULT_BYTES_MAX} are kept: write it \
                 to a file, and return the file's name",
                result.len()
            )));
        }
        // As the run will be ended with it: what can't be read then can't be kept now.
        serde_json::from_str::<Value>(&format!("{RESULT_FIELD}{result}}}"))
            .map_err(|why| ToolFailure::new(format!("the result can't be kept: {why}")))?;
        Ok(ToolOutput::text(result))
    }
}

/// A model that asks nobody: it calls the function, and ends the run with its result.
#[derive(Debug)]
struct HandlerModel {
    name: String,
    /// The tool's name as models are told it.
    tool: String,
    store: Arc<dyn Store>,
    records: Arc<dyn RecordStore>,
}

/// What a journal says of the function's calls.
#[derive(Debug, Default)]
struct JournaledCall {
    started: BTreeSet<CallId>,
    result: Option<ToolOutput>,
    failure: Option<ToolOutput>,
}

impl JournaledCall {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "only the start and the end of calls are looked for"
    )]
    fn apply(&mut self, event: Event) {
        match event {
            Event::ToolStarted(started) => _ = self.started.insert(started.call),
            // The first one: `finish` is a call too.
            Event::ToolCompleted(ended) => _ = self.result.get_or_insert(ended.output),
            // A call that a message cut off or kept from its start is made again: a function
            // can't read messages.
            Event::ToolFailed(ended) if self.started.contains(&ended.call) => {
                self.failure = Some(ended.output);
            }
            _ => {}
        }
    }
}

impl HandlerModel {
    async fn next_call(&self, ask: &ModelRequest) -> Result<ToolCall, Failure> {
        let journaled = self.read_journaled_call(ask.run).await.map_err(store_failure)?;
        if let Some(output) = journaled.result {
            let result = self.full_text(output).await.map_err(store_failure)?;
            let input = RawJson::parse(format!("{RESULT_FIELD}{result}}}"));
            let input = input.map_err(|why| {
                permanent_failure(format!("the handler's result can't be read: {why}"))
            })?;
            return Ok(tool_call(FINISH_TOOL, input));
        }
        match journaled.failure {
            Some(output) => Err(permanent_failure(join_text(&output.content))),
            None => Ok(tool_call(&self.tool, RawJson::from_serialize(&json!({})))),
        }
    }

    async fn read_journaled_call(&self, run: RunId) -> Result<JournaledCall, StoreError> {
        let mut found = JournaledCall::default();
        let mut after = Seq::START;
        loop {
            let limit = PAGE_SIZE;
            let page = self.store.read(ReadRequest { run, after, limit }).await?;
            let Some(last) = page.entries.last() else {
                return Ok(found);
            };
            after = last.seq;
            for entry in page.entries {
                found.apply(entry.event);
            }
        }
    }

    /// A result as it was returned: a long one is shown in part, and kept whole.
    async fn full_text(&self, output: ToolOutput) -> Result<String, StoreError> {
        let kept = match output.full {
            Some(full) => self.records.blob(full.hash).await?,
            None => None,
        };
        Ok(match kept {
            Some(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            None => join_text(&output.content),
        })
    }
}

#[async_trait]
impl Model for HandlerModel {
    fn estimate(&self, _ask: &ModelRequest) -> CostEstimate {
        CostEstimate {
            hold: Hold::default(),
            pricing: ModelPricing {
                price: Some(Price::default()),
                // Nobody reads the conversation, so it is never too long.
                window_tokens: u64::from(u32::MAX),
                ..ModelPricing::default()
            },
        }
    }

    async fn generate(
        &self,
        ask: &ModelRequest,
        _ear: &dyn DeltaSink,
    ) -> Result<ModelResponse, Failure> {
        let call = self.next_call(ask).await?;
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

fn join_text(content: &[Part]) -> String {
    let texts = content.iter().filter_map(|part| match part {
        Part::Text(text) => Some(&**text),
        Part::Image(_) => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// The run fails with these words: to ask again would end no better.
fn permanent_failure(words: String) -> Failure {
    Failure::new(FailureClass::InvalidRequest, words)
}

fn store_failure(error: StoreError) -> Failure {
    Failure::new(FailureClass::Server, error.to_string())
}

#[cfg(test)]
mod tests {
    use longhaul_core::event::tool::{ToolEnded, ToolStarted};

    use super::*;

    #[test]
    fn a_failed_call_counts_only_if_it_was_started() {
        let call = |index| CallId { turn: 1, index };
        let failed = |index| {
            Event::ToolFailed(ToolEnded {
                call: call(index),
                output: ToolOutput::text("a person wrote"),
                active: Millis::ZERO,
            })
        };
        let mut journaled = JournaledCall::default();
        // A message to the run came before the call began.
        journaled.apply(failed(1));
        assert!(journaled.failure.is_none());
        journaled.apply(Event::ToolStarted(ToolStarted { call: call(2), attempt: 1, until: None }));
        journaled.apply(failed(2));
        assert!(journaled.failure.is_some());
    }
}
