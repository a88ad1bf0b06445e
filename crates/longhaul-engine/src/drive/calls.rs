//! The running tool calls of a driver, whose results are not committed yet.
//!
//! Invariants: only calls whose start is journaled are started, and a panic of a tool does not
//! leave this module.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use longhaul_core::duration::format_duration;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::id::CallId;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::{PartialToolOutput, Tool, ToolContext, ToolReply, ToolResumption};
use longhaul_core::time::{Clock, Millis};
use longhaul_run::input::{ToolCallResult, ToolCallStatus};
use serde_json::Value;

use crate::drive::progress::ProgressGuard;
use crate::panics::{GuardError, guard};

/// Timeout of tool calls whose tool does not set a timeout.
pub(super) const CALL_TIMEOUT: Millis = Millis::from_secs(10 * 60);

/// A tool call that is about to be started.
#[derive(Debug)]
pub(super) struct CallRequest {
    pub(super) tool: Arc<dyn Tool>,
    pub(super) input: Value,
    pub(super) ctx: ToolContext,
    pub(super) class: EffectClass,
    pub(super) has_effect_key: bool,
    /// Whether starting the call, or continuing it if it was suspended, may be repeated without
    /// harm.
    pub(super) may_repeat: bool,
    /// Data with which the tool continues a suspended call. `None` means that the call is new.
    pub(super) resumption: Option<ToolResumption>,
    pub(super) timeout: Millis,
    pub(super) clock: Arc<dyn Clock>,
}

/// Whether and how a running tool call may be cancelled.
#[derive(Debug, Clone, Copy)]
pub(super) struct CancelPolicy {
    /// Whether the call may be repeated without harm.
    pub(super) may_repeat: bool,
    /// Whether the call has no further effects once its future is dropped.
    pub(super) is_cancel_safe: bool,
}

impl CancelPolicy {
    /// Returns whether the call may be stopped: it may be repeated, or it has no further effects
    /// after it was stopped.
    pub(super) const fn is_stoppable(self) -> bool {
        self.may_repeat || self.is_cancel_safe
    }
}

/// A tool call that was cancelled while it ran.
#[derive(Debug)]
pub(super) struct CancelledCall {
    pub(super) call: CallId,
    pub(super) is_cancel_safe: bool,
    partial_output: Option<String>,
}

impl CancelledCall {
    /// Returns the result of the cancelled call: the message, followed by the call's partial
    /// output.
    pub(super) fn into_finished(self, message: &str) -> ToolCallResult {
        let output = with_partial_output(message, self.partial_output);
        finished(self.call, ToolCallStatus::Interrupted, output)
    }
}

fn with_partial_output(message: &str, partial_output: Option<String>) -> ToolOutput {
    ToolOutput::text(match partial_output.filter(|text| !text.is_empty()) {
        Some(text) => format!("{message}\nOutput until then:\n{text}"),
        None => message.to_owned(),
    })
}

/// The running tool calls of one run.
#[derive(Default)]
pub(super) struct ActiveCalls {
    running: Vec<ActiveCall>,
}

/// A running tool call. Dropping this value cancels the call.
struct ActiveCall {
    call: CallId,
    policy: CancelPolicy,
    partial_output: PartialToolOutput,
    work: BoxFuture<'static, ToolCallResult>,
    _progress: Option<ProgressGuard>,
}

impl ActiveCalls {
    /// Whether the call with this id is running.
    pub(super) fn contains(&self, call: CallId) -> bool {
        self.running.iter().any(|running| running.call == call)
    }

    /// Whether no tool call is running.
    pub(super) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Whether at least one running tool call may be stopped: it may be repeated, or it has no
    /// further effects after it was stopped.
    pub(super) fn has_stoppable_call(&self) -> bool {
        self.running.iter().any(|running| running.policy.is_stoppable())
    }

    /// Starts a tool call. While the guard `progress` exists, progress reports of the call are
    /// collected.
    pub(super) fn start_call(&mut self, request: CallRequest, progress: ProgressGuard) {
        self.running.push(ActiveCall {
            call: request.ctx.call,
            policy: CancelPolicy {
                may_repeat: request.may_repeat,
                is_cancel_safe: request.tool.is_cancel_safe(),
            },
            partial_output: request.ctx.partial_output.clone(),
            work: run_tool_call(request).boxed(),
            _progress: Some(progress),
        });
    }

    /// Adds the result of a tool call that could not be started, such as a call of an unknown tool.
    pub(super) fn push_finished_call(&mut self, finished: ToolCallResult) {
        self.running.push(ActiveCall {
            call: finished.call,
            policy: CancelPolicy { may_repeat: true, is_cancel_safe: true },
            partial_output: PartialToolOutput::default(),
            work: async move { finished }.boxed(),
            _progress: None,
        });
    }

    /// Waits until the next running tool call ends. `None` if no call is running. Cancel safe.
    pub(super) async fn next_finished_call(&mut self) -> Option<ToolCallResult> {
        poll_fn(|context| self.poll_finished_call(context)).await
    }

    /// Polls every running call and returns the first that has ended. A reply has so few calls that
    /// polling all of them is cheap.
    fn poll_finished_call(&mut self, context: &mut Context<'_>) -> Poll<Option<ToolCallResult>> {
        for index in 0..self.running.len() {
            if let Poll::Ready(ended) = self.running[index].work.poll_unpin(context) {
                self.running.remove(index);
                return Poll::Ready(Some(ended));
            }
        }
        if self.running.is_empty() { Poll::Ready(None) } else { Poll::Pending }
    }

    /// Cancels the running calls for whose cancel policy `predicate` returns true, and returns
    /// them.
    pub(super) fn cancel_calls_if(
        &mut self,
        predicate: impl Fn(CancelPolicy) -> bool,
    ) -> Vec<CancelledCall> {
        let removed = self.running.extract_if(.., |running| predicate(running.policy));
        let cancelled = removed.map(|running| {
            // The partial output is complete only when the future is dropped.
            drop(running.work);
            CancelledCall {
                call: running.call,
                is_cancel_safe: running.policy.is_cancel_safe,
                partial_output: running.partial_output.take_output_so_far(),
            }
        });
        cancelled.collect()
    }
}

/// Returns the result of a call with this status and this text as its output.
pub(super) fn finished_text(call: CallId, status: ToolCallStatus, text: &str) -> ToolCallResult {
    finished(call, status, ToolOutput::text(text))
}

/// Returns the result of a call, whose active time is measured elsewhere. Its blobs are only those of
/// images that the tool attached.
const fn finished(call: CallId, status: ToolCallStatus, output: ToolOutput) -> ToolCallResult {
    ToolCallResult { call, status, output, active: Millis::ZERO, blobs: Vec::new() }
}

/// Runs a tool call until it returns, fails, panics or times out.
async fn run_tool_call(mut request: CallRequest) -> ToolCallResult {
    let call = request.ctx.call;
    let tool = Arc::clone(&request.tool);
    let (input, resumption) = (request.input.take(), request.resumption.take());
    let work = async { tool.call_or_suspend(input, &request.ctx, resumption).await };
    let (status, output) = match guard(&*request.clock, request.timeout, work).await {
        Ok(Ok(ToolReply::Output(output))) => (ToolCallStatus::Completed, output),
        Ok(Ok(ToolReply::Suspended(suspended))) => {
            (ToolCallStatus::Suspended(suspended), ToolOutput::default())
        }
        Ok(Err(failure)) => {
            let may_have_effect = request.has_effect_key && failure.may_have_effect();
            let status = match failure.is_outcome_unknown() {
                true => status_of_unknown_result(&request),
                false if may_have_effect => ToolCallStatus::Interrupted,
                false => ToolCallStatus::Failed,
            };
            let transient = failure.is_transient();
            (status, ToolOutput { transient, ..ToolOutput::text(failure.message()) })
        }
        Err(error @ GuardError::Panicked(_)) => {
            let status = match request.has_effect_key {
                true => ToolCallStatus::Unknown,
                false => ToolCallStatus::Failed,
            };
            (status, ToolOutput::text(format!("the tool {error}")))
        }
        Err(GuardError::TimedOut(timeout)) => {
            let message = format!("the call timed out after {}", format_duration(timeout));
            let status = match request.tool.is_cancel_safe() {
                true => ToolCallStatus::Interrupted,
                false => status_of_unknown_result(&request),
            };
            let partial_output = request.ctx.partial_output.take_output_so_far();
            (status, with_partial_output(&message, partial_output))
        }
    };
    ToolCallResult { blobs: request.ctx.images.drain(), ..finished(call, status, output) }
}

/// Returns the status of a tool call whose result is unknown: failed if the call may be repeated
/// and has no effect key, otherwise unknown. A failed call releases its effect key, and another
/// call would then repeat an effect that may have happened.
const fn status_of_unknown_result(request: &CallRequest) -> ToolCallStatus {
    match request.class {
        EffectClass::Pure | EffectClass::Keyed if !request.has_effect_key => ToolCallStatus::Failed,
        EffectClass::Pure | EffectClass::Keyed => ToolCallStatus::Unknown,
        // It may have happened; only a verification or a person can tell.
        EffectClass::Once | EffectClass::Session => ToolCallStatus::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;
    use longhaul_core::id::{Epoch, RunId, ToolName};
    use longhaul_core::port::tool::{ToolFailure, ToolSpec};
    use longhaul_core::time::Timestamp;

    use super::*;
    use crate::drive::progress::ProgressThrottle;

    /// Test clock on which no wait ever ends.
    #[derive(Debug)]
    struct FixedClock;

    #[async_trait]
    impl Clock for FixedClock {
        fn now(&self) -> Timestamp {
            Timestamp::default()
        }

        async fn sleep(&self, _: Millis) {
            std::future::pending().await
        }
    }

    /// Test tool that waits once and then increments a counter.
    #[derive(Debug)]
    struct CountingTool {
        spec: ToolSpec,
        done: Arc<AtomicUsize>,
    }

    #[async_trait]
    impl Tool for CountingTool {
        fn spec(&self) -> &ToolSpec {
            &self.spec
        }

        async fn call(&self, _: Value, _: &ToolContext) -> Result<ToolOutput, ToolFailure> {
            let mut waited = false;
            poll_fn(|context| {
                context.waker().wake_by_ref();
                let before = std::mem::replace(&mut waited, true);
                if before { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            self.done.fetch_add(1, Ordering::Relaxed);
            Ok(ToolOutput::text("done"))
        }
    }

    fn request_to_increment_done_count(
        index: u16,
        class: EffectClass,
        done_count: &Arc<AtomicUsize>,
    ) -> CallRequest {
        let spec = ToolSpec {
            name: ToolName::new("count").unwrap(),
            description: String::new(),
            schema: Value::Bool(true),
            can_verify: false,
            in_doubt: None,
            timeout: None,
        };
        let call = CallId { turn: 1, index };
        CallRequest {
            tool: Arc::new(CountingTool { spec, done: done_count.clone() }),
            input: Value::Null,
            ctx: ToolContext::new(RunId::from_bits(7), call, Epoch(1)),
            class,
            has_effect_key: false,
            may_repeat: class.may_repeat(),
            resumption: None,
            timeout: CALL_TIMEOUT,
            clock: Arc::new(FixedClock),
        }
    }

    #[test]
    fn a_cancelled_call_never_returns_a_result() {
        let done = Arc::default();
        let mut calls = ActiveCalls::default();
        let throttle = ProgressThrottle::default();
        let track = |index| throttle.track_call(CallId { turn: 1, index });
        calls.start_call(request_to_increment_done_count(1, EffectClass::Pure, &done), track(1));
        assert!(calls.next_finished_call().now_or_never().is_none(), "the first call is running");
        let cancelled = calls.cancel_calls_if(|call| call.may_repeat);
        let cancelled: Vec<CallId> = cancelled.iter().map(|cancelled| cancelled.call).collect();
        assert_eq!(cancelled, [CallId { turn: 1, index: 1 }]);
        calls.start_call(request_to_increment_done_count(2, EffectClass::Once, &done), track(2));
        assert!(calls.next_finished_call().now_or_never().is_none(), "the second call is running");
        let ended = calls.next_finished_call().now_or_never().flatten().expect("the call ends");
        assert_eq!(ended.call, CallId { turn: 1, index: 2 });
        assert_eq!(done.load(Ordering::Relaxed), 1);
        assert!(calls.is_empty());
    }

    /// Test tool whose calls fail.
    #[derive(Debug)]
    struct FailingTool(ToolSpec, ToolFailure);

    #[async_trait]
    impl Tool for FailingTool {
        fn spec(&self) -> &ToolSpec {
            &self.0
        }

        async fn call(&self, _: Value, _: &ToolContext) -> Result<ToolOutput, ToolFailure> {
            Err(self.1.clone())
        }
    }

    #[test]
    fn the_status_of_a_failed_call_depends_on_its_effect_class_and_effect_key() {
        let unknown = || ToolFailure::outcome_unknown("its server is gone");
        let with_possible_effect = || ToolFailure::with_possible_effect("its server is gone");
        let failed = || ToolFailure::new("its server is gone");
        for (class, has_effect_key, failure, end) in [
            (EffectClass::Pure, false, unknown(), ToolCallStatus::Failed),
            (EffectClass::Keyed, false, unknown(), ToolCallStatus::Failed),
            (EffectClass::Once, false, unknown(), ToolCallStatus::Unknown),
            (EffectClass::Session, false, unknown(), ToolCallStatus::Unknown),
            (EffectClass::Keyed, true, unknown(), ToolCallStatus::Unknown),
            (EffectClass::Once, false, with_possible_effect(), ToolCallStatus::Failed),
            (EffectClass::Once, true, with_possible_effect(), ToolCallStatus::Interrupted),
            (EffectClass::Once, true, failed(), ToolCallStatus::Failed),
        ] {
            let mut request = request_to_increment_done_count(1, class, &Arc::default());
            request.has_effect_key = has_effect_key;
            request.tool = Arc::new(FailingTool(request.tool.spec().clone(), failure));
            let mut calls = ActiveCalls::default();
            let tracked = ProgressThrottle::default().track_call(request.ctx.call);
            calls.start_call(request, tracked);
            let ended = calls.next_finished_call().now_or_never().flatten().expect("the call ends");
            assert_eq!(ended.status, end, "{class:?}");
            assert_eq!(ended.output, ToolOutput::text("its server is gone"));
        }
    }
}
