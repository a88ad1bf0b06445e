//! Requests that are wrong, and what each provider says to them.

use longhaul_model::mock::{ApiKind, BODY_BYTES_MAX};
use serde_json::{Value, json};

use super::harness::{APIS, body, first_request, header, incoming_request, json_of, mock};
use super::spec;

/// A request that is refused: the status, and words in the message.
fn check(dialect: ApiKind, request: &[u8], status: u16, says: &str) -> Value {
    let answer = mock().respond(&incoming_request(dialect, request));
    let shown = String::from_utf8_lossy(&request[..request.len().min(200)]).into_owned();
    assert_eq!(answer.status, status, "{shown}: {}", body(&answer));
    let error = json_of(&answer);
    // The description leaves out what the documentation says of requests that are too large.
    if status != 413 {
        spec::check(dialect, &answer);
    }
    let said = error["error"]["message"].as_str().unwrap();
    assert!(said.contains(says), "{shown}: {said}");
    let name = match dialect {
        ApiKind::Messages => "request-id",
        ApiKind::Responses | ApiKind::Chat => "x-request-id",
    };
    let id = header(&answer, name).unwrap();
    if dialect == ApiKind::Messages {
        assert_eq!((&error["type"], &error["request_id"]), (&json!("error"), &json!(id)));
    }
    error
}

/// The first question with a field changed.
fn changed(dialect: ApiKind, field: &str, value: Value) -> Vec<u8> {
    let mut question = first_request(dialect, "play");
    question[field] = value;
    question.to_string().into_bytes()
}

/// The first question without a field.
fn without(dialect: ApiKind, field: &str) -> Vec<u8> {
    let mut question = first_request(dialect, "play");
    question.as_object_mut().unwrap().remove(field);
    question.to_string().into_bytes()
}

#[test]
fn invalid_requests_are_rejected() {
    for dialect in APIS {
        let deep = "[".repeat(100_000);
        for request in [
            &b""[..],
            b"{",
            b"null",
            b"[]",
            b"{} {}",
            b"{\"model\": 5}",
            b"\xff\xfe{\"model\":\"play\"}",
            deep.as_bytes(),
        ] {
            check(dialect, request, 400, "");
        }
        let mut foreign = first_request(dialect, "play").to_string().into_bytes();
        let end = foreign.len() - 1;
        foreign.splice(end..end, b",\"other\":\"\xff\"".iter().copied());
        check(dialect, &foreign, 400, "UTF-8");
        check(dialect, &without(dialect, "model"), 400, "model");
        let large = vec![b' '; BODY_BYTES_MAX + 1];
        let error = check(dialect, &large, 413, "at most");
        if dialect == ApiKind::Messages {
            assert_eq!(error["error"]["type"], "request_too_large");
        }
    }
}

#[test]
fn missing_required_fields_give_the_providers_error() {
    let messages = ApiKind::Messages;
    for field in ["model", "max_tokens", "messages"] {
        let says = format!("{field}: Field required");
        let error = check(messages, &without(messages, field), 400, &says);
        assert_eq!(error["error"]["type"], "invalid_request_error");
    }
    for (dialect, field) in [
        (ApiKind::Responses, "input"),
        (ApiKind::Responses, "model"),
        (ApiKind::Chat, "messages"),
        (ApiKind::Chat, "model"),
    ] {
        let error = check(dialect, &without(dialect, field), 400, "Missing required");
        assert_eq!(error["error"]["param"], field);
    }
    check(messages, &changed(messages, "max_tokens", json!(0)), 400, "max_tokens");
    check(messages, &changed(messages, "messages", json!([])), 400, "at least one");
    let chat = ApiKind::Chat;
    check(chat, &changed(chat, "messages", json!([])), 400, "at least one");
}

#[test]
fn an_invalid_message_is_reported_by_its_index() {
    let odd = json!([{ "role": "user", "content": "x" }, { "role": "robot", "content": "y" }]);
    let number = json!([{ "role": "user", "content": 5 }]);
    let (messages, chat, responses) = (ApiKind::Messages, ApiKind::Chat, ApiKind::Responses);
    check(messages, &changed(messages, "messages", odd.clone()), 400, "messages.1.role");
    check(messages, &changed(messages, "messages", number.clone()), 400, "messages.0.content");
    check(chat, &changed(chat, "messages", odd.clone()), 400, "messages[1].role");
    check(chat, &changed(chat, "messages", number.clone()), 400, "messages[0].content");
    check(responses, &changed(responses, "input", odd), 400, "input[1].role");
    check(responses, &changed(responses, "input", number), 400, "input[0].content");
    check(responses, &changed(responses, "input", json!(5)), 400, "input");
}

#[test]
fn unknown_fields_are_accepted() {
    for dialect in APIS {
        let request = changed(dialect, "future", json!({ "deep": [1, { "x": null }] }));
        assert_eq!(mock().respond(&incoming_request(dialect, &request)).status, 200);
    }
}

#[test]
fn an_unknown_model_is_rejected_with_the_available_ones() {
    for dialect in APIS {
        for model in [
            "plya",
            "",
            "../../etc/passwd",
            "scripted/../play",
            "scripted/",
            ".hidden",
            "a\0b",
            "spiel\u{202e}",
        ] {
            let request = changed(dialect, "model", json!(model));
            let error = check(dialect, &request, 404, "broken, outage, play");
            match dialect {
                ApiKind::Messages => assert_eq!(error["error"]["type"], "not_found_error"),
                ApiKind::Responses | ApiKind::Chat => {
                    assert_eq!(error["error"]["code"], "model_not_found");
                }
            }
        }
        let long = "x".repeat(100_000);
        let error = check(dialect, &changed(dialect, "model", json!(long)), 404, "xxx");
        assert!(error.to_string().len() < 1_000);
    }
}

#[test]
fn an_invalid_script_is_reported_with_its_position() {
    for dialect in APIS {
        let broken = changed(dialect, "model", json!("broken"));
        check(dialect, &broken, 400, "did you mean `text`?");
    }
    let talk = json!([
        { "role": "user", "content": "x" },
        { "role": "assistant", "content": "y" },
        { "role": "user", "content": "z" },
    ]);
    let request = changed(ApiKind::Messages, "messages", talk);
    let says = "scripted/play: replies[1]";
    let error = check(ApiKind::Messages, &request, 400, says);
    assert!(error.to_string().contains("no `last_result` yet"), "{error}");
}
