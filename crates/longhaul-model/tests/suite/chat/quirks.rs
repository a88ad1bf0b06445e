//! Quirks of servers: what each one changes in a request.

use std::sync::Arc;

use longhaul_core::message::{Block, Message, ThinkingBlock};
use longhaul_core::raw::RawJson;
use longhaul_model::chat::ServerQuirks;
use serde_json::{Value, json};

use super::harness::{API, sent_body};
use super::requests::sent_images;
use crate::suite::fixtures::{
    assistant, call, hello_messages, result, results, text, thinking_block, user,
};

fn quirk(name: &str) -> ServerQuirks {
    ServerQuirks::from_names(&[name.to_owned()]).unwrap()
}

/// A conversation that every quirk affects.
fn conversation() -> Vec<Arc<Message>> {
    let extra = Block::Other(RawJson::parse(r#"{"reasoning_details":[{"n": 1.0}]}"#).unwrap());
    let reasoning = Block::Thinking(ThinkingBlock {
        text: "Well.".into(),
        signature: None,
        extra: Some(RawJson::parse(r#"{"field":"reasoning"}"#).unwrap()),
    });
    vec![
        user("Go."),
        assistant(API, vec![thinking_block(None), extra, call("a", "clock", "{}")]),
        results(vec![result(1, "a", "one")]),
        assistant(API, vec![reasoning, call("b", "clock", r#""oops""#)]),
        results(vec![result(1, "b", "two")]),
        assistant("anthropic", vec![thinking_block(Some("seal")), call("c", "clock", "{}")]),
        results(vec![result(1, "c", "three")]),
        assistant(API, vec![thinking_block(None), text("Done.")]),
        user("Thanks."),
    ]
}

async fn body(quirks: ServerQuirks) -> Value {
    serde_json::from_str(&sent_body(&conversation(), quirks).await).unwrap()
}

/// Returns the assistant messages in order.
async fn sent_messages(quirks: ServerQuirks) -> Vec<Value> {
    let body = body(quirks).await;
    let messages = body["messages"].as_array().unwrap().iter();
    let turns = messages.filter(|message| message["role"] == "assistant");
    turns.cloned().collect()
}

fn arguments(turn: &Value) -> &Value {
    &turn["tool_calls"][0]["function"]["arguments"]
}

#[tokio::test]
async fn without_quirks() {
    let body = body(ServerQuirks::default()).await;
    assert_eq!(body["max_tokens"], 1_024);
    assert_eq!(body.get("max_completion_tokens"), None);
    assert_eq!(body["stream_options"], json!({"include_usage": true}));
    assert_eq!(body["messages"][0]["role"], "system");
    let turns = sent_messages(ServerQuirks::default()).await;
    for turn in &turns {
        assert_eq!(turn.get("reasoning_content"), None);
        assert_eq!(turn.get("reasoning"), None);
    }
    assert_eq!(turns[0]["content"], Value::Null);
    assert_eq!(turns[0]["reasoning_details"], json!([{"n": 1.0}]));
    assert_eq!(arguments(&turns[1]), r#"{"INVALID_JSON":"oops"}"#);
}

#[tokio::test]
async fn max_completion_tokens() {
    let body = body(quirk("max_completion_tokens")).await;
    assert_eq!(body["max_completion_tokens"], 1_024);
    assert_eq!(body.get("max_tokens"), None);
}

#[tokio::test]
async fn no_stream_options() {
    let body = body(quirk("no_stream_options")).await;
    assert_eq!(body.get("stream_options"), None);
    assert_eq!(body["stream"], true);
}

#[tokio::test]
async fn developer_role() {
    let body = body(quirk("developer_role")).await;
    assert_eq!(body["messages"][0]["role"], "developer");
    assert_eq!(body["messages"][0]["content"], "Be tidy.");
}

#[tokio::test]
async fn send_reasoning() {
    let turns = sent_messages(quirk("send_reasoning")).await;
    assert_eq!(turns[0]["reasoning_content"], "Hm.");
    assert_eq!(turns[1]["reasoning"], "Well.");
    assert_eq!(turns[1].get("reasoning_content"), None);
    // Reasoning of another provider does not count, and the server requires some.
    assert_eq!(turns[2]["reasoning_content"], " ");
    // Only replies with calls need it.
    assert_eq!(turns[3].get("reasoning_content"), None);
}

#[tokio::test]
async fn text_only() {
    let body = sent_images(quirk("text_only")).await;
    assert!(!body.contains("image_url"), "{body}");
    let body: Value = serde_json::from_str(&body).unwrap();
    let mut messages = body["messages"].as_array().unwrap().iter();
    let is_text =
        |message: &Value| message["content"].is_string() || message["tool_calls"].is_array();
    assert!(messages.all(is_text), "{body:#}");
    assert_eq!(
        body["messages"][1]["content"],
        "Two things.\n\nLook:\n\n[image not shown: image/png, 4 bytes]\n\n[image not shown: image/png, 4 bytes]\n\n[image not shown: image/tiff, 4 bytes]"
    );
}

#[tokio::test]
async fn empty_content() {
    let turns = sent_messages(quirk("empty_content")).await;
    assert_eq!(turns[0]["content"], "");
    assert_eq!(turns[3]["content"], "Done.");
}

#[tokio::test]
async fn no_extras() {
    let turns = sent_messages(quirk("no_extras")).await;
    assert_eq!(turns[0].get("reasoning_details"), None);
    assert!(turns[0]["tool_calls"].is_array());
}

#[tokio::test]
async fn fields_go_back_only_to_the_provider_they_came_from() {
    let mut messages = hello_messages();
    let extra = Block::Other(RawJson::parse(r#"{"reasoning_details":[1]}"#).unwrap());
    let parts = vec![thinking_block(None), extra, call("a.b", "clock", "{}")];
    messages.push(assistant("chat:openrouter", parts));
    let body = sent_body(&messages, ServerQuirks::default()).await;
    assert!(!body.contains("reasoning"), "{body}");
    assert!(body.contains(r#""tool_call_id":"a_b""#), "{body}");
}

#[test]
fn quirks_are_parsed_by_name() {
    let parse = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        ServerQuirks::from_names(&names)
    };
    assert_eq!(parse(&[]), Ok(ServerQuirks::default()));
    assert_eq!(
        parse(&["send_reasoning", "text_only", "text_only"]),
        Ok(ServerQuirks { send_reasoning: true, text_only: true, ..ServerQuirks::default() })
    );
    assert_eq!(
        parse(&["text_only", "send_resoning"]),
        Err("unknown quirk `send_resoning`, did you mean `send_reasoning`?".into())
    );
    let unknown = parse(&["zzz"]).unwrap_err();
    assert!(unknown.starts_with("unknown quirk `zzz`, expected one of `max_completion_tokens`, `"));
}

#[test]
fn known_providers_have_their_quirks() {
    for (provider, names) in [
        ("openai", &["max_completion_tokens", "developer_role"][..]),
        ("moonshot", &["send_reasoning"]),
        ("Kimi", &["send_reasoning"]),
        ("deepseek", &["send_reasoning"]),
        ("lmstudio", &["empty_content"]),
        ("openrouter", &[]),
        ("my-own", &[]),
    ] {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(
            Ok(ServerQuirks::for_provider(provider)),
            ServerQuirks::from_names(&names),
            "{provider}"
        );
    }
}
