//! Makes the calls of a reply: side by side where the class allows, told in
//! the order that they ended, read by the model in its own.
//!
//! Never: begins what is not journaled, and never makes a call twice that must
//! not be.

use std::panic::AssertUnwindSafe;
use std::pin::pin;

use futures_util::FutureExt as _;
use longhaul_core::change::Blob;
use longhaul_core::event::tool::{ToolOutput, ToolVerified, VerifyOutcome};
use longhaul_core::id::CallId;
use longhaul_core::port::redact::Redact;
use longhaul_core::time::{Clock, Millis};
use longhaul_run::Input;
use longhaul_run::input::{ToolCallResult, ToolCallStatus};
use longhaul_run::next::{CallAction, CallTask};

use crate::drive::abort::{AbortReason, AbortSignals, Raced};
use crate::drive::calls::{CALL_TIMEOUT, CallRequest, FinishedCall, RunningCalls};
use crate::drive::context::DriveContext;
use crate::drive::truncate::truncate_output;
use crate::error::Error;
use crate::redaction::Redaction;
use crate::run_session::CommitOutcome;

/// After the first of several calls has ended, the others have so long to be
/// told with it; slower ones are told later.
const BATCH_WINDOW: Millis = Millis(25);

/// So long may a call that must not be repeated go on after it should stop.
const CANCEL_GRACE: Millis = Millis::from_secs(10);

/// A look whether a call has happened may take this long.
const VERIFY_TIMEOUT: Millis = Millis::from_secs(30);

/// Makes calls or looks after one. None: the run is not ours any more, or what
/// was begun may simply be begun again by the next driver.
pub(super) async fn run_tool_calls(
    desk: &mut DriveContext,
    todos: Vec<CallTask>,
) -> Result<Option<Input>, Error> {
    if let Some(todo) = todos.iter().find(|todo| todo.action == CallAction::Verify) {
        return verify(desk, todo).await;
    }
    let since = desk.services.clock.monotonic_nanos();
    if !start_calls(desk, todos).await {
        return Ok(None);
    }
    let gathered = collect_finished(desk).await?;
    // Before the ends: of a call that has ended nothing is taken any more.
    for word in desk.progress.take_durable() {
        let Ok(CommitOutcome::Applied) = desk.session.commit_durable(word).await else {
            break;
        };
    }
    let Some(ended) = gathered.filter(|ended| !ended.is_empty()) else {
        return Ok(None);
    };
    let took = desk.services.clock.monotonic_nanos().saturating_sub(since) / 1_000_000;
    let told = to_tools_done(ended, Millis(took), &*desk.services.redact);
    Ok(Some(Input::ToolsDone(told)))
}

/// Begins every call that is not under way; whether anything may be begun.
async fn start_calls(desk: &mut DriveContext, todos: Vec<CallTask>) -> bool {
    let Some(capsule) = desk.env.clone() else {
        return false;
    };
    let fresh: Vec<CallTask> =
        todos.into_iter().filter(|todo| !desk.calls.contains(todo.call)).collect();
    if !fresh.is_empty() && !desk.lease.may_begin().await {
        return !desk.calls.is_empty();
    }
    let epoch = desk.session.claim().epoch;
    for todo in fresh {
        let mut around = capsule.tool_context(desk.session.run(), todo.call, epoch);
        around.attempt = todo.attempt;
        around.progress = desk.progress.reporter(todo.call, &desk.services.redact);
        let equipped = capsule.tool(todo.tool.as_str());
        let tool = equipped.and_then(|equipped| equipped.tool.clone());
        let (Some(equipped), Some(tool)) = (equipped, tool) else {
            // It was there when the call was appraised; another build has less.
            desk.calls.push_failed(todo.call, &format!("this worker has no tool `{}`", todo.tool));
            continue;
        };
        let input = capsule.without_injected(equipped, todo.input.to_value());
        let begun = CallRequest {
            timeout: tool.timeout(&input).unwrap_or(CALL_TIMEOUT),
            tool,
            input,
            ctx: around,
            class: todo.class,
            clock: desk.services.clock.clone(),
        };
        desk.calls.start(begun, desk.progress.track(todo.call));
    }
    true
}

/// Waits until calls have ended, or should be cut off. None: let go.
async fn collect_finished(desk: &mut DriveContext) -> Result<Option<Vec<FinishedCall>>, Error> {
    let mut ears = AbortSignals {
        interruptible: true,
        progress: Some((&desk.progress, &*desk.services.clock)),
        ..AbortSignals::new(&mut desk.session, &desk.lease, &desk.shutdown)
    };
    let hands = &mut desk.calls;
    let first = ears.race(pin!(hands.next())).await?;
    let cut = match first {
        Raced::Aborted(cut) => cut,
        Raced::Done(None) => return Ok(None),
        Raced::Done(Some(first)) => {
            let mut ended = vec![first];
            ended.extend(collect_within(hands, &*desk.services.clock, BATCH_WINDOW).await);
            return Ok(Some(ended));
        }
    };
    Ok(abort_calls(desk, cut).await)
}

/// The calls that end within a while, until none is left.
async fn collect_within(
    hands: &mut RunningCalls,
    clock: &dyn Clock,
    span: Millis,
) -> Vec<FinishedCall> {
    let mut ended = Vec::new();
    if hands.is_empty() {
        return ended;
    }
    let mut over = clock.sleep(span);
    while !hands.is_empty() {
        tokio::select! {
            biased;
            next = hands.next() => ended.extend(next),
            () = over.as_mut() => break,
        }
    }
    ended
}

/// Stops the calls under way. What may be repeated is dropped, and so is what
/// ends for good when it is; the others have a while to end by themselves, and
/// are in doubt if they do not.
async fn abort_calls(desk: &mut DriveContext, cut: AbortReason) -> Option<Vec<FinishedCall>> {
    let hands = &mut desk.calls;
    let words = match cut {
        AbortReason::Cancelled => "stopped: the run was cancelled",
        AbortReason::Interrupted => "stopped: a person wrote",
        AbortReason::Shutdown | AbortReason::Lost => "stopped: the worker had to go",
    };
    let mut ended: Vec<FinishedCall> = match cut {
        AbortReason::Cancelled | AbortReason::Interrupted => {
            let stopped = hands.cancel(|way| way.may_repeat || way.is_cancel_safe);
            stopped.into_iter().map(|gone| gone.into_interrupted(words)).collect()
        }
        // The next driver begins them again.
        AbortReason::Shutdown | AbortReason::Lost => {
            hands.cancel(|way| way.may_repeat);
            Vec::new()
        }
    };
    ended.extend(collect_within(hands, &*desk.services.clock, CANCEL_GRACE).await);
    ended.extend(hands.cancel(|_| true).into_iter().map(|gone| {
        if gone.is_cancel_safe {
            gone.into_interrupted(words)
        } else {
            finished_with_text(gone.call, ToolCallStatus::Unknown, &format!("it was {words}"))
        }
    }));
    (!ended.is_empty()).then_some(ended)
}

fn finished_with_text(call: CallId, end: ToolCallStatus, words: &str) -> FinishedCall {
    let output = ToolOutput::text(words);
    FinishedCall { call, status: end, output, images: Vec::new() }
}

/// The ends as the heart is told of them. Calls side by side share their time,
/// which the first of them bears.
fn to_tools_done(
    ended: Vec<FinishedCall>,
    took: Millis,
    redact: &dyn Redact,
) -> Vec<ToolCallResult> {
    let times = std::iter::once(took).chain(std::iter::repeat(Millis::ZERO));
    let done = ended.into_iter().zip(times).map(|(ended, active)| {
        let output = Redaction(redact).output(ended.output);
        let (output, blobs) = truncate_output(ended.call, output, ended.images);
        ToolCallResult { call: ended.call, status: ended.status, output, active, blobs }
    });
    done.collect()
}

/// Lets a tool look whether a call in doubt has happened. A look that is cut
/// off has changed nothing: whoever drives next looks again.
async fn verify(desk: &mut DriveContext, todo: &CallTask) -> Result<Option<Input>, Error> {
    if !desk.lease.may_begin().await {
        return Ok(None);
    }
    let looking = pin!(run_verify(desk, todo));
    let mut ears = AbortSignals::new(&mut desk.session, &desk.lease, &desk.shutdown);
    Ok(match ears.race(looking).await? {
        Raced::Done(seen) => Some(verified_input(todo.call, seen, &*desk.services.redact)),
        Raced::Aborted(cut) => cut.input_after_perception(),
    })
}

/// What a look found, and the pictures that belong to it.
type VerifyResult = (VerifyOutcome, Vec<Blob>);

/// What a look gave, shown in part where it is long.
fn verified_input(call: CallId, (finding, pictures): VerifyResult, redact: &dyn Redact) -> Input {
    let (finding, blobs) = match finding {
        VerifyOutcome::Happened(output) => {
            let (output, blobs) = truncate_output(call, Redaction(redact).output(output), pictures);
            (VerifyOutcome::Happened(output), blobs)
        }
        VerifyOutcome::NotHappened | VerifyOutcome::Unknown => (finding, Vec::new()),
    };
    Input::Verified(ToolVerified { call, outcome: finding }, blobs)
}

/// The look itself; it borrows nothing of the desk.
fn run_verify(desk: &DriveContext, todo: &CallTask) -> impl Future<Output = VerifyResult> + use<> {
    let clock = desk.services.clock.clone();
    let equipped = desk.env.as_ref().and_then(|capsule| {
        let equipped = capsule.tool(todo.tool.as_str())?;
        let around =
            capsule.tool_context(desk.session.run(), todo.call, desk.session.claim().epoch);
        let input = capsule.without_injected(equipped, todo.input.to_value());
        Some((equipped.tool.clone()?, input, around))
    });
    async move {
        let Some((tool, input, around)) = equipped else {
            return (VerifyOutcome::Unknown, Vec::new());
        };
        let looking = AssertUnwindSafe(tool.verify(input, &around)).catch_unwind();
        let finding = tokio::select! {
            biased;
            found = looking => found.unwrap_or(VerifyOutcome::Unknown),
            () = clock.sleep(VERIFY_TIMEOUT) => VerifyOutcome::Unknown,
        };
        (finding, around.images.drain())
    }
}

impl RunningCalls {
    /// Ends a call that can't even be begun.
    fn push_failed(&mut self, call: CallId, why: &str) {
        self.push_finished(finished_with_text(call, ToolCallStatus::Failed, why));
    }
}
