//! In which turn a conversation is.

use longhaul_model::mock::{ApiKind, IncomingRequest};
use serde_json::{Value, json};

use super::harness::{body, first_request, incoming_request, json_of, mock, reply_text};

/// The words that a conversation gets; its script's replies are told apart by them.
fn check(dialect: ApiKind, talk: Value, expected: &str) {
    let field = match dialect {
        ApiKind::Messages | ApiKind::Chat => "messages",
        ApiKind::Responses => "input",
    };
    let mut question = first_request(dialect, "play");
    question[field] = talk;
    let text = question.to_string();
    let answer = mock().respond(&incoming_request(dialect, text.as_bytes()));
    assert_eq!(answer.status, 200, "{}", body(&answer));
    assert_eq!(reply_text(dialect, &json_of(&answer)), expected, "{question:#}");
}

const SECOND: &str = "Found: ok";
const LAST: &str = "The last word.";

#[test]
fn messages_of_the_assistant_are_counted() {
    let user = json!({ "role": "user", "content": "x" });
    let said = json!({ "role": "assistant", "content": "y" });
    let result = json!({ "role": "user", "content": [
        { "type": "tool_result", "tool_use_id": "a", "content": "no" },
        { "type": "tool_result", "tool_use_id": "b", "content": "ok", "is_error": true },
        { "type": "text", "text": "Go on." },
    ] });
    let dialect = ApiKind::Messages;
    check(dialect, json!([user]), "Looking for x in two places.");
    check(dialect, json!([user, said, result]), SECOND);
    check(dialect, json!([user, said, result, said, user, said, user]), LAST);
    check(dialect, json!([user, said, user, said, user]), "");
}

#[test]
fn messages_of_a_chat_are_counted_and_tools_are_not() {
    let user = json!({ "role": "user", "content": "x" });
    let call =
        json!({ "id": "a", "type": "function", "function": { "name": "f", "arguments": "{}" } });
    let said = json!({ "role": "assistant", "content": null, "tool_calls": [call] });
    let tool = |text: &str| json!({ "role": "tool", "tool_call_id": "a", "content": text });
    let dialect = ApiKind::Chat;
    check(dialect, json!([user]), "Looking for x in two places.");
    check(dialect, json!([user, said, tool("no"), tool("ok")]), SECOND);
    let system = json!({ "role": "system", "content": "s" });
    check(dialect, json!([system, user, said, tool("ok")]), SECOND);
    check(dialect, json!([user, said, user, said, user, said, user]), LAST);
}

#[test]
fn items_of_the_assistant_that_follow_each_other_are_one_message() {
    let user = json!({ "role": "user", "content": "x" });
    let think = json!({ "type": "reasoning", "id": "rs_1", "summary": [] });
    let said = json!({ "type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
        "content": [{ "type": "output_text", "text": "y", "annotations": [] }] });
    let call = json!({ "type": "function_call", "call_id": "a", "name": "f", "arguments": "{}" });
    let done =
        |text: &str| json!({ "type": "function_call_output", "call_id": "a", "output": text });
    let dialect = ApiKind::Responses;
    check(dialect, json!("x"), "Looking for x in two places.");
    check(dialect, json!([user]), "Looking for x in two places.");
    check(dialect, json!([user, think, said, call, call, done("no"), done("ok")]), SECOND);
    let foreign =
        json!({ "type": "tool_search_call", "arguments": { "query": 5 }, "status": "completed" });
    let shot = json!({ "type": "computer_call_output", "call_id": "c", "output": { "type": "x" } });
    let marked = json!({ "type": "compaction_trigger" });
    check(dialect, json!([user, foreign, shot, marked, said, user, call, user]), LAST);
    let parts = json!({ "type": "function_call_output", "call_id": "a",
        "output": [{ "type": "input_text", "text": "ok" }] });
    check(dialect, json!([user, call, parts]), SECOND);
    let round = [&think, &call];
    let talk =
        json!([user, round[0], round[1], done("a"), round[0], round[1], done("b"), said, user]);
    check(dialect, talk, LAST);
}

#[test]
fn previous_response_id_selects_the_next_turn() {
    let mock = mock();
    let ask = |question: &Value| {
        let text = question.to_string();
        json_of(&mock.respond(&incoming_request(ApiKind::Responses, text.as_bytes())))
    };
    let mut question = first_request(ApiKind::Responses, "play");
    let answer = ask(&question);
    question["previous_response_id"] = answer["id"].clone();
    question["input"] = json!([{ "type": "function_call_output", "call_id": "a", "output": "ok" }]);
    let answer = ask(&question);
    assert_eq!(reply_text(ApiKind::Responses, &answer), SECOND);
    assert_eq!(answer["previous_response_id"], question["previous_response_id"]);
    question["previous_response_id"] = "resp_nobody_gave".into();
    let answer = ask(&question);
    assert_eq!(answer["error"]["code"], "previous_response_not_found");
}

#[test]
fn the_turn_header_overrides_the_count() {
    let text = first_request(ApiKind::Chat, "play").to_string();
    let mock = mock();
    let ask = |turn: &str| {
        mock.respond(&IncomingRequest {
            turn: Some(turn),
            ..incoming_request(ApiKind::Chat, text.as_bytes())
        })
    };
    for turn in ["4", " 4 ", "4294967295"] {
        assert_eq!(reply_text(ApiKind::Chat, &json_of(&ask(turn))), LAST);
    }
    for turn in ["0", "-1", "two", "", "4294967296"] {
        assert_eq!(ask(turn).status, 400, "{turn}");
    }
}
