//! The tools of scripts as the engine calls them. They wait before and after their effect, so that
//! a crash can happen on both sides.
//!
//! Invariant: they have no effect for a driver that was replaced.

use async_trait::async_trait;
use longhaul_core::event::tool::{ToolOutput, VerifyOutcome};
use longhaul_core::event::turn::ToolCallClassification;
use longhaul_core::id::{RunId, ToolName};
use longhaul_core::message::ToolCall;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::sandbox::SandboxCommand;
use longhaul_core::port::tool::{Tool, ToolContext, ToolFailure, ToolSpec};
use longhaul_core::raw::RawJson;
use longhaul_testkit::sim::external_world::ToolEffect;
use longhaul_testkit::sim::script::{SANDBOXED_TOOL, classify};
use serde_json::{Value, json};

use crate::suite::sim::context::SimContext;

/// Tools with effects that scripts use. `nonsense` does not exist.
pub(super) const TOOLS: [&str; 8] =
    ["look", "put", "send", "probe", "tell", "pay", "careful", SANDBOXED_TOOL];

/// A tool with the properties that scripts declare.
#[derive(Debug)]
pub(super) struct SimTool {
    spec: ToolSpec,
    class: EffectClass,
    ctx: SimContext,
}

impl SimTool {
    pub(super) fn new(name: &str, ctx: &SimContext) -> Self {
        let ToolCallClassification { class, can_verify: verifies, in_doubt, .. } =
            classify(&ToolCall {
                id: String::new(),
                name: name.into(),
                input: RawJson::null(),
                extra: None,
            });
        let spec = ToolSpec {
            name: ToolName::new(name).unwrap(),
            description: "simulated".into(),
            schema: json!({ "type": "object" }),
            can_verify: verifies,
            in_doubt,
            timeout: None,
        };
        Self { spec, class, ctx: ctx.clone() }
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

    fn rule_match_texts(&self, _input: &Value) -> Vec<String> {
        vec![self.spec.name.as_str().to_owned()]
    }

    fn works_in_sandbox(&self) -> bool {
        self.spec.name.as_str() == SANDBOXED_TOOL
    }

    async fn call(&self, _input: Value, ctx: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        let ToolContext { run, call, epoch, .. } = *ctx;
        let key_run = key_run(ctx);
        let SimContext { external, random, .. } = &self.ctx;
        let label = format!("{call}, {}", self.spec.name);
        self.ctx.assert_may_start(run, &label, (key_run == run).then_some(epoch)).await;
        random.yield_some().await;
        if self.works_in_sandbox() {
            let Some(sandbox) = &ctx.sandbox else {
                external.record_violation(format!("{run}: {label} has no sandbox"));
                return Err(ToolFailure::new("there is no sandbox"));
            };
            let exit = sandbox.exec(SandboxCommand::shell("true"), &mut |_, _| {}).await;
            exit.map_err(|error| ToolFailure::new(error.to_string()))?;
        }
        let once = !self.class.may_repeat();
        if once && !external.admits(key_run, call, epoch) {
            return Err(ToolFailure::new("another driver made this call"));
        }
        let effect = ToolEffect { run, key_run, call, epoch, class: self.class };
        let output = external.perform(effect);
        random.yield_some().await;
        if once && key_run == run {
            external.record_delivered(run, call, epoch);
        }
        Ok(output)
    }

    async fn verify(&self, _input: Value, ctx: &ToolContext) -> VerifyOutcome {
        let ToolContext { run, call, epoch, .. } = *ctx;
        let key_run = key_run(ctx);
        let SimContext { external, random, .. } = &self.ctx;
        self.ctx.assert_may_start(run, "a look", (key_run == run).then_some(epoch)).await;
        random.yield_some().await;
        if !external.admits(key_run, call, epoch) {
            return VerifyOutcome::Unknown;
        }
        let finding = external.verify(key_run, call);
        random.yield_some().await;
        finding
    }
}

/// Returns the run in the idempotency key of a call. It differs if a retry makes a call of a failed
/// run; the epoch of the call then includes the epochs of the failed run.
fn key_run(ctx: &ToolContext) -> RunId {
    let (run, _) = ctx.idempotency_key.split_once(':').unwrap();
    run.parse().unwrap()
}
