//! The calls that a driver has begun and not yet told the end of.
//!
//! Never: begins a call whose start is not journaled, or lets a panic out.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::id::CallId;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::{Tool, ToolContext};
use longhaul_core::time::{Clock, Millis};
use longhaul_run::input::ToolEnd;
use serde_json::Value;

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
}

/// Calls under way.
#[derive(Default)]
pub(super) struct Hands {
    running: FuturesUnordered<BoxFuture<'static, Option<Ended>>>,
    classes: BTreeMap<CallId, EffectClass>,
    dropped: BTreeMap<CallId, tokio_util::sync::CancellationToken>,
}

impl fmt::Debug for Hands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hands")
            .field("classes", &self.classes)
            .finish_non_exhaustive()
    }
}

impl Hands {
    /// Whether this call is under way.
    pub(super) fn holds(&self, call: CallId) -> bool {
        self.classes.contains_key(&call)
    }

    /// Whether none is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.classes.is_empty()
    }

    /// Begins a call.
    pub(super) fn begin(&mut self, begun: Begun) {
        let call = begun.around.call;
        let drop = tokio_util::sync::CancellationToken::new();
        self.classes.insert(call, begun.class);
        self.dropped.insert(call, drop.clone());
        let work = async move {
            tokio::select! {
                biased;
                ended = make(begun) => Some(ended),
                () = drop.cancelled() => None,
            }
        };
        self.running.push(work.boxed());
    }

    /// A call that ended before it began.
    pub(super) fn end_at_once(&mut self, ended: Ended) {
        self.classes.insert(ended.call, EffectClass::Pure);
        self.running.push(async move { Some(ended) }.boxed());
    }

    /// The next call that ends; none when none is under way.
    pub(super) async fn next(&mut self) -> Option<Ended> {
        loop {
            match self.running.next().await {
                None => return None,
                Some(None) => {}
                Some(Some(ended)) => {
                    self.forget(ended.call);
                    return Some(ended);
                }
            }
        }
    }

    fn forget(&mut self, call: CallId) {
        self.classes.remove(&call);
        self.dropped.remove(&call);
    }

    /// Lets go of the calls that `wanted` picks, and names them.
    pub(super) fn let_go(&mut self, wanted: impl Fn(EffectClass) -> bool) -> Vec<CallId> {
        let picked: Vec<CallId> = self
            .classes
            .iter()
            .filter(|(_, class)| wanted(**class))
            .map(|(call, _)| *call)
            .collect();
        for call in &picked {
            if let Some(drop) = self.dropped.get(call) {
                drop.cancel();
            }
            self.forget(*call);
        }
        picked
    }
}

/// Makes a call: what it says, how it fails, that it panicked or took too long.
async fn make(begun: Begun) -> Ended {
    let call = begun.around.call;
    let until = begun.clock.now().plus(begun.timeout);
    let tool = Arc::clone(&begun.tool);
    let work = async { tool.call(begun.input, &begun.around).await };
    let (end, output) = tokio::select! {
        biased;
        done = AssertUnwindSafe(work).catch_unwind() => match done {
            Ok(Ok(output)) => (ToolEnd::Completed, output),
            Ok(Err(failure)) => (ToolEnd::Failed, ToolOutput::text(failure.0)),
            Err(panic) => (ToolEnd::Failed, ToolOutput::text(panicked(&*panic))),
        },
        () = begun.clock.sleep_until(until) => {
            let seconds = begun.timeout.0 / 1_000;
            let end = match begun.class {
                EffectClass::Pure | EffectClass::Keyed => ToolEnd::Failed,
                // It may have happened; only a look or a person can tell.
                EffectClass::Once | EffectClass::Session => ToolEnd::Unknown,
            };
            (end, ToolOutput::text(format!("it took longer than {seconds} s and was stopped")))
        }
    };
    Ended { call, end, output }
}

/// What is said of a panic: its words help whoever mends the tool.
fn panicked(panic: &(dyn std::any::Any + Send)) -> String {
    let words = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the tool panicked: {}", words.unwrap_or("without words"))
}
