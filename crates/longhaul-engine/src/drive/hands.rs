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
use longhaul_core::port::tool::{SoFar, Tool, ToolContext};
use longhaul_core::time::{Clock, Millis};
use longhaul_run::input::ToolEnd;
use serde_json::Value;

use crate::drive::gauge::Open;
use crate::mishap;

/// A call that says nothing of its time may take this long.
pub(super) const CALL_TIMEOUT: Millis = Millis::from_secs(10 * 60);

/// A call about to be made.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) tool: Arc<dyn Tool>,
    pub(super) input: Value,
    pub(super) around: ToolContext,
    pub(super) class: EffectClass,
    pub(super) timeout: Millis,
    pub(super) clock: Arc<dyn Clock>,
}

/// A call that has ended.
#[derive(Debug, Clone)]
pub(super) struct Ended {
    pub(super) call: CallId,
    pub(super) end: ToolEnd,
    pub(super) output: ToolOutput,
    /// What it put up to be seen.
    pub(super) pictures: Vec<Blob>,
}

/// How a call may be let go of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way {
    /// It may simply be begun again.
    pub(super) may_repeat: bool,
    /// It ends for good when it is let go of.
    pub(super) stops_cleanly: bool,
}

/// A call that was let go of.
#[derive(Debug)]
pub(super) struct Gone {
    pub(super) call: CallId,
    pub(super) stops_cleanly: bool,
    said: Option<String>,
}

impl Gone {
    /// Its end, with what it had to say until then.
    pub(super) fn stopped(self, words: &str) -> Ended {
        Ended {
            call: self.call,
            end: ToolEnd::Interrupted,
            output: with_said(words, self.said),
            pictures: Vec::new(),
        }
    }
}

fn with_said(words: &str, said: Option<String>) -> ToolOutput {
    let said = said.filter(|said| !said.is_empty());
    let said = said.map_or(String::new(), |said| {
        format!("\nWhat it had said until then:\n{said}")
    });
    ToolOutput::text(format!("{words}{said}"))
}

/// Calls under way.
#[derive(Debug, Default)]
pub(super) struct Hands {
    running: Vec<Running>,
}

/// A call under way. To drop it is to let go of it: it never comes back.
struct Running {
    call: CallId,
    way: Way,
    so_far: SoFar,
    work: BoxFuture<'static, Ended>,
    _heard: Option<Open>,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running")
            .field("call", &self.call)
            .field("way", &self.way)
            .finish_non_exhaustive()
    }
}

impl Hands {
    /// Whether this call is under way.
    pub(super) fn holds(&self, call: CallId) -> bool {
        self.running.iter().any(|running| running.call == call)
    }

    /// Whether none is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Begins a call. What it says of itself is heard as long as it goes on.
    pub(super) fn begin(&mut self, begun: Begun, heard: Open) {
        self.running.push(Running {
            call: begun.around.call,
            way: Way {
                may_repeat: begun.class.may_repeat(),
                stops_cleanly: begun.tool.stops_cleanly(),
            },
            so_far: begun.around.so_far.clone(),
            work: make(begun).boxed(),
            _heard: Some(heard),
        });
    }

    /// A call that ended before it began.
    pub(super) fn end_at_once(&mut self, ended: Ended) {
        self.running.push(Running {
            call: ended.call,
            way: Way {
                may_repeat: true,
                stops_cleanly: true,
            },
            so_far: SoFar::default(),
            work: async move { ended }.boxed(),
            _heard: None,
        });
    }

    /// The next call that ends; none when none is under way. To stop waiting
    /// for it loses nothing.
    pub(super) async fn next(&mut self) -> Option<Ended> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// A reply has few calls at once, so each of them is simply asked.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Ended>> {
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
    pub(super) fn let_go(&mut self, wanted: impl Fn(Way) -> bool) -> Vec<Gone> {
        let picked = self.running.extract_if(.., |running| wanted(running.way));
        let gone = picked.map(|running| {
            // Only when it has ended it has left what it had to say.
            drop(running.work);
            Gone {
                call: running.call,
                stops_cleanly: running.way.stops_cleanly,
                said: running.so_far.take(),
            }
        });
        gone.collect()
    }
}

/// Makes a call: what it says, how it fails, that it panicked or took too long.
async fn make(begun: Begun) -> Ended {
    let call = begun.around.call;
    let tool = Arc::clone(&begun.tool);
    let work = async { tool.call(begun.input, &begun.around).await };
    let (end, output) = tokio::select! {
        biased;
        done = AssertUnwindSafe(work).catch_unwind() => match done {
            Ok(Ok(output)) => (ToolEnd::Completed, output),
            Ok(Err(failure)) => {
                let end = match failure.is_unknown() {
                    true => lost(begun.class),
                    false => ToolEnd::Failed,
                };
                (end, ToolOutput::text(failure.words()))
            }
            Err(panic) => {
                let words = format!("the tool panicked: {}", mishap::words(&*panic));
                (ToolEnd::Failed, ToolOutput::text(words))
            }
        },
        () = begun.clock.sleep(begun.timeout) => {
            let words = format!("it took longer than {} and was stopped", spoken(begun.timeout));
            let end = match begun.tool.stops_cleanly() {
                true => ToolEnd::Interrupted,
                false => lost(begun.class),
            };
            (end, with_said(&words, begun.around.so_far.take()))
        }
    };
    Ended {
        call,
        end,
        output,
        pictures: begun.around.pictures.take(),
    }
}

/// How a call ends that nobody heard the end of.
const fn lost(class: EffectClass) -> ToolEnd {
    match class {
        EffectClass::Pure | EffectClass::Keyed => ToolEnd::Failed,
        // It may have happened; only a look or a person can tell.
        EffectClass::Once | EffectClass::Session => ToolEnd::Unknown,
    }
}

/// A span as people say it.
fn spoken(span: Millis) -> String {
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
    use longhaul_core::port::tool::{ToolCard, ToolFailure};
    use longhaul_core::time::Timestamp;

    use super::*;
    use crate::drive::gauge::Gauge;

    /// A clock that stands.
    #[derive(Debug)]
    struct Still;

    #[async_trait]
    impl Clock for Still {
        fn now(&self) -> Timestamp {
            Timestamp::default()
        }

        async fn sleep(&self, _: Millis) {
            std::future::pending().await
        }
    }

    /// Waits once, then does something that can be counted.
    #[derive(Debug)]
    struct Counting {
        card: ToolCard,
        done: Arc<AtomicUsize>,
    }

    #[async_trait]
    impl Tool for Counting {
        fn card(&self) -> &ToolCard {
            &self.card
        }

        async fn call(&self, _: Value, _: &ToolContext) -> Result<ToolOutput, ToolFailure> {
            let mut waited = false;
            poll_fn(|context| {
                context.waker().wake_by_ref();
                let before = std::mem::replace(&mut waited, true);
                if before {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            })
            .await;
            self.done.fetch_add(1, Ordering::Relaxed);
            Ok(ToolOutput::text("done"))
        }
    }

    fn begun(index: u16, class: EffectClass, done: &Arc<AtomicUsize>) -> Begun {
        let card = ToolCard {
            name: ToolName::new("count").unwrap(),
            description: String::new(),
            schema: Value::Bool(true),
            verifies: false,
            in_doubt: None,
            timeout: None,
        };
        let call = CallId { turn: 1, index };
        Begun {
            tool: Arc::new(Counting {
                card,
                done: done.clone(),
            }),
            input: Value::Null,
            around: ToolContext::new(RunId::from_bits(7), call, Epoch(1)),
            class,
            timeout: CALL_TIMEOUT,
            clock: Arc::new(Still),
        }
    }

    #[test]
    fn a_call_that_was_let_go_of_never_comes_back() {
        let done = Arc::default();
        let mut hands = Hands::default();
        let gauge = Gauge::default();
        let heard = |index| gauge.begin(CallId { turn: 1, index });
        hands.begin(begun(1, EffectClass::Pure, &done), heard(1));
        assert!(hands.next().now_or_never().is_none(), "it is under way");
        let gone = hands.let_go(|way| way.may_repeat);
        let gone: Vec<CallId> = gone.iter().map(|gone| gone.call).collect();
        assert_eq!(gone, [CallId { turn: 1, index: 1 }]);
        hands.begin(begun(2, EffectClass::Once, &done), heard(2));
        assert!(hands.next().now_or_never().is_none(), "so is the second");
        let ended = hands.next().now_or_never().flatten().expect("it ends");
        assert_eq!(ended.call, CallId { turn: 1, index: 2 });
        assert_eq!(done.load(Ordering::Relaxed), 1);
        assert!(hands.is_empty());
    }

    /// Can't say what came of it.
    #[derive(Debug)]
    struct Unsure(ToolCard);

    #[async_trait]
    impl Tool for Unsure {
        fn card(&self) -> &ToolCard {
            &self.0
        }

        async fn call(&self, _: Value, _: &ToolContext) -> Result<ToolOutput, ToolFailure> {
            Err(ToolFailure::unknown("its server is gone"))
        }
    }

    #[test]
    fn what_nobody_knows_is_in_doubt_only_where_it_must_not_be_repeated() {
        for (class, end) in [
            (EffectClass::Pure, ToolEnd::Failed),
            (EffectClass::Keyed, ToolEnd::Failed),
            (EffectClass::Once, ToolEnd::Unknown),
            (EffectClass::Session, ToolEnd::Unknown),
        ] {
            let mut begun = begun(1, class, &Arc::default());
            begun.tool = Arc::new(Unsure(begun.tool.card().clone()));
            let mut hands = Hands::default();
            let heard = Gauge::default().begin(begun.around.call);
            hands.begin(begun, heard);
            let ended = hands.next().now_or_never().flatten().expect("it ends");
            assert_eq!(ended.end, end, "{class:?}");
            assert_eq!(ended.output, ToolOutput::text("its server is gone"));
        }
    }
}
