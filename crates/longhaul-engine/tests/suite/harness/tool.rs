//! Fake tools whose behavior is a closure, with a log of their calls.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use longhaul_core::event::tool::{ToolOutput, VerifyOutcome};
use longhaul_core::id::ToolName;
use longhaul_core::policy::effect::{EffectClass, InDoubtPolicy};
use longhaul_core::policy::effect_facts::PredictedEffects;
use longhaul_core::port::tool::{
    SuspendedToolCall, Tool, ToolContext, ToolFailure, ToolReply, ToolResumption, ToolSpec,
};
use longhaul_core::raw::RawJson;
use longhaul_core::time::Millis;
use serde_json::{Value, json};

use longhaul_testkit::latch::Latch;

type CallOutput = Result<ToolOutput, ToolFailure>;
type Prediction = Arc<dyn Fn() -> BoxFuture<'static, PredictedEffects> + Send + Sync>;
type Action = Arc<dyn Fn(Value, ToolContext) -> BoxFuture<'static, CallOutput> + Send + Sync>;

/// Log of tool calls in order. Cheap to clone; clones share state.
#[derive(Debug, Clone, Default)]
pub(crate) struct EffectLog(Arc<Mutex<Vec<String>>>);

impl EffectLog {
    fn push(&self, effect: String) {
        self.0.lock().unwrap().push(effect);
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// Counts the entries that start with this text.
    pub(crate) fn count(&self, prefix: &str) -> usize {
        self.all().iter().filter(|effect| effect.starts_with(prefix)).count()
    }
}

/// Special properties of a fake tool.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ToolTraits {
    pub(crate) is_opaque: bool,
    pub(crate) is_cancel_safe: bool,
    pub(crate) is_unsandboxed: bool,
    pub(crate) works_in_sandbox: bool,
}

#[derive(Clone)]
pub(crate) struct FakeTool {
    pub(crate) spec: ToolSpec,
    class: EffectClass,
    verify_outcome: VerifyOutcome,
    verify_latch: Option<Latch>,
    traits: ToolTraits,
    action: Action,
    prediction: Option<Prediction>,
    suspensions: Arc<Mutex<VecDeque<SuspendedToolCall>>>,
    effects: EffectLog,
}

impl fmt::Debug for FakeTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeTool").field("spec", &self.spec).finish_non_exhaustive()
    }
}

impl FakeTool {
    /// Creates a tool that returns its input.
    pub(crate) fn new(name: &str, class: EffectClass, effects: &EffectLog) -> Self {
        let spec = ToolSpec {
            name: ToolName::new(name).unwrap(),
            description: "made by a test".into(),
            schema: json!({
                "type": "object",
                "properties": { "text": { "type": "string" }, "count": { "type": "integer" } },
                "additionalProperties": false,
            }),
            can_verify: false,
            in_doubt: None,
            timeout: None,
        };
        Self {
            spec,
            class,
            verify_outcome: VerifyOutcome::Unknown,
            verify_latch: None,
            traits: ToolTraits::default(),
            action: Arc::new(|input, _| {
                async move { Ok(ToolOutput::text(input.to_string())) }.boxed()
            }),
            prediction: None,
            suspensions: Arc::default(),
            effects: effects.clone(),
        }
    }

    /// Sets what the tool predicts about its calls.
    pub(crate) fn with_prediction(
        mut self,
        predict: impl Fn() -> BoxFuture<'static, PredictedEffects> + Send + Sync + 'static,
    ) -> Self {
        self.prediction = Some(Arc::new(predict));
        self
    }

    /// Suspends the call in these ways, one after the other, before it is made.
    pub(crate) fn with_suspensions(
        self,
        suspensions: impl IntoIterator<Item = SuspendedToolCall>,
    ) -> Self {
        self.suspensions.lock().unwrap().extend(suspensions);
        self
    }

    /// Sets what a call does.
    pub(crate) fn with_action(
        mut self,
        act: impl Fn(Value, ToolContext) -> BoxFuture<'static, CallOutput> + Send + Sync + 'static,
    ) -> Self {
        self.action = Arc::new(act);
        self
    }

    /// Makes calls wait at a latch first.
    pub(crate) fn after_latch(self, latch: &Latch) -> Self {
        let (latch, action) = (latch.clone(), Arc::clone(&self.action));
        self.with_action(move |input, ctx| {
            let (latch, action) = (latch.clone(), Arc::clone(&action));
            async move {
                latch.wait().await;
                action(input, ctx).await
            }
            .boxed()
        })
    }

    pub(crate) fn with_timeout(mut self, timeout: Millis) -> Self {
        self.spec.timeout = Some(timeout);
        self
    }

    /// Sets the special properties.
    pub(crate) fn with_traits(mut self, traits: ToolTraits) -> Self {
        self.traits = traits;
        self
    }

    /// Sets the policy for calls in doubt.
    pub(crate) fn with_in_doubt(mut self, policy: InDoubtPolicy) -> Self {
        self.spec.in_doubt = Some(policy);
        self
    }

    /// Makes the tool able to verify calls, with this outcome.
    pub(crate) fn with_verify_outcome(mut self, finding: VerifyOutcome) -> Self {
        self.spec.can_verify = true;
        self.verify_outcome = finding;
        self
    }

    /// Makes verifying wait at a latch.
    pub(crate) fn verify_after_latch(mut self, latch: &Latch) -> Self {
        self.verify_latch = Some(latch.clone());
        self
    }
}

#[async_trait]
impl Tool for FakeTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn class(&self, _input: &Value) -> EffectClass {
        self.class
    }

    fn are_rule_match_texts_unknown(&self, _input: &Value) -> bool {
        self.traits.is_opaque
    }

    fn is_cancel_safe(&self) -> bool {
        self.traits.is_cancel_safe
    }

    fn is_unsandboxed(&self) -> bool {
        self.traits.is_unsandboxed
    }

    fn works_in_sandbox(&self) -> bool {
        self.traits.works_in_sandbox
    }

    fn rule_match_texts(&self, input: &Value) -> Vec<String> {
        let text = input["text"].as_str().unwrap_or_default();
        assert!(text != "unspeakable", "a bug in the tool's rule match texts");
        vec![text.to_owned()]
    }

    fn find_call_problem(
        &self,
        input: &Value,
        context: &BTreeMap<String, RawJson>,
    ) -> Option<String> {
        let needs_recipient = input["text"] == "to somebody" && !context.contains_key("recipient");
        needs_recipient.then(|| "no recipient is set".to_owned())
    }

    fn rule_match_texts_with_context(
        &self,
        input: &Value,
        context: &BTreeMap<String, RawJson>,
    ) -> Vec<String> {
        let recipient = context.get("recipient").map(RawJson::to_value);
        let recipient = recipient.as_ref().and_then(Value::as_str);
        let mut texts = self.rule_match_texts(input);
        texts.extend(recipient.map(str::to_owned));
        texts
    }

    async fn predict_effects(&self, input: &Value, _ctx: &ToolContext) -> PredictedEffects {
        let Some(predict) = &self.prediction else {
            return PredictedEffects::default();
        };
        self.effects.push(format!("{} predicts {input}", self.spec.name));
        predict().await
    }

    async fn call(&self, input: Value, ctx: &ToolContext) -> CallOutput {
        let name = &self.spec.name;
        self.effects.push(format!("{name} begins {input}"));
        let result = (self.action)(input.clone(), ctx.clone()).await;
        self.effects.push(format!("{name} ends {input}"));
        result
    }

    async fn call_or_suspend(
        &self,
        input: Value,
        ctx: &ToolContext,
        resumption: Option<ToolResumption>,
    ) -> Result<ToolReply, ToolFailure> {
        if let Some(ToolResumption { state, answer }) = resumption {
            let name = &self.spec.name;
            self.effects.push(format!("{name} continues {} {answer:?}", state.as_str()));
        }
        let next = self.suspensions.lock().unwrap().pop_front();
        match next {
            Some(suspended) => Ok(ToolReply::Suspended(Box::new(suspended))),
            None => self.call(input, ctx).await.map(ToolReply::Output),
        }
    }

    async fn cancel_suspended(&self, state: &RawJson, _: &ToolContext) -> Result<(), ToolFailure> {
        self.effects.push(format!("{} cancels {}", self.spec.name, state.as_str()));
        Ok(())
    }

    async fn verify(&self, input: Value, _around: &ToolContext) -> VerifyOutcome {
        self.effects.push(format!("{} looks {input}", self.spec.name));
        if let Some(latch) = &self.verify_latch {
            latch.wait().await;
        }
        self.verify_outcome.clone()
    }
}
