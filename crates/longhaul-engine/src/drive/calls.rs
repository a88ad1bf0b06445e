//! The calls that a driver has begun and not yet told the end of.
//!
//! Never: begins a call whose start is not journaled, or lets a panic out.

use std::fmt;
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use longhaul_core::change::Blob;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::id::CallId;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::{PartialOutput, Tool, ToolContext};
use longhaul_core::time::{Clock, Millis};
use longhaul_run::input::ToolCallStatus;
use serde_json::Value;

use crate::drive::progress::TrackedCall;
use crate::panics;

/// A call that says nothing of its time may take this long.
pub(super) const CALL_TIMEOUT: Millis = Millis::from_secs(10 * 60);

/// A call about to be made.
#[derive(Debug)]
pub(super) struct CallRequest {
    pub(super) tool: Arc<dyn Tool>,
    pub(super) input: Value,
    pub(super) ctx: ToolContext,
    pub(super) class: EffectClass,
    pub(super) timeout: Millis,
    pub(super) clock: Arc<dyn Clock>,
}

/// A call that has ended.
#[derive(Debug, Clone)]
pub(super) struct FinishedCall {
    pub(super) call: CallId,
    pub(super) status: ToolCallStatus,
    pub(super) output: ToolOutput,
    /// What it put up to be seen.
    pub(super) images: Vec<Blob>,
}

/// How a call may be let go of.
#[derive(Debug, Clone, Copy)]
pub(super) struct CancelPolicy {
    /// It may simply be begun again.
    pub(super) may_repeat: bool,
    /// It ends for good when it is let go of.
    pub(super) is_cancel_safe: bool,
}

/// A call that was let go of.
#[derive(Debug)]
pub(super) struct CancelledCall {
    pub(super) call: CallId,
    pub(super) is_cancel_safe: bool,
    partial_output: Option<String>,
}

impl CancelledCall {
    /// Its end, with what it had to say until then.
    pub(super) fn into_interrupted(self, words: &str) -> FinishedCall {
        FinishedCall {
            call: self.call,
            status: ToolCallStatus::Interrupted,
            output: with_partial_output(words, self.partial_output),
            images: Vec::new(),
        }
    }
}

fn with_partial_output(words: &str, said: Option<String>) -> ToolOutput {
    let said = said.filter(|said| !said.is_empty());
    let said = said.map_or(String::new(), |said| format!("\nWhat it had said until then:\n{said}"));
    ToolOutput::text(format!("{words}{said}"))
}

/// Calls under way.
#[derive(Debug, Default)]
pub(super) struct RunningCalls {
    running: Vec<RunningCall>,
}

/// A call under way. To drop it is to let go of it: it never comes back.
struct RunningCall {
    call: CallId,
    policy: CancelPolicy,
    partial_output: PartialOutput,
    work: BoxFuture<'static, FinishedCall>,
    _progress: Option<TrackedCall>,
}

impl fmt::Debug for RunningCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningCall")
            .field("call", &self.call)
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

impl RunningCalls {
    /// Whether this call is under way.
    pub(super) fn contains(&self, call: CallId) -> bool {
        self.running.iter().any(|running| running.call == call)
    }

    /// Whether none is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Begins a call. What it says of itself is heard as long as it goes on.
    pub(super) fn start(&mut self, begun: CallRequest, heard: TrackedCall) {
        self.running.push(RunningCall {
            call: begun.ctx.call,
            policy: CancelPolicy {
                may_repeat: begun.class.may_repeat(),
                is_cancel_safe: begun.tool.is_cancel_safe(),
            },
            partial_output: begun.ctx.partial_output.clone(),
            work: run_call(begun).boxed(),
            _progress: Some(heard),
        });
    }

    /// A call that ended before it began.
    pub(super) fn push_finished(&mut self, ended: FinishedCall) {
        self.running.push(RunningCall {
            call: ended.call,
            policy: CancelPolicy { may_repeat: true, is_cancel_safe: true },
            partial_output: PartialOutput::default(),
            work: async move { ended }.boxed(),
            _progress: None,
        });
    }

    /// The next call that ends; none when none is under way. To stop waiting
    /// for it loses nothing.
    pub(super) async fn next(&mut self) -> Option<FinishedCall> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// A reply has few calls at once, so each of them is simply asked.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<FinishedCall>> {
        for place in 0..self.running.len() {
            if let Poll::Ready(ended) = self.running[place].work.poll_unpin(context) {
                self.running.remove(place);
                return Poll::Ready(Some(ended));
            }
        }
        if self.running.is_empty() {
            return Poll::Ready(None);
        }
        Poll::Pending
    }

    /// Lets go of the calls that `wanted` picks.
    pub(super) fn cancel(&mut self, wanted: impl Fn(CancelPolicy) -> bool) -> Vec<CancelledCall> {
        let picked = self.running.extract_if(.., |running| wanted(running.policy));
        let gone = picked.map(|running| {
            // Only when it has ended it has left what it had to say.
            drop(running.work);
            CancelledCall {
                call: running.call,
                is_cancel_safe: running.policy.is_cancel_safe,
                partial_output: running.partial_output.take(),
            }
        });
        gone.collect()
    }
}

/// Makes a call: what it says, how it fails, that it panicked or took too long.
async fn run_call(begun: CallRequest) -> FinishedCall {
    let call = begun.ctx.call;
    let tool = Arc::clone(&begun.tool);
    let work = async { tool.call(begun.input, &begun.ctx).await };
    let (end, output) = tokio::select! {
        biased;
        done = AssertUnwindSafe(work).catch_unwind() => match done {
            Ok(Ok(output)) => (ToolCallStatus::Completed, output),
            Ok(Err(failure)) => {
                let end = match failure.is_outcome_unknown() {
                    true => end_of_unknown(begun.class),
                    false => ToolCallStatus::Failed,
                };
                (end, ToolOutput::text(failure.message()))
            }
            Err(panic) => {
                let words = format!("the tool panicked: {}", panics::panic_message(&*panic));
                (ToolCallStatus::Failed, ToolOutput::text(words))
            }
        },
        () = begun.clock.sleep(begun.timeout) => {
            let words = format!("it took longer than {} and was stopped", format_duration(begun.timeout));
            let end = match begun.tool.is_cancel_safe() {
                true => ToolCallStatus::Interrupted,
                false => end_of_unknown(begun.class),
            };
            (end, with_partial_output(&words, begun.ctx.partial_output.take()))
        }
    };
    FinishedCall { call, status: end, output, images: begun.ctx.images.drain() }
}

/// How a call ends that nobody heard the end of.
const fn end_of_unknown(class: EffectClass) -> ToolCallStatus {
    match class {
        EffectClass::Pure | EffectClass::Keyed => ToolCallStatus::Failed,
        // It may have happened; only a look or a person can tell.
        EffectClass::Once | EffectClass::Session => ToolCallStatus::Unknown,
    }
}

/// A span as people say it.
fn format_duration(span: Millis) -> String {
    match span.0 {
        millis if millis % 1_000 == 0 => format!("{} s", millis / 1_000),
        millis => format!("{millis} ms"),
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

    /// A clock that stands.
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

    /// Waits once, then does something that can be counted.
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

    fn call_request(index: u16, class: EffectClass, done: &Arc<AtomicUsize>) -> CallRequest {
        let card = ToolSpec {
            name: ToolName::new("count").unwrap(),
            description: String::new(),
            schema: Value::Bool(true),
            can_verify: false,
            in_doubt: None,
            timeout: None,
        };
        let call = CallId { turn: 1, index };
        CallRequest {
            tool: Arc::new(CountingTool { spec: card, done: done.clone() }),
            input: Value::Null,
            ctx: ToolContext::new(RunId::from_bits(7), call, Epoch(1)),
            class,
            timeout: CALL_TIMEOUT,
            clock: Arc::new(FixedClock),
        }
    }

    #[test]
    fn a_cancelled_call_never_returns_a_result() {
        let done = Arc::default();
        let mut hands = RunningCalls::default();
        let gauge = ProgressThrottle::default();
        let heard = |index| gauge.track(CallId { turn: 1, index });
        hands.start(call_request(1, EffectClass::Pure, &done), heard(1));
        assert!(hands.next().now_or_never().is_none(), "it is under way");
        let gone = hands.cancel(|way| way.may_repeat);
        let gone: Vec<CallId> = gone.iter().map(|gone| gone.call).collect();
        assert_eq!(gone, [CallId { turn: 1, index: 1 }]);
        hands.start(call_request(2, EffectClass::Once, &done), heard(2));
        assert!(hands.next().now_or_never().is_none(), "so is the second");
        let ended = hands.next().now_or_never().flatten().expect("it ends");
        assert_eq!(ended.call, CallId { turn: 1, index: 2 });
        assert_eq!(done.load(Ordering::Relaxed), 1);
        assert!(hands.is_empty());
    }

    /// Can't say what came of it.
    #[derive(Debug)]
    struct UnknownOutcomeTool(ToolSpec);

    #[async_trait]
    impl Tool for UnknownOutcomeTool {
        fn spec(&self) -> &ToolSpec {
            &self.0
        }

        async fn call(&self, _: Value, _: &ToolContext) -> Result<ToolOutput, ToolFailure> {
            Err(ToolFailure::outcome_unknown("its server is gone"))
        }
    }

    #[test]
    fn an_unknown_result_is_in_doubt_only_if_the_call_is_not_repeatable() {
        for (class, end) in [
            (EffectClass::Pure, ToolCallStatus::Failed),
            (EffectClass::Keyed, ToolCallStatus::Failed),
            (EffectClass::Once, ToolCallStatus::Unknown),
            (EffectClass::Session, ToolCallStatus::Unknown),
        ] {
            let mut begun = call_request(1, class, &Arc::default());
            begun.tool = Arc::new(UnknownOutcomeTool(begun.tool.spec().clone()));
            let mut hands = RunningCalls::default();
            let heard = ProgressThrottle::default().track(begun.ctx.call);
            hands.start(begun, heard);
            let ended = hands.next().now_or_never().flatten().expect("it ends");
            assert_eq!(ended.status, end, "{class:?}");
            assert_eq!(ended.output, ToolOutput::text("its server is gone"));
        }
    }
}
