//! A server's tool as one of ours.
//!
//! Never: calls twice what must not be repeated, or says that nothing happened
//! when nobody knows.

use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::{Tool, ToolContext, ToolFailure, ToolSpec};
use longhaul_core::time::Millis;
use serde_json::Value;
use tokio::time::timeout;

use crate::connection::{CallError, Connection};
use crate::listing::ListedTool;
use crate::output;
use crate::output_check::{is_expensive, output_error};
use crate::reconnect::ReconnectingServer;
use crate::spec::{ServerTransport, tool_name};

/// A server's tool.
#[derive(Debug)]
pub(super) struct McpTool {
    listed: ListedTool,
    /// As the server calls it.
    name: String,
    server: Arc<ReconnectingServer>,
}

impl McpTool {
    pub(super) fn new(offered: ListedTool, slot: Arc<ReconnectingServer>) -> Self {
        let lead = tool_name(&slot.spec().name, "");
        let name = offered.spec.name.as_str();
        let name = name.strip_prefix(&lead).unwrap_or(name).to_owned();
        Self { listed: offered, name, server: slot }
    }

    /// The connection. Nothing has been asked yet, so nothing has happened; and that is
    /// said before the time of the call is over, when nobody could know it any more.
    async fn connect(&self) -> Result<Arc<Connection>, ToolFailure> {
        let spec = self.server.spec();
        let patience = spec.setup_timeout();
        match timeout(patience, self.server.connection()).await {
            Ok(link) => link.map_err(|error| ToolFailure::new(error.to_string())),
            Err(_) => {
                let (server, secs) = (&spec.name, patience.as_secs_f32());
                Err(ToolFailure::new(format!(
                    "the server `{server}` was not ready in {secs} s; nothing was asked of it"
                )))
            }
        }
    }

    /// What came of a call. An answer without form is no result, and its words are
    /// told with what is wrong: the model can still make something of them.
    async fn check_output(
        &self,
        answer: &Value,
        around: &ToolContext,
    ) -> Result<ToolOutput, ToolFailure> {
        let read = output::parse(answer, &around.images);
        let promise = self.listed.output_schema.as_ref();
        let why = if is_expensive(answer, promise) {
            let (answer, promise) = (answer.clone(), promise.cloned());
            let check = move || output_error(&answer, promise.as_ref());
            let checked = tokio::task::spawn_blocking(check).await;
            checked.map_err(|_| ToolFailure::new("the check of the answer stopped"))?
        } else {
            output_error(answer, promise)
        };
        let Some(why) = why else {
            return read;
        };
        let server = &self.server.spec().name;
        let came = output::truncated_json(answer);
        Err(ToolFailure::new(format!(
            "the server `{server}` was called and has answered, but {why}. What came: {came}"
        )))
    }

    /// What a call that is lost says to the model.
    fn to_failure(&self, lost: CallError) -> ToolFailure {
        let server = &self.server.spec().name;
        match lost {
            CallError::Rejected(words) | CallError::LoginRequired { reason: words, .. } => {
                ToolFailure::new(format!("the server `{server}` refused: {words}"))
            }
            CallError::Disconnected { reason: why, may_have_been_sent: sent, .. } => {
                let words = format!("the server `{server}` broke off: {why}");
                match sent && !self.listed.class.may_repeat() {
                    true => ToolFailure::outcome_unknown(words),
                    false => ToolFailure::new(words),
                }
            }
        }
    }
}

/// Sees whether a call is let go of because its time is over.
struct TimeoutWatch<'a> {
    server: &'a ReconnectingServer,
    connection: &'a Connection,
    /// By the monotonic clock.
    started: Millis,
    is_answered: bool,
}

impl<'a> TimeoutWatch<'a> {
    fn new(slot: &'a ReconnectingServer, link: &'a Connection) -> Self {
        Self { server: slot, connection: link, started: slot.monotonic(), is_answered: false }
    }
}

impl Drop for TimeoutWatch<'_> {
    fn drop(&mut self) {
        let took = self.server.monotonic().minus(self.started);
        // Whoever called has counted from a little earlier.
        let most = Millis(self.server.spec().timeout.0 / 10 * 9);
        if self.is_answered {
            self.connection.mark_answered();
        } else if took >= most {
            self.connection.mark_timed_out();
        }
    }
}

#[async_trait]
impl Tool for McpTool {
    fn spec(&self) -> &ToolSpec {
        &self.listed.spec
    }

    fn class(&self, _: &Value) -> EffectClass {
        self.listed.class
    }

    /// A server over pipes that is busy does not see that its worker is gone.
    fn may_outlive_worker(&self) -> bool {
        matches!(self.server.spec().transport, ServerTransport::Stdio { .. })
    }

    async fn call(&self, input: Value, around: &ToolContext) -> Result<ToolOutput, ToolFailure> {
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
            let link = self.connect().await?;
            let mut watch = TimeoutWatch::new(&self.server, &link);
            let called = link.call(&self.name, input.clone(), &around.progress).await;
            watch.is_answered = true;
            match called {
                Ok(answer) => return self.check_output(&answer, around).await,
                Err(CallError::Disconnected { can_retry: true, .. }) if again => again = false,
                Err(lost) => return Err(self.to_failure(lost)),
            }
        }
    }
}
