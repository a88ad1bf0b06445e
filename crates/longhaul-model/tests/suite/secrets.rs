//! A server that repeats API keys and header values, which must never appear in messages.

use std::sync::Arc;

use longhaul_core::message::StopReason;
use longhaul_core::port::model::Model;
use longhaul_core::time::Clock as _;
use longhaul_model::chat::ServerQuirks;
use longhaul_model::http::HttpClient;
use longhaul_model::key::ApiKey;
use longhaul_model::model_list::ModelListRequest;
use longhaul_model::providers::built_in::ApiFormat;
use longhaul_model::settings::ModelSettings;
use longhaul_model::{anthropic, chat, responses};

use super::fixtures::{hello_messages, limits, model_request};
use super::harness::{
    FixedClock, LAST_CHUNK, STREAM_HEAD, Server, ServerAction, TextSink, chunk, full_response,
    stream_response,
};

/// A key with characters that have several encodings.
const KEY: &str = "sk-very/secret+0123456789==";

/// The key in JSON, in a URL, and in base64, alone and after `user:`.
const ENCODED_KEYS: &[&str] = &[
    KEY,
    r"sk-very\/secret+0123456789==",
    "sk-very%2Fsecret%2B0123456789%3D%3D",
    "sk-very%2fsecret%2b0123456789%3d%3d",
    "c2stdmVyeS9zZWNyZXQrMDEyMzQ1Njc4OT09",
    "dXNlcjpzay12ZXJ5L3NlY3JldCswMTIzNDU2Nzg5PT0=",
];

/// Headers set by the user.
const HEADERS: &[(&str, &str)] = &[
    ("x-api-key", "by-hand-98765"),
    ("authorization", "Bearer another-43210"),
    ("x-team", "blue"),
];

/// Parts of secrets that must not appear anywhere.
const FORBIDDEN: &[&str] = &[
    "sk-very",
    "very/secret",
    "0123456789",
    "c2stdmVy",
    "ZXJ5L3NlY3Jld",
    "by-hand-98765",
    "another-43210",
];

fn settings() -> ModelSettings {
    let to_owned_pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    ModelSettings {
        headers: HEADERS.iter().map(to_owned_pair).collect(),
        ..ModelSettings::new("somebody", "their-model", Some(ApiKey::new(KEY)))
    }
}

fn model(server: &Server) -> Arc<dyn Model> {
    let http = HttpClient::new(&server.base_url(), limits()).unwrap();
    anthropic::new_model(http, settings(), Arc::new(FixedClock)).unwrap()
}

/// Creates a model for each API.
fn models(server: &Server) -> [Arc<dyn Model>; 3] {
    let http = HttpClient::new(&server.base_url(), limits()).unwrap();
    let (chat_http, responses_http) = (http.clone(), http.clone());
    [
        anthropic::new_model(http, settings(), Arc::new(FixedClock)).unwrap(),
        chat::new_model(chat_http, settings(), ServerQuirks::default(), Arc::new(FixedClock))
            .unwrap(),
        responses::new_model(responses_http, settings(), Arc::new(FixedClock)).unwrap(),
    ]
}

/// Checks that a text contains no secret.
fn assert_clean(text: &str) {
    for secret in FORBIDDEN {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
}

#[tokio::test]
async fn debug_output_hides_secrets() {
    let server = Server::new(vec![]).await;
    assert_clean(&format!("{:?} {:?}", settings(), models(&server)));
    let key = ApiKey::new(KEY);
    let asker = ModelListRequest {
        provider: "somebody",
        api: ApiFormat::Chat,
        key: Some(&key),
        headers: &settings().headers,
        now: FixedClock.now(),
    };
    assert_clean(&format!("{asker:?}"));
}

#[tokio::test]
async fn a_secret_is_redacted_in_every_encoding() {
    let custom_secrets = ["by-hand-98765", "Bearer another-43210", "another-43210"];
    let texts: Vec<&str> = ENCODED_KEYS.iter().copied().chain(custom_secrets).collect();
    let plans = texts.iter().map(|text| full_response(401, &[], &format!("bad <{text}>, blue")));
    let server = Server::new(plans.collect()).await;
    let model = model(&server);
    for text in texts {
        let failure = model.generate(&model_request(&hello_messages()), &TextSink::default()).await;
        let failure = failure.unwrap_err();
        assert_clean(&format!("{failure:?}"));
        let message = &failure.message;
        assert!(message.starts_with("somebody answered 401: bad <"), "{message}");
        assert!(message.ends_with(">, blue"), "{text}: {message}");
    }
}

#[tokio::test]
async fn a_partial_secret_is_redacted() {
    let json = [("content-type", "application/json")];
    let mut plans = Vec::new();
    for text in ENCODED_KEYS {
        let partial_secret = &text[..text.len() - 3];
        // The maximum size quoted from an unexpected body, and the maximum size read of an error
        // response.
        for (status, bytes_max) in [(200, 4 * 1024), (500, 64 * 1024)] {
            // Spaces are not quoted, and these ones are not trimmed while reading.
            let blank_bytes = bytes_max - "bad ".len() - partial_secret.len();
            let (wide_blanks, narrow_blanks) =
                ("\u{3000}".repeat(blank_bytes / 3), " ".repeat(blank_bytes % 3));
            let body = format!("{wide_blanks}{narrow_blanks}bad {text} and more");
            plans.push(full_response(status, &json, &body));
        }
        // A body that ends early.
        let head = "HTTP/1.1 500 No\r\ncontent-length: 999\r\n\r\nbad ";
        let partial_response = ServerAction::Send(format!("{head}{partial_secret}").into_bytes());
        plans.push(vec![partial_response, ServerAction::Close]);
    }
    let rounds = plans.len();
    let server = Server::new(plans).await;
    let model = model(&server);
    for _ in 0..rounds {
        let failure = model.generate(&model_request(&hello_messages()), &TextSink::default()).await;
        let failure = failure.unwrap_err();
        assert_clean(&format!("{failure:?}"));
        let message = &failure.message;
        // With `user:` before the key, the first characters are not part of the secret.
        let message = message.trim_end_matches("dXNlcjp");
        assert!(message.ends_with(" bad") || message.ends_with(" bad "), "{message}");
    }
}

/// Returns error responses of every kind with this secret in every field.
fn error_responses(secret: &str) -> Vec<Vec<ServerAction>> {
    let text = secret.replace('\\', r"\\");
    let error = format!(
        r#"{{"type":"error","error":{{"type":"{text}","code":"{text}","param":"{text}","message":"bad {text}","metadata":{{"raw":"{text}"}}}},"request_id":"{text}"}}"#
    );
    let id = format!("req-{secret}");
    let location = format!("https://elsewhere.example/{secret}?key={secret}");
    let json = [
        ("content-type", "application/json"),
        ("request-id", &id),
        ("x-request-id", &id),
        ("cf-ray", &id),
        ("retry-after", &id),
        ("location", &location),
    ];
    let head = STREAM_HEAD.replace("req_7", &id);
    let error_in_stream = |events: &str| {
        let body = [head.as_bytes(), &chunk(events.as_bytes()), LAST_CHUNK.as_bytes()].concat();
        vec![ServerAction::Send(body)]
    };
    let page = format!("<html><title>{secret}</title>");
    vec![
        full_response(401, &json, &error),
        full_response(429, &json, &error.replace("\"error\":", "\"else\":")),
        full_response(200, &json, &error),
        full_response(302, &json, &error),
        full_response(502, &json[1..], &page),
        full_response(200, &json[1..2], &page),
        full_response(200, &json, &format!(r#"{{"{text}":"{text}"}}"#)),
        full_response(500, &json, secret),
        error_in_stream(&format!("event: error\ndata: {error}\n\n")),
        error_in_stream(&format!("data: {{\"type\":\"{text}\",\"error\":\"{text}\"}}\n\n")),
        error_in_stream(&format!("event: {secret}\ndata: {secret}\n\n")),
        error_in_stream(&format!(
            "data: {{\"type\":\"message_start\",\"message\":\"{text}\"}}\n\n"
        )),
        error_in_stream(&format!("data: {{\"choices\":\"{text}\"}}\n\n")),
        error_in_stream(&format!(
            "data: {{\"type\":\"response.failed\",\"response\":{{\"error\":{{\"code\":\"{text}\",\"message\":\"{text}\"}}}}}}\n\n"
        )),
    ]
}

#[tokio::test]
async fn no_failure_holds_a_secret() {
    for secret in ENCODED_KEYS.iter().chain(&["by-hand-98765", "Bearer another-43210"]) {
        let plans: Vec<_> =
            error_responses(secret).into_iter().flat_map(|response| vec![response; 3]).collect();
        let rounds = plans.len() / 3;
        let server = Server::new(plans).await;
        let models = models(&server);
        for _ in 0..rounds {
            for model in &models {
                let failure =
                    model.generate(&model_request(&hello_messages()), &TextSink::default()).await;
                assert_clean(&format!("{:?}", failure.unwrap_err()));
            }
        }
    }
}

#[tokio::test]
async fn only_the_models_text_may_contain_a_secret() {
    for secret in ENCODED_KEYS {
        let text = secret.replace('\\', r"\\");
        let messages = format!(
            r#"{{"type":"message","model":"{text}","content":[{{"type":"text","text":"hi {text}"}}],"stop_reason":"{text}","usage":{{"input_tokens":1,"output_tokens":1}}}}"#
        );
        let completion = format!(
            r#"{{"model":"{text}","choices":[{{"index":0,"message":{{"role":"assistant","content":"hi {text}"}},"finish_reason":"{text}"}}]}}"#
        );
        let response = format!(
            r#"{{"object":"response","model":"{text}","status":"incomplete","incomplete_details":{{"reason":"{text}"}},"output":[{{"type":"message","role":"assistant","content":[{{"type":"output_text","text":"hi {text}","annotations":[]}}]}}]}}"#
        );
        let json = [("content-type", "application/json")];
        let plans = [messages, completion, response].map(|body| full_response(200, &json, &body));
        let server = Server::new(plans.into()).await;
        for model in &models(&server) {
            let sink = TextSink::default();
            let decoded = model.generate(&model_request(&hello_messages()), &sink).await.unwrap();
            assert_eq!(sink.text(), format!("hi {secret}"));
            assert_clean(&decoded.model);
            assert!(decoded.model.contains("[key]"), "{}", decoded.model);
            let StopReason::Other(reason) = &decoded.stop else {
                panic!("{:?}", decoded.stop);
            };
            assert_clean(reason);
        }
    }
}

#[tokio::test]
async fn a_model_name_that_is_the_key_is_redacted() {
    let stream = format!(
        "data: {{\"model\":\"{KEY}\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"hi\"}},\"finish_reason\":\"{KEY}\"}}]}}\n\ndata: [DONE]\n\n"
    );
    let server = Server::new(vec![stream_response(stream.as_bytes())]).await;
    let model = &models(&server)[1];
    let response = model.generate(&model_request(&hello_messages()), &TextSink::default()).await;
    let response = response.unwrap();
    assert_eq!(response.model, "[key]");
    assert_eq!(response.stop, StopReason::Other("[key]".to_owned()));
}
