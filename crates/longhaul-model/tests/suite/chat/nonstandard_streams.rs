//! Nonstandard streams: as real servers send them, and worse.

use longhaul_core::message::Block;
use serde_json::json;

use super::harness::{answer, events, model};
use crate::suite::fixtures::{hello_messages, lines};
use crate::suite::harness::{Server, full_response, stream_response};

/// Streams by name, one event per line: `e` is a raw event, `d` a chunk with this delta, `c` a
/// chunk with this fragment of a call. The other words are the constants below.
const CASES: &str = include_str!("nonstandard_streams.txt");

const HI: &str = r#"{"choices":[{"index":0,"delta":{"content":"Hi"}}]}"#;
const CALLS: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#;
const STOP: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
const DONE: &str = "[DONE]";

/// Returns a chunk with this delta.
fn delta(delta: &str) -> String {
    format!(r#"{{"model":"m","choices":[{{"index":0,"delta":{delta},"finish_reason":null}}]}}"#)
}

fn event(line: &str) -> String {
    match line.split_once(' ').unwrap_or((line, "")) {
        ("HI", _) => HI.to_owned(),
        ("CALLS", _) => CALLS.to_owned(),
        ("STOP", _) => STOP.to_owned(),
        ("DONE", _) => DONE.to_owned(),
        ("e", whole) => whole.to_owned(),
        ("d", inner) => delta(inner),
        ("c", call) => delta(&format!(r#"{{"tool_calls":[{call}]}}"#)),
        (other, _) => panic!("{other} is not an event"),
    }
}

/// Parses the name of a case and its stream.
fn case(text: &str) -> (&str, String) {
    let (name, lines) = text.trim().split_once('\n').unwrap();
    let all: Vec<String> = lines.lines().map(event).collect();
    let all: Vec<&str> = all.iter().map(|event| &**event).collect();
    (name, events(&all))
}

#[tokio::test]
async fn nonstandard_streams_are_decoded() {
    let mut cases: Vec<_> = CASES.split("## ").skip(1).map(case).collect();
    let without_blank_lines = |lines: &[&str]| -> String {
        let lines = lines.iter().map(|line| format!("data: {line}\n"));
        lines.collect()
    };
    cases.extend([
        ("no blank lines", without_blank_lines(&[HI, STOP, DONE])),
        ("no blank lines and no [DONE]", without_blank_lines(&[HI, STOP])),
        ("no blank lines and no finish reason", without_blank_lines(&[HI, HI, DONE])),
        ("no last blank line", events(&[HI, STOP]) + "data: [DONE]"),
        (
            "an event named error",
            format!("data: {HI}\n\nevent: error\ndata: {{\"message\":\"gone\",\"code\":503}}\n\n"),
        ),
    ]);
    let plans = cases.iter().map(|(_, stream)| stream_response(stream.as_bytes()));
    let server = Server::new(plans.collect()).await;
    let model = model(&server);
    let mut all = String::new();
    for (name, _) in &cases {
        let (response, streamed_text) = answer(&server, &model, &hello_messages()).await;
        let lines = lines(&response);
        all.push_str(&format!("## {name}\n{lines}\nstreamed {streamed_text:?}\n\n"));
    }
    insta::assert_snapshot!("nonstandard_streams", all);
}

#[tokio::test]
async fn a_non_utf8_stream_is_a_failure() {
    let mut bytes = events(&[HI]).into_bytes();
    bytes.extend_from_slice(b"data: {\"choices\":[{\"delta\":{\"content\":\"\xff\xfe\"}}]}\n\n");
    bytes.extend_from_slice(events(&[STOP, DONE]).as_bytes());
    let server = Server::new(vec![
        stream_response(&bytes),
        full_response(200, &[("content-type", "application/json")], "\u{fffd}"),
    ])
    .await;
    let model = model(&server);
    for _ in 0..2 {
        let failure = answer(&server, &model, &hello_messages()).await.0.unwrap_err();
        assert_eq!(failure.class.as_str(), "server", "{failure:?}");
    }
}

#[tokio::test]
async fn too_many_calls_are_a_failure() {
    let call_delta =
        |index: usize| json!({"index": index, "id": "a", "function": {"name": "clock"}});
    let calls_event = |count: usize| -> String {
        let pieces: Vec<_> = (0..count).map(call_delta).collect();
        delta(&json!({ "tool_calls": pieces }).to_string())
    };
    // A million calls in a few large events, the maximum number of calls, and one more than that.
    let pieces = r#"{"function":{"name":"a"}},"#.repeat(100_000);
    let million_calls = delta(&format!(r#"{{"tool_calls":[{pieces}null]}}"#));
    let million_calls = vec![&*million_calls; 10];
    let server = Server::new(vec![
        stream_response(events(&million_calls).as_bytes()),
        stream_response(events(&[&calls_event(1_024), CALLS, DONE]).as_bytes()),
        stream_response(events(&[&calls_event(1_025), CALLS, DONE]).as_bytes()),
    ])
    .await;
    let model = model(&server);
    let failure = answer(&server, &model, &hello_messages()).await.0.unwrap_err();
    let message =
        "moonshot sent a response that is too large: the reply has more than 1024 tool calls";
    assert_eq!(failure.message, message);
    let response = answer(&server, &model, &hello_messages()).await.0.unwrap();
    assert_eq!(response.reply.tool_calls().count(), 1_024);
    let failure = answer(&server, &model, &hello_messages()).await.0.unwrap_err();
    assert_eq!(failure.message, message);
}

#[tokio::test]
async fn too_deep_content_is_malformed() {
    let deep = "[".repeat(10_000) + &"]".repeat(10_000);
    let content = delta(&format!(r#"{{"content":{deep}}}"#));
    let server =
        Server::new(vec![stream_response(events(&[&content, CALLS, DONE]).as_bytes())]).await;
    let failure = answer(&server, &model(&server), &hello_messages()).await.0;
    assert_eq!(failure.unwrap_err().class.as_str(), "server");
}

#[tokio::test]
async fn thinking_is_not_streamed_as_text() {
    let stream =
        events(&[&delta(r#"{"reasoning_content":"secretly","content":"Aloud."}"#), STOP, DONE]);
    let server = Server::new(vec![stream_response(stream.as_bytes())]).await;
    let (response, streamed_text) = answer(&server, &model(&server), &hello_messages()).await;
    assert_eq!(streamed_text, "Aloud.");
    let blocks = &response.unwrap().reply.blocks;
    assert!(matches!(&blocks[0], Block::Thinking(thought) if &*thought.text == "secretly"));
}
