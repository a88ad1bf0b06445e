//! Requests: snapshots, matching of calls and results, and caching of encoded messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use longhaul_core::message::{Block, ImageRef, Message, Part, ToolResult};
use longhaul_core::port::model::Model;
use longhaul_core::raw::{BlobRef, RawJson};
use longhaul_model::anthropic;
use longhaul_model::http::HttpClient;
use longhaul_model::image_source::ImageSource;
use longhaul_model::settings::ModelSettings;

use super::harness::{KEY, RECORDED, answer, model, settings};
use super::spec;
use crate::suite::fixtures::{
    assistant, call, hello_messages, limits, lines, model_request, pretty, result, results, text,
    thinking_block, user,
};
use crate::suite::harness::{FixedClock, Server, TextSink, stream_response};

fn model_with_images(server: &Server, images: Arc<dyn ImageSource>) -> Arc<dyn Model> {
    let settings = ModelSettings { image_source: Some(images), ..settings() };
    let http = HttpClient::new(&server.base_url(), limits()).unwrap();
    anthropic::new_model(http, settings, Arc::new(FixedClock)).unwrap()
}

/// Returns the request body for these messages.
async fn sent_body(messages: &[Arc<Message>]) -> String {
    let server = Server::new(vec![stream_response(RECORDED.as_bytes())]).await;
    let (response, _) = answer(&server, &model(&server), messages).await;
    response.unwrap();
    server.requests().remove(0).body
}

#[tokio::test]
async fn the_first_request_is_encoded() {
    let server = Server::new(vec![stream_response(RECORDED.as_bytes())]).await;
    answer(&server, &model(&server), &hello_messages()).await.0.unwrap();
    let request = server.requests().remove(0);
    assert!(request.head.starts_with("POST /v1/messages HTTP/1.1\r\n"));
    for header in [
        &format!("x-api-key: {KEY}"),
        "anthropic-version: 2023-06-01",
        "content-type: application/json",
        "accept: text/event-stream",
    ] {
        assert!(request.head.contains(header), "{header} in {}", request.head);
    }
    insta::assert_snapshot!("first", pretty(&request.body));
}

#[tokio::test]
async fn calls_results_thinking_and_cache_marks_are_encoded() {
    let messages = [
        user("Read both."),
        assistant(
            "anthropic",
            vec![
                thinking_block(Some("seal")),
                text("I do."),
                Block::Other(RawJson::parse(r#"{"type":"redacted_thinking","data":"x"}"#).unwrap()),
                call("toolu_1", "read_file", r#"{"path": "a",  "n": 1.0}"#),
                call("toolu_2", "clock", "{}"),
            ],
        ),
        // The results are in a different order than the calls.
        results(vec![
            ToolResult { is_error: true, ..result(2, "toolu_2", "broken") },
            result(1, "toolu_1", "A"),
        ]),
        user("And be quick."),
        assistant("anthropic", vec![text("Done.")]),
        user("Thanks."),
    ];
    let body = sent_body(&messages).await;
    assert!(body.contains(r#""input":{"path": "a",  "n": 1.0}"#), "{body}");
    assert_eq!(body.matches("cache_control").count(), 4);
    insta::assert_snapshot!("calls", pretty(&body));
}

#[tokio::test]
async fn replies_of_another_provider_are_converted() {
    let foreign_reply = |calls: Vec<Block>| {
        let mut blocks = vec![
            thinking_block(Some("another seal")),
            text("  "),
            Block::Other(RawJson::parse(r#"{"type":"reasoning","id":"rs_1"}"#).unwrap()),
        ];
        blocks.extend(calls);
        assistant("responses", blocks)
    };
    let long_id = "x".repeat(90);
    let messages = [
        user("Go."),
        foreign_reply(vec![
            call("", "clock", "{}"),
            call("call|1", "my.tool", r#""not JSON: {""#),
            call("call|1", "", "[1]"),
            call(&long_id, "clock", "{}"),
        ]),
        results(vec![
            result(1, "", "one"),
            result(2, "call|1", "two"),
            result(3, "call|1", "three"),
            result(4, &long_id, "four"),
        ]),
        foreign_reply(vec![call("call_1", "clock", "{}")]),
        results(vec![result(1, "call_1", "five")]),
        foreign_reply(vec![]),
        user("On."),
        // Calls without a result, and a result without a call.
        foreign_reply(vec![call("call_1", "clock", "{}"), call("b", "clock", "{}")]),
        results(vec![result(2, "b", "six"), result(9, "z", "lost")]),
        user("Well?"),
        foreign_reply(vec![call("c", "clock", "{}")]),
    ];
    insta::assert_snapshot!("other_provider", pretty(&sent_body(&messages).await));
}

#[derive(Debug)]
struct SingleImage(BlobRef);

#[async_trait]
impl ImageSource for SingleImage {
    async fn load_image_bytes(&self, image: &ImageRef) -> Option<Vec<u8>> {
        (image.blob == self.0).then(|| b"\x89PNG".to_vec())
    }
}

#[tokio::test]
async fn images_are_sent_or_described() {
    let server = Server::new(vec![stream_response(RECORDED.as_bytes())]).await;
    let known_blob = BlobRef::for_content(b"\x89PNG");
    let image =
        |media: &str, blob: BlobRef| Part::Image(ImageRef { media_type: media.into(), blob });
    let sendable = image("image/png", known_blob);
    let messages = [
        Arc::new(Message::User(vec![
            Part::Text("Look:".into()),
            sendable.clone(),
            image("image/png", BlobRef::for_content(b"gone")),
            image("image/tiff", known_blob),
            image("image/png", BlobRef { size: 1 << 40, ..known_blob }),
        ])),
        assistant("anthropic", vec![call("t", "read_file", r#"{"path":"p"}"#)]),
        results(vec![ToolResult { content: vec![sendable], ..result(1, "t", "") }]),
    ];
    let model = model_with_images(&server, Arc::new(SingleImage(known_blob)));
    answer(&server, &model, &messages).await.0.unwrap();
    insta::assert_snapshot!("images", pretty(&server.requests().remove(0).body));
}

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
    messages.push(results(vec![result(1, "toolu_A", "a"), result(2, "toolu_B", "b")]));
    answer(&server, &model, &messages).await.0.unwrap();
    let body = &server.requests()[1].body;
    for expected in [
        r#"{"type":"thinking","thinking":"Zwölf über vier.","signature":"EqQB/seal=="}"#,
        r#"{"type":"redacted_thinking","data":"Zm9v"}"#,
        r#""name":"web_search","input":{"query": "x"}}"#,
        r#""input":{"zeta": 1, "alpha": [1.0, 2.50], "path": "a/b\u00e9"},"caller":{"type":"direct"}}"#,
        r#""citations":[{"type":"char_location","cited_text":"ab""#,
    ] {
        assert!(body.contains(expected), "{expected}\nin {body}");
    }
}

#[tokio::test]
async fn a_request_is_the_same_when_it_is_encoded_again() {
    let turns = 6;
    let server = Server::new(vec![stream_response(RECORDED.as_bytes()); 3 * turns]).await;
    let reused_model = model(&server);
    let mut messages = hello_messages();
    for turn in 0..turns {
        let id = format!("toolu_{}", turn % 2);
        messages.push(assistant("anthropic", vec![call(&id, "clock", "{}")]));
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
        let bodies: Vec<&str> =
            requests[3 * turn..].iter().map(|requests| &*requests.body).collect();
        assert!(bodies.iter().all(|body| *body == bodies[0]), "{turn}: {bodies:#?}");
    }
}

#[derive(Debug, Default)]
struct CountingImages(AtomicUsize);

#[async_trait]
impl ImageSource for CountingImages {
    async fn load_image_bytes(&self, _: &ImageRef) -> Option<Vec<u8>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Some(b"png".to_vec())
    }
}

#[tokio::test]
async fn a_message_is_encoded_once() {
    let server = Server::new(vec![stream_response(RECORDED.as_bytes()); 4]).await;
    let image_source = Arc::new(CountingImages::default());
    let model = model_with_images(&server, Arc::clone(&image_source) as Arc<dyn ImageSource>);
    let image = Part::Image(ImageRef {
        media_type: "image/png".into(),
        blob: BlobRef::for_content(b"png"),
    });
    let mut messages = vec![Arc::new(Message::User(vec![image]))];
    for turn in 0..3 {
        answer(&server, &model, &messages).await.0.unwrap();
        messages.push(assistant("anthropic", vec![text("Well.")]));
        messages.push(user(&turn.to_string()));
    }
    assert_eq!(image_source.0.load(Ordering::Relaxed), 1);
    // A copied message is encoded again.
    messages[0] = Arc::new((*messages[0]).clone());
    answer(&server, &model, &messages).await.0.unwrap();
    assert_eq!(image_source.0.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn only_configured_settings_are_sent() {
    let server = Server::new(vec![stream_response(RECORDED.as_bytes())]).await;
    let model_with_fields = |fields: &str| {
        let http = HttpClient::new(&format!("{}/proxy/v1/", server.base_url()), limits()).unwrap();
        let settings = ModelSettings {
            fields: Some(RawJson::parse(fields).unwrap()),
            headers: vec![("anthropic-beta".into(), "x-1".into())],
            ..settings()
        };
        anthropic::new_model(http, settings, Arc::new(FixedClock))
    };
    for invalid_fields in [r#"{"model":"x"}"#, r#"{"stream":false}"#, "[]"] {
        assert!(model_with_fields(invalid_fields).is_err(), "{invalid_fields}");
    }
    let model = model_with_fields(
        r#"{"temperature": 0.50, "thinking":{"type":"enabled","budget_tokens":1024}}"#,
    );
    let question = model_request(&hello_messages());
    let response = model.unwrap().generate(&question, &TextSink::default()).await;
    assert!(response.is_ok(), "{}", lines(&response));
    let request = server.requests().remove(0);
    assert!(request.head.starts_with("POST /proxy/v1/messages "), "{}", request.head);
    assert!(request.head.contains("anthropic-beta: x-1"));
    assert!(request.body.contains(r#","temperature":0.50,"thinking":{"#));
    spec::check(&request.body);
}

#[tokio::test]
async fn debug_output_hides_the_key() {
    let server = Server::new(vec![]).await;
    let texts = [format!("{:?}", model(&server)), format!("{:?}", settings())];
    assert!(texts.iter().all(|text| !text.contains("secret")), "{texts:?}");
}

#[tokio::test]
async fn an_estimate_is_the_worst_case() {
    let server = Server::new(vec![]).await;
    let estimate = model(&server).estimate(&model_request(&[user(&"x".repeat(3_000))]));
    let fixed_tokens = ("Be tidy.".len() + crate::suite::fixtures::TOOLS.len()).div_ceil(3) as u64;
    assert_eq!(estimate.pricing.fixed_tokens, fixed_tokens);
    assert_eq!(estimate.hold.tokens, fixed_tokens + 1_000 + 1_024);
    // Every input token may be written to the cache, which costs more than normal input.
    let micros = ((fixed_tokens + 1_000) * 3_750_000 + 1_024 * 15_000_000).div_ceil(1_000_000);
    assert_eq!(estimate.hold.micro_usd.0, micros);
}

#[tokio::test]
async fn thinking_of_another_provider_on_the_same_wire_is_not_sent_back() {
    let server = Server::new(vec![stream_response(RECORDED.as_bytes()); 2]).await;
    let settings = ModelSettings { provider: "proxy".into(), ..settings() };
    let http = HttpClient::new(&server.base_url(), limits()).unwrap();
    let proxy = anthropic::new_model(http, settings, Arc::new(FixedClock)).unwrap();
    let (first, _) = answer(&server, &proxy, &hello_messages()).await;
    let reply = first.unwrap().reply;
    assert_eq!(reply.api, "anthropic:proxy");
    // Signatures of another provider are not sent.
    let messages = [user("Hello"), Arc::new(Message::Assistant(reply))];
    answer(&server, &model(&server), &messages).await.0.unwrap();
    let second_body = server.requests().remove(1).body;
    assert!(!second_body.contains("signature"), "{second_body}");
    assert!(second_body.contains("tool_use"), "{second_body}");
}
