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

/// The events of a reply of so many calls, on each wire in turn.
fn calls(count: usize) -> [Vec<String>; 3] {
    let each = |event: &dyn Fn(usize) -> String, end: &[&str]| -> Vec<String> {
        let end = end.iter().map(|event| (*event).to_owned());
        (0..count).map(event).chain(end).collect()
    };
    [
        each(
            &|n| {
                format!(
                    r#"{{"type":"content_block_start","index":{n},"content_block":{{"type":"tool_use","id":"t{n}","name":"clock","input":{{}}}}}}"#
                )
            },
            &[r#"{"type":"message_stop"}"#],
        ),
        each(
            &|n| {
                format!(
                    r#"{{"choices":[{{"delta":{{"tool_calls":[{{"index":{n},"id":"t{n}","function":{{"name":"clock","arguments":""}}}}]}}}}]}}"#
                )
            },
            &[r#"{"choices":[{"finish_reason":"stop"}]}"#, "[DONE]"],
        ),
        each(
            &|n| {
                format!(
                    r#"{{"type":"response.output_item.added","output_index":{n},"item":{{"type":"function_call","call_id":"t{n}","name":"clock","arguments":""}}}}"#
                )
            },
            &[r#"{"type":"response.completed"}"#],
        ),
    ]
}

#[tokio::test]
async fn too_many_calls_are_the_same_fault_and_asking_again_does_not_help() {
    for count in [1_024, 1_025, 2_000] {
        for (wire, stream) in WIRES.into_iter().zip(calls(count)) {
            let stream: Vec<&str> = stream.iter().map(|event| &**event).collect();
            match heard(wire, events(&stream)).await {
                Ok(answered) => {
                    let heard = answered.reply.calls().count();
                    assert_eq!((heard, count), (1_024, 1_024), "{}", wire.0);
                }
                Err(failure) => {
                    assert!(count > 1_024, "{} {failure:?}", wire.0);
                    assert_eq!(failure.class.as_str(), "invalid_request", "{}", wire.0);
                    let words = "says too much: a reply of more than 1024 calls";
                    assert!(failure.message.ends_with(words), "{}", failure.message);
                }
            }
        }
    }
}
