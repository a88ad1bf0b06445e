//! Behaviour that is the same for all three APIs.

use std::sync::Arc;

use longhaul_core::failure::Failure;
use longhaul_core::message::{Message, StopReason};
use longhaul_core::port::model::{Model, ModelResponse};
use serde_json::Value;

use crate::suite::fixtures::{hello_messages, model_request};
use crate::suite::harness::{Server, ServerAction, TextSink, full_response, stream_response};
use crate::suite::{anthropic, chat, responses};

/// An API and the constructor of its model.
pub(crate) type Wire = (&'static str, fn(&Server) -> Arc<dyn Model>);

pub(crate) const WIRES: [Wire; 3] = [
    ("anthropic", anthropic::harness::model),
    ("chat", chat::harness::model),
    ("responses", responses::harness::model),
];

const JSON: &[(&str, &str)] = &[("content-type", "application/json")];

/// Returns a stream of these events.
fn events(events: &[&str]) -> Vec<ServerAction> {
    let events = events.iter().map(|event| format!("data: {event}\n\n"));
    stream_response(events.collect::<String>().as_bytes())
}

/// Returns the result of an API for a response.
async fn decode(wire: Wire, plan: Vec<ServerAction>) -> Result<ModelResponse, Failure> {
    let server = Server::new(vec![plan]).await;
    let model = wire.1(&server);
    model.generate(&model_request(&hello_messages()), &TextSink::default()).await
}

#[tokio::test]
async fn an_error_is_recognized_in_every_envelope() {
    let errors = [
        (r#"{"error":{"type":"authentication_error","message":"bad key"}}"#, "auth"),
        (r#"{"error":{"code":"insufficient_quota","message":"no more"},"id":7}"#, "quota"),
        (r#"{"error":"currently overloaded"}"#, "server"),
    ];
    for wire in WIRES {
        for (error, class) in errors {
            for plan in [full_response(200, JSON, error), events(&[error])] {
                let failure = decode(wire, plan).await.unwrap_err();
                assert_eq!(failure.class.as_str(), class, "{} {error}", wire.0);
                let is_mid_stream = failure.message.contains("failed mid-stream");
                assert!(is_mid_stream, "{}: {}", wire.0, failure.message);
            }
        }
    }
}

/// Returns the events of a reply with this number of calls, for each API.
fn call_streams(count: usize) -> [Vec<String>; 3] {
    let build_stream = |event: &dyn Fn(usize) -> String, end: &[&str]| -> Vec<String> {
        let end = end.iter().map(|event| (*event).to_owned());
        (0..count).map(event).chain(end).collect()
    };
    [
        build_stream(
            &|n| {
                format!(
                    r#"{{"type":"content_block_start","index":{n},"content_block":{{"type":"tool_use","id":"t{n}","name":"clock","input":{{}}}}}}"#
                )
            },
            &[r#"{"type":"message_stop"}"#],
        ),
        build_stream(
            &|n| {
                format!(
                    r#"{{"choices":[{{"delta":{{"tool_calls":[{{"index":{n},"id":"t{n}","function":{{"name":"clock","arguments":""}}}}]}}}}]}}"#
                )
            },
            &[r#"{"choices":[{"finish_reason":"stop"}]}"#, "[DONE]"],
        ),
        build_stream(
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
async fn too_many_calls_are_a_permanent_failure_on_every_wire() {
    for count in [1_024, 1_025, 2_000] {
        for (wire, stream) in WIRES.into_iter().zip(call_streams(count)) {
            let stream: Vec<&str> = stream.iter().map(|event| &**event).collect();
            match decode(wire, events(&stream)).await {
                Ok(decoded) => {
                    let call_count = decoded.reply.tool_calls().count();
                    assert_eq!((call_count, count), (1_024, 1_024), "{}", wire.0);
                }
                Err(failure) => {
                    assert!(count > 1_024, "{} {failure:?}", wire.0);
                    assert_eq!(failure.class.as_str(), "invalid_request", "{}", wire.0);
                    let expected = "sent a response that is too large: the reply has more than 1024 tool calls";
                    assert!(failure.message.ends_with(expected), "{}", failure.message);
                }
            }
        }
    }
}

/// Text and a call, for each API.
const VALID_STREAMS: [&[&str]; 3] = [
    &[
        r#"{"type":"message_start","message":{"model":"m","content":[],"stop_reason":null,"usage":{"input_tokens":3}}}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}"#,
        r#"{"type":"content_block_stop","index":0}"#,
        r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t","name":"clock","input":{}}}"#,
        r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"a\":1}"}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":5}}"#,
        r#"{"type":"message_stop"}"#,
    ],
    &[
        r#"{"id":"c","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"Hi"},"finish_reason":null}]}"#,
        r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"t","type":"function","function":{"name":"clock","arguments":"{\"a\":"}}]},"finish_reason":null}]}"#,
        r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]},"finish_reason":null}]}"#,
        r#"{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":3,"completion_tokens":5}}"#,
        "[DONE]",
    ],
    &[
        r#"{"type":"response.created","sequence_number":0,"response":{"model":"m","status":"in_progress","output":[]}}"#,
        r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"message","id":"msg","role":"assistant","content":[]}}"#,
        r#"{"type":"response.content_part.added","output_index":0,"item_id":"msg","content_index":0,"part":{"type":"output_text","text":""}}"#,
        r#"{"type":"response.output_text.delta","output_index":0,"item_id":"msg","content_index":0,"delta":"Hi"}"#,
        r#"{"type":"response.output_item.added","output_index":1,"item":{"type":"function_call","call_id":"t","name":"clock","arguments":""}}"#,
        r#"{"type":"response.function_call_arguments.delta","output_index":1,"delta":"{\"a\":1}"}"#,
        r#"{"type":"response.completed","response":{"status":"completed","output":[],"incomplete_details":null,"usage":{"input_tokens":3,"output_tokens":5}}}"#,
    ],
];

/// Nonstandard values: the API, the original text and its replacements.
const WRONG_FIELDS: &[(usize, &str, &[&str])] = &[
    (0, r#""index":0"#, &[r#""index":"0""#]),
    (0, r#""index":1"#, &[r#""index":" 1 ""#, r#""index":null"#]),
    (0, r#""model":"m""#, &[r#""model":5"#, r#""model":{"a":[1]}"#, r#""model":null"#]),
    (0, r#""content":[]"#, &[r#""content":5"#, r#""content":{}"#]),
    (0, r#""stop_reason":null"#, &[r#""stop_reason":[]"#]),
    (
        0,
        r#""stop_reason":"tool_use""#,
        &[r#""stop_reason":true"#, r#""stop_reason":{}"#, r#""a":0"#],
    ),
    (0, r#""input_tokens":3"#, &[r#""input_tokens":"3""#]),
    (
        0,
        r#"{"type":"message_stop"}"#,
        &[r#"{"type":5,"error":false}"#, r#"{"type":"new","index":[]}"#],
    ),
    (
        0,
        r#"{"model":"m","content":[],"stop_reason":null,"usage":{"input_tokens":3}}"#,
        &["5", "null", "[]"],
    ),
    (
        1,
        r#""index":0,"delta""#,
        &[
            r#""index":"0","delta""#,
            r#""index":[],"delta""#,
            r#""index":null,"delta""#,
            r#""index":-1,"delta""#,
            r#""index":0.5,"delta""#,
        ],
    ),
    (1, r#""index":0,"id""#, &[r#""index":"0","id""#]),
    (1, r#""index":0,"function""#, &[r#""index":"zero","function""#]),
    (
        1,
        r#""finish_reason":null"#,
        &[r#""finish_reason":false"#, r#""finish_reason":[]"#, r#""finish_reason":"""#],
    ),
    (
        1,
        r#""id":"c","created":1,"model":"m""#,
        &[r#""id":5,"created":"now","model":5"#, r#""error":false"#],
    ),
    (1, r#""prompt_tokens":3"#, &[r#""prompt_tokens":"3""#, r#""prompt_tokens":{}"#]),
    (1, r#""type":"function""#, &[r#""type":5"#]),
    (1, r#""role":"assistant""#, &[r#""role":5"#]),
    (2, r#""output_index":0"#, &[r#""output_index":"0""#, r#""output_index":null"#]),
    (2, r#""output_index":1"#, &[r#""output_index":"1""#, r#""output_index":true"#]),
    (2, r#""content_index":0"#, &[r#""content_index":"0""#, r#""content_index":{}"#]),
    (2, r#""item_id":"msg""#, &[r#""item_id":5"#, r#""item_id":[]"#]),
    (2, r#""model":"m""#, &[r#""model":5"#, r#""model":[]"#]),
    (2, r#""status":"in_progress""#, &[r#""status":5"#, r#""status":"brand_new""#]),
    (2, r#""status":"completed""#, &[r#""status":5"#, r#""a":1"#]),
    (2, r#""output":[]"#, &[r#""output":5"#, r#""output":{}"#]),
    (
        2,
        r#""incomplete_details":null"#,
        &[r#""incomplete_details":"x""#, r#""incomplete_details":{"reason":[]}"#],
    ),
    (2, r#""input_tokens":3"#, &[r#""input_tokens":"3""#]),
    (
        2,
        r#","part":{"type":"output_text","text":""}"#,
        &["", r#","part":5"#, r#","part":{"type":5}"#],
    ),
    (2, r#""sequence_number":0"#, &[r#""sequence_number":"a""#]),
];

#[tokio::test]
async fn wrong_types_in_minor_fields_are_tolerated() {
    for (index, old, wrong_values) in WRONG_FIELDS {
        let wire = WIRES[*index];
        let expected = decode(wire, events(VALID_STREAMS[*index])).await.unwrap();
        assert_eq!(expected.reply.tool_calls().count(), 1);
        for replacement in *wrong_values {
            let is_last_event = old.contains("message_stop");
            let mut stream: Vec<String> =
                VALID_STREAMS[*index].iter().map(|event| event.replace(old, replacement)).collect();
            assert_ne!(stream, VALID_STREAMS[*index], "{old}");
            if is_last_event {
                stream.push((*old).to_owned());
            }
            let stream: Vec<&str> = stream.iter().map(|event| &**event).collect();
            let response = decode(wire, events(&stream)).await;
            let response = response.unwrap_or_else(|failure| panic!("{replacement}: {failure:?}"));
            assert_eq!(response.reply, expected.reply, "{} {replacement}", wire.0);
            assert_eq!(response.stop, expected.stop, "{} {replacement}", wire.0);
        }
    }
}

#[tokio::test]
async fn a_numeric_stop_reason_ends_the_reply() {
    let last =
        [(0, r#""tool_use""#, "0"), (1, r#""finish_reason":"tool_calls""#, r#""finish_reason":0"#)];
    for (api_index, old, replacement) in last {
        let stream: Vec<String> = VALID_STREAMS[api_index]
            .iter()
            .map(|event| match event.contains("stop_reason\":\"") || api_index == 1 {
                true => event.replace(old, replacement),
                false => (*event).to_owned(),
            })
            .collect();
        let stream: Vec<&str> = stream.iter().map(|event| &**event).collect();
        let decoded = decode(WIRES[api_index], events(&stream)).await.unwrap();
        assert_eq!(decoded.stop, StopReason::Other("0".to_owned()));
        assert_eq!(decoded.reply.tool_calls().count(), 1);
    }
}

/// Start of a block and of an item of unknown types.
const BLOCK: &str = r#"{"type":"content_block_start","index":7,"content_block":"#;
const ITEM: &str = r#"{"type":"response.output_item.done","output_index":7,"item":"#;

/// Returns the stream of an API once for each of these replacements.
fn stream_with(api_index: usize, replacements: &[(&str, String)]) -> Vec<String> {
    let apply = |(old, replacement): &(&str, String)| -> String {
        let events = VALID_STREAMS[api_index].iter();
        let events: Vec<String> = events.map(|event| event.replace(old, replacement)).collect();
        let valid_events: Vec<&str> = VALID_STREAMS[api_index].to_vec();
        assert_ne!(events, valid_events, "{old}");
        events.join("\n")
    };
    replacements.iter().map(apply).collect()
}

/// Returns the streams with this JSON as the arguments, in a field of a call, in a field of a text,
/// and in an unknown block.
fn deep_streams(deep_json: &str) -> [Vec<String>; 3] {
    let quoted_json = serde_json::to_string(deep_json).unwrap();
    let quoted_json = &quoted_json[1..quoted_json.len() - 1];
    let input = r#"{\"a\":1}"#;
    let unknown =
        |event: &str, kind: &str| format!(r#"{event}{{"type":"{kind}","a":{deep_json}}}}}"#);
    [
        stream_with(
            0,
            &[
                (input, quoted_json.to_owned()),
                (r#""input":{}"#, format!(r#""input":{{}},"mood":{deep_json}"#)),
                (r#""text":"""#, format!(r#""text":"","mood":{deep_json}"#)),
                (VALID_STREAMS[0][3], unknown(BLOCK, "poem")),
            ],
        ),
        stream_with(
            1,
            &[
                (r#"{\"a\":"#, quoted_json.to_owned()),
                (r#""type":"function""#, format!(r#""type":"function","mood":{deep_json}"#)),
                (r#""role""#, format!(r#""mood":{deep_json},"role""#)),
                (r#""role""#, format!(r#""reasoning_details":[{{"a":{deep_json}}}],"role""#)),
            ],
        ),
        stream_with(
            2,
            &[
                (input, quoted_json.to_owned()),
                (r#""call_id":"t""#, format!(r#""call_id":"t","mood":{deep_json}"#)),
                (r#""id":"msg""#, format!(r#""id":"msg","mood":{deep_json}"#)),
                (VALID_STREAMS[2][2], unknown(ITEM, "poem")),
                (VALID_STREAMS[2][2], unknown(ITEM, "reasoning")),
            ],
        ),
    ]
}

#[tokio::test]
async fn too_deep_blocks_are_not_sent_back() {
    let deep_json = "[".repeat(100_000) + &"]".repeat(100_000);
    for (wire, streams) in WIRES.into_iter().zip(deep_streams(&deep_json)) {
        for stream in streams {
            let stream: Vec<&str> = stream.lines().collect();
            let server = Server::new(vec![events(&stream), events(&stream)]).await;
            let model = wire.1(&server);
            let response =
                model.generate(&model_request(&hello_messages()), &TextSink::default()).await;
            let reply = response.unwrap().reply;
            assert_eq!(reply.text(), "Hi", "{}", wire.0);
            let input = reply.tool_calls().next().unwrap().input.as_str();
            assert!(!input.starts_with('['), "{}", wire.0);
            let messages = [hello_messages(), vec![Arc::new(Message::Assistant(reply))]].concat();
            _ = model.generate(&model_request(&messages), &TextSink::default()).await;
            // serde_json gives up at 128 levels.
            let body: Value = serde_json::from_str(&server.requests()[1].body).unwrap();
            check_arguments(&body);
        }
    }
}

/// Checks that arguments are valid JSON, because many servers parse them again.
fn check_arguments(value: &Value) {
    match value {
        Value::Array(all) => all.iter().for_each(check_arguments),
        Value::Object(fields) => {
            if let Some(Value::String(text)) = fields.get("arguments") {
                serde_json::from_str::<Value>(text).unwrap();
            }
            fields.values().for_each(check_arguments);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
