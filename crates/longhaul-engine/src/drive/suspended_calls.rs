//! Tool calls that their tools have suspended: what of them may be stored, and how the tool is told
//! that the run has given up the call.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt as _;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::port::redact::Redact;
use longhaul_core::port::tool::{SuspendedToolCall, ToolFailure, ToolWait};
use longhaul_core::raw::RawJson;
use longhaul_core::time::Millis;
use longhaul_run::RunInput;
use longhaul_run::input::{ToolCallResult, ToolCallStatus};
use longhaul_run::next::ToolCallTask;

use crate::drive::calls::{FinishedToolCall, finished_call_with_text};
use crate::drive::context::DriveContext;
use crate::redaction::Redaction;

/// Timeout for telling a tool that the run has given up a suspended call.
const CANCEL_TIMEOUT: Millis = Millis::from_secs(10);

/// Returns a suspended call with its texts redacted. Its state must come back to the tool unchanged,
/// so a call whose state is too long or contains a secret fails. The outcome of such a call with an
/// effect key is unknown, because a failure would free the key.
pub(super) fn with_storable_suspension(
    ended: FinishedToolCall,
    redact: &dyn Redact,
    has_effect_key: bool,
) -> FinishedToolCall {
    let ToolCallStatus::Suspended(suspended) = &ended.status else {
        return ended;
    };
    let state = suspended.suspension.state.as_str();
    let failed = |reason: &str| {
        let status = match has_effect_key {
            true => ToolCallStatus::Unknown,
            false => ToolCallStatus::Failed,
        };
        finished_call_with_text(ended.call, status, reason)
    };
    if state.len() > SuspendedToolCall::STATE_BYTES_MAX {
        return failed("the call can't be continued later: the tool's state of it is too long");
    }
    if redact.redact(state) != state {
        return failed(
            "the call can't be continued later: the tool's state of it contains a secret of the \
             project, which is not stored",
        );
    }
    let redaction = Redaction(redact);
    let mut suspended = suspended.clone();
    match &mut suspended.wait {
        ToolWait::Answer(question) => {
            question.asker = redaction.redact_text(std::mem::take(&mut question.asker));
            question.message = redaction.redact_text(std::mem::take(&mut question.message));
            question.schema = redaction.redact_json(&question.schema);
        }
        ToolWait::Poll { message, .. } => {
            *message = message.take().map(|message| redaction.redact_text(message));
        }
    }
    FinishedToolCall { status: ToolCallStatus::Suspended(suspended), ..ended }
}

/// Tells the tool of a suspended call that the run has given up the call. The call ends in any case.
pub(super) async fn cancel_suspended_call(ctx: &mut DriveContext, task: &ToolCallTask) -> RunInput {
    let request = request_cancellation(ctx, task);
    let text = match request.await {
        Ok(()) => "the call was stopped, and its server was asked to stop the work".to_owned(),
        Err(failure) => {
            let reason = failure.into_message();
            let run = ctx.session.run().id();
            tracing::warn!(%run, call = %task.call, tool = %task.tool, reason, "a suspended tool call could not be cancelled");
            format!(
                "the call was stopped, but its server could not be asked to stop the work: {reason}"
            )
        }
    };
    let output = Redaction(&*ctx.services.redact).redact_tool_output(ToolOutput::text(text));
    let (status, active, blobs) = (ToolCallStatus::Interrupted, Millis::ZERO, Vec::new());
    RunInput::ToolsDone(vec![ToolCallResult { call: task.call, status, output, active, blobs }])
}

/// Returns a future that tells the tool that the call was given up. The future borrows nothing of the driver's state.
fn request_cancellation(
    ctx: &DriveContext,
    task: &ToolCallTask,
) -> impl Future<Output = Result<(), ToolFailure>> + use<> {
    let clock = ctx.services.clock.clone();
    let found = ctx.env.as_ref().and_then(|env| {
        let tool = env.tool(task.tool.as_str())?.tool.clone()?;
        let epoch = ctx.session.claim().epoch;
        Some((tool, env.tool_context(ctx.session.run(), task.call, epoch)))
    });
    let state = task.resumption.as_ref().map_or_else(RawJson::null, |resume| resume.state.clone());
    let missing = format!("this worker has no tool `{}`", task.tool);
    async move {
        let (tool, tool_ctx) = found.ok_or_else(|| ToolFailure::new(missing))?;
        let request = AssertUnwindSafe(tool.cancel_suspended(&state, &tool_ctx)).catch_unwind();
        tokio::select! {
            biased;
            outcome = request => outcome.unwrap_or_else(|_| Err(ToolFailure::new("the tool panicked"))),
            () = clock.sleep(CANCEL_TIMEOUT) => {
                Err(ToolFailure::new(format!("no answer within {} s", CANCEL_TIMEOUT.0 / 1_000)))
            }
        }
    }
}
