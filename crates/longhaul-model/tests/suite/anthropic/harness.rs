//! A model behind a server of ours, questions for it, and a recorded stream.

use std::sync::Arc;

use longhaul_core::failure::Failure;
use longhaul_core::message::Message;
use longhaul_core::port::model::{Model, ModelResponse};
use longhaul_core::usage::{ModelPricing, Price};
use longhaul_model::anthropic;
use longhaul_model::http::{Http, Limits};
use longhaul_model::key::ApiKey;
use longhaul_model::settings::Settings;

use super::spec;
use crate::suite::fixtures::{ask, limits};
use crate::suite::harness::{FixedClock, Server, TextSink};

pub(crate) const KEY: &str = "sk-ant-very-secret-0123456789";

/// A reply with everything in it: a thought, words with a citation, a tool of the
/// provider's own, a block nobody knows, and two calls.
pub(crate) const RECORDED: &str = include_str!("recorded.sse");

pub(crate) fn settings() -> Settings {
    Settings {
        pricing: ModelPricing {
            price: Some(Price {
                input: 3_000_000,
                output: 15_000_000,
                cached: 300_000,
                cache_write: 3_750_000,
            }),
            max_output_tokens: 64_000,
            ..ModelPricing::default()
        },
        ..Settings::new("anthropic", "claude-sonnet-4-6", Some(ApiKey::new(KEY)))
    }
}

pub(crate) fn model_at(base: &str, limits: Limits) -> Arc<dyn Model> {
    let http = Http::new(base, limits).unwrap();
    anthropic::model(http, settings(), Arc::new(FixedClock)).unwrap()
}

pub(crate) fn model(server: &Server) -> Arc<dyn Model> {
    model_at(&server.base_url(), limits())
}

/// Asks, and looks at every request as the provider would.
pub(crate) async fn answer(
    server: &Server,
    model: &Arc<dyn Model>,
    messages: &[Arc<Message>],
) -> (Result<ModelResponse, Failure>, String) {
    let heard = TextSink::default();
    let answered = model.generate(&ask(messages), &heard).await;
    for seen in server.requests() {
        spec::check(&seen.body);
    }
    (answered, heard.text())
}
