//! Requests that are wrong, and what each provider says to them.

use longhaul_model::mock::{BODY_BYTES_MAX, Dialect};
use serde_json::{Value, json};

use super::kit::{DIALECTS, asked, body, first, header, json_of, mock};
use super::spec;

/// A request that is refused: the status, and words in the message.
fn check(dialect: Dialect, request: &[u8], status: u16, says: &str) -> Value {
    let answer = mock().answer(&asked(dialect, request));
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
        Dialect::Messages => "request-id",
        Dialect::Responses | Dialect::Chat => "x-request-id",
    };
    let id = header(&answer, name).unwrap();
    if dialect == Dialect::Messages {
        assert_eq!(
            (&error["type"], &error["request_id"]),
            (&json!("error"), &json!(id))
        );
    }
    error
}

/// The first question with a field changed.
fn changed(dialect: Dialect, field: &str, value: Value) -> Vec<u8> {
    let mut question = first(dialect, "play");
    question[field] = value;
    question.to_string().into_bytes()
}

/// The first question without a field.
fn without(dialect: Dialect, field: &str) -> Vec<u8> {
    let mut question = first(dialect, "play");
    question.as_object_mut().unwrap().remove(field);
    question.to_string().into_bytes()
}

#[test]
fn what_is_no_request_is_refused() {
    for dialect in DIALECTS {
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
        let mut foreign = first(dialect, "play").to_string().into_bytes();
        let end = foreign.len() - 1;
        foreign.splice(end..end, b",\"other\":\"\xff\"".iter().copied());
        check(dialect, &foreign, 400, "UTF-8");
        check(dialect, &without(dialect, "model"), 400, "model");
        let large = vec![b' '; BODY_BYTES_MAX + 1];
        let error = check(dialect, &large, 413, "at most");
        if dialect == Dialect::Messages {
            assert_eq!(error["error"]["type"], "request_too_large");
        }
    }
}

#[test]
fn fields_that_must_be_there_are_missed_in_the_provider_s_words() {
    let messages = Dialect::Messages;
    for field in ["model", "max_tokens", "messages"] {
        let says = format!("{field}: Field required");
        let error = check(messages, &without(messages, field), 400, &says);
        assert_eq!(error["error"]["type"], "invalid_request_error");
    }
    for (dialect, field) in [
        (Dialect::Responses, "input"),
        (Dialect::Responses, "model"),
        (Dialect::Chat, "messages"),
        (Dialect::Chat, "model"),
    ] {
        let error = check(dialect, &without(dialect, field), 400, "Missing required");
        assert_eq!(error["error"]["param"], field);
    }
    check(
        messages,
        &changed(messages, "max_tokens", json!(0)),
        400,
        "max_tokens",
    );
    check(
        messages,
        &changed(messages, "messages", json!([])),
        400,
        "at least one",
    );
    let chat = Dialect::Chat;
    check(
        chat,
        &changed(chat, "messages", json!([])),
        400,
        "at least one",
    );
}

#[test]
fn a_message_that_nobody_can_read_is_named_by_its_place() {
    let odd = json!([{ "role": "user", "content": "x" }, { "role": "robot", "content": "y" }]);
    let number = json!([{ "role": "user", "content": 5 }]);
    let (messages, chat, responses) = (Dialect::Messages, Dialect::Chat, Dialect::Responses);
    check(
        messages,
        &changed(messages, "messages", odd.clone()),
        400,
        "messages.1.role",
    );
    check(
        messages,
        &changed(messages, "messages", number.clone()),
        400,
        "messages.0.content",
    );
    check(
        chat,
        &changed(chat, "messages", odd.clone()),
        400,
        "messages[1].role",
    );
    check(
        chat,
        &changed(chat, "messages", number.clone()),
        400,
        "messages[0].content",
    );
    check(
        responses,
        &changed(responses, "input", odd),
        400,
        "input[1].role",
    );
    check(
        responses,
        &changed(responses, "input", number),
        400,
        "input[0].content",
    );
    check(
        responses,
        &changed(responses, "input", json!(5)),
        400,
        "input",
    );
}

#[test]
fn fields_that_nobody_knows_are_let_pass() {
    for dialect in DIALECTS {
        let request = changed(dialect, "future", json!({ "deep": [1, { "x": null }] }));
        assert_eq!(mock().answer(&asked(dialect, &request)).status, 200);
    }
}

#[test]
fn a_model_that_nobody_wrote_is_not_found_and_the_others_are_named() {
    for dialect in DIALECTS {
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
                Dialect::Messages => assert_eq!(error["error"]["type"], "not_found_error"),
                Dialect::Responses | Dialect::Chat => {
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
fn a_script_that_can_t_be_played_says_where_it_is_wrong() {
    for dialect in DIALECTS {
        let broken = changed(dialect, "model", json!("broken"));
        check(dialect, &broken, 400, "did you mean `text`?");
    }
    let talk = json!([
        { "role": "user", "content": "x" },
        { "role": "assistant", "content": "y" },
        { "role": "user", "content": "z" },
    ]);
    let request = changed(Dialect::Messages, "messages", talk);
    let says = "scripted/play: replies[1]";
    let error = check(Dialect::Messages, &request, 400, says);
    assert!(
        error.to_string().contains("no `last_result` yet"),
        "{error}"
    );
}
