//! A model behind a server of ours, questions for it, and a recorded stream.

use std::sync::{Arc, OnceLock};

use longhaul_core::failure::Failure;
use longhaul_core::message::Message;
use longhaul_core::port::model::{Answered, Model};
use longhaul_core::usage::{Price, Tariff};
use longhaul_model::chat::{self, Quirks};
use longhaul_model::http::Http;
use longhaul_model::key::ApiKey;
use longhaul_model::settings::Settings;
use serde_json::json;

use crate::suite::kit::{Heard, Noon, Server, streamed};
use crate::suite::spec::Judge;
use crate::suite::words::{ask, limits};

pub(crate) const KEY: &str = "sk-very-secret-0123456789";

/// A reply with everything in it: a thought, words, a field nobody knows, two
/// calls whose arguments come interleaved, and the count behind the end.
pub(crate) const RECORDED: &str = include_str!("recorded.sse");

/// Whose fields the recorded reply is made of.
pub(crate) const OWN: &str = "chat:moonshot";

fn judge() -> &'static Judge {
    static JUDGE: OnceLock<Judge> = OnceLock::new();
    JUDGE.get_or_init(|| Judge::new("openai.trimmed.json", "CreateChatCompletionRequest"))
}

#[test]
fn the_judge_finds_a_fault_where_there_is_one() {
    let bad = json!({"model": "m", "messages": [{"role": "user", "content": 5}]});
    assert_ne!(judge().passes(&bad), Some(true));
}

pub(crate) fn settings() -> Settings {
    Settings {
        tariff: Tariff {
            price: Some(Price {
                input: 3_000_000,
                output: 15_000_000,
                cached: 300_000,
                cache_write: 3_750_000,
            }),
            max_output_tokens: 64_000,
            ..Tariff::default()
        },
        ..Settings::new("moonshot", "kimi-k2.6", Some(ApiKey::new(KEY)))
    }
}

/// A model at this server with these settings and quirks.
pub(crate) fn with(server: &Server, settings: Settings, quirks: Quirks) -> Arc<dyn Model> {
    let http = Http::new(&format!("{}/v1", server.base()), limits()).unwrap();
    chat::model(http, settings, quirks, Arc::new(Noon)).unwrap()
}

pub(crate) fn model(server: &Server) -> Arc<dyn Model> {
    with(server, settings(), Quirks::default())
}

/// Asks, and looks at every request as the provider would.
pub(crate) async fn answer(
    server: &Server,
    model: &Arc<dyn Model>,
    messages: &[Arc<Message>],
) -> (Result<Answered, Failure>, String) {
    let heard = Heard::default();
    let answered = model.reply(&ask(messages), &heard).await;
    for seen in server.seen() {
        judge().check(&seen.body);
    }
    (answered, heard.text())
}

/// The request that these messages make at a server with these quirks.
pub(crate) async fn sent(messages: &[Arc<Message>], quirks: Quirks) -> String {
    let server = Server::new(vec![streamed(RECORDED.as_bytes())]).await;
    let model = with(&server, settings(), quirks);
    answer(&server, &model, messages).await.0.unwrap();
    server.seen().remove(0).body
}

/// A stream of these events.
pub(crate) fn events(events: &[&str]) -> String {
    events
        .iter()
        .map(|event| format!("data: {event}\n\n"))
        .collect()
}
