//! Executes the tool calls of a reply, concurrently where their effect classes allow it.
//!
//! Results are committed in the order in which the calls end, but the model reads them in the order
//! of its calls. Invariants: no call starts before its start is journaled, and a call that must not
//! be repeated runs at most once.
//!
//! A tool may suspend a call, to continue it later. The state of such a call is made storable, and
//! its tool is notified when the run has given up the call.

use std::pin::pin;

use longhaul_core::change::Blob;
use longhaul_core::event::tool::{ToolVerified, VerifyOutcome};
use longhaul_core::port::redact::Redact;
use longhaul_core::port::sandbox::SandboxError;
use longhaul_core::port::tool::{SuspendedCallWait, SuspendedToolCall, ToolFailure};
use longhaul_core::raw::RawJson;
use longhaul_core::time::{Clock, Millis};
use longhaul_run::input::{SandboxChange, ToolCallResult, ToolCallStatus};
use longhaul_run::next::{ToolCallAction, ToolCallTask};
use longhaul_run::{Run, RunInput};
use serde_json::Value;

use crate::drive::abort::{AbortReason, AbortSignals, Abortable};
use crate::drive::calls::{ActiveCalls, CALL_TIMEOUT, CallRequest, CancelPolicy, finished_text};
use crate::drive::context::DriveContext;
use crate::drive::run_env::RunEnv;
use crate::drive::session::CommitOutcome;
use crate::drive::truncate::{ArtifactQuota, truncate_tool_output};
use crate::error::Result;
use crate::guard::redaction::Redaction;
use crate::panics::guard;
use crate::tools::recorded_outputs::check_references_unchanged;
use crate::tools::registry::RegisteredTool;

/// Time to wait for further tool calls after a call has ended, so that their results are committed
/// together.
const BATCH_WINDOW: Millis = Millis(25);

/// Time that a non-repeatable tool call has to finish after its driver was asked to stop.
const CANCEL_GRACE: Millis = Millis::from_secs(10);

/// Timeout for verifying whether a call in doubt (started, outcome unknown after a crash) happened.
const VERIFY_TIMEOUT: Millis = Millis::from_secs(30);

/// Timeout for telling a tool that the run has given up a suspended call.
const CANCEL_TIMEOUT: Millis = Millis::from_secs(10);

/// Runs tool calls, or verifies a call in doubt (started, outcome unknown after a crash). `None`
/// means that no call has a result, because this driver has lost its claim on the run or has to
/// stop.
pub(super) async fn run_tool_calls(
    ctx: &mut DriveContext,
    tasks: Vec<ToolCallTask>,
) -> Result<Option<RunInput>> {
    if let Some(task) = tasks.iter().find(|task| task.action == ToolCallAction::Verify) {
        return verify_tool_call(ctx, task).await;
    }
    if let Some(task) = tasks.iter().find(|task| task.action == ToolCallAction::Cancel) {
        return Ok(Some(cancel_suspended_call(ctx, task).await));
    }
    let since = ctx.services.clock.monotonic_time();
    if !try_start_tool_calls(ctx, tasks).await {
        return Ok(None);
    }
    let finished = collect_finished_calls(ctx, since).await?;
    // Appended before the results: progress of a call is rejected once the call has ended.
    for report in ctx.progress.take_unjournaled_reports() {
        let Ok(CommitOutcome::Applied) = ctx.session.commit_durable(report).await else { break };
    }
    if ctx.sandbox.as_ref().is_some_and(|sandbox| sandbox.is_lost()) {
        ctx.sandbox = None;
        let lost = SandboxChange::Failed(SandboxError::NotFound);
        ctx.session.commit_durable(RunInput::SandboxChanged(lost)).await?;
    }
    let Some(ended) = finished.filter(|ended| !ended.is_empty()) else { return Ok(None) };
    let elapsed = ctx.services.clock.monotonic_time().minus(since);
    let (run, redact) = (ctx.session.run(), &*ctx.services.redact);
    let quota = ArtifactQuota::remaining_after_artifacts(&run.control().artifacts);
    let ended = ended.into_iter().map(|ended| {
        let has_key = run.effect_key_of_call(Some(ended.call)).is_some();
        redact_suspended_call(ended, redact, has_key)
    });
    let results = to_results(ended.collect(), elapsed, redact, quota);
    Ok(Some(RunInput::ToolsDone(results)))
}

/// Starts every tool call that is not running yet. A call that can't be started ends at once as
/// failed. Returns `false` if there is no call to wait for, because the agent, models and tools of
/// the run are not loaded, or because the lease is lost and no call is running.
async fn try_start_tool_calls(ctx: &mut DriveContext, tasks: Vec<ToolCallTask>) -> bool {
    let Some(env) = ctx.env.clone() else { return false };
    let new_tasks: Vec<ToolCallTask> =
        tasks.into_iter().filter(|task| !ctx.calls.contains(task.call)).collect();
    if !new_tasks.is_empty() && !ctx.lease.wait_until_valid().await {
        return !ctx.calls.is_empty();
    }
    let epoch = ctx.session.claim().epoch;
    for task in new_tasks {
        let mut tool_ctx = env.tool_context(ctx.session.run(), task.call, epoch);
        tool_ctx.attempt = task.attempt;
        tool_ctx.progress = ctx.progress.reporter(task.call, &ctx.services.redact);
        tool_ctx.sandbox = ctx.sandbox_of_call(task.call);
        let registered = env.tool(task.tool.as_str());
        let tool = registered.and_then(|registered| registered.tool.clone());
        let (Some(registered), Some(tool)) = (registered, tool) else {
            // The tool existed when the call was classified, but this build does not have it.
            ctx.calls.push_failed_call(&task, &format!("this worker has no tool `{}`", task.tool));
            continue;
        };
        let run = ctx.session.run();
        let input = match resolve_tool_call_input(&env, run, registered, &task).await {
            Ok(input) => input,
            Err(reason) => {
                ctx.calls.push_failed_call(&task, &reason);
                continue;
            }
        };
        let request = CallRequest {
            timeout: tool.timeout(&input).unwrap_or(CALL_TIMEOUT),
            tool,
            input,
            ctx: tool_ctx,
            class: task.class,
            has_effect_key: task.has_effect_key,
            may_repeat: task.may_repeat,
            resumption: task.resumption,
            clock: ctx.services.clock.clone(),
        };
        ctx.calls.start_call(request, ctx.progress.track_call(task.call));
    }
    true
}

/// Returns the input that the tool receives for a call that is about to start, with the values of
/// references to outputs of earlier calls. The error is a message for the model.
async fn resolve_tool_call_input(
    env: &RunEnv,
    run: &Run,
    registered: &RegisteredTool,
    task: &ToolCallTask,
) -> Result<Value, String> {
    let resolved = env.resolve_tool_input(run.id(), registered, task.input.to_value()).await;
    let (input, outputs) = resolved.map_err(|error| error.to_string())?;
    check_references_unchanged(run.output_references_of_call(task.call), &outputs)?;
    Ok(input)
}

/// Waits until tool calls have ended, or aborts them if there is a reason. `since` is the time of
/// the monotonic clock from which the run's active time is counted. `None` means that no call has a
/// result.
async fn collect_finished_calls(
    ctx: &mut DriveContext,
    since: Millis,
) -> Result<Option<Vec<ToolCallResult>>> {
    let exceeds_active_time = !ctx.calls.has_stoppable_call();
    let mut signals = AbortSignals {
        exceeds_active_time,
        interruptible: true,
        progress: Some((&ctx.progress, &*ctx.services.clock)),
        timed_since: Some(since),
        ..AbortSignals::new(&mut ctx.session, &ctx.lease, &ctx.shutdown)
    };
    let calls = &mut ctx.calls;
    let first = signals.wait_unless_aborted(pin!(calls.next_finished_call())).await?;
    let reason = match first {
        Abortable::Aborted(reason) => reason,
        Abortable::Done(None) => return Ok(None),
        Abortable::Done(Some(first)) => {
            let mut ended = vec![first];
            ended.extend(collect_until_timeout(calls, &*ctx.services.clock, BATCH_WINDOW).await);
            return Ok(Some(ended));
        }
    };
    Ok(abort_calls(ctx, reason).await)
}

/// Returns the running tool calls that end within the given time.
async fn collect_until_timeout(
    calls: &mut ActiveCalls,
    clock: &dyn Clock,
    window: Millis,
) -> Vec<ToolCallResult> {
    let mut ended = Vec::new();
    if calls.is_empty() {
        return ended;
    }
    let mut over = clock.sleep(window);
    while !calls.is_empty() {
        tokio::select! {
            biased;
            next = calls.next_finished_call() => ended.extend(next),
            () = over.as_mut() => break,
        }
    }
    ended
}

/// Stops the running tool calls. Repeatable and cancel-safe calls are dropped. The other calls get
/// a grace period; those that do not end within it are in doubt (their outcome is unknown). If only
/// the active time is used up, the other calls continue until they end.
async fn abort_calls(ctx: &mut DriveContext, reason: AbortReason) -> Option<Vec<ToolCallResult>> {
    let calls = &mut ctx.calls;
    let message = match reason {
        AbortReason::Cancelled => "the call was stopped: the run was cancelled",
        AbortReason::Interrupted => "the call was stopped: a message interrupted it",
        AbortReason::TimedOut => "the call was stopped: the attempt reached its hard timeout",
        AbortReason::ActiveTimeUsedUp => {
            "the call was stopped: the run's budget of active time was used up"
        }
        AbortReason::Shutdown | AbortReason::Lost => "the call was stopped: the worker shut down",
    };
    let mut ended: Vec<ToolCallResult> = Vec::new();
    if reason.ends_driver() {
        // The next driver starts the repeatable calls again.
        calls.cancel_calls_if(|call| call.may_repeat);
    } else {
        let stopped = calls.cancel_calls_if(CancelPolicy::is_stoppable);
        ended.extend(stopped.into_iter().map(|cancelled| cancelled.into_finished(message)));
    }
    if reason == AbortReason::ActiveTimeUsedUp {
        return (!ended.is_empty()).then_some(ended);
    }
    ended.extend(collect_until_timeout(calls, &*ctx.services.clock, CANCEL_GRACE).await);
    ended.extend(calls.cancel_calls_if(|_| true).into_iter().map(|cancelled| {
        let unknown = format!("{message}; the outcome of the call is unknown");
        match cancelled.is_cancel_safe {
            true => cancelled.into_finished(message),
            false => finished_text(cancelled.call, ToolCallStatus::Unknown, &unknown),
        }
    }));
    (!ended.is_empty()).then_some(ended)
}

/// Converts ended calls into results for the state machine. The active time of concurrent calls is
/// counted once, with the first of them.
fn to_results(
    ended: Vec<ToolCallResult>,
    elapsed: Millis,
    redact: &dyn Redact,
    mut quota: ArtifactQuota,
) -> Vec<ToolCallResult> {
    let times = std::iter::once(elapsed).chain(std::iter::repeat(Millis::ZERO));
    let results = ended.into_iter().zip(times).map(|(ended, active)| {
        let output = Redaction(redact).redact_tool_output(ended.output);
        let (output, blobs) = truncate_tool_output(ended.call, output, ended.blobs, &mut quota);
        ToolCallResult { output, active, blobs, ..ended }
    });
    results.collect()
}

/// Asks a tool to verify whether a call in doubt (started, outcome unknown after a crash) happened.
/// Verifying has no effects, so the next driver simply repeats an aborted verification.
async fn verify_tool_call(ctx: &mut DriveContext, task: &ToolCallTask) -> Result<Option<RunInput>> {
    if !ctx.lease.wait_until_valid().await {
        return Ok(None);
    }
    let verification = pin!(start_verification(ctx, task));
    let mut signals = AbortSignals::new(&mut ctx.session, &ctx.lease, &ctx.shutdown);
    let (outcome, blobs) = match signals.wait_unless_aborted(verification).await? {
        Abortable::Aborted(reason) => return Ok(reason.input_after_abort()),
        Abortable::Done((VerifyOutcome::Happened(output), images)) => {
            let artifacts = &ctx.session.run().control().artifacts;
            let mut quota = ArtifactQuota::remaining_after_artifacts(artifacts);
            let output = Redaction(&*ctx.services.redact).redact_tool_output(output);
            let (output, blobs) = truncate_tool_output(task.call, output, images, &mut quota);
            (VerifyOutcome::Happened(output), blobs)
        }
        Abortable::Done((outcome, _)) => (outcome, Vec::new()),
    };
    Ok(Some(RunInput::Verified(ToolVerified { call: task.call, outcome }, blobs)))
}

/// Returns a future that verifies whether a call happened. Its output has the images that the tool
/// returned with the outcome. The future borrows nothing of the driver's state.
fn start_verification(
    ctx: &DriveContext,
    task: &ToolCallTask,
) -> impl Future<Output = (VerifyOutcome, Vec<Blob>)> + use<> {
    let clock = ctx.services.clock.clone();
    let registered = ctx.env.as_ref().and_then(|env| {
        let registered = env.tool(task.tool.as_str())?;
        let mut tool_ctx =
            env.tool_context(ctx.session.run(), task.call, ctx.session.claim().epoch);
        tool_ctx.sandbox = ctx.sandbox_of_call(task.call);
        Some((env.clone(), registered.clone(), registered.tool.clone()?, tool_ctx))
    });
    let (run, input) = (ctx.session.run().id(), task.input.clone());
    let references = ctx.session.run().output_references_of_call(task.call).to_vec();
    async move {
        let Some((env, registered, tool, tool_ctx)) = registered else {
            return (VerifyOutcome::Unknown, Vec::new());
        };
        let resolved = env.resolve_tool_input(run, &registered, input.to_value()).await;
        let input = match resolved {
            Ok((input, outputs)) if check_references_unchanged(&references, &outputs).is_ok() => {
                input
            }
            Ok(_) | Err(_) => return (VerifyOutcome::Unknown, Vec::new()),
        };
        let found = guard(&*clock, VERIFY_TIMEOUT, tool.verify(input, &tool_ctx)).await;
        (found.unwrap_or(VerifyOutcome::Unknown), tool_ctx.images.drain())
    }
}

impl ActiveCalls {
    /// Adds a failed result for a call that can't be started. If the call has an effect key and was
    /// started before, its outcome is unknown instead, because the earlier start may have had an
    /// effect.
    fn push_failed_call(&mut self, task: &ToolCallTask, reason: &str) {
        let was_started = task.attempt > 1 || task.resumption.is_some();
        let status = match task.has_effect_key && was_started {
            true => ToolCallStatus::Unknown,
            false => ToolCallStatus::Failed,
        };
        self.push_finished_call(finished_text(task.call, status, reason));
    }
}

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
        finished_text(ended.call, status, reason)
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
    let ended = finished_text(task.call, ToolCallStatus::Interrupted, &text);
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
            let ended = finished_text(call, status, "");
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
