//! Streams: the recorded stream truncated at any byte, and nonstandard streams.

use std::sync::Arc;

use longhaul_core::message::Message;
use serde_json::json;

use super::harness::{RECORDED, answer, model};
use crate::suite::chunking::{SHORT_STREAMS, corrupted_stream, split_everywhere};
use crate::suite::fixtures::{hello_messages, lines, model_request};
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
        let response = model.generate(&model_request(&hello_messages()), &sink).await;
        assert_eq!(response.unwrap(), first, "round {round}");
        assert_eq!(sink.text(), streamed_text, "round {round}");
    }
}

#[tokio::test]
async fn a_truncated_stream_is_never_a_partial_reply() {
    let bytes = RECORDED.as_bytes();
    // The last event is complete without the blank line after it.
    let complete_length = RECORDED.trim_end().len();
    let lengths: Vec<usize> =
        (0..complete_length).step_by(31).chain(complete_length - 9..=bytes.len()).collect();
    let plans = lengths.iter().map(|length| stream_response(&bytes[..*length]));
    let server = Server::new(plans.collect()).await;
    let model = model(&server);
    for length in lengths {
        let response =
            model.generate(&model_request(&hello_messages()), &TextSink::default()).await;
        if length >= complete_length {
            assert_eq!(response.unwrap().reply.blocks.len(), 6, "{length}");
            continue;
        }
        let failure = response.unwrap_err();
        assert_eq!(failure.class.as_str(), "network", "{length}: {failure:?}");
        assert_eq!(failure.request_id.as_deref(), Some("req_7"));
        let usage = failure.usage.unwrap();
        assert!(usage.estimated && usage.input_tokens > 0, "{usage:?}");
    }
}

#[tokio::test]
async fn streams_with_missing_events_are_decoded() {
    let mut data_lines = String::new();
    let mut deltas_only = String::new();
    for event in RECORDED.split("\n\n").filter(|event| !event.is_empty()) {
        let (name, data) = event.split_once("\ndata: ").unwrap();
        let mut data: serde_json::Value = serde_json::from_str(data).unwrap();
        let fields = data.as_object_mut().unwrap();
        for name in ["output_index", "sequence_number", "content_index"] {
            fields.remove(name);
        }
        data_lines.push_str(&format!("data: {}\n\n", json!(fields)));
        let kind = fields.remove("type").unwrap();
        // Parallel calls can only be told apart by their item ID.
        if kind != "response.function_call_arguments.delta" {
            fields.remove("item_id");
        }
        if kind != "response.output_item.done" {
            deltas_only.push_str(&format!("{name}\ndata: {}\n\n", json!(fields)));
        }
    }
    let with_done_marker = format!("{RECORDED}data: [DONE]\n\n");
    let two_ends = RECORDED.to_owned() + &RECORDED[RECORDED.rfind("event: ").unwrap()..];
    let (_, only_end) = RECORDED.split_at(RECORDED.rfind("event: ").unwrap());
    let streams = [RECORDED, &data_lines, &deltas_only, &with_done_marker, &two_ends, only_end];
    let plans = streams.iter().map(|stream| stream_response(stream.as_bytes()));
    let server = Server::new(plans.collect()).await;
    let model = model(&server);
    let (first, first_text) = answer(&server, &model, &hello_messages()).await;
    for stream in &streams[1..] {
        let (response, streamed_text) = answer(&server, &model, &hello_messages()).await;
        let (first, response) = (first.as_ref().unwrap(), response.unwrap());
        // The original format of numbers is lost in this test.
        let values = |message: &Message| serde_json::to_value(message).unwrap();
        let (first_message, second_message) =
            (Message::Assistant(Arc::clone(&first.reply)), Message::Assistant(response.reply));
        assert_eq!(values(&first_message), values(&second_message), "{stream}");
        assert_eq!((response.stop, response.usage), (first.stop.clone(), first.usage));
        assert_eq!(streamed_text, first_text, "{stream}");
    }
}

fn events(events: &[&str]) -> String {
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}

const START: &str =
    r#"{"type":"response.created","response":{"model":"m","status":"in_progress","output":[]}}"#;
const ITEM: &str = r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"message","id":"msg_1","role":"assistant","content":[]}}"#;
const HI: &str = r#"{"type":"response.output_text.delta","output_index":0,"item_id":"msg_1","content_index":0,"delta":"Hi"}"#;
const HI_ALL: &str = r#"{"type":"response.output_text.done","output_index":0,"item_id":"msg_1","content_index":0,"text":"Hi!"}"#;
const CALL: &str = r#"{"type":"response.output_item.added","output_index":1,"item":{"type":"function_call","id":"fc_1","call_id":"c","name":"clock","arguments":""}}"#;
const STOP: &str = r#"{"type":"response.completed","response":{"status":"completed","usage":{"input_tokens":3,"output_tokens":5}}}"#;

fn arguments(json: &str) -> String {
    json!({"type": "response.function_call_arguments.delta", "output_index": 1, "item_id": "fc_1", "delta": json}).to_string()
}

/// Returns an event with a complete call that has these additional fields.
fn complete_call(fields: &str) -> String {
    format!(
        r#"{{"type":"response.output_item.done","item":{{"type":"function_call","name":"clock"{fields}}}}}"#
    )
}

/// Name of a case and the events of its stream.
type StreamCase = (&'static str, Vec<String>);

fn owned_cases(cases: Vec<(&'static str, Vec<&str>)>) -> Vec<StreamCase> {
    let to_owned_events = |events: Vec<&str>| events.into_iter().map(str::to_owned).collect();
    cases.into_iter().map(|(name, events)| (name, to_owned_events(events))).collect()
}

/// Nonstandard streams that still contain a reply.
fn nonstandard_cases() -> Vec<StreamCase> {
    let refusal = r#"{"type":"response.refusal.delta","item_id":"msg_1","delta":"No."}"#;
    let message_item = r#"{"type":"response.output_item.done","item":{"type":"message","id":"msg_9","role":"assistant","content":[{"type":"output_text","text":"Hi"},{"type":"sound","data":"x"}]}}"#;
    let changed_item = message_item.replace("Hi", "Ho");
    let string_message =
        r#"{"type":"response.output_item.done","item":{"type":"message","content":"Hi"}}"#;
    let empty = r#"{"type":"response.output_item.done","item":{"type":"message","id":"msg_1","content":[]}}"#;
    let number_message =
        r#"{"type":"response.output_item.done","item":{"type":"message","content":7}}"#;
    let untyped_item = r#"{"type":"response.output_item.done","item":{"n": 1.50}}"#;
    let reasoning_delta = r#"{"type":"response.reasoning_text.delta","item_id":"rs_1","output_index":5,"delta":"Hm"}"#;
    let other_text = HI.replace("Hi", "Ho");
    let mut cases = owned_cases(vec![
        ("fragments without the end of the item", vec![ITEM, HI, HI_ALL]),
        ("text without a start event", vec![HI, HI_ALL]),
        ("text before its start event", vec![HI, ITEM, HI_ALL]),
        ("only the full text", vec![ITEM, HI_ALL]),
        ("a different full text", vec![ITEM, &other_text, HI_ALL]),
        ("a refusal", vec![ITEM, refusal]),
        ("a complete message with an unknown part", vec![message_item]),
        ("the same item twice", vec![message_item, message_item]),
        ("the same id twice", vec![message_item, &changed_item]),
        ("a message that is a string", vec![string_message]),
        ("a message without parts", vec![empty]),
        ("a message of an unknown format", vec![number_message]),
        ("an item without a type", vec![untyped_item]),
        ("reasoning without a start event", vec![reasoning_delta, HI]),
        ("[DONE] and irrelevant events", vec![ITEM, HI, "[DONE]", r#"{"type":"hm"}"#, "{}"]),
        ("an empty reply", vec![]),
    ]);
    cases.push((
        "arguments that are not valid JSON",
        vec![CALL.to_owned(), arguments("{\"a\": "), arguments("oops")],
    ));
    cases.push((
        "arguments before their call",
        vec![arguments("{\"a\":"), CALL.to_owned(), arguments("1}")],
    ));
    cases.push(("a call without arguments", vec![CALL.to_owned()]));
    for (name, fields) in [
        ("a call without an id", r#","arguments":"{}""#),
        ("arguments with whitespace", r#","call_id":"c","arguments":" {}\n""#),
        ("arguments that are a string", r#","call_id":"c","arguments":"\"a\"""#),
        ("arguments that are an object", r#","call_id":"c","arguments":{"a": 1.0}"#),
        ("duplicate fields", r#","call_id":"c","call_id":"d","arguments":"{}","arguments":"[]""#),
        ("an id that is a number", r#","call_id":7,"arguments":"{}""#),
    ] {
        cases.push((name, vec![complete_call(fields)]));
    }
    let call_event = complete_call(r#","call_id":"c","arguments":"{}""#);
    cases.push(("two calls with the same id", vec![call_event.clone(), call_event]));
    cases
}

fn malformed_cases() -> Vec<StreamCase> {
    let bad_index = ITEM.replace(r#""output_index":0"#, r#""output_index":"0""#);
    let bad_text = HI.replace(r#""Hi""#, "5");
    owned_cases(vec![
        ("arguments without a call", vec![ITEM, HI, &arguments("{}")]),
        ("not JSON", vec!["oops"]),
        ("a list", vec!["[1]"]),
        ("text of a wrong type", vec![ITEM, &bad_text]),
        ("index of a wrong type", vec![&bad_index]),
        ("no item", vec![r#"{"type":"response.output_item.added"}"#]),
        ("no delta", vec![r#"{"type":"response.output_text.delta"}"#]),
        ("an item that is not an object", vec![r#"{"type":"response.output_item.done","item":7}"#]),
    ])
}

/// Complete streams with start and end events, and some without them.
fn all_streams() -> Vec<(&'static str, String)> {
    let complete_stream = |inner: Vec<String>| {
        let inner: Vec<&str> = inner.iter().map(|event| &**event).collect();
        events(&[&[START], &inner[..], &[STOP]].concat())
    };
    let cases = nonstandard_cases().into_iter().chain(malformed_cases());
    let mut streams: Vec<_> = cases.map(|(name, inner)| (name, complete_stream(inner))).collect();
    let bad_usage = STOP.replace(":3,", ":\"3\",");
    let no_response = r#"{"type":"response.completed"}"#;
    let items_at_end = r#"{"type":"response.completed","response":{"output":[{"type":"message","id":"msg_1","content":[{"type":"output_text","text":"Hi you"}]},{"type":"function_call","call_id":"c","name":"clock","arguments":"{}"}]}}"#;
    let huge_usage = r#"{"type":"response.completed","response":{"usage":{"input_tokens":3,"output_tokens":18446744073709551615,"input_tokens_details":{"cached_tokens":18446744073709551615,"cache_write_tokens":9}}}}"#;
    let bad_model = START.replace(r#""m""#, "5");
    streams.extend([
        ("usage of wrong types", events(&[ITEM, HI, &bad_usage])),
        ("usage out of range", events(&[ITEM, HI, huge_usage])),
        ("a final event without a response", events(&[ITEM, HI, no_response])),
        ("items only in the final event", events(&[START, ITEM, HI, items_at_end])),
        (
            "a final event of a wrong type",
            events(&[ITEM, &STOP.replace(r#"{"status""#, r#"5,"x":{"status""#)]),
        ),
        ("a model of a wrong type", events(&[&bad_model, STOP])),
        ("no blank lines", format!("data: {START}\ndata: {ITEM}\ndata: {HI}\ndata: {STOP}\n")),
        ("no last blank line", events(&[START, ITEM, HI]) + &format!("data: {STOP}")),
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
    let mut replies = Vec::new();
    for (name, _) in &cases {
        let (response, streamed_text) = answer(&server, &model, &hello_messages()).await;
        let lines = lines(&response);
        all.push_str(&format!("## {name}\n{lines}\nstreamed {streamed_text:?}\n\n"));
        replies.extend(response.map(|response| response.reply));
    }
    insta::assert_snapshot!("nonstandard_streams", all);
    // The decoded replies can be sent back.
    let mut sent = String::new();
    for reply in replies {
        let server = Server::new(vec![stream_response(RECORDED.as_bytes())]).await;
        let messages = [hello_messages(), vec![Arc::new(Message::Assistant(reply))]].concat();
        let question = model_request(&messages);
        let model = super::harness::model(&server);
        model.generate(&question, &TextSink::default()).await.unwrap();
        let body = &server.requests()[0].body;
        super::spec::check_pairs(body);
        let (_, items) = body.split_once(r#""text":"Hello"}]}"#).unwrap();
        let items = items.strip_suffix("]}").unwrap();
        sent.push_str(&format!("{items}\n"));
    }
    insta::assert_snapshot!("nonstandard_items_sent_back", sent);
}

#[tokio::test]
async fn arguments_may_be_huge() {
    let huge_input = format!(r#"{{"a":"{}"}}"#, "é".repeat(1024 * 1024));
    let stream = events(&[START, CALL, &arguments(&huge_input), STOP]);
    let server = Server::new(vec![stream_response(stream.as_bytes())]).await;
    let response = answer(&server, &model(&server), &hello_messages()).await.0.unwrap();
    assert_eq!(response.reply.tool_calls().next().unwrap().input.as_str(), huge_input);
}

#[tokio::test]
async fn a_corrupted_stream_decodes_to_a_valid_reply_or_an_error() {
    let rounds = 800;
    let plans = (0..rounds).map(|round| stream_response(&corrupted_stream(RECORDED, round)));
    let server = Server::new(plans.collect()).await;
    let model = model(&server);
    let (mut reply_count, mut replies) = (0, Vec::new());
    for round in 0..rounds {
        match model.generate(&model_request(&hello_messages()), &TextSink::default()).await {
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
        Server::new(vec![stream_response(SHORT_STREAMS[2].0.as_bytes()); replies.len()]).await;
    let model = super::harness::model(&server);
    for reply in replies {
        let mut messages = hello_messages();
        messages.push(Arc::new(Message::Assistant(reply)));
        let question = model_request(&messages);
        model.generate(&question, &TextSink::default()).await.unwrap();
    }
    for request in server.requests() {
        super::spec::check_pairs(&request.body);
    }
}

#[tokio::test]
async fn every_stop_reason_is_mapped() {
    let end_statuses = [
        r#"completed","response":{"status":"completed"}"#,
        r#"completed","response":{"status":"in_progress"}"#,
        r#"completed","response":{"status":"brand_new"}"#,
        r#"completed","response":{"status":"cancelled"}"#,
        r#"incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}}"#,
        r#"incomplete","response":{"incomplete_details":{"reason":"content_filter"}}"#,
        r#"incomplete","response":{"incomplete_details":{"reason":"brand_new"}}"#,
        r#"incomplete","response":{"incomplete_details":null}"#,
    ];
    let end = |end: &str| format!(r#"{{"type":"response.{end}}}"#);
    let refusal = r#"{"type":"response.refusal.done","item_id":"msg_1","refusal":"No."}"#;
    let mut plans = Vec::new();
    for status in end_statuses {
        for inner in [[ITEM, HI], [ITEM, CALL], [ITEM, refusal]] {
            let stream = events(&[inner[0], inner[1], &end(status)]);
            plans.push(stream_response(stream.as_bytes()));
        }
    }
    let server = Server::new(plans).await;
    let model = model(&server);
    let mut all = String::new();
    for status in end_statuses {
        let mut stops = Vec::new();
        for _ in 0..3 {
            stops.push(answer(&server, &model, &hello_messages()).await.0.unwrap().stop);
        }
        all.push_str(&format!(
            "{status}: {:?}, with a call {:?}, with a refusal {:?}\n",
            stops[0], stops[1], stops[2]
        ));
    }
    insta::assert_snapshot!("stops", all);
}

#[tokio::test]
async fn a_response_without_streaming_is_decoded() {
    let complete_body = r#"{"object":"response","status":"completed","error":null,"model":"m1","output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Hi","annotations":[]}]},{"type":"function_call","call_id":"c","name":"clock","arguments":"{\"a\": 1.0}"}],"usage":{"input_tokens":4,"output_tokens":2}}"#;
    let json = [("content-type", "application/json; charset=utf-8")];
    let html = [("content-type", "text/html")];
    let bodies = [
        complete_body,
        r#"{"status":"failed","error":{"code":"rate_limit_exceeded","message":"Slow down"},"output":[]}"#,
        r#"{"status":"failed","error":null,"output":[]}"#,
        r#"{"error":{"message":"Bad key","type":"invalid_request_error","code":"invalid_api_key"}}"#,
        r#"{"type":"error","code":"server_error","message":"Oh"}"#,
        r#"{"status":"queued","output":[]}"#,
        r#"{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"output":[]}"#,
        "{}",
        "oops",
        "",
    ];
    let mut plans: Vec<_> = bodies.iter().map(|body| full_response(200, &json, body)).collect();
    plans.push(full_response(200, &html, "<html><title>Log in</title></html>"));
    let rounds = plans.len();
    let server = Server::new(plans).await;
    let model = model(&server);
    let mut all = String::new();
    for _ in 0..rounds {
        let (response, streamed) = answer(&server, &model, &hello_messages()).await;
        all.push_str(&format!("{}\nstreamed {streamed:?}\n\n", lines(&response)));
    }
    insta::assert_snapshot!("complete_streams", all);
}
