//! Streams: the recorded stream truncated at any byte, and nonstandard streams.

use std::sync::Arc;

use longhaul_core::message::Message;
use serde_json::json;

use super::harness::{RECORDED, answer, model};
use crate::suite::chunking::{SHORT_STREAMS, corrupted, split_everywhere};
use crate::suite::fixtures::{ask, hello, lines};
use crate::suite::harness::{Server, TextSink, full_response, stream_response};

#[tokio::test]
async fn a_stream_decodes_the_same_however_it_is_chunked() {
    let plans = split_everywhere(RECORDED);
    let rounds = plans.len();
    let server = Server::new(plans).await;
    let model = model(&server);
    let (first, streamed_text) = answer(&server, &model, &hello()).await;
    insta::assert_snapshot!("recorded", lines(&first));
    assert_eq!(streamed_text, "I look – now 🙂.");
    let first = first.unwrap();
    for round in 1..rounds {
        let sink = TextSink::default();
        let again = model.generate(&ask(&hello()), &sink).await;
        assert_eq!(again.unwrap(), first, "round {round}");
        assert_eq!(sink.text(), streamed_text, "round {round}");
    }
}

#[tokio::test]
async fn a_truncated_stream_is_never_a_partial_reply() {
    let bytes = RECORDED.as_bytes();
    // The last event is complete without the blank line after it.
    let whole = RECORDED.trim_end().len();
    let lengths: Vec<usize> = (0..whole).step_by(31).chain(whole - 9..=bytes.len()).collect();
    let plans = lengths.iter().map(|length| stream_response(&bytes[..*length]));
    let server = Server::new(plans.collect()).await;
    let model = model(&server);
    for length in lengths {
        let response = model.generate(&ask(&hello()), &TextSink::default()).await;
        if length >= whole {
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
    let mut bare = String::new();
    let mut deltas_only = String::new();
    for event in RECORDED.split("\n\n").filter(|event| !event.is_empty()) {
        let (name, data) = event.split_once("\ndata: ").unwrap();
        let mut data: serde_json::Value = serde_json::from_str(data).unwrap();
        let fields = data.as_object_mut().unwrap();
        for name in ["output_index", "sequence_number", "content_index"] {
            fields.remove(name);
        }
        bare.push_str(&format!("data: {}\n\n", json!(fields)));
        let kind = fields.remove("type").unwrap();
        // Parallel calls can only be told apart by their item ID.
        if kind != "response.function_call_arguments.delta" {
            fields.remove("item_id");
        }
        if kind != "response.output_item.done" {
            deltas_only.push_str(&format!("{name}\ndata: {}\n\n", json!(fields)));
        }
    }
    let done = format!("{RECORDED}data: [DONE]\n\n");
    let twice = RECORDED.to_owned() + &RECORDED[RECORDED.rfind("event: ").unwrap()..];
    let (_, only_end) = RECORDED.split_at(RECORDED.rfind("event: ").unwrap());
    let streams = [RECORDED, &bare, &deltas_only, &done, &twice, only_end];
    let plans = streams.iter().map(|stream| stream_response(stream.as_bytes()));
    let server = Server::new(plans.collect()).await;
    let model = model(&server);
    let (first, first_text) = answer(&server, &model, &hello()).await;
    for stream in &streams[1..] {
        let (again, streamed_text) = answer(&server, &model, &hello()).await;
        let (first, again) = (first.as_ref().unwrap(), again.unwrap());
        // The original format of numbers is lost in this test.
        let values = |message: &Message| serde_json::to_value(message).unwrap();
        let (one, other) =
            (Message::Assistant(Arc::clone(&first.reply)), Message::Assistant(again.reply));
        assert_eq!(values(&one), values(&other), "{stream}");
        assert_eq!((again.stop, again.usage), (first.stop.clone(), first.usage));
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

fn owned(cases: Vec<(&'static str, Vec<&str>)>) -> Vec<StreamCase> {
    let owned = |events: Vec<&str>| events.into_iter().map(str::to_owned).collect();
    cases.into_iter().map(|(name, events)| (name, owned(events))).collect()
}

/// Nonstandard streams that still contain a reply.
fn nonstandard_cases() -> Vec<StreamCase> {
    let refusal = r#"{"type":"response.refusal.delta","item_id":"msg_1","delta":"No."}"#;
    let whole = r#"{"type":"response.output_item.done","item":{"type":"message","id":"msg_9","role":"assistant","content":[{"type":"output_text","text":"Hi"},{"type":"sound","data":"x"}]}}"#;
    let again = whole.replace("Hi", "Ho");
    let flat = r#"{"type":"response.output_item.done","item":{"type":"message","content":"Hi"}}"#;
    let empty = r#"{"type":"response.output_item.done","item":{"type":"message","id":"msg_1","content":[]}}"#;
    let strange = r#"{"type":"response.output_item.done","item":{"type":"message","content":7}}"#;
    let nameless = r#"{"type":"response.output_item.done","item":{"n": 1.50}}"#;
    let thought = r#"{"type":"response.reasoning_text.delta","item_id":"rs_1","output_index":5,"delta":"Hm"}"#;
    let other = HI.replace("Hi", "Ho");
    let mut odd = owned(vec![
        ("fragments without the end of the item", vec![ITEM, HI, HI_ALL]),
        ("text without a start event", vec![HI, HI_ALL]),
        ("text before its start event", vec![HI, ITEM, HI_ALL]),
        ("only the full text", vec![ITEM, HI_ALL]),
        ("a different full text", vec![ITEM, &other, HI_ALL]),
        ("a refusal", vec![ITEM, refusal]),
        ("a complete message with an unknown part", vec![whole]),
        ("the same item twice", vec![whole, whole]),
        ("the same id twice", vec![whole, &again]),
        ("a message that is a string", vec![flat]),
        ("a message without parts", vec![empty]),
        ("a message of an unknown format", vec![strange]),
        ("an item without a type", vec![nameless]),
        ("reasoning without a start event", vec![thought, HI]),
        ("[DONE] and irrelevant events", vec![ITEM, HI, "[DONE]", r#"{"type":"hm"}"#, "{}"]),
        ("an empty reply", vec![]),
    ]);
    odd.push((
        "arguments that are not valid JSON",
        vec![CALL.to_owned(), arguments("{\"a\": "), arguments("oops")],
    ));
    odd.push((
        "arguments before their call",
        vec![arguments("{\"a\":"), CALL.to_owned(), arguments("1}")],
    ));
    odd.push(("a call without arguments", vec![CALL.to_owned()]));
    for (name, fields) in [
        ("a call without an id", r#","arguments":"{}""#),
        ("arguments with whitespace", r#","call_id":"c","arguments":" {}\n""#),
        ("arguments that are a string", r#","call_id":"c","arguments":"\"a\"""#),
        ("arguments that are an object", r#","call_id":"c","arguments":{"a": 1.0}"#),
        ("duplicate fields", r#","call_id":"c","call_id":"d","arguments":"{}","arguments":"[]""#),
        ("an id that is a number", r#","call_id":7,"arguments":"{}""#),
    ] {
        odd.push((name, vec![complete_call(fields)]));
    }
    let twin = complete_call(r#","call_id":"c","arguments":"{}""#);
    odd.push(("two calls with the same id", vec![twin.clone(), twin]));
    odd
}

/// Malformed streams.
fn malformed_cases() -> Vec<StreamCase> {
    let bad_index = ITEM.replace(r#""output_index":0"#, r#""output_index":"0""#);
    let bad_text = HI.replace(r#""Hi""#, "5");
    owned(vec![
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
    let whole = |inner: Vec<String>| {
        let inner: Vec<&str> = inner.iter().map(|event| &**event).collect();
        events(&[&[START], &inner[..], &[STOP]].concat())
    };
    let odd = nonstandard_cases().into_iter().chain(malformed_cases());
    let mut streams: Vec<_> = odd.map(|(name, inner)| (name, whole(inner))).collect();
    let bad_usage = STOP.replace(":3,", ":\"3\",");
    let no_response = r#"{"type":"response.completed"}"#;
    let more = r#"{"type":"response.completed","response":{"output":[{"type":"message","id":"msg_1","content":[{"type":"output_text","text":"Hi you"}]},{"type":"function_call","call_id":"c","name":"clock","arguments":"{}"}]}}"#;
    let much = r#"{"type":"response.completed","response":{"usage":{"input_tokens":3,"output_tokens":18446744073709551615,"input_tokens_details":{"cached_tokens":18446744073709551615,"cache_write_tokens":9}}}}"#;
    let bad_model = START.replace(r#""m""#, "5");
    streams.extend([
        ("usage of wrong types", events(&[ITEM, HI, &bad_usage])),
        ("usage out of range", events(&[ITEM, HI, much])),
        ("a final event without a response", events(&[ITEM, HI, no_response])),
        ("items only in the final event", events(&[START, ITEM, HI, more])),
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
        let (response, streamed_text) = answer(&server, &model, &hello()).await;
        let lines = lines(&response);
        all.push_str(&format!("## {name}\n{lines}\nstreamed {streamed_text:?}\n\n"));
        replies.extend(response.map(|response| response.reply));
    }
    insta::assert_snapshot!("odd", all);
    // The decoded replies can be sent back.
    let mut sent = String::new();
    for reply in replies {
        let server = Server::new(vec![stream_response(RECORDED.as_bytes())]).await;
        let messages = [hello(), vec![Arc::new(Message::Assistant(reply))]].concat();
        let question = ask(&messages);
        let model = super::harness::model(&server);
        model.generate(&question, &TextSink::default()).await.unwrap();
        let body = &server.requests()[0].body;
        super::spec::check_pairs(body);
        let (_, items) = body.split_once(r#""text":"Hello"}]}"#).unwrap();
        let items = items.strip_suffix("]}").unwrap();
        sent.push_str(&format!("{items}\n"));
    }
    insta::assert_snapshot!("odd_sent_back", sent);
}

#[tokio::test]
async fn arguments_may_be_huge() {
    let huge = format!(r#"{{"a":"{}"}}"#, "é".repeat(1024 * 1024));
    let stream = events(&[START, CALL, &arguments(&huge), STOP]);
    let server = Server::new(vec![stream_response(stream.as_bytes())]).await;
    let response = answer(&server, &model(&server), &hello()).await.0.unwrap();
    assert_eq!(response.reply.tool_calls().next().unwrap().input.as_str(), huge);
}

#[tokio::test]
async fn a_corrupted_stream_decodes_to_a_valid_reply_or_an_error() {
    let rounds = 800;
    let plans = (0..rounds).map(|round| stream_response(&corrupted(RECORDED, round)));
    let server = Server::new(plans.collect()).await;
    let model = model(&server);
    let (mut reply_count, mut replies) = (0, Vec::new());
    for round in 0..rounds {
        match model.generate(&ask(&hello()), &TextSink::default()).await {
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
        let mut messages = hello();
        messages.push(Arc::new(Message::Assistant(reply)));
        let question = ask(&messages);
        model.generate(&question, &TextSink::default()).await.unwrap();
    }
    for request in server.requests() {
        super::spec::check_pairs(&request.body);
    }
}

#[tokio::test]
async fn every_stop_reason_is_mapped() {
    let ends = [
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
    for one in ends {
        for inner in [[ITEM, HI], [ITEM, CALL], [ITEM, refusal]] {
            let stream = events(&[inner[0], inner[1], &end(one)]);
            plans.push(stream_response(stream.as_bytes()));
        }
    }
    let server = Server::new(plans).await;
    let model = model(&server);
    let mut all = String::new();
    for one in ends {
        let mut stops = Vec::new();
        for _ in 0..3 {
            stops.push(answer(&server, &model, &hello()).await.0.unwrap().stop);
        }
        all.push_str(&format!(
            "{one}: {:?}, with a call {:?}, with a refusal {:?}\n",
            stops[0], stops[1], stops[2]
        ));
    }
    insta::assert_snapshot!("stops", all);
}

#[tokio::test]
async fn a_response_without_streaming_is_decoded() {
    let whole = r#"{"object":"response","status":"completed","error":null,"model":"m1","output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Hi","annotations":[]}]},{"type":"function_call","call_id":"c","name":"clock","arguments":"{\"a\": 1.0}"}],"usage":{"input_tokens":4,"output_tokens":2}}"#;
    let json = [("content-type", "application/json; charset=utf-8")];
    let html = [("content-type", "text/html")];
    let bodies = [
        whole,
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
        let (answered, streamed) = answer(&server, &model, &hello()).await;
        all.push_str(&format!("{}\nstreamed {streamed:?}\n\n", lines(&answered)));
    }
    insta::assert_snapshot!("whole", all);
}
