//! A conversation after serialisation, after a provider switch, and with a new adapter.

use std::sync::Arc;

use longhaul_core::message::{Block, Message};
use longhaul_core::raw::RawJson;

use super::harness::{API, RECORDED, answer, model};
use super::requests::sent_input;
use crate::suite::fixtures::{
    assistant, call, hello_messages, result, results, text, thinking_block, user,
};
use crate::suite::harness::{Server, stream_response};

#[tokio::test]
async fn a_reply_is_sent_back_unchanged() {
    let server = Server::new(vec![stream_response(RECORDED.as_bytes()); 2]).await;
    let model = model(&server);
    let mut messages = hello_messages();
    let (first, _) = answer(&server, &model, &messages).await;
    let reply = first.unwrap().reply;
    // Serialise and deserialise, as the journal does.
    let stored = serde_json::to_string(&Message::Assistant(reply)).unwrap();
    messages.push(Arc::new(serde_json::from_str(&stored).unwrap()));
    messages.push(results(vec![result(1, "call_A", "a"), result(2, "call_B", "b")]));
    answer(&server, &model, &messages).await.0.unwrap();
    let body = &server.requests()[1].body;
    for expected in [
        r#"{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"Zwölf über vier."}],"encrypted_content":"gAAAB/seal==","n":1.50},{"id":"ws_1""#,
        r#"{"id":"ws_1","type":"web_search_call","status":"completed","action":{"type":"search","query":"x","queries": ["x"]}}"#,
        r#"{"id":"po_1","type":"poem","lines": ["a",  "b"],"metre":null}"#,
        r#""arguments":"{\"zeta\": 1, \"alpha\": [1.0, 2.50], \"path\": \"a/b\\u00e9\"}""#,
    ] {
        assert!(body.contains(expected), "{expected}\nin {body}");
    }
    // All items are sent in order, and nothing else.
    let (_, end) = RECORDED.rsplit_once("data: ").unwrap();
    let end: serde_json::Value = serde_json::from_str(end.trim()).unwrap();
    let received_items = end["response"]["output"].as_array().unwrap();
    let sent_input: serde_json::Value = serde_json::from_str(body).unwrap();
    let sent_input = sent_input["input"].as_array().unwrap();
    assert_eq!(&sent_input[1..=received_items.len()], received_items.as_slice());
    assert_eq!(sent_input.len(), received_items.len() + 3);
}

#[tokio::test]
async fn replies_of_another_provider_are_converted() {
    let foreign_reply = |calls: Vec<Block>| {
        let mut blocks = vec![
            thinking_block(Some("another seal")),
            text("  "),
            Block::Other(RawJson::parse(r#"{"type":"redacted_thinking","data":"x"}"#).unwrap()),
        ];
        blocks.extend(calls);
        assistant("anthropic", blocks)
    };
    let long_id = "x".repeat(200);
    let messages = [
        user("Go."),
        foreign_reply(vec![
            text("I go."),
            call("", "clock", "{}"),
            call("call|1", "my.tool", r#""not JSON: {""#),
            call("call|1", "", "[1]"),
            call(&long_id, "clock", "{}"),
            call(&format!("{long_id}y"), "clock", "{}"),
        ]),
        results(vec![
            result(1, "", "one"),
            result(2, "call|1", "two"),
            result(3, "call|1", "three"),
            result(4, &long_id, "four"),
            result(5, &format!("{long_id}y"), "five"),
        ]),
        foreign_reply(vec![call("call_1", "clock", "{}")]),
        results(vec![result(1, "call_1", "six")]),
        foreign_reply(vec![]),
        user("On."),
        // Calls without a result, and a result without a call.
        foreign_reply(vec![call("call_1", "clock", "{}"), call("b", "clock", "{}")]),
        results(vec![result(2, "b", "seven"), result(9, "z", "lost")]),
        user("Well?"),
        foreign_reply(vec![call("c", "clock", "{}")]),
    ];
    let input = sent_input(&messages).await;
    assert!(!input.contains("seal") && !input.contains("Hm."), "{input}");
    insta::assert_snapshot!("other_provider", input);
}

#[tokio::test]
async fn a_request_is_the_same_when_it_is_encoded_again() {
    let turns = 6;
    let server = Server::new(vec![stream_response(RECORDED.as_bytes()); 3 * turns]).await;
    let reused_model = model(&server);
    let mut messages = hello_messages();
    for turn in 0..turns {
        let id = format!("call_{}", turn % 2);
        messages.push(assistant(API, vec![call(&id, "clock", "{}")]));
        messages.push(results(vec![result(1, &id, &turn.to_string())]));
        if turn == 4 {
            // The middle of the conversation is removed.
            messages.drain(3..7);
            messages.push(user("short"));
        }
        answer(&server, &reused_model, &messages).await.0.unwrap();
        answer(&server, &model(&server), &messages).await.0.unwrap();
        let copy: Vec<_> = messages.iter().map(|one| Arc::new((**one).clone())).collect();
        answer(&server, &reused_model, &copy).await.0.unwrap();
        let requests = server.requests();
        let bodies: Vec<&str> = requests[3 * turn..].iter().map(|request| &*request.body).collect();
        assert!(bodies.iter().all(|body| *body == bodies[0]), "{turn}: {bodies:#?}");
    }
}
