//! Tools in the hands of a test: what they do is a closure, and what was done
//! with them is written down.
//!
//! Never: more than the test said.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use longhaul_core::event::tool::{ToolOutput, VerifyOutcome};
use longhaul_core::id::ToolName;
use longhaul_core::policy::effect::{EffectClass, InDoubtPolicy};
use longhaul_core::port::tool::{Tool, ToolContext, ToolFailure, ToolSpec};
use longhaul_core::raw::RawJson;
use longhaul_core::time::Millis;
use serde_json::{Value, json};

use longhaul_testkit::latch::Latch;

type CallOutput = Result<ToolOutput, ToolFailure>;
type Action = Arc<dyn Fn(Value, ToolContext) -> BoxFuture<'static, CallOutput> + Send + Sync>;

/// What was done, in order. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct EffectLog(Arc<Mutex<Vec<String>>>);

impl EffectLog {
    fn push(&self, deed: String) {
        self.0.lock().unwrap().push(deed);
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// How often something was done.
    pub(crate) fn count(&self, deed: &str) -> usize {
        self.all().iter().filter(|done| done.starts_with(deed)).count()
    }
}

/// What is special about a tool.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ToolTraits {
    pub(crate) is_opaque: bool,
    pub(crate) is_cancel_safe: bool,
    pub(crate) is_unsandboxed: bool,
}

/// A tool that a test made.
#[derive(Clone)]
pub(crate) struct FakeTool {
    pub(crate) spec: ToolSpec,
    class: EffectClass,
    verify_outcome: VerifyOutcome,
    verify_latch: Option<Latch>,
    traits: ToolTraits,
    action: Action,
    effects: EffectLog,
}

impl fmt::Debug for FakeTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeTool").field("spec", &self.spec).finish_non_exhaustive()
    }
}

impl FakeTool {
    /// A tool that gives its input back.
    pub(crate) fn new(name: &str, class: EffectClass, deeds: &EffectLog) -> Self {
        let card = ToolSpec {
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
            spec: card,
            class,
            verify_outcome: VerifyOutcome::Unknown,
            verify_latch: None,
            traits: ToolTraits::default(),
            action: Arc::new(|input, _| {
                async move { Ok(ToolOutput::text(input.to_string())) }.boxed()
            }),
            effects: deeds.clone(),
        }
    }

    /// The same, doing this.
    pub(crate) fn with_action(
        mut self,
        act: impl Fn(Value, ToolContext) -> BoxFuture<'static, CallOutput> + Send + Sync + 'static,
    ) -> Self {
        self.action = Arc::new(act);
        self
    }

    /// The same, waiting at a door first.
    pub(crate) fn after_latch(self, door: &Latch) -> Self {
        let (door, then) = (door.clone(), Arc::clone(&self.action));
        self.with_action(move |input, around| {
            let (door, then) = (door.clone(), Arc::clone(&then));
            async move {
                door.wait().await;
                then(input, around).await
            }
            .boxed()
        })
    }

    /// The same, with so much time.
    pub(crate) fn with_timeout(mut self, timeout: Millis) -> Self {
        self.spec.timeout = Some(timeout);
        self
    }

    /// The same, special in this.
    pub(crate) fn with_traits(mut self, ways: ToolTraits) -> Self {
        self.traits = ways;
        self
    }

    /// The same, with a word about doubt.
    pub(crate) fn with_in_doubt(mut self, then: InDoubtPolicy) -> Self {
        self.spec.in_doubt = Some(then);
        self
    }

    /// The same, able to look whether a call has happened.
    pub(crate) fn with_verify_outcome(mut self, finding: VerifyOutcome) -> Self {
        self.spec.can_verify = true;
        self.verify_outcome = finding;
        self
    }

    /// The same, looking behind a door.
    pub(crate) fn verify_after_latch(mut self, door: &Latch) -> Self {
        self.verify_latch = Some(door.clone());
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

    fn is_opaque(&self, _input: &Value) -> bool {
        self.traits.is_opaque
    }

    fn is_cancel_safe(&self) -> bool {
        self.traits.is_cancel_safe
    }

    fn is_unsandboxed(&self) -> bool {
        self.traits.is_unsandboxed
    }

    fn subjects(&self, input: &Value) -> Vec<String> {
        let text = input["text"].as_str().unwrap_or_default();
        assert!(text != "unspeakable", "a tool with a mistake in its reading");
        vec![text.to_owned()]
    }

    fn subjects_with_context(
        &self,
        input: &Value,
        context: &BTreeMap<String, RawJson>,
    ) -> Vec<String> {
        let recipient = context.get("recipient").map(RawJson::to_value);
        let recipient = recipient.as_ref().and_then(Value::as_str);
        let mut subjects = self.subjects(input);
        subjects.extend(recipient.map(str::to_owned));
        subjects
    }

    async fn call(&self, input: Value, around: &ToolContext) -> CallOutput {
        let name = &self.spec.name;
        self.effects.push(format!("{name} begins {input}"));
        let given = (self.action)(input.clone(), around.clone()).await;
        self.effects.push(format!("{name} ends {input}"));
        given
    }

    async fn verify(&self, input: Value, _around: &ToolContext) -> VerifyOutcome {
        self.effects.push(format!("{} looks {input}", self.spec.name));
        if let Some(door) = &self.verify_latch {
            door.wait().await;
        }
        self.verify_outcome.clone()
    }
}
