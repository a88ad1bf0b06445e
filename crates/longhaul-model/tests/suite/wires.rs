//! What is the same on every wire: the three codecs hear the same thing alike.

use std::sync::Arc;

use longhaul_core::failure::Failure;
use longhaul_core::port::model::{Answered, Model};

use crate::suite::kit::{Act, Heard, Server, plain, streamed};
use crate::suite::words::{ask, hello};
use crate::suite::{anthropic, chat, responses};

/// A wire, and how its model is made.
pub(crate) type Wire = (&'static str, fn(&Server) -> Arc<dyn Model>);

pub(crate) const WIRES: [Wire; 3] = [
    ("anthropic", anthropic::kit::model),
    ("chat", chat::kit::model),
    ("responses", responses::kit::model),
];

const JSON: &[(&str, &str)] = &[("content-type", "application/json")];

/// A stream of these events.
fn events(events: &[&str]) -> Vec<Act> {
    let events = events.iter().map(|event| format!("data: {event}\n\n"));
    streamed(events.collect::<String>().as_bytes())
}

/// What a wire makes of an answer.
async fn heard(wire: Wire, plan: Vec<Act>) -> Result<Answered, Failure> {
    let server = Server::new(vec![plan]).await;
    let model = wire.1(&server);
    model.reply(&ask(&hello()), &Heard::default()).await
}

#[tokio::test]
async fn an_error_is_told_however_it_is_wrapped() {
    let errors = [
        (
            r#"{"error":{"type":"authentication_error","message":"bad key"}}"#,
            "auth",
        ),
        (
            r#"{"error":{"code":"insufficient_quota","message":"no more"},"id":7}"#,
            "quota",
        ),
        (r#"{"error":"currently overloaded"}"#, "server"),
    ];
    for wire in WIRES {
        for (error, class) in errors {
            for plan in [plain(200, JSON, error), events(&[error])] {
                let failure = heard(wire, plan).await.unwrap_err();
                assert_eq!(failure.class.as_str(), class, "{} {error}", wire.0);
                let told = failure.message.contains("broke off");
                assert!(told, "{}: {}", wire.0, failure.message);
            }
        }
    }
}
