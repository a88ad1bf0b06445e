//! The tool port: actions that an agent can perform.
//!
//! Tools report failures as results that the model reads. They must not panic.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::event::tool::{ToolOutput, ToolQuestion, ToolSuspension, VerifyOutcome};
use crate::id::{CallId, Epoch, ResourceKey, RunId, ThreadKey, ToolName};
use crate::policy::effect::{EffectClass, InDoubtPolicy};
use crate::policy::effect_facts::PredictedEffects;
use crate::policy::gate::{GateRule, GateRuleAction};
use crate::port::image_sink::ImageSink;
use crate::port::sandbox::Sandbox;
use crate::raw::RawJson;
use crate::repo::RepoSource;
use crate::time::Millis;

/// An action that an agent can perform.
#[async_trait]
pub trait Tool: Send + Sync + std::fmt::Debug {
    /// Returns the name, description and schema of the tool.
    fn spec(&self) -> &ToolSpec;

    /// Returns the effect class of a call with this input. Defaults to `once`.
    fn class(&self, _input: &Value) -> EffectClass {
        EffectClass::Once
    }

    /// Returns the texts of a call with this input that approval rules match, such as a path or a
    /// command.
    fn rule_match_texts(&self, input: &Value) -> Vec<String> {
        vec![crate::raw::canonical_json(input)]
    }

    /// Like `rule_match_texts`, for a call with values injected by the runtime. Some approval rules
    /// match such values, for example the recipient of a message.
    fn rule_match_texts_with_context(
        &self,
        input: &Value,
        _context: &BTreeMap<String, RawJson>,
    ) -> Vec<String> {
        self.rule_match_texts(input)
    }

    /// Returns whether the texts that approval rules match can't be determined from this input.
    /// Every rule that asks for approval of this tool then applies to the call.
    fn are_rule_match_texts_unknown(&self, _input: &Value) -> bool {
        false
    }

    /// Returns the reason why a call can only fail, if the input and the values injected by the
    /// runtime show one. The model reads the reason, and no person is asked to approve the call.
    /// The runtime checks the schema of the input itself.
    fn find_call_problem(
        &self,
        _input: &Value,
        _context: &BTreeMap<String, RawJson>,
    ) -> Option<String> {
        None
    }

    /// Returns what a call with this input would change, from the input and the present state of
    /// the world, for a person who is asked to approve the call. The method must not change
    /// anything. If it takes longer than about two seconds, the effects count as not known.
    async fn predict_effects(&self, _input: &Value, _ctx: &ToolContext) -> PredictedEffects {
        PredictedEffects::default()
    }

    /// Returns the timeout of a call with this input. `None` means the runtime's default.
    fn timeout(&self, _input: &Value) -> Option<Millis> {
        self.spec().timeout
    }

    /// Returns whether dropping the call's future stops the call completely. Everything that the
    /// call has started is then killed before the drop returns, so the call never has an unknown
    /// outcome.
    fn is_cancel_safe(&self) -> bool {
        false
    }

    /// Returns whether something that a call has started, such as a local process, may keep running
    /// after the worker was killed. Users are warned about this before they repeat the call.
    fn may_outlive_worker(&self) -> bool {
        false
    }

    /// Returns whether the tool acts on this machine without a sandbox. Only agents with
    /// `isolation: none` may use it.
    fn is_unsandboxed(&self) -> bool {
        false
    }

    /// Returns whether calls work in the sandbox of the run, if its agent has one. They then find it
    /// in [`ToolContext::sandbox`].
    fn works_in_sandbox(&self) -> bool {
        false
    }

    /// Returns whether the tool works on the git repository of the run. Runs without a repository do
    /// not have the tool.
    fn needs_repo(&self) -> bool {
        false
    }

    /// Executes the call and returns its output.
    async fn call(&self, input: Value, ctx: &ToolContext) -> Result<ToolOutput, ToolFailure>;

    /// Starts the call, or continues a call that this tool has suspended. The runtime uses only
    /// this method and never [`Tool::call`] itself. Only a tool that suspends calls overrides it.
    async fn call_or_suspend(
        &self,
        input: Value,
        ctx: &ToolContext,
        resumption: Option<ToolResumption>,
    ) -> Result<ToolReply, ToolFailure> {
        match resumption {
            None => self.call(input, ctx).await.map(ToolReply::Output),
            Some(_) => Err(ToolFailure::new("this tool can't continue a suspended call")),
        }
    }

    /// Tells the external system that works on a suspended call that the run no longer waits for
    /// the result. May be called more than once.
    async fn cancel_suspended(
        &self,
        _state: &RawJson,
        _ctx: &ToolContext,
    ) -> Result<(), ToolFailure> {
        Ok(())
    }

    /// Checks whether an earlier attempt of this call, with the same idempotency key, has taken
    /// effect.
    async fn verify(&self, _input: Value, _ctx: &ToolContext) -> VerifyOutcome {
        VerifyOutcome::Unknown
    }
}

/// Response of a tool to a call: an output, or the suspension of the call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolReply {
    /// The call has ended with this output.
    Output(ToolOutput),
    /// The call has no result yet. The runtime stores the suspension and continues the call later.
    Suspended(Box<SuspendedToolCall>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuspendedToolCall {
    /// Data with which the tool continues the call.
    pub suspension: ToolSuspension,
    /// What the suspended call waits for: a person's answer, or work in another system.
    pub wait: SuspendedCallWait,
}

impl SuspendedToolCall {
    /// Maximum length of the state of a suspended call in bytes. A call with a longer state fails.
    pub const STATE_BYTES_MAX: usize = 256 * 1024;

    /// Key in the state of a suspended call for the questions that the tool still has to ask.
    /// Secrets in these questions are redacted. A call with a secret elsewhere in its state fails.
    pub const QUESTIONS_KEY: &str = "questions";
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SuspendedCallWait {
    /// The call waits for a person's answer to this question.
    Answer(ToolQuestion),
    /// The call waits for the result of work in another system. The runtime asks the tool about it
    /// from time to time.
    Poll {
        /// Delay after which the runtime asks the tool again. The runtime limits the delay.
        after: Millis,
        /// Duration after which the call fails if it has no result, from when it became pending.
        /// `None` means no limit of the tool's own.
        ttl: Option<Millis>,
        /// Status of the work in the other system, as a text for people. `None` if it is unknown.
        message: Option<String>,
    },
}

/// Data with which a tool continues a suspended call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolResumption {
    /// State with which the tool has suspended the call.
    pub state: RawJson,
    /// Answer to the tool's question. `None` means that the tool has asked no question.
    pub answer: Option<ToolQuestionAnswer>,
}

/// A person's answer to the question of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolQuestionAnswer {
    /// The person filled in the form with these values.
    Answered(RawJson),
    /// The person declined to answer.
    Declined,
    /// Nobody answered in time.
    Unanswered,
}

/// Static description of a tool.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolSpec {
    pub name: ToolName,
    /// Description of the tool for the model.
    pub description: String,
    /// JSON Schema of the tool's input.
    pub schema: Value,
    /// Whether the tool can verify if a call has taken effect.
    pub can_verify: bool,
    /// What the tool prefers to happen with calls in doubt (without a recorded outcome). `None`
    /// means no preference.
    pub in_doubt: Option<InDoubtPolicy>,
    /// Timeout of a call. `None` means the runtime's default.
    pub timeout: Option<Millis>,
}

impl ToolSpec {
    /// Creates the spec of a tool whose input is an object with these properties, some of them
    /// required. The tool has the default timeout and can't verify its calls.
    pub fn with_input_properties(
        name: &str,
        description: &str,
        properties: Value,
        required: &[&str],
    ) -> Self {
        Self {
            name: ToolName::from_text_lossy(name),
            description: description.to_owned(),
            schema: serde_json::json!({
                "type": "object",
                "properties": properties,
                "required": required,
                "additionalProperties": false,
            }),
            ..Self::default()
        }
    }
}

/// Context of a tool call, injected by the runtime and invisible to the model.
#[derive(Debug, Clone)]
pub struct ToolContext {
    /// Run that makes the call.
    pub run: RunId,
    /// Id of the call that is executed.
    pub call: CallId,
    /// Idempotency key of the call, which is identical for all attempts of the call.
    pub idempotency_key: String,
    /// Attempt number of the call, from 1. It is higher if the worker crashed during a call
    /// that may be repeated.
    pub attempt: u32,
    /// Epoch (fencing token) of the worker's claim. A tool that has seen a higher epoch refuses the
    /// call.
    pub epoch: Epoch,
    /// Values injected by the runtime, by name. The agent's file lists the names, such as
    /// `recipient`.
    pub context: BTreeMap<String, RawJson>,
    /// Thread of the run, i.e. the conversation whose memory it shares. `None` if it has no thread.
    pub thread: Option<ThreadKey>,
    /// Resource (person or thing) that the thread is about. `None` if there is none.
    pub resource: Option<ResourceKey>,
    /// Names of the skills listed in the agent's file.
    pub skills: Vec<String>,
    /// Approval rules for calls of the tool, in their order. A call that leads to something else
    /// than its input names, such as a redirect, checks it with
    /// [`needs_own_call`](Self::needs_own_call).
    pub rules: Vec<GateRule>,
    /// Running sandbox that the call works in. `None` means that the call works on this machine.
    pub sandbox: Option<Arc<dyn Sandbox>>,
    /// Git repository that the sandboxes of the run contain a clone of. `None` if the run has none.
    pub repo: Option<RepoSource>,
    /// Receiver of the call's progress reports.
    pub progress: Arc<dyn Progress>,
    /// Output of the call so far, which is kept if the call is cancelled.
    pub partial_output: PartialToolOutput,
    /// Sink for images that the output of the call refers to.
    pub images: ImageSink,
}

impl ToolContext {
    /// Creates the context of a call without injected values. Progress reports are discarded.
    pub fn new(run: RunId, call: CallId, epoch: Epoch) -> Self {
        Self {
            run,
            call,
            idempotency_key: call.call_idempotency_key(run),
            attempt: 1,
            epoch,
            context: BTreeMap::new(),
            thread: None,
            resource: None,
            skills: Vec::new(),
            rules: Vec::new(),
            sandbox: None,
            repo: None,
            progress: Arc::new(NoopProgress),
            partial_output: PartialToolOutput::default(),
            images: ImageSink::default(),
        }
    }

    /// Returns whether a call with these rule match texts would be denied or need an approval.
    /// `None` stands for a text that can't be determined, to which every such rule applies.
    pub fn needs_own_call(&self, rule_match_texts: &[Option<String>]) -> bool {
        let is_restriction = |rule: &&GateRule| rule.action != GateRuleAction::Allow;
        rule_match_texts.iter().any(|text| match text {
            Some(text) => {
                let first = self.rules.iter().find(|rule| rule.matches_text(text));
                first.is_some_and(|rule| is_restriction(&rule))
            }
            None => self.rules.iter().any(|rule| is_restriction(&rule)),
        })
    }
}

/// Output of a call so far, which is kept if the call is cancelled. Cheap to clone; clones share
/// the output.
#[derive(Clone, Default)]
pub struct PartialToolOutput(Arc<Mutex<Option<String>>>);

impl PartialToolOutput {
    /// Sets the output so far, which is added to the result of the call if the call is cancelled or
    /// times out.
    pub fn set_output_so_far(&self, text: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
    }

    /// Removes and returns the text that was set last. `None` if no text is set.
    pub fn take_output_so_far(&self) -> Option<String> {
        let mut partial_output = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        partial_output.take()
    }
}

impl std::fmt::Debug for PartialToolOutput {
    /// Formats the value without the output, which may contain anything that a program printed.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PartialOutput")
    }
}

/// Identifies one claim, i.e. the exclusive right of one worker to drive a run. Resources opened
/// for a claim are closed when the claim ends, even if the run is claimed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunClaimId {
    pub run: RunId,
    /// Epoch (fencing token) of the claim. It has its default value where no claim exists.
    pub epoch: Epoch,
}

/// Receives progress reports of a call. A tool may report as often as it likes; the
/// receiver decides which reports it forwards.
pub trait Progress: Send + Sync + std::fmt::Debug {
    /// Reports the current progress of the call as a message and, if known, in percent.
    fn report(&self, percent: Option<u8>, message: &str);

    /// Reports something that must remain readable later, such as an answer given in the user's
    /// name. Later reports don't replace such a report.
    fn report_to_journal(&self, message: &str) {
        self.report(None, message);
    }
}

/// Receiver that discards all progress reports.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoopProgress;

impl Progress for NoopProgress {
    fn report(&self, _percent: Option<u8>, _message: &str) {}
}

/// Failure of a tool call. The model reads the message of the failure.
#[derive(Debug, Clone, Default, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ToolFailure {
    message: String,
    is_outcome_unknown: bool,
    may_have_effect: bool,
    is_transient: bool,
}

impl ToolFailure {
    /// Creates a failure of a call that is known to have failed.
    pub fn new(failure_message: impl Into<String>) -> Self {
        Self { message: failure_message.into(), ..Self::default() }
    }

    /// Creates a failure of a call that is known to have failed for a temporary reason.
    pub fn transient(failure_message: impl Into<String>) -> Self {
        Self { is_transient: true, ..Self::new(failure_message) }
    }

    /// Creates a failure of a call that may have taken effect.
    pub fn outcome_unknown(failure_message: impl Into<String>) -> Self {
        Self { is_outcome_unknown: true, ..Self::with_possible_effect(failure_message) }
    }

    /// Creates a failure of a call that may have taken effect, with a message from which the model
    /// learns enough to continue. No person is asked for the outcome, but the effect key of the
    /// call stays claimed.
    pub fn with_possible_effect(failure_message: impl Into<String>) -> Self {
        Self { may_have_effect: true, ..Self::new(failure_message) }
    }

    /// Returns whether the call failed for a temporary reason.
    pub const fn is_transient(&self) -> bool {
        self.is_transient
    }

    /// Returns whether it is unknown if the call has taken effect.
    pub const fn is_outcome_unknown(&self) -> bool {
        self.is_outcome_unknown
    }

    /// Returns whether the call may have taken effect before it failed.
    pub const fn may_have_effect(&self) -> bool {
        self.may_have_effect
    }

    /// Returns the message for the model.
    pub fn message(&self) -> &str {
        &self.message
    }

    pub fn into_message(self) -> String {
        self.message
    }
}
