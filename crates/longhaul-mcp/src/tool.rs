//! A server's tool as a Longhaul [`Tool`].
//!
//! Invariant: a call that must not be repeated is sent at most once. A failure is reported as
//! "outcome unknown" unless the call is known to have had no effect.

use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::{Tool, ToolContext, ToolFailure, ToolSpec};
use longhaul_core::time::Millis;
use serde_json::Value;
use tokio::time::timeout;

use crate::connection::{Connection, ServerRequestError};
use crate::listing::ListedTool;
use crate::output;
use crate::output_check::{is_validation_expensive, output_schema_violation};
use crate::reconnect::ReconnectingServer;
use crate::spec::{ServerTransport, tool_name};

/// A server's tool as a Longhaul [`Tool`].
#[derive(Debug)]
pub(super) struct McpTool {
    listed: ListedTool,
    /// Name of the tool at the server, without the `mcp:SERVER/` prefix.
    name: String,
    server: Arc<ReconnectingServer>,
}

impl McpTool {
    pub(super) fn new(listed: ListedTool, server: Arc<ReconnectingServer>) -> Self {
        let lead = tool_name(&server.spec().name, "");
        let name = listed.spec.name.as_str();
        let name = name.strip_prefix(&lead).unwrap_or(name).to_owned();
        Self { listed, name, server }
    }

    /// Returns the connection to the server. The timeout is shorter than that of the call: nothing
    /// was sent yet, so a failure here is known to have had no effect.
    async fn connect(&self) -> Result<Arc<Connection>, ToolFailure> {
        let spec = self.server.spec();
        let patience = spec.setup_timeout();
        match timeout(patience, self.server.get_or_open_connection()).await {
            Ok(connection) => connection.map_err(|error| ToolFailure::new(error.to_string())),
            Err(_) => {
                let (server, secs) = (&spec.name, patience.as_secs_f32());
                Err(ToolFailure::new(format!(
                    "the server `{server}` was not ready within {secs} s; the call was not sent"
                )))
            }
        }
    }

    /// Converts the response of a call and checks it against the output schema. For an invalid
    /// response, the failure includes the response, because the model may still be able to use it.
    async fn parse_and_validate_output(
        &self,
        answer: &Value,
        ctx: &ToolContext,
    ) -> Result<ToolOutput, ToolFailure> {
        let read = output::parse_tool_output(answer, &ctx.images);
        let output_schema = self.listed.output_schema.as_ref();
        let why = if is_validation_expensive(answer, output_schema) {
            let (answer, output_schema) = (answer.clone(), output_schema.cloned());
            let check = move || output_schema_violation(&answer, output_schema.as_ref());
            let checked = tokio::task::spawn_blocking(check).await;
            checked.map_err(|_| ToolFailure::new("the check of the response panicked"))?
        } else {
            output_schema_violation(answer, output_schema)
        };
        let Some(why) = why else {
            return read;
        };
        let server = &self.server.spec().name;
        let response = output::truncated_json(answer);
        Err(ToolFailure::new(format!(
            "the server `{server}` was called and has answered, but {why}. Response: {response}"
        )))
    }

    /// Converts the error of a call into a failure for the model.
    fn to_tool_failure(&self, error: ServerRequestError) -> ToolFailure {
        let server = &self.server.spec().name;
        match error {
            ServerRequestError::Rejected(message)
            | ServerRequestError::LoginRequired { reason: message, .. } => {
                ToolFailure::new(format!("the server `{server}` rejected the call: {message}"))
            }
            ServerRequestError::Disconnected { reason: why, may_have_been_sent: sent, .. } => {
                let message = format!("the server `{server}` disconnected: {why}");
                match sent && !self.listed.class.may_repeat() {
                    true => ToolFailure::outcome_unknown(message),
                    false => ToolFailure::new(message),
                }
            }
        }
    }
}

/// Tells the connection at the end of a call whether the server answered or the call timed out.
struct CallOutcomeRecorder<'a> {
    server: &'a ReconnectingServer,
    connection: &'a Connection,
    /// Start time of the call on the monotonic clock.
    started: Millis,
    is_answered: bool,
}

impl<'a> CallOutcomeRecorder<'a> {
    fn new(server: &'a ReconnectingServer, connection: &'a Connection) -> Self {
        Self { server, connection, started: server.monotonic_now(), is_answered: false }
    }
}

impl Drop for CallOutcomeRecorder<'_> {
    fn drop(&mut self) {
        let took = self.server.monotonic_now().minus(self.started);
        // The caller's timeout started slightly earlier than this watch.
        let max_duration = Millis(self.server.spec().timeout.0 / 10 * 9);
        if self.is_answered {
            self.connection.record_answered_call();
        } else if took >= max_duration {
            self.connection.record_timed_out_call();
        }
    }
}

/// There is no `predict_effects`: we can't know what a server would change. Its hints, such as
/// `readOnlyHint`, are its own words, and facts are what we have computed.
#[async_trait]
impl Tool for McpTool {
    fn spec(&self) -> &ToolSpec {
        &self.listed.spec
    }

    fn class(&self, _: &Value) -> EffectClass {
        self.listed.class
    }

    /// Returns `true` for a stdio server: a busy one does not notice that its worker is gone.
    fn may_outlive_worker(&self) -> bool {
        matches!(self.server.spec().transport, ServerTransport::Stdio { .. })
    }

    async fn call(&self, input: Value, ctx: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        let input = match input {
            Value::Object(fields) => fields,
            Value::Null => serde_json::Map::new(),
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                let name = &self.listed.spec.name;
                return Err(ToolFailure::new(format!(
                    "{name} takes a JSON object. Call it again with one."
                )));
            }
        };
        let mut again = self.listed.class.may_repeat();
        loop {
            let connection = self.connect().await?;
            let mut watch = CallOutcomeRecorder::new(&self.server, &connection);
            let called = connection.call_tool(&self.name, input.clone(), &ctx.progress).await;
            watch.is_answered = true;
            match called {
                Ok(answer) => return self.parse_and_validate_output(&answer, ctx).await,
                Err(ServerRequestError::Disconnected { can_retry: true, .. }) if again => {
                    again = false
                }
                Err(error) => return Err(self.to_tool_failure(error)),
            }
        }
    }
}
