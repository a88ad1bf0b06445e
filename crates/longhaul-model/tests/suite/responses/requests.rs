//! Requests: snapshots, fields set by the user, and images.

use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::message::{Block, ImageRef, Message, Part, TextBlock, ToolResult};
use longhaul_core::port::model::ModelRequest;
use longhaul_core::raw::{BlobRef, RawJson, StoredText};
use longhaul_model::http::HttpClient;
use longhaul_model::image_source::ImageSource;
use longhaul_model::responses;
use longhaul_model::settings::ModelSettings;

use super::harness::{API, KEY, RECORDED, answer, model, model_with, settings};
use super::spec;
use crate::suite::fixtures::{
    assistant, call, hello_messages, limits, lines, model_request, pretty, result, results, text,
    thinking_block, user,
};
use crate::suite::harness::{FixedClock, Server, TextSink, stream_response};

/// Returns the request body for these messages.
async fn sent_body(messages: &[Arc<Message>]) -> String {
    let server = Server::new(vec![stream_response(RECORDED.as_bytes())]).await;
    let (response, _) = answer(&server, &model(&server), messages).await;
    response.unwrap();
    server.requests().remove(0).body
}

/// Returns the `input` of the request for these messages, one item per line.
pub(super) async fn sent_input(messages: &[Arc<Message>]) -> String {
    let body: serde_json::Value = serde_json::from_str(&sent_body(messages).await).unwrap();
    let items = body["input"].as_array().unwrap();
    let items: Vec<String> = items.iter().map(ToString::to_string).collect();
    items.join("\n")
}

#[tokio::test]
async fn the_first_request_is_encoded() {
    let server = Server::new(vec![stream_response(RECORDED.as_bytes())]).await;
    answer(&server, &model(&server), &hello_messages()).await.0.unwrap();
    let request = server.requests().remove(0);
    assert!(request.head.starts_with("POST /v1/responses HTTP/1.1\r\n"));
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
async fn a_base_url_without_a_version_gets_one() {
    let server = Server::new(vec![stream_response(RECORDED.as_bytes())]).await;
    let http = HttpClient::new(&server.base_url(), limits()).unwrap();
    let model = responses::new_model(http, settings(), Arc::new(FixedClock)).unwrap();
    answer(&server, &model, &hello_messages()).await.0.unwrap();
    assert!(server.requests()[0].head.starts_with("POST /v1/responses "));
}

#[tokio::test]
async fn absent_fields_are_omitted_and_max_tokens_has_a_minimum() {
    let server = Server::new(vec![stream_response(RECORDED.as_bytes())]).await;
    let question = ModelRequest {
        system: StoredText::new_inline("  "),
        tools: StoredText::new_inline("[]"),
        max_tokens: 1,
        ..model_request(&hello_messages())
    };
    let response = model(&server).generate(&question, &TextSink::default()).await;
    assert!(response.is_ok(), "{}", lines(&response));
    let body = server.requests().remove(0).body;
    spec::check(&body);
    insta::assert_snapshot!(body, @r#"{"model":"gpt-5.5","max_output_tokens":16,"stream":true,"store":false,"include":["reasoning.encrypted_content"],"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"Hello"}]}]}"#);
}

/// Fields set by the user, and the part of the request between `store` and the system prompt.
const FIELDS: &[(&str, &str, &str)] = &[
    (
        "gpt-5.5",
        r#"{"temperature": 0.50, "reasoning":{"effort":"low"}}"#,
        r#","temperature":0.50,"reasoning":{"effort":"low"},"include":["reasoning.encrypted_content"],"#,
    ),
    (
        "gpt-5.5",
        r#"{"include":["message.output_text.logprobs"],"top_logprobs":2}"#,
        r#","top_logprobs":2,"include":["message.output_text.logprobs","reasoning.encrypted_content"],"#,
    ),
    (
        "gpt-5.5",
        r#"{"include": ["reasoning.encrypted_content"]}"#,
        r#","include":["reasoning.encrypted_content"],"#,
    ),
    ("gpt-5.5", r#"{"include":[]}"#, ","),
    ("gpt-5.5", r#"{"include":null}"#, ","),
    // Models without reasoning reject a request for encrypted reasoning.
    ("gpt-4.1-mini", "{}", ","),
    ("openai/gpt-4o", "{}", ","),
    ("ft:gpt-4o:me::1", "{}", ","),
    (
        "gpt-4o",
        r#"{"include":["message.output_text.logprobs"]}"#,
        r#","include":["message.output_text.logprobs"],"#,
    ),
    ("o4-mini", "{}", r#","include":["reasoning.encrypted_content"],"#),
];

#[tokio::test]
async fn only_configured_settings_are_sent_and_none_twice() {
    let server = Server::new(vec![stream_response(RECORDED.as_bytes()); FIELDS.len()]).await;
    let model_with_fields = |model: &str, fields: &str| {
        let settings = ModelSettings {
            model: model.to_owned(),
            fields: Some(RawJson::parse(fields).unwrap()),
            ..settings()
        };
        model_with(&server, settings)
    };
    for invalid_fields in [
        r#"{"model":"x"}"#,
        r#"{"stream":false}"#,
        r#"{"store":true}"#,
        r#"{"previous_response_id":"resp_1"}"#,
        r#"{"conversation":"conv_1"}"#,
        r#"{"background":true}"#,
        r#"{"include":"all"}"#,
        r#"{"include":[5]}"#,
        r#"{"include":[],"include":[]}"#,
        r#"{"top_p":1,"top_p":1}"#,
        "[]",
    ] {
        assert!(model_with_fields("gpt-5.5", invalid_fields).is_err(), "{invalid_fields}");
    }
    for (name, fields, expected) in FIELDS {
        let model = model_with_fields(name, fields).unwrap();
        answer(&server, &model, &hello_messages()).await.0.unwrap();
        let body = server.requests().pop().unwrap().body;
        let (_, rest) = body.split_once(r#""store":false"#).unwrap();
        let (settings_text, _) = rest.split_once(r#""instructions""#).unwrap();
        assert_eq!(settings_text, *expected, "{name} {fields}");
    }
}

#[tokio::test]
async fn calls_results_and_reasoning_are_encoded() {
    let parse_raw = |text: &str| RawJson::parse(text).unwrap();
    let messages = [
        user("Read both."),
        assistant(
            API,
            vec![
                Block::Other(parse_raw(
                    r#"{"type":"web_search_call","id":"ws_1","status":"completed",  "action":{"type":"search","query":"q"}}"#,
                )),
                Block::Text(TextBlock {
                    text: "I do.".into(),
                    extra: Some(parse_raw(
                        r#"{"message":{"id":"msg_1","status":"completed","role":"assistant","phase":"commentary"},"part":{"type":"output_text","annotations":[],"logprobs":[]}}"#,
                    )),
                }),
                Block::Text(TextBlock {
                    text: "Or not.".into(),
                    extra: Some(parse_raw(r#"{"part":{"type":"refusal"}}"#)),
                }),
                // Text without a message item.
                text("Well."),
                call("call_1", "read_file", r#"{"path": "a",  "n": 1.0}"#),
                call("call_2", "clock", r#""{\"oops\":""#),
            ],
        ),
        // The results are in a different order than the calls.
        results(vec![
            ToolResult { is_error: true, ..result(2, "call_2", "broken") },
            ToolResult {
                content: vec![Part::Text("A".into()), Part::Text("B".into())],
                ..result(1, "call_1", "")
            },
        ]),
        user("And be quick."),
        assistant(API, vec![text("Done.")]),
        user("Thanks."),
    ];
    insta::assert_snapshot!("calls", sent_input(&messages).await);
}

#[tokio::test]
async fn error_results_are_marked_once() {
    let failed_result =
        |index, id: &str, text: &str| ToolResult { is_error: true, ..result(index, id, text) };
    let messages = [
        user("Go."),
        assistant(API, ["a", "b", "c"].map(|id| call(id, "clock", "{}")).into()),
        results(vec![
            failed_result(1, "a", "no such file"),
            failed_result(2, "b", "Error: no such file"),
            failed_result(3, "c", " "),
        ]),
    ];
    let input = sent_input(&messages).await;
    for output in [r#""error: no such file""#, r#""Error: no such file""#, r#""error""#] {
        assert!(input.contains(&format!(r#""output":{output}"#)), "{input}");
    }
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
    let picture =
        |media: &str, blob: BlobRef| Part::Image(ImageRef { media_type: media.into(), blob });
    let known_image = picture("image/png", known_blob);
    let missing_image = picture("image/png", BlobRef::for_content(b"gone"));
    let messages = [
        Arc::new(Message::User(vec![
            Part::Text("Look:".into()),
            known_image.clone(),
            missing_image.clone(),
            picture("image/tiff", known_blob),
        ])),
        assistant(API, ["t", "u", "v"].map(|id| call(id, "read_file", r#"{"path":"p"}"#)).into()),
        results(vec![
            ToolResult {
                content: vec![Part::Text("This:".into()), known_image.clone()],
                ..result(1, "t", "")
            },
            ToolResult { content: vec![missing_image], ..result(2, "u", "") },
            ToolResult { content: vec![known_image], is_error: true, ..result(3, "v", "") },
        ]),
    ];
    let settings =
        ModelSettings { image_source: Some(Arc::new(SingleImage(known_blob))), ..settings() };
    let model = model_with(&server, settings).unwrap();
    answer(&server, &model, &messages).await.0.unwrap();
    let body: serde_json::Value = serde_json::from_str(&server.requests()[0].body).unwrap();
    insta::assert_snapshot!("images", format!("{:#}", body["input"]));
}

#[tokio::test]
async fn a_reasoning_item_is_never_sent_alone() {
    let encrypted_reasoning = |id: &str| {
        let item =
            format!(r#"{{"type":"reasoning","id":"{id}","summary":[],"encrypted_content":"x"}}"#);
        thinking(&item)
    };
    let call_with_id = |id: &str| {
        let mut block = call("c", "clock", "{}");
        if let Block::ToolCall(call) = &mut block {
            call.extra = Some(RawJson::parse(format!(r#"{{"id":"{id}"}}"#)).unwrap());
        }
        block
    };
    let empty = Block::Text(TextBlock {
        text: "".into(),
        extra: Some(RawJson::parse(r#"{"message":{"id":"msg_1"}}"#).unwrap()),
    });
    let reasoning_without_content =
        r#"{"type":"reasoning","id":"rs_0","summary":[],"encrypted_content":null}"#;
    let reasoning_text = r#"{"type":"reasoning","id":"rs_0","summary":[],"content":[{"type":"reasoning_text","text":"Hm."}]}"#;
    let cases = [
        ("reasoning followed by nothing", vec![encrypted_reasoning("rs_1")]),
        (
            "reasoning followed by an empty message",
            vec![encrypted_reasoning("rs_1"), empty.clone(), call_with_id("fc_1")],
        ),
        (
            "two reasoning items",
            vec![encrypted_reasoning("rs_1"), encrypted_reasoning("rs_2"), call_with_id("fc_1")],
        ),
        (
            "reasoning without encrypted content",
            vec![thinking(reasoning_without_content), call_with_id("fc_1")],
        ),
        (
            "reasoning without and then with encrypted content",
            vec![
                thinking(reasoning_without_content),
                encrypted_reasoning("rs_1"),
                call_with_id("fc_1"),
            ],
        ),
        ("reasoning as plain text", vec![thinking(reasoning_text), call_with_id("fc_1")]),
        ("reasoning without an item", vec![thinking_block(None), call_with_id("fc_1")]),
    ];
    let mut all = String::new();
    for (name, blocks) in cases {
        let messages = [user("Go."), assistant(API, blocks), user("On.")];
        all.push_str(&format!("## {name}\n{}\n\n", sent_input(&messages).await));
    }
    insta::assert_snapshot!("reasoning", all);
}

fn thinking(item: &str) -> Block {
    let Block::Thinking(mut block) = thinking_block(None) else { unreachable!() };
    block.extra = Some(RawJson::parse(item).unwrap());
    Block::Thinking(block)
}

#[tokio::test]
async fn debug_output_hides_the_key() {
    let server = Server::new(vec![]).await;
    let texts = [format!("{:?}", model(&server)), format!("{:?}", settings())];
    assert!(texts.iter().all(|text| !text.contains("secret")), "{texts:?}");
}
