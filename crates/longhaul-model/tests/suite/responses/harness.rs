//! A model behind a server of ours, questions for it, and a recorded stream.

use std::sync::Arc;

use longhaul_core::failure::Failure;
use longhaul_core::message::Message;
use longhaul_core::port::model::{Model, ModelResponse};
use longhaul_core::usage::{ModelPricing, Price};
use longhaul_model::http::Http;
use longhaul_model::key::ApiKey;
use longhaul_model::responses;
use longhaul_model::settings::{Settings, SettingsError};

use super::spec;
use crate::suite::fixtures::{ask, limits};
use crate::suite::harness::{FixedClock, Server, TextSink};

pub(crate) const KEY: &str = "sk-proj-very-secret-0123456789";

/// Whose replies are this wire's own.
pub(crate) const API: &str = "responses:openai";

/// A reply with everything in it: a thought, a tool of the provider's own, words
/// with a citation, an item nobody knows, and two calls side by side.
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
        ..Settings::new("openai", "gpt-5.5", Some(ApiKey::new(KEY)))
    }
}

/// A model of these settings, at an address that ends as people copy it.
pub(crate) fn model_with(
    server: &Server,
    settings: Settings,
) -> Result<Arc<dyn Model>, SettingsError> {
    let http = Http::new(&format!("{}/v1", server.base_url()), limits()).unwrap();
    responses::model(http, settings, Arc::new(FixedClock))
}

pub(crate) fn model(server: &Server) -> Arc<dyn Model> {
    model_with(server, settings()).unwrap()
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
        spec::check_pairs(&seen.body);
    }
    (answered, heard.text())
}
