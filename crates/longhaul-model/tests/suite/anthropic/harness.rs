//! Helpers: a model connected to a test server, its requests, and a recorded stream.

use std::sync::Arc;

use longhaul_core::failure::Failure;
use longhaul_core::message::Message;
use longhaul_core::port::model::{Model, ModelResponse};
use longhaul_core::usage::{ModelPricing, Price};
use longhaul_model::anthropic;
use longhaul_model::http::{HttpClient, HttpLimits};
use longhaul_model::key::ApiKey;
use longhaul_model::settings::ModelSettings;

use super::spec;
use crate::suite::fixtures::{limits, model_request};
use crate::suite::harness::{FixedClock, Server, TextSink};

pub(crate) const KEY: &str = "sk-ant-very-secret-0123456789";

/// A reply with a block of every kind: thinking, text with a citation, a server tool, an unknown
/// block and two tool calls.
pub(crate) const RECORDED: &str = include_str!("recorded.sse");

pub(crate) fn settings() -> ModelSettings {
    ModelSettings {
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
        ..ModelSettings::new("anthropic", "claude-sonnet-4-6", Some(ApiKey::new(KEY)))
    }
}

pub(crate) fn model_at(base: &str, limits: HttpLimits) -> Arc<dyn Model> {
    let http = HttpClient::new(base, limits).unwrap();
    anthropic::new_model(http, settings(), Arc::new(FixedClock)).unwrap()
}

pub(crate) fn model(server: &Server) -> Arc<dyn Model> {
    model_at(&server.base_url(), limits())
}

/// Sends a request and validates every request that the server received.
pub(crate) async fn answer(
    server: &Server,
    model: &Arc<dyn Model>,
    messages: &[Arc<Message>],
) -> (Result<ModelResponse, Failure>, String) {
    let sink = TextSink::default();
    let response = model.generate(&model_request(messages), &sink).await;
    for request in server.requests() {
        spec::check(&request.body);
    }
    (response, sink.text())
}
