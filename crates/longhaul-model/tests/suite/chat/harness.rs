//! A model behind a server of ours, questions for it, and a recorded stream.

use std::sync::{Arc, OnceLock};

use longhaul_core::failure::Failure;
use longhaul_core::message::Message;
use longhaul_core::port::model::{Model, ModelResponse};
use longhaul_core::usage::{ModelPricing, Price};
use longhaul_model::chat::{self, Quirks};
use longhaul_model::http::Http;
use longhaul_model::key::ApiKey;
use longhaul_model::settings::Settings;
use serde_json::json;

use crate::suite::fixtures::{ask, limits};
use crate::suite::harness::{FixedClock, Server, TextSink, stream_response};
use crate::suite::spec::SpecValidator;

pub(crate) const KEY: &str = "sk-very-secret-0123456789";

/// A reply with everything in it: a thought, words, a field nobody knows, two
/// calls whose arguments come interleaved, and the count behind the end.
pub(crate) const RECORDED: &str = include_str!("recorded.sse");

/// Whose fields the recorded reply is made of.
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
        ..Settings::new("moonshot", "kimi-k2.6", Some(ApiKey::new(KEY)))
    }
}

/// A model at this server with these settings and quirks.
pub(crate) fn model_with(server: &Server, settings: Settings, quirks: Quirks) -> Arc<dyn Model> {
    let http = Http::new(&format!("{}/v1", server.base_url()), limits()).unwrap();
    chat::model(http, settings, quirks, Arc::new(FixedClock)).unwrap()
}

pub(crate) fn model(server: &Server) -> Arc<dyn Model> {
    model_with(server, settings(), Quirks::default())
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
        validator().check(&seen.body);
    }
    (answered, heard.text())
}

/// The request that these messages make at a server with these quirks.
pub(crate) async fn sent_body(messages: &[Arc<Message>], quirks: Quirks) -> String {
    let server = Server::new(vec![stream_response(RECORDED.as_bytes())]).await;
    let model = model_with(&server, settings(), quirks);
    answer(&server, &model, messages).await.0.unwrap();
    server.requests().remove(0).body
}

/// A stream of these events.
pub(crate) fn events(events: &[&str]) -> String {
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}
