//! The tool that calls a handler's function.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::id::AgentName;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::store::Store;
use longhaul_core::port::tool::{Tool, ToolContext, ToolFailure, ToolSpec};
use longhaul_engine::panics::panic_message;
use serde_json::Value;

use crate::handler::function::HandlerFn;
use crate::handler::journaled_calls::JournaledHandlerCalls;
use crate::handler::request::HandlerRequest;
use crate::handler::threads::{HandlerCallError, HandlerThreadRunner};

/// Tool that calls the handler's function.
pub(crate) struct HandlerTool {
    pub(crate) spec: ToolSpec,
    pub(crate) class: EffectClass,
    pub(crate) function: Arc<HandlerFn>,
    pub(crate) agent: AgentName,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) threads: HandlerThreadRunner,
}

impl fmt::Debug for HandlerTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HandlerTool").field(&self.spec.name).finish()
    }
}

impl HandlerTool {
    /// Builds the argument of the handler's function from the task of the run. Fails if the task is
    /// not one for this handler.
    async fn build_handler_request(
        &self,
        ctx: &ToolContext,
    ) -> Result<HandlerRequest, ToolFailure> {
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
        let request = self.build_handler_request(ctx).await?;
        let (function, progress) = (Arc::clone(&self.function), Arc::clone(&ctx.progress));
        let call = async move { function(request, progress).await };
        match self.threads.run_handler_call(self.agent.as_str(), ctx.run, call).await {
            Ok(Ok(result)) => Ok(ToolOutput::text(result.0)),
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
