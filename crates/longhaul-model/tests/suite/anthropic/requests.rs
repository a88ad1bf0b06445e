//! What is sent: snapshots of requests, pairing of calls, and what is written once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use longhaul_core::message::{Block, ImageRef, Message, Part, ToolResult};
use longhaul_core::port::model::Model;
use longhaul_core::raw::{BlobRef, RawJson};
use longhaul_model::anthropic;
use longhaul_model::http::Http;
use longhaul_model::pictures::Pictures;
use longhaul_model::settings::Settings;

use super::kit::{KEY, RECORDED, answer, model, settings};
use super::spec;
use crate::suite::kit::{Heard, Noon, Server, streamed};
use crate::suite::words::{
    ask, call, hello, limits, lines, pretty, result, results, said, text, thought, user,
};

fn with_pictures(server: &Server, pictures: Arc<dyn Pictures>) -> Arc<dyn Model> {
    let settings = Settings {
        pictures: Some(pictures),
        ..settings()
    };
    let http = Http::new(&server.base(), limits()).unwrap();
    anthropic::model(http, settings, Arc::new(Noon)).unwrap()
}

/// The request that these messages make.
async fn sent(messages: &[Arc<Message>]) -> String {
    let server = Server::new(vec![streamed(RECORDED.as_bytes())]).await;
    let (answered, _) = answer(&server, &model(&server), messages).await;
    answered.unwrap();
    server.seen().remove(0).body
}

#[tokio::test]
async fn the_first_question() {
    let server = Server::new(vec![streamed(RECORDED.as_bytes())]).await;
    answer(&server, &model(&server), &hello()).await.0.unwrap();
    let seen = server.seen().remove(0);
    assert!(seen.head.starts_with("POST /v1/messages HTTP/1.1\r\n"));
    for header in [
        &format!("x-api-key: {KEY}"),
        "anthropic-version: 2023-06-01",
        "content-type: application/json",
        "accept: text/event-stream",
    ] {
        assert!(seen.head.contains(header), "{header} in {}", seen.head);
    }
    insta::assert_snapshot!("first", pretty(&seen.body));
}

#[tokio::test]
async fn calls_results_thoughts_and_marks() {
    let messages = [
        user("Read both."),
        said(
            "anthropic",
            vec![
                thought(Some("seal")),
                text("I do."),
                Block::Other(RawJson::parse(r#"{"type":"redacted_thinking","data":"x"}"#).unwrap()),
                call("toolu_1", "read_file", r#"{"path": "a",  "n": 1.0}"#),
                call("toolu_2", "clock", "{}"),
            ],
        ),
        // They come in another order than the calls.
        results(vec![
            ToolResult {
                is_error: true,
                ..result(2, "toolu_2", "broken")
            },
            result(1, "toolu_1", "A"),
        ]),
        user("And be quick."),
        said("anthropic", vec![text("Done.")]),
        user("Thanks."),
    ];
    let body = sent(&messages).await;
    assert!(
        body.contains(r#""input":{"path": "a",  "n": 1.0}"#),
        "{body}"
    );
    assert_eq!(body.matches("cache_control").count(), 4);
    insta::assert_snapshot!("calls", pretty(&body));
}

#[tokio::test]
async fn another_providers_words_are_made_to_fit() {
    let foreign = |calls: Vec<Block>| {
        let mut blocks = vec![
            thought(Some("another seal")),
            text("  "),
            Block::Other(RawJson::parse(r#"{"type":"reasoning","id":"rs_1"}"#).unwrap()),
        ];
        blocks.extend(calls);
        said("responses", blocks)
    };
    let long = "x".repeat(90);
    let messages = [
        user("Go."),
        foreign(vec![
            call("", "clock", "{}"),
            call("call|1", "my.tool", r#""not JSON: {""#),
            call("call|1", "", "[1]"),
            call(&long, "clock", "{}"),
        ]),
        results(vec![
            result(1, "", "one"),
            result(2, "call|1", "two"),
            result(3, "call|1", "three"),
            result(4, &long, "four"),
        ]),
        foreign(vec![call("call_1", "clock", "{}")]),
        results(vec![result(1, "call_1", "five")]),
        foreign(vec![]),
        user("On."),
        // Calls that nobody answered, and an answer that nobody asked for.
        foreign(vec![
            call("call_1", "clock", "{}"),
            call("b", "clock", "{}"),
        ]),
        results(vec![result(2, "b", "six"), result(9, "z", "lost")]),
        user("Well?"),
        foreign(vec![call("c", "clock", "{}")]),
    ];
    insta::assert_snapshot!("foreign", pretty(&sent(&messages).await));
}

#[derive(Debug)]
struct One(BlobRef);

#[async_trait]
impl Pictures for One {
    async fn bytes(&self, image: &ImageRef) -> Option<Vec<u8>> {
        (image.blob == self.0).then(|| b"\x89PNG".to_vec())
    }
}

#[tokio::test]
async fn pictures_are_shown_or_told_of() {
    let server = Server::new(vec![streamed(RECORDED.as_bytes())]).await;
    let known = BlobRef::to(b"\x89PNG");
    let picture = |media: &str, blob: BlobRef| {
        Part::Image(ImageRef {
            media_type: media.into(),
            blob,
        })
    };
    let shown = picture("image/png", known);
    let messages = [
        Arc::new(Message::User(vec![
            Part::Text("Look:".into()),
            shown.clone(),
            picture("image/png", BlobRef::to(b"gone")),
            picture("image/tiff", known),
            picture(
                "image/png",
                BlobRef {
                    size: 1 << 40,
                    ..known
                },
            ),
        ])),
        said("anthropic", vec![call("t", "read_file", r#"{"path":"p"}"#)]),
        results(vec![ToolResult {
            content: vec![shown],
            ..result(1, "t", "")
        }]),
    ];
    let model = with_pictures(&server, Arc::new(One(known)));
    answer(&server, &model, &messages).await.0.unwrap();
    insta::assert_snapshot!("pictures", pretty(&server.seen().remove(0).body));
}

#[tokio::test]
async fn a_reply_goes_back_as_it_came() {
    let server = Server::new(vec![streamed(RECORDED.as_bytes()); 2]).await;
    let model = model(&server);
    let mut messages = hello();
    let (first, _) = answer(&server, &model, &messages).await;
    let reply = first.unwrap().reply;
    // Through the journal and back.
    let kept = serde_json::to_string(&Message::Assistant(reply)).unwrap();
    messages.push(Arc::new(serde_json::from_str(&kept).unwrap()));
    messages.push(results(vec![
        result(1, "toolu_A", "a"),
        result(2, "toolu_B", "b"),
    ]));
    answer(&server, &model, &messages).await.0.unwrap();
    let body = &server.seen()[1].body;
    for same in [
        r#"{"type":"thinking","thinking":"Zwölf über vier.","signature":"EqQB/seal=="}"#,
        r#"{"type":"redacted_thinking","data":"Zm9v"}"#,
        r#""name":"web_search","input":{"query": "x"}}"#,
        r#""input":{"zeta": 1, "alpha": [1.0, 2.50], "path": "a/b\u00e9"},"caller":{"type":"direct"}}"#,
        r#""citations":[{"type":"char_location","cited_text":"ab""#,
    ] {
        assert!(body.contains(same), "{same}\nin {body}");
    }
}

#[tokio::test]
async fn what_was_sent_is_the_same_when_it_is_made_anew() {
    let turns = 6;
    let server = Server::new(vec![streamed(RECORDED.as_bytes()); 3 * turns]).await;
    let lasting = model(&server);
    let mut messages = hello();
    for turn in 0..turns {
        let id = format!("toolu_{}", turn % 2);
        messages.push(said("anthropic", vec![call(&id, "clock", "{}")]));
        messages.push(results(vec![result(1, &id, &turn.to_string())]));
        if turn == 4 {
            // The conversation was made shorter, from its middle on.
            messages.drain(3..7);
            messages.push(user("short"));
        }
        answer(&server, &lasting, &messages).await.0.unwrap();
        answer(&server, &model(&server), &messages).await.0.unwrap();
        let copy: Vec<_> = messages
            .iter()
            .map(|one| Arc::new((**one).clone()))
            .collect();
        answer(&server, &lasting, &copy).await.0.unwrap();
        let seen = server.seen();
        let bodies: Vec<&str> = seen[3 * turn..].iter().map(|seen| &*seen.body).collect();
        assert!(
            bodies.iter().all(|body| *body == bodies[0]),
            "{turn}: {bodies:#?}"
        );
    }
}

#[derive(Debug, Default)]
struct Counting(AtomicUsize);

#[async_trait]
impl Pictures for Counting {
    async fn bytes(&self, _: &ImageRef) -> Option<Vec<u8>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Some(b"png".to_vec())
    }
}

#[tokio::test]
async fn a_message_is_written_once() {
    let server = Server::new(vec![streamed(RECORDED.as_bytes()); 4]).await;
    let counting = Arc::new(Counting::default());
    let model = with_pictures(&server, Arc::clone(&counting) as Arc<dyn Pictures>);
    let picture = Part::Image(ImageRef {
        media_type: "image/png".into(),
        blob: BlobRef::to(b"png"),
    });
    let mut messages = vec![Arc::new(Message::User(vec![picture]))];
    for turn in 0..3 {
        answer(&server, &model, &messages).await.0.unwrap();
        messages.push(said("anthropic", vec![text("Well.")]));
        messages.push(user(&turn.to_string()));
    }
    assert_eq!(counting.0.load(Ordering::Relaxed), 1);
    // Another picture in its place is another message.
    messages[0] = Arc::new((*messages[0]).clone());
    answer(&server, &model, &messages).await.0.unwrap();
    assert_eq!(counting.0.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn only_what_the_user_set_is_sent() {
    let server = Server::new(vec![streamed(RECORDED.as_bytes())]).await;
    let with = |fields: &str| {
        let http = Http::new(&format!("{}/proxy/v1/", server.base()), limits()).unwrap();
        let settings = Settings {
            fields: Some(RawJson::parse(fields).unwrap()),
            headers: vec![("anthropic-beta".into(), "x-1".into())],
            ..settings()
        };
        anthropic::model(http, settings, Arc::new(Noon))
    };
    for bad in [r#"{"model":"x"}"#, r#"{"stream":false}"#, "[]"] {
        assert!(with(bad).is_err(), "{bad}");
    }
    let model =
        with(r#"{"temperature": 0.50, "thinking":{"type":"enabled","budget_tokens":1024}}"#);
    let question = ask(&hello());
    let answered = model.unwrap().reply(&question, &Heard::default()).await;
    assert!(answered.is_ok(), "{}", lines(&answered));
    let seen = server.seen().remove(0);
    assert!(
        seen.head.starts_with("POST /proxy/v1/messages "),
        "{}",
        seen.head
    );
    assert!(seen.head.contains("anthropic-beta: x-1"));
    assert!(seen.body.contains(r#","temperature":0.50,"thinking":{"#));
    spec::check(&seen.body);
}

#[tokio::test]
async fn nothing_that_holds_the_key_shows_it() {
    let server = Server::new(vec![]).await;
    let texts = [format!("{:?}", model(&server)), format!("{:?}", settings())];
    assert!(
        texts.iter().all(|text| !text.contains("secret")),
        "{texts:?}"
    );
}

#[tokio::test]
async fn a_quote_holds_the_worst_case() {
    let server = Server::new(vec![]).await;
    let quote = model(&server).quote(&ask(&[user(&"x".repeat(3_000))]));
    let fixed = ("Be tidy.".len() + crate::suite::words::TOOLS.len()).div_ceil(3) as u64;
    assert_eq!(quote.tariff.fixed_tokens, fixed);
    assert_eq!(quote.hold.tokens, fixed + 1_000 + 1_024);
    // Every token may be written to the cache, which costs more than to read it.
    let micros = ((fixed + 1_000) * 3_750_000 + 1_024 * 15_000_000).div_ceil(1_000_000);
    assert_eq!(quote.hold.micros.0, micros);
}

#[tokio::test]
async fn another_provider_on_the_same_wire_is_a_stranger() {
    let server = Server::new(vec![streamed(RECORDED.as_bytes()); 2]).await;
    let settings = Settings {
        provider: "proxy".into(),
        ..settings()
    };
    let http = Http::new(&server.base(), limits()).unwrap();
    let proxy = anthropic::model(http, settings, Arc::new(Noon)).unwrap();
    let (first, _) = answer(&server, &proxy, &hello()).await;
    let reply = first.unwrap().reply;
    assert_eq!(reply.dialect, "anthropic:proxy");
    // Its seals are nothing to the provider itself.
    let messages = [user("Hello"), Arc::new(Message::Assistant(reply))];
    answer(&server, &model(&server), &messages).await.0.unwrap();
    let sent = server.seen().remove(1).body;
    assert!(!sent.contains("signature"), "{sent}");
    assert!(sent.contains("tool_use"), "{sent}");
}
