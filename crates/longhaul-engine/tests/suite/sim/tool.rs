//! The tools of scripts, as the engine calls them: they wait before and after
//! what they do, so that a crash fits on both sides.
//!
//! Never: does anything for a driver that another has taken the place of.

use async_trait::async_trait;
use longhaul_core::event::tool::{ToolOutput, VerifyOutcome};
use longhaul_core::event::turn::CallClassification;
use longhaul_core::id::ToolName;
use longhaul_core::message::ToolCall;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::{Tool, ToolContext, ToolFailure, ToolSpec};
use longhaul_core::raw::RawJson;
use longhaul_testkit::sim::external_world::ToolEffect;
use longhaul_testkit::sim::script::classify;
use serde_json::{Value, json};

use crate::suite::sim::context::SimContext;

/// The tools that scripts name and that touch the world. `nonsense` is none.
pub(super) const TOOLS: [&str; 6] = ["look", "put", "send", "probe", "tell", "careful"];

/// A tool that is what scripts say of it.
#[derive(Debug)]
pub(super) struct SimTool {
    spec: ToolSpec,
    class: EffectClass,
    ctx: SimContext,
}

impl SimTool {
    pub(super) fn new(name: &str, world: &SimContext) -> Self {
        let CallClassification { class, can_verify: verifies, in_doubt, .. } =
            classify(&ToolCall {
                id: String::new(),
                name: name.into(),
                input: RawJson::null(),
                extra: None,
            });
        let card = ToolSpec {
            name: ToolName::new(name).unwrap(),
            description: "simulated".into(),
            schema: json!({ "type": "object" }),
            can_verify: verifies,
            in_doubt,
            timeout: None,
        };
        Self { spec: card, class, ctx: world.clone() }
    }
}

#[async_trait]
impl Tool for SimTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn class(&self, _input: &Value) -> EffectClass {
        self.class
    }

    fn subjects(&self, _input: &Value) -> Vec<String> {
        vec![self.spec.name.as_str().to_owned()]
    }

    async fn call(&self, _input: Value, around: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        let ToolContext { run, call, epoch, .. } = *around;
        let SimContext { external: outside, random: luck, .. } = &self.ctx;
        let what = format!("{call}, {}", self.spec.name);
        self.ctx.assert_may_start(run, &what, Some(epoch)).await;
        luck.yield_some().await;
        let once = !self.class.may_repeat();
        if once && !outside.admits(run, call, epoch) {
            return Err(ToolFailure::new("another driver was here"));
        }
        let output = outside.perform(ToolEffect { run, call, epoch, class: self.class });
        luck.yield_some().await;
        if once {
            outside.record_delivered(run, call, epoch);
        }
        Ok(output)
    }

    async fn verify(&self, _input: Value, around: &ToolContext) -> VerifyOutcome {
        let ToolContext { run, call, epoch, .. } = *around;
        let SimContext { external: outside, random: luck, .. } = &self.ctx;
        self.ctx.assert_may_start(run, "a look", Some(epoch)).await;
        luck.yield_some().await;
        if !outside.admits(run, call, epoch) {
            return VerifyOutcome::Unknown;
        }
        let finding = outside.verify(run, call);
        luck.yield_some().await;
        finding
    }
}
