//! The order of events in a stream, and that they add up to the complete reply.

use longhaul_model::mock::ApiKind;
use serde_json::{Value, json};

use super::harness::{APIS, as_stream, data, events, first_request, json_of, mock, respond};

/// Returns the events of a streamed first reply.
fn streamed_events(api: ApiKind) -> Vec<Value> {
    let answer = respond(&mock(), api, &as_stream(first_request(api, "play")));
    let events = events(&answer).into_iter().filter_map(data);
    events.collect()
}

/// Returns the event types in order, without consecutive duplicates.
fn event_types(events: &[Value]) -> Vec<&str> {
    let mut kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    kinds.dedup();
    kinds
}

/// Concatenates the strings at a path in the events of this type and index.
fn joined_text(events: &[Value], kind: &str, position: usize, path: &str) -> String {
    let index = match kind.starts_with("response.") {
        true => "output_index",
        false => "index",
    };
    let matching = events.iter().filter(|event| event["type"] == kind && event[index] == position);
    let texts = matching.filter_map(|event| event.pointer(path).and_then(Value::as_str));
    texts.collect()
}

#[test]
fn messages_come_block_by_block() {
    let events = streamed_events(ApiKind::Messages);
    let block = ["content_block_start", "content_block_delta", "content_block_stop"];
    let expected = [
        &["message_start", "ping"][..],
        &block,
        &block,
        &block,
        &["message_delta", "message_stop"],
    ];
    assert_eq!(event_types(&events), expected.concat());
    let delta = "content_block_delta";
    let text = joined_text(&events, delta, 0, "/delta/text");
    assert_eq!(text, "Looking for the key in two places.");
    let first = joined_text(&events, delta, 1, "/delta/partial_json");
    assert_eq!(first, r#"{"where":"Küche","deep":[1,2.5,null]}"#);
    let second = joined_text(&events, delta, 2, "/delta/partial_json");
    assert_eq!(second, r#"{"where":"the key"}"#);
    let stop_event = &events[events.len() - 2];
    assert_eq!(stop_event["delta"]["stop_reason"], "tool_use");
}

#[test]
fn responses_come_item_by_item_and_numbered() {
    let events = streamed_events(ApiKind::Responses);
    let text_events = [
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
    ];
    let call = [
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
    ];
    let expected = [
        &["response.created", "response.in_progress"][..],
        &text_events,
        &call,
        &call,
        &["response.completed"],
    ];
    assert_eq!(event_types(&events), expected.concat());
    for (position, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], position);
    }
    let text = joined_text(&events, "response.output_text.delta", 0, "/delta");
    assert_eq!(text, "Looking for the key in two places.");
    let delta = "response.function_call_arguments.delta";
    let first = joined_text(&events, delta, 1, "/delta");
    assert_eq!(first, r#"{"where":"Küche","deep":[1,2.5,null]}"#);
    // The ID of an item is the same in all of its events.
    for item_event in events.iter().filter(|event| event["item"].is_object()) {
        let (position, id) = (&item_event["output_index"], &item_event["item"]["id"]);
        let item_events = events
            .iter()
            .filter(|event| event["output_index"] == *position && event.get("item_id").is_some());
        item_events.for_each(|event| assert_eq!(event["item_id"], *id));
    }
}

#[test]
fn chunks_name_a_call_before_its_arguments() {
    let question = as_stream(first_request(ApiKind::Chat, "play"));
    let answer = respond(&mock(), ApiKind::Chat, &question);
    let all = events(&answer);
    assert_eq!(all.last().copied(), Some("data: [DONE]\n\n"));
    let chunks: Vec<Value> = all.into_iter().filter_map(data).collect();
    assert!(chunks.iter().all(|chunk| chunk.get("usage").is_none()));
    let deltas: Vec<&Value> = chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]).collect();
    assert_eq!(deltas[0]["role"], "assistant");
    let text: String = deltas.iter().filter_map(|delta| delta["content"].as_str()).collect();
    assert_eq!(text, "Looking for the key in two places.");
    let mut calls = [const { String::new() }; 2];
    for call in deltas.iter().filter_map(|delta| delta.get("tool_calls")) {
        let call = &call[0];
        let position = usize::try_from(call["index"].as_u64().unwrap()).unwrap();
        let arguments = call["function"]["arguments"].as_str().unwrap();
        match call.get("id") {
            Some(_) => assert_eq!((calls[position].as_str(), arguments), ("", "")),
            None => calls[position].push_str(arguments),
        }
    }
    let expected = [r#"{"where":"Küche","deep":[1,2.5,null]}"#, r#"{"where":"the key"}"#];
    assert_eq!(calls, expected);
    let last = chunks.last().unwrap();
    assert_eq!(last["choices"][0]["finish_reason"], "tool_calls");
}

#[test]
fn usage_is_sent_last_if_requested() {
    let mut question = as_stream(first_request(ApiKind::Chat, "play"));
    question["stream_options"] = json!({ "include_usage": true });
    let answer = respond(&mock(), ApiKind::Chat, &question);
    let chunks: Vec<Value> = events(&answer).into_iter().filter_map(data).collect();
    let (last, others) = chunks.split_last().unwrap();
    assert_eq!(last["choices"], json!([]));
    assert!(last["usage"]["total_tokens"].is_u64(), "{last}");
    assert!(others.iter().all(|chunk| chunk["usage"].is_null()));
}

#[test]
fn a_stream_ends_with_the_full_response() {
    for api in APIS {
        // IDs depend on the request, so only values without IDs are compared.
        let full_response = json_of(&respond(&mock(), api, &first_request(api, "play")));
        let events = streamed_events(api);
        match api {
            ApiKind::Messages => {
                let usage = &events[events.len() - 2]["usage"];
                let output_tokens = &full_response["usage"]["output_tokens"];
                assert_eq!(usage["output_tokens"], *output_tokens);
            }
            ApiKind::Responses => {
                let last = &events.last().unwrap()["response"];
                assert_eq!(last["usage"], full_response["usage"]);
                assert_eq!(last["output"][0]["content"], full_response["output"][0]["content"]);
            }
            ApiKind::Chat => {
                let finish = &events.last().unwrap()["choices"][0]["finish_reason"];
                assert_eq!(*finish, full_response["choices"][0]["finish_reason"]);
            }
        }
    }
}
