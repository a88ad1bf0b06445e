//! A model that plays the script of the calling run. It has no state: the script is part of the
//! request.

use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::failure::Failure;
use longhaul_core::message::{Message, Part};
use longhaul_core::port::model::{CostEstimate, DeltaSink, Model, ModelRequest, ModelResponse};
use longhaul_core::raw::RawJson;
use longhaul_core::usage::BudgetAmount;
use longhaul_engine::services::{ModelResolver, ResolveModelError, ResolvedModel};
use longhaul_testkit::conversation::check_message_order;
use longhaul_testkit::sim::external_world::ModelCall;
use longhaul_testkit::sim::script::{PRICING, Script};

use crate::suite::sim::context::SimContext;

/// Resolves every name to the same model.
#[derive(Debug)]
pub(super) struct SimModels(Arc<SimModel>);

impl SimModels {
    pub(super) fn new(ctx: &SimContext) -> Self {
        Self(Arc::new(SimModel(ctx.clone())))
    }
}

impl ModelResolver for SimModels {
    fn resolve_model_name(&self, _name: Option<&str>) -> Result<ResolvedModel, ResolveModelError> {
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
        CostEstimate { hold: BudgetAmount::default(), pricing: PRICING }
    }

    async fn generate(
        &self,
        request: &ModelRequest,
        sink: &dyn DeltaSink,
    ) -> Result<ModelResponse, Failure> {
        let ctx = &self.0;
        ctx.assert_may_start(request.run, "a question", None).await;
        if let Err(error) = check_message_order(&request.messages) {
            ctx.external.record_violation(format!("{}: {error}", request.run));
        }
        ctx.external.record_model_call(ModelCall {
            run: request.run,
            turn: request.turn,
            attempt: request.attempt,
        });
        ctx.random.yield_some().await;
        sink.on_text("I was about to");
        ctx.random.yield_some().await;
        script(request).reply(request)
    }
}

/// Returns the script, which is the first text of the conversation.
fn script(request: &ModelRequest) -> Script {
    let part = match request.messages.first().map(|first| &**first) {
        Some(Message::User(parts)) => parts.first(),
        Some(Message::Assistant(_) | Message::Results(_)) | None => None,
    };
    let Some(Part::Text(text)) = part else {
        panic!("{} asks without a task", request.run);
    };
    Script::from_input(&RawJson::parse(text.to_string()).unwrap())
}
