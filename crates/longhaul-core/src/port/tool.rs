//! A tool: what an agent can do.
//!
//! Never: panics out of its call, and never sees another run. A failure is a
//! result that the model reads.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use serde_json::Value;

use crate::event::tool::{ToolOutput, VerifyOutcome};
use crate::id::{CallId, Epoch, ResourceKey, RunId, ThreadKey, ToolName};
use crate::policy::effect::{EffectClass, InDoubtPolicy};
use crate::port::image_sink::ImageSink;
use crate::raw::RawJson;
use crate::time::Millis;

/// Something an agent can do.
#[async_trait]
pub trait Tool: Send + Sync + std::fmt::Debug {
    /// What it is, for the model and for the rules.
    fn spec(&self) -> &ToolSpec;

    /// What this call does to the world. Undeclared means `once`.
    fn class(&self, _input: &Value) -> EffectClass {
        EffectClass::Once
    }

    /// What rules match against, such as a path or a command.
    fn subjects(&self, input: &Value) -> Vec<String> {
        vec![crate::raw::canonical_json(input)]
    }

    /// The same for a call into which the runtime injects these values: some
    /// rules are about what only the runtime says, such as whom a message is for.
    fn subjects_with_context(
        &self,
        input: &Value,
        _context: &BTreeMap<String, RawJson>,
    ) -> Vec<String> {
        self.subjects(input)
    }

    /// Whether its subjects can't be read from this input, so that every rule
    /// that asks about the tool asks about this call.
    fn is_opaque(&self, _input: &Value) -> bool {
        false
    }

    /// How long this call may take; none: the runtime's usual.
    fn timeout(&self, _input: &Value) -> Option<Millis> {
        self.spec().timeout
    }

    /// Whether a call that is let go of ends for good: what it had begun is
    /// killed before its drop returns, so that it is never in doubt.
    fn is_cancel_safe(&self) -> bool {
        false
    }

    /// Whether what a call has begun may go on after its worker was killed, such as
    /// a process on this machine. People are told so before they begin it again.
    fn may_outlive_worker(&self) -> bool {
        false
    }

    /// Whether it acts on this machine without walls. Only an agent whose file
    /// spells out `isolation: none` may have it.
    fn is_unsandboxed(&self) -> bool {
        false
    }

    /// Does it.
    async fn call(&self, input: Value, around: &ToolContext) -> Result<ToolOutput, ToolFailure>;

    /// Looks whether a call under this key has happened.
    async fn verify(&self, _input: Value, _around: &ToolContext) -> VerifyOutcome {
        VerifyOutcome::Unknown
    }
}

/// What a tool says of itself.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    /// Its name.
    pub name: ToolName,
    /// What it does, for the model.
    pub description: String,
    /// The JSON Schema of its input.
    pub schema: Value,
    /// It can look whether a call has happened.
    pub can_verify: bool,
    /// What it wants done in doubt.
    pub in_doubt: Option<InDoubtPolicy>,
    /// How long a call may take.
    pub timeout: Option<Millis>,
}

/// What surrounds a call: injected by the runtime, out of the model's reach.
#[derive(Debug, Clone)]
pub struct ToolContext {
    /// For which run.
    pub run: RunId,
    /// Which call.
    pub call: CallId,
    /// The same at every attempt of this call.
    pub idempotency_key: String,
    /// Which start of this call, from 1: more after a crash in the middle of a call that may be
    /// repeated.
    pub attempt: u32,
    /// The driver's fence: a lower one than was seen before is refused.
    pub epoch: Epoch,
    /// Names that the agent's file asks for, such as `recipient`.
    pub context: BTreeMap<String, RawJson>,
    /// The conversation that the run belongs to.
    pub thread: Option<ThreadKey>,
    /// Whom the conversation is about.
    pub resource: Option<ResourceKey>,
    /// The names of the skills that the agent's file lists.
    pub skills: Vec<String>,
    /// Whoever hears how far the call is.
    pub progress: Arc<dyn Progress>,
    /// Where a call that is stopped leaves what it has so far.
    pub partial_output: PartialOutput,
    /// Where it puts up pictures, which its output then names.
    pub images: ImageSink,
}

impl ToolContext {
    /// What surrounds a call that nothing is injected into and nobody listens to.
    pub fn new(run: RunId, call: CallId, epoch: Epoch) -> Self {
        Self {
            run,
            call,
            idempotency_key: call.idempotency_key(run),
            attempt: 1,
            epoch,
            context: BTreeMap::new(),
            thread: None,
            resource: None,
            skills: Vec::new(),
            progress: Arc::new(NoopProgress),
            partial_output: PartialOutput::default(),
            images: ImageSink::default(),
        }
    }
}

/// What a call had to say when it was stopped. Clones are the same.
#[derive(Clone, Default)]
pub struct PartialOutput(Arc<Mutex<Option<String>>>);

impl PartialOutput {
    /// Leaves it for whoever stopped the call.
    pub fn set(&self, text: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
    }

    /// What was left.
    pub fn take(&self) -> Option<String> {
        let mut left = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        left.take()
    }
}

impl std::fmt::Debug for PartialOutput {
    /// It may hold anything that a program printed.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PartialOutput")
    }
}

/// One driver's time with a run. What is opened for it alone ends with it, whoever
/// drives the run next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimId {
    /// The run.
    pub run: RunId,
    /// The driver's fence; one that only looks has the first.
    pub epoch: Epoch,
}

/// Hears how far a call is. It may be told as often as a tool likes; what is
/// passed on, and when, is the listener's to say.
pub trait Progress: Send + Sync + std::fmt::Debug {
    /// So far it is, in percent where that is known, and in words.
    fn report(&self, percent: Option<u8>, message: &str);

    /// Something that must be read about afterwards, such as what was answered in
    /// the user's name: it is not left out for what is said after it.
    fn report_durable(&self, message: &str) {
        self.report(None, message);
    }
}

/// Nobody listens.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoopProgress;

impl Progress for NoopProgress {
    fn report(&self, _percent: Option<u8>, _message: &str) {}
}

/// A call that did not do what it should: the model reads it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ToolFailure {
    message: String,
    is_outcome_unknown: bool,
}

impl ToolFailure {
    /// The call has failed, and the tool knows it.
    pub fn new(words: impl Into<String>) -> Self {
        Self { message: words.into(), is_outcome_unknown: false }
    }

    /// The call may have happened, and the tool can't tell.
    pub fn outcome_unknown(words: impl Into<String>) -> Self {
        Self { message: words.into(), is_outcome_unknown: true }
    }

    /// Whether nobody knows if the call has happened.
    pub const fn is_outcome_unknown(&self) -> bool {
        self.is_outcome_unknown
    }

    /// What the model reads.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The same, to keep.
    pub fn into_message(self) -> String {
        self.message
    }
}
