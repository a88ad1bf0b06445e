//! Invalid requests and the errors of each provider.

use longhaul_model::mock::{ApiKind, BODY_BYTES_MAX};
use serde_json::{Value, json};

use super::harness::{APIS, body, first_request, header, incoming_request, json_of, mock};
use super::spec;

/// Sends an invalid request and checks the status and a part of the message.
fn check(api: ApiKind, request: &[u8], status: u16, expected: &str) -> Value {
    let answer = mock().respond(&incoming_request(api, request));
    let excerpt = String::from_utf8_lossy(&request[..request.len().min(200)]).into_owned();
    assert_eq!(answer.status, status, "{excerpt}: {}", body(&answer));
    let error = json_of(&answer);
    // The API description lacks the error for requests that are too large.
    if status != 413 {
        spec::check(api, &answer);
    }
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.contains(expected), "{excerpt}: {message}");
    let name = match api {
        ApiKind::Messages => "request-id",
        ApiKind::Responses | ApiKind::Chat => "x-request-id",
    };
    let id = header(&answer, name).unwrap();
    if api == ApiKind::Messages {
        assert_eq!((&error["type"], &error["request_id"]), (&json!("error"), &json!(id)));
    }
    error
}

/// Returns the first request with one field changed.
fn request_with_field(api: ApiKind, field: &str, value: Value) -> Vec<u8> {
    let mut question = first_request(api, "play");
    question[field] = value;
    question.to_string().into_bytes()
}

/// Returns the first request without one field.
fn request_without_field(api: ApiKind, field: &str) -> Vec<u8> {
    let mut question = first_request(api, "play");
    question.as_object_mut().unwrap().remove(field);
    question.to_string().into_bytes()
}

#[test]
fn invalid_requests_are_rejected() {
    for api in APIS {
        let deep_json = "[".repeat(100_000);
        for request in [
            &b""[..],
            b"{",
            b"null",
            b"[]",
            b"{} {}",
            b"{\"model\": 5}",
            b"\xff\xfe{\"model\":\"play\"}",
            deep_json.as_bytes(),
        ] {
            check(api, request, 400, "");
        }
        let mut invalid_utf8 = first_request(api, "play").to_string().into_bytes();
        let end = invalid_utf8.len() - 1;
        invalid_utf8.splice(end..end, b",\"other\":\"\xff\"".iter().copied());
        check(api, &invalid_utf8, 400, "UTF-8");
        check(api, &request_without_field(api, "model"), 400, "model");
        let large = vec![b' '; BODY_BYTES_MAX + 1];
        let error = check(api, &large, 413, "at most");
        if api == ApiKind::Messages {
            assert_eq!(error["error"]["type"], "request_too_large");
        }
    }
}

#[test]
fn missing_required_fields_give_the_providers_error() {
    let messages = ApiKind::Messages;
    for field in ["model", "max_tokens", "messages"] {
        let expected = format!("{field}: Field required");
        let error = check(messages, &request_without_field(messages, field), 400, &expected);
        assert_eq!(error["error"]["type"], "invalid_request_error");
    }
    for (api, field) in [
        (ApiKind::Responses, "input"),
        (ApiKind::Responses, "model"),
        (ApiKind::Chat, "messages"),
        (ApiKind::Chat, "model"),
    ] {
        let error = check(api, &request_without_field(api, field), 400, "Missing required");
        assert_eq!(error["error"]["param"], field);
    }
    for (api, field, value) in [
        (messages, "stream", json!("yes")),
        (messages, "max_tokens", json!("10")),
        (messages, "messages", json!("hi")),
        (messages, "model", json!(5)),
        (ApiKind::Responses, "previous_response_id", json!(7)),
    ] {
        check(api, &request_with_field(api, field, value), 400, &format!("{field}: expected"));
    }
    check(messages, &request_with_field(messages, "max_tokens", json!(0)), 400, "max_tokens");
    check(messages, &request_with_field(messages, "messages", json!([])), 400, "at least one");
    let chat = ApiKind::Chat;
    check(chat, &request_with_field(chat, "messages", json!([])), 400, "at least one");
}

#[test]
fn an_invalid_message_is_reported_by_its_index() {
    let unknown_role =
        json!([{ "role": "user", "content": "x" }, { "role": "robot", "content": "y" }]);
    let numeric_content = json!([{ "role": "user", "content": 5 }]);
    for invalid in [json!({ "content": [5, "x"] }), json!({ "content": "x", "tool_calls": "x" })] {
        let mut message = json!({ "role": "assistant" });
        message.as_object_mut().unwrap().extend(invalid.as_object().unwrap().clone());
        let request = request_with_field(ApiKind::Chat, "messages", json!([message]));
        check(ApiKind::Chat, &request, 400, "expected a list");
    }
    let (messages, chat, responses) = (ApiKind::Messages, ApiKind::Chat, ApiKind::Responses);
    check(
        messages,
        &request_with_field(messages, "messages", unknown_role.clone()),
        400,
        "messages.1.role",
    );
    check(
        messages,
        &request_with_field(messages, "messages", numeric_content.clone()),
        400,
        "messages.0.content",
    );
    check(
        chat,
        &request_with_field(chat, "messages", unknown_role.clone()),
        400,
        "messages[1].role",
    );
    check(
        chat,
        &request_with_field(chat, "messages", numeric_content.clone()),
        400,
        "messages[0].content",
    );
    check(responses, &request_with_field(responses, "input", unknown_role), 400, "input[1].role");
    check(
        responses,
        &request_with_field(responses, "input", numeric_content),
        400,
        "input[0].content",
    );
    check(responses, &request_with_field(responses, "input", json!(5)), 400, "input");
}

#[test]
fn unknown_fields_are_accepted() {
    for api in APIS {
        let request = request_with_field(api, "future", json!({ "deep": [1, { "x": null }] }));
        assert_eq!(mock().respond(&incoming_request(api, &request)).status, 200);
    }
}

#[test]
fn an_unknown_model_is_rejected_with_the_available_ones() {
    for api in APIS {
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
            let request = request_with_field(api, "model", json!(model));
            let error = check(api, &request, 404, "broken, outage, play");
            match api {
                ApiKind::Messages => assert_eq!(error["error"]["type"], "not_found_error"),
                ApiKind::Responses | ApiKind::Chat => {
                    assert_eq!(error["error"]["code"], "model_not_found");
                }
            }
        }
        let long_name = "x".repeat(100_000);
        let error = check(api, &request_with_field(api, "model", json!(long_name)), 404, "xxx");
        assert!(error.to_string().len() < 1_000);
    }
}

#[test]
fn an_invalid_script_is_reported_with_its_position() {
    for api in APIS {
        let broken_request = request_with_field(api, "model", json!("broken"));
        check(api, &broken_request, 400, "did you mean `text`?");
    }
    let messages = json!([
        { "role": "user", "content": "x" },
        { "role": "assistant", "content": "y" },
        { "role": "user", "content": "z" },
    ]);
    let request = request_with_field(ApiKind::Messages, "messages", messages);
    let expected = "scripted/play: replies[1]";
    let error = check(ApiKind::Messages, &request, 400, expected);
    assert!(error.to_string().contains("no `last_result` yet"), "{error}");
}
