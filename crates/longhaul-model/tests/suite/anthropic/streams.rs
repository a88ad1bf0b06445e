//! Streams: the recorded stream truncated at any byte, and nonstandard streams.

use std::sync::Arc;

use longhaul_core::message::Message;

use super::harness::{RECORDED, answer, model};
use crate::suite::chunking::{SHORT_STREAMS, corrupted_stream, split_everywhere};
use crate::suite::fixtures::{hello_messages, lines};
use crate::suite::harness::{Server, TextSink, full_response, stream_response};

#[tokio::test]
async fn a_stream_decodes_the_same_however_it_is_chunked() {
    let plans = split_everywhere(RECORDED);
    let rounds = plans.len();
    let server = Server::new(plans).await;
    let model = model(&server);
    let (first, streamed_text) = answer(&server, &model, &hello_messages()).await;
    insta::assert_snapshot!("recorded", lines(&first));
    assert_eq!(streamed_text, "I look – now 🙂.");
    let first = first.unwrap();
    for round in 1..rounds {
        let sink = TextSink::default();
        let question = crate::suite::fixtures::model_request(&hello_messages());
        let response = model.generate(&question, &sink).await;
        assert_eq!(response.unwrap(), first, "round {round}");
        assert_eq!(sink.text(), streamed_text, "round {round}");
    }
}

#[tokio::test]
async fn a_stream_that_ends_early_is_never_a_reply() {
    let end = RECORDED.rfind("event: message_stop").unwrap();
    let lengths: Vec<usize> = (0..=end).step_by(97).chain([end, end + 10, end + 40]).collect();
    let plans = lengths.iter().map(|length| stream_response(&RECORDED.as_bytes()[..*length]));
    let server = Server::new(plans.collect()).await;
    let model = model(&server);
    for length in lengths {
        let (response, _) = answer(&server, &model, &hello_messages()).await;
        let failure = response.unwrap_err();
        assert_eq!(failure.class.as_str(), "network", "{length}: {failure:?}");
        assert_eq!(failure.request_id.as_deref(), Some("req_7"));
        let usage = failure.usage.unwrap();
        assert!(usage.estimated && usage.input_tokens > 0, "{usage:?}");
    }
}

fn events(events: &[&str]) -> String {
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}

const START: &str = r#"{"type":"message_start","message":{"model":"m","usage":{"input_tokens":3,"output_tokens":1}}}"#;
const TEXT: &str =
    r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"Hi"}}"#;
const MORE: &str =
    r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"!"}}"#;
const CALL: &str = r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t","name":"clock","input":{}}}"#;
const STOP: &str = r#"{"type":"message_stop"}"#;

fn stop_event(reason: &str) -> String {
    format!(
        r#"{{"type":"message_delta","delta":{{"stop_reason":{reason}}},"usage":{{"output_tokens":5}}}}"#
    )
}

fn arguments(json: &str) -> String {
    let json = serde_json::to_string(json).unwrap();
    format!(
        r#"{{"type":"content_block_delta","index":1,"delta":{{"type":"input_json_delta","partial_json":{json}}}}}"#
    )
}

/// Name of a case and the events of its stream.
type StreamCase = (&'static str, Vec<String>);

/// Nonstandard streams that still contain a reply.
fn nonstandard_cases() -> Vec<StreamCase> {
    let unknown = r#"{"type":"content_block_start","index":2,"content_block":{"type":"poem","line":"a","n": 1.50}}"#;
    let poem_delta = r#"{"type":"content_block_delta","index":2,"delta":{"type":"poem_delta","line":"b","rhyme":[1]}}"#;
    let second_poem_delta = poem_delta.replace(r#""b""#, r#""c""#).replace("[1]", "[2]");
    let mood_delta = r#"{"type":"content_block_delta","index":0,"delta":{"type":"mood_delta","text":5,"mood":null}}"#;
    let no_index = |event: &str| event.replace(r#""index":0,"#, "");
    let cases: Vec<(&'static str, Vec<&str>)> = vec![
        ("a duplicate index", vec![TEXT, MORE, TEXT, MORE]),
        ("text without a start event", vec![MORE, MORE]),
        ("unknown block", vec![unknown]),
        ("unknown delta", vec![unknown, poem_delta, &second_poem_delta]),
        ("unknown delta of a known block", vec![TEXT, mood_delta]),
        ("[DONE] and irrelevant events", vec![TEXT, "[DONE]", r#"{"type":"hm"}"#, "{}"]),
        ("an empty reply", vec![]),
    ];
    let to_owned_events = |events: Vec<&str>| events.into_iter().map(str::to_owned).collect();
    let mut owned_cases: Vec<StreamCase> =
        cases.into_iter().map(|(name, events)| (name, to_owned_events(events))).collect();
    owned_cases.push(("no index", vec![no_index(TEXT), no_index(MORE)]));
    owned_cases.push((
        "arguments that are not valid JSON",
        vec![CALL.to_owned(), arguments("{\"a\": "), arguments("oops")],
    ));
    owned_cases
}

fn malformed_cases() -> Vec<StreamCase> {
    let bad_index = TEXT.replace(r#""index":0"#, r#""index":"0""#);
    vec![
        ("arguments without a call", vec![TEXT.to_owned(), arguments("{}")]),
        ("not JSON", vec!["oops".to_owned()]),
        ("a list", vec!["[1]".to_owned()]),
        ("text of a wrong type", vec![MORE.replace(r#""!""#, "5")]),
        ("index of a wrong type", vec![bad_index]),
        ("no content_block", vec![r#"{"type":"content_block_start","index":0}"#.to_owned()]),
        (
            "a block that is not an object",
            vec![r#"{"type":"content_block_start","index":0,"content_block":7}"#.to_owned()],
        ),
    ]
}

/// Complete streams with start and end events, and some without them.
fn all_streams() -> Vec<(&'static str, String)> {
    let complete_stream = |inner: Vec<String>| {
        let inner: Vec<&str> = inner.iter().map(|event| &**event).collect();
        events(&[&[START], &inner[..], &[STOP]].concat())
    };
    let cases = nonstandard_cases().into_iter().chain(malformed_cases());
    let mut streams: Vec<_> = cases.map(|(name, inner)| (name, complete_stream(inner))).collect();
    let bad_usage_start = START.replace(":3,", ":\"3\",");
    let end = stop_event(r#""end_turn""#);
    streams.extend([
        ("usage of wrong types", events(&[&bad_usage_start, TEXT, &end, STOP])),
        ("no start event", events(&[TEXT, MORE, &end, STOP])),
        ("no blank lines", format!("data: {START}\ndata: {TEXT}\ndata: {MORE}\ndata: {STOP}\n")),
        ("no last blank line", events(&[START, TEXT, MORE]) + &format!("data: {STOP}")),
    ]);
    streams
}

#[tokio::test]
async fn nonstandard_streams_are_decoded() {
    let cases = all_streams();
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
async fn a_corrupted_stream_decodes_to_a_valid_reply_or_an_error() {
    let rounds = 800;
    let plans = (0..rounds).map(|round| stream_response(&corrupted_stream(RECORDED, round)));
    let server = Server::new(plans.collect()).await;
    let model = model(&server);
    let (mut reply_count, mut replies) = (0, Vec::new());
    for round in 0..rounds {
        let question = crate::suite::fixtures::model_request(&hello_messages());
        match model.generate(&question, &TextSink::default()).await {
            Ok(response) => {
                reply_count += 1;
                if !replies.contains(&response.reply) {
                    replies.push(response.reply);
                }
            }
            Err(failure) => assert!(failure.class.is_transient(), "{round}: {failure:?}"),
        }
    }
    assert!(reply_count > rounds / 10, "{reply_count}");
    let server =
        Server::new(vec![stream_response(SHORT_STREAMS[0].0.as_bytes()); replies.len()]).await;
    let model = super::harness::model(&server);
    for reply in replies {
        let mut messages = hello_messages();
        messages.push(Arc::new(Message::Assistant(reply)));
        let question = crate::suite::fixtures::model_request(&messages);
        model.generate(&question, &TextSink::default()).await.unwrap();
    }
    for request in server.requests() {
        let body = serde_json::from_str::<serde_json::Value>(&request.body);
        assert!(body.is_ok(), "{}", request.body);
    }
}

#[tokio::test]
async fn every_stop_reason_is_mapped() {
    let reasons = [
        r#""end_turn""#,
        r#""tool_use""#,
        r#""max_tokens""#,
        r#""pause_turn""#,
        r#""refusal""#,
        r#""stop_sequence""#,
        r#""model_context_window_exceeded""#,
        r#""brand_new""#,
        "null",
    ];
    let mut plans = Vec::new();
    for reason in reasons {
        plans.push(stream_response(events(&[START, TEXT, &stop_event(reason), STOP]).as_bytes()));
        plans.push(stream_response(events(&[START, CALL, &stop_event(reason), STOP]).as_bytes()));
    }
    let server = Server::new(plans).await;
    let model = model(&server);
    let mut all = String::new();
    for reason in reasons {
        let without_call = answer(&server, &model, &hello_messages()).await.0.unwrap();
        let calls = answer(&server, &model, &hello_messages()).await.0.unwrap();
        all.push_str(&format!("{reason}: {:?}, with a call {:?}\n", without_call.stop, calls.stop));
    }
    insta::assert_snapshot!("stops", all);
}

#[tokio::test]
async fn a_response_without_streaming_is_decoded() {
    let complete_body = r#"{"id":"m","type":"message","model":"m1","content":[{"type":"text","text":"Hi"},{"type":"tool_use","id":"t","name":"clock","input":{"a": 1.0}}],"stop_reason":"tool_use","usage":{"input_tokens":4,"output_tokens":2}}"#;
    let json = [("content-type", "application/json; charset=utf-8")];
    let html = [("content-type", "text/html")];
    let error_body =
        r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    let server = Server::new(vec![
        full_response(200, &json, complete_body),
        full_response(200, &json, error_body),
        full_response(200, &json, "{}"),
        full_response(200, &json, "oops"),
        full_response(200, &html, "<html><title>Log in</title></html>"),
        full_response(204, &json, ""),
    ])
    .await;
    let model = model(&server);
    let mut all = String::new();
    for _ in 0..6 {
        let (response, streamed_text) = answer(&server, &model, &hello_messages()).await;
        all.push_str(&format!("{}\nstreamed {streamed_text:?}\n\n", lines(&response)));
    }
    insta::assert_snapshot!("complete_streams", all);
}
