//! Helpers: a model connected to a test server, its requests, and a recorded stream.

use std::sync::Arc;

use longhaul_core::failure::Failure;
use longhaul_core::message::Message;
use longhaul_core::port::model::{Model, ModelResponse};
use longhaul_core::usage::{ModelPricing, Price};
use longhaul_model::http::HttpClient;
use longhaul_model::key::ApiKey;
use longhaul_model::responses;
use longhaul_model::settings::{ModelSettings, SettingsError};

use super::spec;
use crate::suite::fixtures::{limits, model_request};
use crate::suite::harness::{FixedClock, Server, TextSink};

pub(crate) const KEY: &str = "sk-proj-very-secret-0123456789";

/// API name in replies of this API and provider.
pub(crate) const API: &str = "responses:openai";

/// A reply with everything: reasoning, a server tool, text with a citation, an unknown item and two
/// parallel calls.
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
        ..ModelSettings::new("openai", "gpt-5.5", Some(ApiKey::new(KEY)))
    }
}

/// Creates a model with these settings, at a base URL that ends in the version.
pub(crate) fn model_with(
    server: &Server,
    settings: ModelSettings,
) -> Result<Arc<dyn Model>, SettingsError> {
    let http = HttpClient::new(&format!("{}/v1", server.base_url()), limits()).unwrap();
    responses::new_model(http, settings, Arc::new(FixedClock))
}

pub(crate) fn model(server: &Server) -> Arc<dyn Model> {
    model_with(server, settings()).unwrap()
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
        spec::check_pairs(&request.body);
    }
    (response, sink.text())
}
