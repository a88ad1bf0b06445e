//! Requests: snapshots, matching of calls and results, and caching of encoded messages.

use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::message::{Block, ImageRef, Message, Part, ToolResult};
use longhaul_core::raw::{BlobRef, RawJson};
use longhaul_model::chat::{self, ServerQuirks};
use longhaul_model::http::HttpClient;
use longhaul_model::image_source::ImageSource;
use longhaul_model::settings::ModelSettings;
use serde_json::Value;

use super::harness::{API, KEY, RECORDED, answer, model, model_with, sent_body, settings};
use crate::suite::fixtures::{
    assistant, call, hello_messages, limits, lines, model_request, pretty, result, results, text,
    thinking_block, user,
};
use crate::suite::harness::{FixedClock, Server, TextSink, stream_response};

#[tokio::test]
async fn the_first_request_is_encoded() {
    let server = Server::new(vec![stream_response(RECORDED.as_bytes())]).await;
    answer(&server, &model(&server), &hello_messages()).await.0.unwrap();
    let request = server.requests().remove(0);
    assert!(request.head.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"), "{}", request.head);
    for header in [
        &format!("authorization: Bearer {KEY}"),
        "content-type: application/json",
        "accept: text/event-stream",
    ] {
        assert!(request.head.contains(header), "{header} in {}", request.head);
    }
    insta::assert_snapshot!("first", pretty(&request.body));
}

#[tokio::test]
async fn a_base_url_is_used_unchanged() {
    for (base, path) in [
        ("/v1", "/v1/chat/completions"),
        ("/api/v1/", "/api/v1/chat/completions"),
        ("/openai/v1beta", "/openai/v1beta/chat/completions"),
        ("", "/chat/completions"),
        ("/", "/chat/completions"),
        ("/v4", "/v4/chat/completions"),
    ] {
        let server = Server::new(vec![stream_response(RECORDED.as_bytes())]).await;
        let http = HttpClient::new(&format!("{}{base}", server.base_url()), limits()).unwrap();
        let model =
            chat::new_model(http, settings(), ServerQuirks::default(), Arc::new(FixedClock))
                .unwrap();
        answer(&server, &model, &hello_messages()).await.0.unwrap();
        let head = server.requests().remove(0).head;
        assert!(head.starts_with(&format!("POST {path} ")), "{base}: {head}");
    }
}

#[tokio::test]
async fn calls_results_and_user_messages_are_encoded() {
    let messages = [
        user("Read both."),
        user("Both, I say."),
        assistant(
            API,
            vec![
                thinking_block(None),
                text("I do."),
                call("functions.read_file:0", "read_file", r#"{"path": "a",  "n": 1.0}"#),
                call("functions.clock:1", "clock", "{}"),
            ],
        ),
        // The results are in a different order than the calls.
        results(vec![
            ToolResult { is_error: true, ..result(2, "functions.clock:1", "broken") },
            result(1, "functions.read_file:0", "A"),
        ]),
        user("And be quick."),
        assistant(API, vec![call("c", "clock", "{}")]),
        results(vec![ToolResult { is_error: true, content: vec![], ..result(1, "c", "") }]),
        assistant(API, vec![text("Done.")]),
        user("Thanks."),
    ];
    let body = sent_body(&messages, ServerQuirks::default()).await;
    let arguments = r#""arguments":"{\"path\": \"a\",  \"n\": 1.0}""#;
    assert!(body.contains(arguments), "{body}");
    insta::assert_snapshot!("calls", pretty(&body));
}

/// A conversation with other providers and with many inconsistencies.
fn foreign_conversation() -> Vec<Arc<Message>> {
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
    vec![
        user("Go."),
        foreign_reply(vec![
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
        // A reply of which nothing is sent.
        foreign_reply(vec![]),
        user("On."),
        // Calls without a result, and a result without a call.
        foreign_reply(vec![call("call_1", "clock", "{}"), call("b", "clock", "{}")]),
        results(vec![result(2, "b", "seven"), result(9, "z", "lost")]),
        user("Well?"),
        foreign_reply(vec![call("c", "clock", "{}")]),
    ]
}

#[tokio::test]
async fn replies_of_another_provider_are_converted() {
    let body = sent_body(&foreign_conversation(), ServerQuirks::default()).await;
    insta::assert_snapshot!("other_provider", pretty(&body));
    let body: Value = serde_json::from_str(&body).unwrap();
    let messages = body["messages"].as_array().unwrap();
    let collect_ids = |ids_of_message: &dyn Fn(&Value) -> Vec<String>| -> Vec<String> {
        messages.iter().flat_map(ids_of_message).collect()
    };
    let calls = collect_ids(&|message| {
        let calls = message["tool_calls"].as_array();
        let calls = calls.into_iter().flatten();
        calls.map(|call| call["id"].as_str().unwrap().into()).collect()
    });
    let mut result_ids = collect_ids(&|message| {
        let id = message["tool_call_id"].as_str();
        id.into_iter().map(Into::into).collect()
    });
    let mut unique = calls.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), calls.len(), "{calls:?}");
    assert!(calls.iter().all(|id| id.len() <= 64), "{calls:?}");
    result_ids.sort();
    assert_eq!(result_ids, unique);
}

#[derive(Debug)]
struct SingleImage(BlobRef);

#[async_trait]
impl ImageSource for SingleImage {
    async fn load_image_bytes(&self, image: &ImageRef) -> Option<Vec<u8>> {
        (image.blob == self.0).then(|| b"\x89PNG".to_vec())
    }
}

/// Returns the messages for images from a user and from a tool. Only some of them can be sent.
pub(super) async fn sent_images(quirks: ServerQuirks) -> String {
    let server = Server::new(vec![stream_response(RECORDED.as_bytes())]).await;
    let known_blob = BlobRef::for_content(b"\x89PNG");
    let picture =
        |media: &str, blob: BlobRef| Part::Image(ImageRef { media_type: media.into(), blob });
    let known_image = picture("image/png", known_blob);
    let missing_image = picture("image/png", BlobRef::for_content(b"gone"));
    let messages = [
        user("Two things."),
        Arc::new(Message::User(vec![
            Part::Text("Look:".into()),
            known_image.clone(),
            missing_image.clone(),
            picture("image/tiff", known_blob),
        ])),
        assistant(
            API,
            vec![
                call("t", "read_file", r#"{"path":"p"}"#),
                call("u", "clock", "{}"),
                call("v", "clock", "{}"),
            ],
        ),
        results(vec![
            ToolResult {
                content: vec![Part::Text("Here.".into()), known_image.clone(), missing_image],
                ..result(1, "t", "")
            },
            ToolResult { content: vec![known_image], ..result(2, "u", "") },
        ]),
        user("Well?"),
    ];
    let settings =
        ModelSettings { image_source: Some(Arc::new(SingleImage(known_blob))), ..settings() };
    let model = model_with(&server, settings, quirks);
    answer(&server, &model, &messages).await.0.unwrap();
    pretty(&server.requests().remove(0).body)
}

#[tokio::test]
async fn images_are_sent_or_described() {
    insta::assert_snapshot!("images", sent_images(ServerQuirks::default()).await);
}

#[tokio::test]
async fn a_reply_is_sent_back_unchanged() {
    let server = Server::new(vec![stream_response(RECORDED.as_bytes()); 2]).await;
    let model = model_with(&server, settings(), ServerQuirks::for_provider("moonshot"));
    let mut messages = hello_messages();
    let (first, _) = answer(&server, &model, &messages).await;
    let reply = first.unwrap().reply;
    assert_eq!(reply.api, API);
    // Serialise and deserialise, as the journal does.
    let stored = serde_json::to_string(&Message::Assistant(reply)).unwrap();
    messages.push(Arc::new(serde_json::from_str(&stored).unwrap()));
    messages.push(results(vec![
        result(1, "functions.read_file:0", "a"),
        result(2, "functions.clock:1", "b"),
    ]));
    answer(&server, &model, &messages).await.0.unwrap();
    let body = &server.requests()[1].body;
    let arguments =
        r#""arguments":"{\"zeta\": 1, \"alpha\": [1.0, 2.50], \"path\": \"a/b\\u00e9\"}""#;
    assert!(body.contains(arguments), "{body}");
    insta::assert_snapshot!("sent_back", pretty(body));
}

#[tokio::test]
async fn invalid_arguments_are_sent_back_in_an_object() {
    for (text, expected) in [
        ("{\"a\": oops", r#"{"INVALID_JSON":"{\"a\": oops"}"#),
        ("oops", r#"{"INVALID_JSON":"oops"}"#),
        ("", "{}"),
        (" { } ", "{ }"),
        ("\"{}\"", r#"{"INVALID_JSON":"\"{}\""}"#),
        ("[1, 2]", r#"{"INVALID_JSON":[1, 2]}"#),
        ("null", r#"{"INVALID_JSON":null}"#),
    ] {
        let arguments = serde_json::to_string(text).unwrap();
        let call = format!(
            r#"{{"choices":[{{"delta":{{"tool_calls":[{{"index":0,"id":"t","function":{{"name":"clock","arguments":{arguments}}}}}]}},"finish_reason":"tool_calls"}}]}}"#
        );
        let stream = super::harness::events(&[&call, "[DONE]"]);
        let server = Server::new(vec![stream_response(stream.as_bytes()); 2]).await;
        let model = model(&server);
        let reply = answer(&server, &model, &hello_messages()).await.0.unwrap().reply;
        let mut messages = hello_messages();
        messages.push(Arc::new(Message::Assistant(reply)));
        answer(&server, &model, &messages).await.0.unwrap();
        let body: Value = serde_json::from_str(&server.requests()[1].body).unwrap();
        let sent_arguments = &body["messages"][2]["tool_calls"][0]["function"]["arguments"];
        assert_eq!(sent_arguments, expected, "{text}");
    }
}

#[tokio::test]
async fn a_request_is_the_same_when_it_is_encoded_again() {
    let turns = 6;
    let server = Server::new(vec![stream_response(RECORDED.as_bytes()); 3 * turns]).await;
    let reused_model = model(&server);
    let mut messages = hello_messages();
    for turn in 0..turns {
        let id = format!("functions.clock:{}", turn % 2);
        messages.push(assistant(API, vec![call(&id, "clock", "{}")]));
        messages.push(results(vec![result(1, &id, &turn.to_string())]));
        messages.push(user("more"));
        messages.push(user("and more"));
        if turn == 4 {
            // The middle of the conversation is removed.
            messages.drain(3..9);
            messages.push(user("short"));
        }
        answer(&server, &reused_model, &messages).await.0.unwrap();
        answer(&server, &model(&server), &messages).await.0.unwrap();
        let copy: Vec<_> = messages.iter().map(|one| Arc::new((**one).clone())).collect();
        answer(&server, &reused_model, &copy).await.0.unwrap();
        let requests = server.requests();
        let bodies: Vec<&str> =
            requests[3 * turn..].iter().map(|requests| &*requests.body).collect();
        assert!(bodies.iter().all(|body| *body == bodies[0]), "{turn}: {bodies:#?}");
    }
}

#[tokio::test]
async fn only_configured_settings_are_sent() {
    let server = Server::new(vec![stream_response(RECORDED.as_bytes())]).await;
    let model_with_fields = |fields: &str| {
        let http = HttpClient::new(&format!("{}/v1", server.base_url()), limits()).unwrap();
        let settings = ModelSettings {
            fields: Some(RawJson::parse(fields).unwrap()),
            headers: vec![("http-referer".into(), "https://example.org".into())],
            ..settings()
        };
        chat::new_model(http, settings, ServerQuirks::default(), Arc::new(FixedClock))
    };
    for invalid_fields in [
        r#"{"model":"x"}"#,
        r#"{"stream":false}"#,
        r#"{"max_completion_tokens":5}"#,
        r#"{"n":2}"#,
        "[]",
    ] {
        assert!(model_with_fields(invalid_fields).is_err(), "{invalid_fields}");
    }
    let model = model_with_fields(r#"{"temperature": 0.50, "parallel_tool_calls":false}"#);
    let question = model_request(&hello_messages());
    let response = model.unwrap().generate(&question, &TextSink::default()).await;
    assert!(response.is_ok(), "{}", lines(&response));
    let request = server.requests().remove(0);
    assert!(request.head.contains("http-referer: https://example.org"));
    assert!(request.body.contains(r#","temperature":0.50,"parallel_tool_calls":false,"#));
}

#[tokio::test]
async fn a_request_without_prompt_tools_or_key_is_encoded() {
    let server = Server::new(vec![stream_response(RECORDED.as_bytes())]).await;
    let settings = ModelSettings { key: None, ..settings() };
    let model = model_with(&server, settings, ServerQuirks::default());
    let question = longhaul_core::port::model::ModelRequest {
        system: longhaul_core::raw::StoredText::new_inline(" "),
        tools: longhaul_core::raw::StoredText::new_inline("[]"),
        ..model_request(&hello_messages())
    };
    model.generate(&question, &TextSink::default()).await.unwrap();
    let request = server.requests().remove(0);
    assert!(!request.head.contains("authorization"), "{}", request.head);
    assert_eq!(
        request.body,
        r#"{"model":"kimi-k2.6","max_tokens":1024,"stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"Hello"}]}"#
    );
}

#[tokio::test]
async fn debug_output_hides_the_key() {
    let server = Server::new(vec![]).await;
    let texts = [format!("{:?}", model(&server)), format!("{:?}", settings())];
    assert!(texts.iter().all(|text| !text.contains("secret")), "{texts:?}");
}
