//! Tool calls that their tools have suspended, to continue them later: makes the state of such a
//! call storable, and notifies its tool when the run has given up the call.

use longhaul_core::port::redact::Redact;
use longhaul_core::port::tool::{SuspendedCallWait, SuspendedToolCall, ToolFailure};
use longhaul_core::raw::RawJson;
use longhaul_core::time::Millis;
use longhaul_run::RunInput;
use longhaul_run::input::{ToolCallResult, ToolCallStatus};
use longhaul_run::next::ToolCallTask;

use crate::drive::calls::finished_with_text;
use crate::drive::context::DriveContext;
use crate::guard::redaction::Redaction;
use crate::panics::guard;

/// Timeout for telling a tool that the run has given up a suspended call.
const CANCEL_TIMEOUT: Millis = Millis::from_secs(10);

/// Returns a suspended call in the form in which it can be stored, with secrets redacted. Of the
/// tool's state only the questions are redacted, because the tool needs the rest unchanged. If the
/// state is too long or contains a secret elsewhere, the call fails. The outcome of such a call is
/// unknown if it has an effect key, because a failed call would release its key.
pub(super) fn redact_suspended_call(
    ended: ToolCallResult,
    redact: &dyn Redact,
    has_effect_key: bool,
) -> ToolCallResult {
    let ToolCallStatus::Suspended(suspended) = &ended.status else { return ended };
    let state = suspended.suspension.state.as_str();
    let failed = |reason: &str| {
        let status = if has_effect_key { ToolCallStatus::Unknown } else { ToolCallStatus::Failed };
        finished_with_text(ended.call, status, reason)
    };
    if state.len() > SuspendedToolCall::STATE_BYTES_MAX {
        return failed("the call can't be continued later: the tool's state of it is too long");
    }
    let has_secret = |text: &str| redact.redact(text) != text;
    let mut clean_state = None;
    if has_secret(state) {
        let mut value = suspended.suspension.state.to_value();
        if let Some(questions) = value.get_mut(SuspendedToolCall::QUESTIONS_KEY) {
            *questions = redact.redact_json(&RawJson::from_serialize(questions)).to_value();
        }
        clean_state = Some(RawJson::from_serialize(&value));
    }
    if clean_state.as_ref().is_some_and(|state| has_secret(state.as_str())) {
        return failed(
            "the call can't be continued later: the tool's state of it contains a secret of the \
             project, which is not stored",
        );
    }
    let redaction = Redaction(redact);
    let mut suspended = suspended.clone();
    if let Some(state) = clean_state {
        suspended.suspension.state = state;
    }
    match &mut suspended.wait {
        SuspendedCallWait::Answer(question) => {
            redaction.clean(&mut question.asker);
            redaction.clean(&mut question.message);
            redaction.clean_json(&mut question.schema);
        }
        SuspendedCallWait::Poll { message, .. } => {
            message.iter_mut().for_each(|message| redaction.clean(message));
        }
    }
    ToolCallResult { status: ToolCallStatus::Suspended(suspended), ..ended }
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
    let text = Redaction(&*ctx.services.redact).redact_text(text);
    let ended = finished_with_text(task.call, ToolCallStatus::Interrupted, &text);
    RunInput::ToolsDone(vec![ended])
}

/// Returns a future that tells the tool that the run has given up its suspended call. The future
/// borrows nothing of the driver's state.
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
    let no_tool_message = format!("this worker has no tool `{}`", task.tool);
    async move {
        let (tool, tool_ctx) = found.ok_or_else(|| ToolFailure::new(no_tool_message))?;
        let request = guard(&*clock, CANCEL_TIMEOUT, tool.cancel_suspended(&state, &tool_ctx));
        request.await.unwrap_or_else(|error| Err(ToolFailure::new(format!("the tool {error}"))))
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::event::tool::ToolSuspension;
    use longhaul_core::id::CallId;
    use longhaul_core::redact::Redactor;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_secret_is_redacted_in_questions_and_refused_in_the_rest_of_the_state() {
        let redactor = Redactor::new([("PIN", "xyzzy-plugh")]);
        let stored_state = |state: Value| {
            let state = RawJson::from_serialize(&state);
            let suspension = ToolSuspension { state, may_repeat: true, must_cancel: false };
            let wait = SuspendedCallWait::Poll { after: Millis::ZERO, ttl: None, message: None };
            let status =
                ToolCallStatus::Suspended(Box::new(SuspendedToolCall { suspension, wait }));
            let call = CallId { turn: 1, index: 1 };
            let ended = finished_with_text(call, status, "");
            match redact_suspended_call(ended, &redactor, false).status {
                ToolCallStatus::Suspended(stored) => Some(stored.suspension.state.to_value()),
                ToolCallStatus::Completed
                | ToolCallStatus::Failed
                | ToolCallStatus::Interrupted
                | ToolCallStatus::Unknown => None,
            }
        };
        let state_with_question =
            |message: &str| json!({ "task": "7", "questions": [{ "message": message }] });
        let stored = stored_state(state_with_question("Use xyzzy-plugh?")).unwrap();
        assert_eq!(stored, state_with_question("Use {{secret:PIN}}?"));
        assert_eq!(stored_state(json!({ "task": "xyzzy-plugh", "questions": [] })), None);
    }
}
