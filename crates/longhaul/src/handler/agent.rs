//! The agent, the tool and the model that a handler is converted to. The model calls no provider:
//! it calls the handler's function as a tool, and ends the run with the function's result.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::id::{AgentName, IdError, ToolName};
use longhaul_core::message::{Block, HANDLER_API, Part, Reply, StopReason, TextBlock, ToolCall};
use longhaul_core::policy::budget::BudgetRaise;
use longhaul_core::policy::effect::{EffectClass, InDoubtPolicy};
use longhaul_core::port::model::{CostEstimate, DeltaSink, Model, ModelRequest, ModelResponse};
use longhaul_core::port::records::RecordStore;
use longhaul_core::port::store::{Store, StoreError};
use longhaul_core::port::tool::{Tool, ToolContext, ToolFailure, ToolSpec};
use longhaul_core::raw::RawJson;
use longhaul_core::status::RunOutput;
use longhaul_core::time::Millis;
use longhaul_core::usage::{BudgetAmount, MicroUsd, ModelPricing, Price, Usage};
use longhaul_engine::agent::{Agent as AgentDefinition, BudgetPatch};
use longhaul_engine::panics::panic_message;
use longhaul_engine::services::StorePorts;
use serde_json::{Value, json};

use crate::handler::function::{Handler, HandlerFn};
use crate::handler::journaled_calls::{HandlerResult, JournaledHandlerCalls};
use crate::handler::request::HandlerRequest;
use crate::handler::threads::{HandlerCallError, HandlerThreadRunner};

/// Name of the tool that ends a run with a result.
const FINISH_TOOL: &str = "finish";

/// Maximum duration of one call of a handler, unless its hard timeout is longer.
const CALL_TIMEOUT: Millis = Millis::from_secs(24 * 60 * 60);

/// Maximum active time (time in model and tool calls, without waits) of a handler's run: enough for
/// every call that a crash may repeat, plus a margin.
const ACTIVE_MAX: Millis = Millis::from_secs(10 * 24 * 60 * 60);

/// Maximum number of turns of a handler's run. Two turns are needed; crashes, retries and messages
/// may add more.
const TURNS_MAX: u32 = 1_000;

/// Converts a handler to an agent, a tool and a model. `ports` have the journals of runs, and the
/// full texts of truncated results.
pub(crate) fn handler_to_agent_parts(
    handler: Handler,
    ports: &StorePorts,
    threads: &HandlerThreadRunner,
) -> Result<(AgentDefinition, HandlerTool, HandlerModel), IdError> {
    let tool = ToolName::new(format!("handler:{}", handler.name))?;
    let model_name = format!("handler/{}", handler.name);
    let agent = AgentDefinition {
        description: "A function of the program that this runtime is part of.".to_owned(),
        models: vec![model_name.clone()],
        fixed_model: true,
        tools: vec![tool.to_string(), FINISH_TOOL.to_owned()],
        retry: handler.retry,
        // Only the timeouts of an attempt limit a run: with the agents' default budget a long call
        // would end before its result becomes the run's output.
        budget: BudgetPatch {
            caps: BudgetRaise {
                turns: Some(TURNS_MAX),
                active: Some(ACTIVE_MAX),
                ..BudgetRaise::default()
            },
            warn_percent: None,
        },
        ..AgentDefinition::new(AgentName::new(handler.name)?)
    };
    let model = HandlerModel {
        name: model_name,
        tool: tool.name_for_model_api().into_owned(),
        store: Arc::clone(&ports.store),
        records: Arc::clone(&ports.records),
    };
    // A call of the class `Keyed` is repeated after a crash: the idempotency key makes that safe.
    let (class, in_doubt) = match handler.once {
        true => (EffectClass::Once, Some(InDoubtPolicy::Fail)),
        false => (EffectClass::Keyed, None),
    };
    let spec = ToolSpec {
        name: tool,
        description: agent.description.clone(),
        schema: json!({ "type": "object", "additionalProperties": false }),
        can_verify: false,
        in_doubt,
        timeout: Some(CALL_TIMEOUT.max(agent.retry.hard_timeout.unwrap_or_default())),
    };
    let tool = HandlerTool {
        spec,
        class,
        function: handler.function,
        agent: agent.name.clone(),
        store: Arc::clone(&ports.store),
        threads: threads.clone(),
    };
    Ok((agent, tool, model))
}

/// Tool that calls the handler's function.
pub(crate) struct HandlerTool {
    spec: ToolSpec,
    class: EffectClass,
    function: Arc<HandlerFn>,
    agent: AgentName,
    store: Arc<dyn Store>,
    threads: HandlerThreadRunner,
}

impl fmt::Debug for HandlerTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HandlerTool").field(&self.spec.name).finish()
    }
}

impl HandlerTool {
    /// Builds the argument of the handler's function from the task of the run. Fails if the task is
    /// not one for this handler.
    async fn build_request(&self, ctx: &ToolContext) -> Result<HandlerRequest, ToolFailure> {
        let journaled = JournaledHandlerCalls::read_journal(&*self.store, ctx.run).await;
        let journaled = journaled.map_err(|error| ToolFailure::transient(error.to_string()))?;
        // If the task named another model, that model would make this call.
        let is_own =
            |agent: &AgentName, model: Option<&String>| *agent == self.agent && model.is_none();
        match journaled.task {
            Some(task) if is_own(&task.agent, task.model.as_ref()) => {
                let (first_run, earlier_attempts) = match task.retry_of {
                    Some(retried) => (retried.first_run_of_task(), retried.attempts),
                    None => (ctx.run, 0),
                };
                Ok(HandlerRequest {
                    run: ctx.run,
                    input: task.input,
                    attempt: earlier_attempts.saturating_add(journaled.starts.max(1)),
                    key: first_run.to_string(),
                    kind: task.kind,
                    actor: task.actor,
                    links: task.links,
                    metadata: task.metadata,
                    thread: task.thread,
                    resource: task.resource,
                })
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

    fn class(&self, _input: &Value) -> EffectClass {
        self.class
    }

    async fn call(&self, _input: Value, ctx: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        let request = self.build_request(ctx).await?;
        let (function, progress) = (Arc::clone(&self.function), Arc::clone(&ctx.progress));
        let call = async move { function(request, progress).await };
        match self.threads.run_handler_call(self.agent.as_str(), ctx.run, call).await {
            Ok(Ok(result)) => Ok(ToolOutput::text(result)),
            Ok(Err(error)) if error.is_transient() => {
                Err(ToolFailure::transient(error.into_message()))
            }
            Ok(Err(error)) => Err(ToolFailure::new(error.into_message())),
            Err(HandlerCallError::NotStarted(error)) => Err(ToolFailure::transient(format!(
                "the thread of the handler can't be started: {error}"
            ))),
            Err(HandlerCallError::Panicked(payload)) => Err(ToolFailure::new(format!(
                "the handler `{}` panicked: {}",
                self.agent,
                panic_message(&*payload)
            ))),
            Err(HandlerCallError::NoResult) => Err(ToolFailure::outcome_unknown(
                "the thread of the handler ended without a result",
            )),
        }
    }
}

/// Model of a handler. Instead of calling a provider, it requests a call of the handler's function,
/// and then ends the run with the function's result.
#[derive(Debug)]
pub(crate) struct HandlerModel {
    pub(crate) name: String,
    /// Name of the handler's tool, in the format that models receive.
    tool: String,
    store: Arc<dyn Store>,
    records: Arc<dyn RecordStore>,
}

impl HandlerModel {
    /// Returns the reply to a request, one content block: a call of the handler's tool, or the end
    /// of the run. The second value is the run's output if the handler returned a `Response`.
    async fn next_reply_block_and_run_output(
        &self,
        request: &ModelRequest,
    ) -> Result<(Block, Option<RunOutput>), Failure> {
        let journaled = JournaledHandlerCalls::read_journal(&*self.store, request.run).await;
        let journaled = journaled.map_err(store_error_to_failure)?;
        if let Some(output) = journaled.result {
            let result = self.full_output_text(output).await.map_err(store_error_to_failure)?;
            return reply_and_output(&result).map_err(|reason| {
                let message = format!("the handler's result can't be read: {reason}");
                Failure::new(FailureClass::HandlerFailed, message)
            });
        }
        match journaled.failure {
            Some(output) => {
                let class = match output.transient {
                    true => FailureClass::HandlerFailedTransiently,
                    false => FailureClass::HandlerFailed,
                };
                Err(Failure::new(class, join_text_parts(&output.content)))
            }
            None => Ok((new_tool_call(&self.tool, RawJson::from_serialize(&json!({}))), None)),
        }
    }

    /// Returns the full text of a tool output. If the output was truncated, the full text is read
    /// from a blob in the store.
    async fn full_output_text(&self, output: ToolOutput) -> Result<String, StoreError> {
        let blob = match output.full {
            Some(blob_ref) => self.records.blob(blob_ref.hash).await?,
            None => None,
        };
        Ok(match blob {
            Some(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            None => join_text_parts(&output.content),
        })
    }
}

/// Returns the content block that ends the run with a journaled result, and the run's output if the
/// result is a `Response`.
fn reply_and_output(result: &str) -> serde_json::Result<(Block, Option<RunOutput>)> {
    Ok(match serde_json::from_str(result)? {
        HandlerResult::Value(output) => {
            let finish_input = RawJson::parse(format!("{{\"output\":{}}}", output.as_str()))?;
            (new_tool_call(FINISH_TOOL, finish_input), None)
        }
        HandlerResult::Response(output) => {
            let block = TextBlock { text: output.text.as_str().into(), extra: None };
            (Block::Text(block), Some(*output))
        }
    })
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
        let (block, output) = self.next_reply_block_and_run_output(request).await?;
        let stop = match output {
            Some(_) => StopReason::EndTurn,
            None => StopReason::ToolUse,
        };
        Ok(ModelResponse {
            reply: Arc::new(Reply { api: HANDLER_API.to_owned(), blocks: vec![block] }),
            stop,
            usage: Usage::default(),
            cost: Some(MicroUsd::default()),
            model: self.name.clone(),
            output,
        })
    }
}

fn new_tool_call(tool_name: &str, input: RawJson) -> Block {
    Block::ToolCall(ToolCall { id: String::new(), name: tool_name.to_owned(), input, extra: None })
}

fn join_text_parts(content: &[Part]) -> String {
    let texts = content.iter().filter_map(|part| match part {
        Part::Text(text) => Some(&**text),
        Part::Image(_) => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

fn store_error_to_failure(error: StoreError) -> Failure {
    Failure::new(FailureClass::Server, error.to_string())
}
