//! How the turn of a conversation is determined.

use longhaul_model::mock::{ApiKind, IncomingRequest};
use serde_json::{Value, json};

use super::harness::{body, first_request, incoming_request, json_of, mock, reply_text};

/// Checks the text of the reply to a conversation. Each reply of the script has a different text.
fn check(api: ApiKind, conversation: Value, expected: &str) {
    let field = match api {
        ApiKind::Messages | ApiKind::Chat => "messages",
        ApiKind::Responses => "input",
    };
    let mut question = first_request(api, "play");
    question[field] = conversation;
    let text = question.to_string();
    let answer = mock().respond(&incoming_request(api, text.as_bytes()));
    assert_eq!(answer.status, 200, "{}", body(&answer));
    assert_eq!(reply_text(api, &json_of(&answer)), expected, "{question:#}");
}

const SECOND: &str = "Found: ok";
const LAST: &str = "The last word.";

#[test]
fn messages_of_the_assistant_are_counted() {
    let user = json!({ "role": "user", "content": "x" });
    let assistant = json!({ "role": "assistant", "content": "y" });
    let result = json!({ "role": "user", "content": [
        { "type": "tool_result", "tool_use_id": "a", "content": "no" },
        { "type": "tool_result", "tool_use_id": "b", "content": "ok", "is_error": true },
        { "type": "text", "text": "Go on." },
    ] });
    let api = ApiKind::Messages;
    check(api, json!([user]), "Looking for x in two places.");
    check(api, json!([user, assistant, result]), SECOND);
    check(api, json!([user, assistant, result, assistant, user, assistant, user]), LAST);
    check(api, json!([user, assistant, user, assistant, user]), "");
}

#[test]
fn messages_of_a_chat_are_counted_and_tools_are_not() {
    let user = json!({ "role": "user", "content": "x" });
    let call =
        json!({ "id": "a", "type": "function", "function": { "name": "f", "arguments": "{}" } });
    let assistant = json!({ "role": "assistant", "content": null, "tool_calls": [call] });
    let tool = |text: &str| json!({ "role": "tool", "tool_call_id": "a", "content": text });
    let api = ApiKind::Chat;
    check(api, json!([user]), "Looking for x in two places.");
    check(api, json!([user, assistant, tool("no"), tool("ok")]), SECOND);
    let system = json!({ "role": "system", "content": "s" });
    check(api, json!([system, user, assistant, tool("ok")]), SECOND);
    check(api, json!([user, assistant, user, assistant, user, assistant, user]), LAST);
}

#[test]
fn items_of_the_assistant_that_follow_each_other_are_one_message() {
    let user = json!({ "role": "user", "content": "x" });
    let reasoning = json!({ "type": "reasoning", "id": "rs_1", "summary": [] });
    let assistant = json!({ "type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
        "content": [{ "type": "output_text", "text": "y", "annotations": [] }] });
    let call = json!({ "type": "function_call", "call_id": "a", "name": "f", "arguments": "{}" });
    let call_output =
        |text: &str| json!({ "type": "function_call_output", "call_id": "a", "output": text });
    let api = ApiKind::Responses;
    check(api, json!("x"), "Looking for x in two places.");
    check(api, json!([user]), "Looking for x in two places.");
    check(
        api,
        json!([user, reasoning, assistant, call, call, call_output("no"), call_output("ok")]),
        SECOND,
    );
    let unknown_item =
        json!({ "type": "tool_search_call", "arguments": { "query": 5 }, "status": "completed" });
    let screenshot =
        json!({ "type": "computer_call_output", "call_id": "c", "output": { "type": "x" } });
    let marker = json!({ "type": "compaction_trigger" });
    check(api, json!([user, unknown_item, screenshot, marker, assistant, user, call, user]), LAST);
    let parts = json!({ "type": "function_call_output", "call_id": "a",
        "output": [{ "type": "input_text", "text": "ok" }] });
    check(api, json!([user, call, parts]), SECOND);
    let round = [&reasoning, &call];
    let conversation = json!([
        user,
        round[0],
        round[1],
        call_output("a"),
        round[0],
        round[1],
        call_output("b"),
        assistant,
        user
    ]);
    check(api, conversation, LAST);
}

#[test]
fn previous_response_id_selects_the_next_turn() {
    let mock = mock();
    let send = |question: &Value| {
        let text = question.to_string();
        json_of(&mock.respond(&incoming_request(ApiKind::Responses, text.as_bytes())))
    };
    let mut question = first_request(ApiKind::Responses, "play");
    let answer = send(&question);
    question["previous_response_id"] = answer["id"].clone();
    question["input"] = json!([{ "type": "function_call_output", "call_id": "a", "output": "ok" }]);
    let answer = send(&question);
    assert_eq!(reply_text(ApiKind::Responses, &answer), SECOND);
    assert_eq!(answer["previous_response_id"], question["previous_response_id"]);
    question["previous_response_id"] = "resp_nobody_gave".into();
    let answer = send(&question);
    assert_eq!(answer["error"]["code"], "previous_response_not_found");
}

#[test]
fn the_turn_header_overrides_the_count() {
    let text = first_request(ApiKind::Chat, "play").to_string();
    let mock = mock();
    let send = |turn: &str| {
        mock.respond(&IncomingRequest {
            turn: Some(turn),
            ..incoming_request(ApiKind::Chat, text.as_bytes())
        })
    };
    for turn in ["4", " 4 ", "4294967295"] {
        assert_eq!(reply_text(ApiKind::Chat, &json_of(&send(turn))), LAST);
    }
    for turn in ["0", "-1", "two", "", "4294967296"] {
        assert_eq!(send(turn).status, 400, "{turn}");
    }
}
