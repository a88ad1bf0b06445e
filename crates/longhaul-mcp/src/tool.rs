//! A server's tool as a Longhaul [`Tool`].
//!
//! Invariant: a call that must not be repeated is sent at most once. A failure is reported as
//! "outcome unknown" unless the call is known to have had no effect.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::{
    SuspendedCallWait, Tool, ToolContext, ToolFailure, ToolQuestionAnswer, ToolReply,
    ToolResumption, ToolSpec,
};
use longhaul_core::raw::RawJson;
use rmcp::model::{
    CallToolRequestParams, CancelTaskParams, CancelTaskRequest, ClientRequest, ErrorCode,
    GetTaskParams, GetTaskRequest, JsonObject, UpdateTaskParams, UpdateTaskRequest,
};
use serde_json::Value;
use tokio::time::timeout;

use crate::client_handler::declined_question_text;
use crate::connection::{McpConnection, ServerRequestError};
use crate::listing::ListedTool;
use crate::output;
use crate::reconnect::ReconnectingServer;
use crate::schema_check::{is_validation_expensive, output_schema_violation};
use crate::spec::{ServerTransport, local_tool_name};
use crate::suspended_call::CallState;

/// Timeout of a request to the server about the task of a call, such as for the task's status.
const TASK_REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Delay before a call is sent again to a server that answered `input_required` but asked for no
/// input. Each further delay is twice as long.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// Maximum number of characters that are shown of a text of a server.
const MESSAGE_CHARS_MAX: usize = 500;

/// The reply to a call, or why it failed.
type ReplyResult = Result<ToolReply, ToolFailure>;

/// The answer to a request about a task, or why there is none.
type TaskResult = Result<Value, TaskRequestError>;

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
        let name = local_tool_name(&server.spec().name, listed.spec.name.as_str()).to_owned();
        Self { listed, name, server }
    }

    /// Returns the connection to the server. The timeout is shorter than that of the call: nothing
    /// was sent yet, so a failure here is known to have had no effect.
    async fn connect(&self) -> Result<Arc<McpConnection>, ToolFailure> {
        let spec = self.server.spec();
        let max_wait = spec.setup_timeout();
        let connection = timeout(max_wait, self.server.get_or_open_connection()).await;
        let connection = connection.map_err(|_| {
            let (server, secs) = (&spec.name, max_wait.as_secs_f32());
            ToolFailure::new(format!(
                "the server `{server}` was not ready within {secs} s; the call was not sent"
            ))
        })?;
        connection.map_err(|error| ToolFailure::new(error.to_string()))
    }

    /// Converts the response of a call and checks it against the output schema. For an invalid
    /// response, the failure includes the response, because the model may still be able to use it.
    async fn parse_and_validate(&self, answer: &Value, ctx: &ToolContext) -> ReplyResult {
        let parsed = output::parse_output(answer, &ctx.images);
        let output_schema = self.listed.output_schema.as_ref();
        let problem = if is_validation_expensive(answer, output_schema) {
            let (answer, output_schema) = (answer.clone(), output_schema.cloned());
            let check = move || output_schema_violation(&answer, output_schema.as_ref());
            tokio::task::spawn_blocking(check).await.map_err(|_| {
                ToolFailure::with_possible_effect("the check of the response panicked")
            })?
        } else {
            output_schema_violation(answer, output_schema)
        };
        let Some(problem) = problem else {
            return parsed.map(ToolReply::Output);
        };
        let server = &self.server.spec().name;
        let response = output::truncated_json(answer);
        Err(ToolFailure::with_possible_effect(format!(
            "the server `{server}` was called and has answered, but {problem}. Response: {response}"
        )))
    }

    /// Converts the error of a call into a failure for the model.
    fn to_tool_failure(&self, error: ServerRequestError) -> ToolFailure {
        let server = &self.server.spec().name;
        match error {
            ServerRequestError::Rejected { message, .. }
            | ServerRequestError::LoginRequired { reason: message, .. } => {
                ToolFailure::new(format!("the server `{server}` rejected the call: {message}"))
            }
            ServerRequestError::Disconnected { reason, may_have_been_sent, .. } => {
                let message = format!("the server `{server}` disconnected: {reason}");
                match may_have_been_sent {
                    true if self.may_repeat() => ToolFailure::with_possible_effect(message),
                    true => ToolFailure::outcome_unknown(message),
                    false => ToolFailure::new(message),
                }
            }
        }
    }

    const fn may_repeat(&self) -> bool {
        self.listed.class.may_repeat()
    }

    /// Returns the failure of a tool call that is given up because its server violates the protocol
    /// or exceeds a limit.
    fn server_misbehavior_failure(&self, reason: &str) -> ToolFailure {
        let server = &self.server.spec().name;
        ToolFailure::with_possible_effect(format!(
            "the call to the server `{server}` was given up: {reason}"
        ))
    }

    /// Sends the call. If the connection is lost and the call may be repeated, sends it once more.
    async fn send_call(
        &self,
        input: &JsonObject,
        state: &CallState,
        ctx: &ToolContext,
    ) -> Result<Value, ToolFailure> {
        let mut params =
            CallToolRequestParams::new(self.name.clone()).with_arguments(input.clone());
        state.add_responses_to_call(&mut params);
        let mut may_retry = self.may_repeat();
        loop {
            let connection = self.connect().await?;
            match connection.call_tool(params.clone(), &ctx.progress).await {
                Ok(answer) => return Ok(answer),
                Err(ServerRequestError::Disconnected { can_retry: true, .. }) if may_retry => {
                    may_retry = false
                }
                Err(error) => return Err(self.to_tool_failure(error)),
            }
        }
    }

    /// Sends the server a request about a task, with a timeout.
    async fn send_task_request(&self, request: ClientRequest) -> TaskResult {
        let error = |reason| TaskRequestError { reason, is_unknown_task: false };
        let connection = self.connect().await.map_err(|failure| error(failure.into_message()))?;
        let answer = timeout(TASK_REQUEST_TIMEOUT, connection.request_json(request)).await;
        let answer = answer.map_err(|_| {
            let secs = TASK_REQUEST_TIMEOUT.as_secs();
            error(format!("the server did not answer within {secs} s"))
        })?;
        answer.map_err(|error| TaskRequestError {
            is_unknown_task: error.has_json_rpc_code(ErrorCode::INVALID_PARAMS.0),
            reason: self.to_tool_failure(error).into_message(),
        })
    }

    /// Sends people's answers to the questions of a server's task, and requests the status of the
    /// task. Both requests may be repeated: a server ignores answers that it already has.
    async fn answer_and_poll(&self, mut state: CallState, ctx: &ToolContext) -> ReplyResult {
        let id = state.task.clone().unwrap_or_default();
        loop {
            let task = match self.exchange_task(&id, &mut state).await {
                Ok(task) => task,
                Err(error) => return self.suspend_after_failed_request(state, error),
            };
            if task["taskId"] != id.as_str() {
                return Err(self.unknown_outcome_failure("it answered about another task"));
            }
            if task["status"] != "input_required" {
                return self.end_or_wait(state, &task, ctx).await;
            }
            match state.record_task_input_requests(&task, &*ctx.progress) {
                Ok(false) => {
                    let message = self.task_status_message(&task);
                    return Ok(state.suspend_for_task(&task, message));
                }
                Ok(true) if state.has_question() => {
                    let question = state.suspend_for_question(&self.server.spec().name, true);
                    return question
                        .ok_or_else(|| self.server_misbehavior_failure("the question is missing"));
                }
                Ok(true) => {}
                Err(mut reason) => {
                    if let Err(cancel_failure) = self.cancel_task(&id).await {
                        reason = format!("{reason}; {cancel_failure}");
                    }
                    return Err(self.server_misbehavior_failure(&reason));
                }
            }
        }
    }

    /// Sends the answers that were not sent yet, and returns the state of the task.
    async fn exchange_task(&self, id: &str, state: &mut CallState) -> TaskResult {
        if !state.responses.is_empty() {
            let params = UpdateTaskParams::new(id, state.responses.clone());
            let update = UpdateTaskRequest::new(params);
            self.send_task_request(ClientRequest::UpdateTaskRequest(update)).await?;
            state.record_sent_responses();
        }
        let get = GetTaskRequest::new(GetTaskParams::new(id));
        self.send_task_request(ClientRequest::GetTaskRequest(get)).await
    }

    async fn end_or_wait(&self, state: CallState, task: &Value, ctx: &ToolContext) -> ReplyResult {
        let message = self.task_status_message(task);
        let note = message.as_ref().map_or_else(String::new, |message| format!(": {message}"));
        match task["status"].as_str() {
            Some("working") => Ok(state.suspend_for_task(task, message)),
            Some("completed") if !task["result"].is_object() => {
                Err(self.server_misbehavior_failure("its task is completed, but has no result"))
            }
            Some("completed") => self.parse_and_validate(&task["result"], ctx).await,
            Some("failed") => {
                let reason = task["error"]["message"].as_str().unwrap_or("no reason given");
                let reason = self.to_printable_text(reason);
                Err(ToolFailure::new(format!("the server's task failed: {reason}{note}")))
            }
            Some("cancelled") => {
                Err(ToolFailure::new(format!("the server has cancelled its task{note}")))
            }
            _ => Err(self.unknown_outcome_failure("the status of its task is invalid")),
        }
    }

    /// Returns the reply to a call after a failed request about the server's task for it: the call
    /// stays suspended, or it fails if the server does not know the task or too many requests have
    /// failed.
    fn suspend_after_failed_request(
        &self,
        state: CallState,
        TaskRequestError { reason, is_unknown_task }: TaskRequestError,
    ) -> ReplyResult {
        if is_unknown_task {
            return Err(ToolFailure::with_possible_effect(format!(
                "the server does not know its task any more, so there is no result: {reason}"
            )));
        }
        let reply = state.suspend_after_failed_request(&self.to_printable_text(&reason));
        reply.ok_or_else(|| {
            self.unknown_outcome_failure(&format!("the task can't be polled: {reason}"))
        })
    }

    /// Returns the failure "outcome unknown" of a call whose result the server's task did not
    /// deliver.
    fn unknown_outcome_failure(&self, reason: &str) -> ToolFailure {
        let server = &self.server.spec().name;
        ToolFailure::outcome_unknown(format!(
            "the result of a task of the server `{server}` is unknown: {reason}"
        ))
    }

    async fn cancel_task(&self, id: &str) -> Result<(), ToolFailure> {
        let request = CancelTaskRequest::new(CancelTaskParams::new(id));
        match self.send_task_request(ClientRequest::CancelTaskRequest(request)).await {
            // A task that the server does not know needs no cancel.
            Err(error) if !error.is_unknown_task => {
                Err(ToolFailure::new(format!("the task can't be cancelled: {}", error.reason)))
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }

    fn task_status_message(&self, task: &Value) -> Option<String> {
        task["statusMessage"].as_str().map(|message| self.to_printable_text(message))
    }

    /// Returns a server's text as it may be shown: truncated and without control characters.
    fn to_printable_text(&self, text: &str) -> String {
        match self.server.current_connection() {
            Some(connection) => connection.sanitize_server_text(text),
            None => text.chars().filter(|c| !c.is_control()).take(MESSAGE_CHARS_MAX).collect(),
        }
    }
}

/// Why a request about a server's task has no result.
struct TaskRequestError {
    reason: String,
    /// Whether the server answered that it does not know the task.
    is_unknown_task: bool,
}

/// `predict_effects` is not implemented: only the server knows what a call would change, and its
/// hints, such as `readOnlyHint`, can't be verified.
#[async_trait]
impl Tool for McpTool {
    fn spec(&self) -> &ToolSpec {
        &self.listed.spec
    }

    fn class(&self, _: &Value) -> EffectClass {
        self.listed.class
    }

    /// Returns `true` for a stdio server: while it is busy, it does not notice that the worker
    /// process that started it has died.
    fn may_outlive_worker(&self) -> bool {
        matches!(self.server.spec().transport, ServerTransport::Stdio { .. })
    }

    /// Calls the tool for a caller that does not support suspended calls: questions are declined,
    /// and a task is cancelled.
    async fn call(&self, input: Value, ctx: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        let mut resumption = None;
        loop {
            let reply = self.call_or_suspend(input.clone(), ctx, resumption).await?;
            let suspended = match reply {
                ToolReply::Output(output) => return Ok(output),
                ToolReply::Suspended(suspended) => *suspended,
            };
            let state = suspended.suspension.state;
            let SuspendedCallWait::Answer(question) = suspended.wait else {
                _ = self.cancel_suspended(&state, ctx).await;
                return Err(ToolFailure::new("the result comes later, and nobody waits for it"));
            };
            ctx.progress.report_to_journal(&declined_question_text(&question.message));
            resumption = Some(ToolResumption { state, answer: Some(ToolQuestionAnswer::Declined) });
        }
    }

    async fn call_or_suspend(
        &self,
        input: Value,
        ctx: &ToolContext,
        resumption: Option<ToolResumption>,
    ) -> ReplyResult {
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
        let mut state = match resumption {
            Some(resumption) => CallState::from_resumption(resumption)?,
            None => CallState::default(),
        };
        for attempt in 0.. {
            if state.has_question() {
                let (server, may_repeat) = (&self.server.spec().name, self.may_repeat());
                let question = state.suspend_for_question(server, may_repeat);
                return question.ok_or_else(|| ToolFailure::new("the question is missing"));
            }
            if state.task.is_some() {
                return self.answer_and_poll(state, ctx).await;
            }
            let answer = self.send_call(&input, &state, ctx).await?;
            match answer["resultType"].as_str() {
                Some("input_required") => {
                    let result = state.record_input_required(&answer, &*ctx.progress);
                    result.map_err(|reason| self.server_misbehavior_failure(&reason))?;
                    // The server asks for nothing, so it only needs more time.
                    if !state.has_question() && state.responses.is_empty() {
                        tokio::time::sleep(RETRY_DELAY * (1 << attempt.min(5))).await;
                    }
                }
                Some("task") => {
                    let result = state.record_server_task(&answer);
                    result.map_err(|reason| self.server_misbehavior_failure(&reason))?;
                    let message = self.task_status_message(&answer);
                    return Ok(state.suspend_for_task(&answer, message));
                }
                _ => return self.parse_and_validate(&answer, ctx).await,
            }
        }
        Err(self.server_misbehavior_failure("it asked for input without end"))
    }

    async fn cancel_suspended(&self, state: &RawJson, _: &ToolContext) -> Result<(), ToolFailure> {
        let resumption = ToolResumption { state: state.clone(), answer: None };
        let state = CallState::from_resumption(resumption)?;
        match state.task {
            Some(task) => self.cancel_task(&task).await,
            None => Ok(()),
        }
    }
}
