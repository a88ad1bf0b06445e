//! Streams: the recorded stream truncated at any byte, and complete bodies.

use std::sync::Arc;

use longhaul_core::message::Message;
use longhaul_core::usage::Usage;

use super::harness::{RECORDED, answer, events, model};
use crate::suite::chunking::{SHORT_STREAMS, corrupted_stream, split_everywhere};
use crate::suite::fixtures::{hello_messages, lines, model_request};
use crate::suite::harness::{
    STREAM_HEAD, Server, ServerAction, TextSink, chunk, full_response, stream_response,
};

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
async fn a_truncated_stream_is_a_complete_reply_or_an_error() {
    let bytes = RECORDED.as_bytes();
    let reason = RECORDED.find(r#""finish_reason":"tool_calls""#).unwrap();
    let lengths: Vec<usize> = (0..reason).step_by(31).chain(reason..=bytes.len()).collect();
    let plans = lengths.iter().map(|length| stream_response(&bytes[..*length]));
    let server = Server::new(plans.collect()).await;
    let model = model(&server);
    let mut replies = Vec::new();
    for length in lengths {
        match model.generate(&model_request(&hello_messages()), &TextSink::default()).await {
            Ok(response) => {
                assert!(length > reason, "{length}");
                replies.push(response);
            }
            Err(failure) => {
                assert_eq!(failure.class.as_str(), "network", "{length}: {failure:?}");
                let usage = failure.usage.unwrap();
                assert!(usage.estimated && usage.input_tokens > 0, "{usage:?}");
            }
        }
    }
    let complete_reply = replies.pop().unwrap();
    assert!(!complete_reply.usage.estimated);
    assert!(replies.len() > 2, "{}", replies.len());
    for early_reply in replies {
        // Without the usage event the usage is estimated. Nothing else differs.
        let has_exact_usage = early_reply.usage == complete_reply.usage;
        assert!(has_exact_usage || early_reply.usage.estimated, "{:?}", early_reply.usage);
        assert_eq!(
            (early_reply.reply, early_reply.stop),
            (complete_reply.reply.clone(), complete_reply.stop.clone())
        );
    }
}

#[tokio::test]
async fn a_connection_lost_after_the_finish_reason_is_an_error() {
    let at = RECORDED.rfind("data: [DONE]").unwrap();
    let partial_response = [STREAM_HEAD.as_bytes(), &chunk(&RECORDED.as_bytes()[..at])].concat();
    let server =
        Server::new(vec![vec![ServerAction::Send(partial_response), ServerAction::Close]]).await;
    let failure = answer(&server, &model(&server), &hello_messages()).await.0;
    let failure = failure.unwrap_err();
    assert_eq!(failure.class.as_str(), "network", "{failure:?}");
    // Counts that the server has reported are used.
    let usage = failure.usage.unwrap();
    assert_eq!(usage.cached_tokens, 2_000);
    assert_ne!(usage, Usage::default());
}

#[tokio::test]
async fn a_corrupted_stream_decodes_to_a_valid_reply_or_an_error() {
    let rounds = 800;
    let plans = (0..rounds).map(|round| stream_response(&corrupted_stream(RECORDED, round)));
    let server = Server::new(plans.collect()).await;
    let chat_model = model(&server);
    let (mut reply_count, mut replies) = (0, Vec::new());
    for round in 0..rounds {
        match chat_model.generate(&model_request(&hello_messages()), &TextSink::default()).await {
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
        Server::new(vec![stream_response(SHORT_STREAMS[1].0.as_bytes()); replies.len()]).await;
    let chat_model = model(&server);
    for reply in replies {
        let mut messages = hello_messages();
        messages.push(Arc::new(Message::Assistant(reply)));
        chat_model.generate(&model_request(&messages), &TextSink::default()).await.unwrap();
    }
    for request in server.requests() {
        let body = serde_json::from_str::<serde_json::Value>(&request.body);
        assert!(body.is_ok(), "{}", request.body);
    }
}

#[tokio::test]
async fn every_stop_reason_is_mapped() {
    let reasons = [
        r#""stop""#,
        r#""tool_calls""#,
        r#""function_call""#,
        r#""length""#,
        r#""model_length""#,
        r#""content_filter""#,
        r#""brand_new""#,
        r#""error""#,
        r#""abort""#,
        r#""insufficient_system_resource""#,
        r#""""#,
        "null",
        "5",
    ];
    let text = r#"{"choices":[{"delta":{"content":"Hi"}}]}"#;
    let call = r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"t","function":{"name":"clock","arguments":"{}"}}]}}]}"#;
    let mut plans = Vec::new();
    for reason in reasons {
        let end = format!(r#"{{"choices":[{{"delta":{{}},"finish_reason":{reason}}}]}}"#);
        for first in [text, call] {
            plans.push(stream_response(events(&[first, &end, "[DONE]"]).as_bytes()));
        }
    }
    let server = Server::new(plans).await;
    let model = model(&server);
    let mut all = String::new();
    for reason in reasons {
        let mut stops = Vec::new();
        for _ in 0..2 {
            stops.push(match answer(&server, &model, &hello_messages()).await.0 {
                Ok(response) => format!("{:?}", response.stop),
                Err(failure) => format!("!{} {}", failure.class.as_str(), failure.message),
            });
        }
        all.push_str(&format!("{reason}: {}\n", stops.join(", with a call ")));
    }
    insta::assert_snapshot!("stops", all);
}

const UNSTREAMED: &[&str] = &[
    r#"{"id":"c","object":"chat.completion","model":"m1","choices":[{"index":0,"message":{"role":"assistant","content":"Hi","refusal":null,"reasoning_content":"Hm.","tool_calls":[{"id":"t","type":"function","function":{"name":"clock","arguments":"{\"a\": 1.0}"}},{"id":"t","type":"function","function":{"name":"clock","arguments":{"b":  2}}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":4,"completion_tokens":2,"total_tokens":6}}"#,
    r#"{"choices":[{"message":{"role":"assistant","content":null,"function_call":{"name":"clock","arguments":"{}"}},"finish_reason":null}]}"#,
    r#"{"choices":[{"message":{"content":"","refusal":"No."},"finish_reason":"stop"}]}"#,
    r#"{"error":{"message":"Provider returned error","code":429,"metadata":{"raw":"slow down"}}}"#,
    r#"{"object":"error","message":"This model's maximum context length is 10 tokens.","type":"BadRequestError","code":400}"#,
    r#"{"choices":[{"error":{"code":502,"message":"upstream"},"message":{"content":"half"}}]}"#,
    r#"{"choices":[]}"#,
    r#"{"choices":[{"text":"old"}]}"#,
    r#"{"choices":[{"message":"Hi"}]}"#,
    "{}",
    "oops",
    "",
];

#[tokio::test]
async fn a_response_without_streaming_is_decoded() {
    let json = [("content-type", "application/json; charset=utf-8")];
    let plans = UNSTREAMED.iter().map(|body| full_response(200, &json, body));
    let html = [("content-type", "text/html")];
    let html_response = full_response(200, &html, "<html><title>Log in</title></html>");
    let server = Server::new(plans.chain([html_response]).collect()).await;
    let model = model(&server);
    let mut all = String::new();
    for _ in 0..=UNSTREAMED.len() {
        let (response, streamed) = answer(&server, &model, &hello_messages()).await;
        all.push_str(&format!("{}\nstreamed {streamed:?}\n\n", lines(&response)));
    }
    insta::assert_snapshot!("complete_streams", all);
}
