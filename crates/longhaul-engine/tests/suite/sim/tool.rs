//! The tools of scripts, as the engine calls them: they wait before and after
//! what they do, so that a crash fits on both sides.
//!
//! Never: does anything for a driver that another has taken the place of.

use async_trait::async_trait;
use longhaul_core::event::tool::{Finding, ToolOutput};
use longhaul_core::event::turn::Appraisal;
use longhaul_core::id::ToolName;
use longhaul_core::message::ToolCall;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::{Tool, ToolCard, ToolContext, ToolFailure};
use longhaul_core::raw::RawJson;
use longhaul_testkit::sim::outside::Deed;
use longhaul_testkit::sim::script::appraise;
use serde_json::{Value, json};

use crate::suite::sim::world::World;

/// The tools that scripts name and that touch the world. `nonsense` is none.
pub(super) const TOOLS: [&str; 6] = ["look", "put", "send", "probe", "tell", "careful"];

/// A tool that is what scripts say of it.
#[derive(Debug)]
pub(super) struct SimTool {
    card: ToolCard,
    class: EffectClass,
    world: World,
}

impl SimTool {
    pub(super) fn new(name: &str, world: &World) -> Self {
        let Appraisal {
            class,
            verifies,
            in_doubt,
            ..
        } = appraise(&ToolCall {
            id: String::new(),
            name: name.into(),
            input: RawJson::null(),
            extra: None,
        });
        let card = ToolCard {
            name: ToolName::new(name).unwrap(),
            description: "simulated".into(),
            schema: json!({ "type": "object" }),
            verifies,
            in_doubt,
            timeout: None,
        };
        Self {
            card,
            class,
            world: world.clone(),
        }
    }
}

#[async_trait]
impl Tool for SimTool {
    fn card(&self) -> &ToolCard {
        &self.card
    }

    fn class(&self, _input: &Value) -> EffectClass {
        self.class
    }

    fn subjects(&self, _input: &Value) -> Vec<String> {
        vec![self.card.name.as_str().to_owned()]
    }

    async fn call(&self, _input: Value, around: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        let ToolContext {
            run, call, epoch, ..
        } = *around;
        let World { outside, luck, .. } = &self.world;
        let what = format!("{call}, {}", self.card.name);
        self.world.begins(run, &what, Some(epoch)).await;
        luck.some_waits().await;
        let once = !self.class.may_repeat();
        if once && !outside.admits(run, call, epoch) {
            return Err(ToolFailure::new("another driver was here"));
        }
        let output = outside.act(Deed {
            run,
            call,
            epoch,
            class: self.class,
        });
        luck.some_waits().await;
        if once {
            outside.hand_over(run, call, epoch);
        }
        Ok(output)
    }

    async fn verify(&self, _input: Value, around: &ToolContext) -> Finding {
        let ToolContext {
            run, call, epoch, ..
        } = *around;
        let World { outside, luck, .. } = &self.world;
        self.world.begins(run, "a look", Some(epoch)).await;
        luck.some_waits().await;
        if !outside.admits(run, call, epoch) {
            return Finding::Unknown;
        }
        let finding = outside.verify(run, call);
        luck.some_waits().await;
        finding
    }
}
