//! Helpers: a model connected to a test server, its requests, and a recorded stream.

use std::sync::{Arc, OnceLock};

use longhaul_core::failure::Failure;
use longhaul_core::message::Message;
use longhaul_core::port::model::{Model, ModelResponse};
use longhaul_core::usage::{ModelPricing, Price};
use longhaul_model::chat::{self, ServerQuirks};
use longhaul_model::http::HttpClient;
use longhaul_model::key::ApiKey;
use longhaul_model::settings::ModelSettings;
use serde_json::json;

use crate::suite::fixtures::{limits, model_request};
use crate::suite::harness::{FixedClock, Server, TextSink, stream_response};
use crate::suite::spec::SpecValidator;

pub(crate) const KEY: &str = "sk-very-secret-0123456789";

/// A reply with everything: reasoning, text, an unknown field, two calls with interleaved
/// arguments, and the usage after the finish reason.
pub(crate) const RECORDED: &str = include_str!("recorded.sse");

/// API name in the recorded reply.
pub(crate) const API: &str = "chat:moonshot";

fn validator() -> &'static SpecValidator {
    static VALIDATOR: OnceLock<SpecValidator> = OnceLock::new();
    VALIDATOR
        .get_or_init(|| SpecValidator::new("openai.trimmed.json", "CreateChatCompletionRequest"))
}

#[test]
fn the_spec_validator_rejects_an_invalid_request() {
    let bad = json!({"model": "m", "messages": [{"role": "user", "content": 5}]});
    assert_ne!(validator().is_valid(&bad), Some(true));
}

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
        ..ModelSettings::new("moonshot", "kimi-k2.6", Some(ApiKey::new(KEY)))
    }
}

/// Creates a model for this server with these settings and quirks.
pub(crate) fn model_with(
    server: &Server,
    settings: ModelSettings,
    quirks: ServerQuirks,
) -> Arc<dyn Model> {
    let http = HttpClient::new(&format!("{}/v1", server.base_url()), limits()).unwrap();
    chat::new_model(http, settings, quirks, Arc::new(FixedClock)).unwrap()
}

pub(crate) fn model(server: &Server) -> Arc<dyn Model> {
    model_with(server, settings(), ServerQuirks::default())
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
        validator().check(&request.body);
    }
    (response, sink.text())
}

/// Returns the request body for these messages with these quirks.
pub(crate) async fn sent_body(messages: &[Arc<Message>], quirks: ServerQuirks) -> String {
    let server = Server::new(vec![stream_response(RECORDED.as_bytes())]).await;
    let model = model_with(&server, settings(), quirks);
    answer(&server, &model, messages).await.0.unwrap();
    server.requests().remove(0).body
}

/// Returns a stream of these events.
pub(crate) fn events(events: &[&str]) -> String {
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}
