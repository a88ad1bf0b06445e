//! A model that plays the script of the run that asks.
//!
//! Never: state. It finds the script in what it is asked.

use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::failure::Failure;
use longhaul_core::message::{Message, Part};
use longhaul_core::port::model::{CostEstimate, DeltaSink, Model, ModelRequest, ModelResponse};
use longhaul_core::raw::RawJson;
use longhaul_core::usage::Hold;
use longhaul_engine::services::{ModelError, ModelResolver, ResolvedModel};
use longhaul_run::next::check_conversation;
use longhaul_testkit::sim::external_world::ModelCall;
use longhaul_testkit::sim::script::{PRICING, Script};

use crate::suite::sim::context::SimContext;

/// The one model there is, under every name.
#[derive(Debug)]
pub(super) struct SimModels(Arc<SimModel>);

impl SimModels {
    pub(super) fn new(world: &SimContext) -> Self {
        Self(Arc::new(SimModel(world.clone())))
    }
}

impl ModelResolver for SimModels {
    fn resolve(&self, _name: Option<&str>) -> Result<ResolvedModel, ModelError> {
        let name = "scripted/sim".to_owned();
        let model = self.0.clone();
        Ok(ResolvedModel { name, model })
    }
}

#[derive(Debug)]
struct SimModel(SimContext);

#[async_trait]
impl Model for SimModel {
    fn estimate(&self, _ask: &ModelRequest) -> CostEstimate {
        CostEstimate { hold: Hold::default(), pricing: PRICING }
    }

    async fn generate(
        &self,
        ask: &ModelRequest,
        ear: &dyn DeltaSink,
    ) -> Result<ModelResponse, Failure> {
        let world = &self.0;
        world.assert_may_start(ask.run, "a question", None).await;
        if let Err(bad) = check_conversation(&ask.messages) {
            world.external.record_violation(format!("{}: {bad}", ask.run));
        }
        world.external.record_model_call(ModelCall {
            run: ask.run,
            turn: ask.turn,
            attempt: ask.attempt,
        });
        world.random.yield_some().await;
        ear.on_text("I was about to");
        world.random.yield_some().await;
        script(ask).reply(ask)
    }
}

/// The script that the task carries: the first words of the conversation.
fn script(ask: &ModelRequest) -> Script {
    let words = match ask.messages.first().map(|first| &**first) {
        Some(Message::User(parts)) => parts.first(),
        Some(Message::Assistant(_) | Message::Results(_)) | None => None,
    };
    let Some(Part::Text(text)) = words else {
        panic!("{} asks without a task", ask.run);
    };
    Script::from_input(&RawJson::parse(text.to_string()).unwrap())
}
