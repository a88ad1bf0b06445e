//! Replies of each API, byte for byte.

use longhaul_model::mock::ApiKind;
use serde_json::{Value, json};

use super::harness::{
    APIS, as_stream, body, events, first_request, header, json_of, mock, reply_text, respond,
    second_request,
};
use super::spec;

#[test]
fn a_reply_with_text_and_two_calls_has_the_providers_format() {
    for api in APIS {
        let answer = respond(&mock(), api, &first_request(api, "play"));
        let pretty = format!("{:#}", json_of(&answer));
        insta::assert_snapshot!(format!("complete_replies_{api:?}"), pretty);
        assert_eq!(header(&answer, "content-type"), Some("application/json"));
    }
}

#[test]
fn a_streamed_reply_has_the_providers_format() {
    for api in APIS {
        let mut question = as_stream(first_request(api, "play"));
        if api == ApiKind::Chat {
            question["stream_options"] = json!({ "include_usage": true });
        }
        let answer = respond(&mock(), api, &question);
        insta::assert_snapshot!(format!("stream_{api:?}"), events(&answer).concat());
        let kind = header(&answer, "content-type").unwrap();
        assert!(kind.starts_with("text/event-stream"), "{kind}");
    }
}

#[test]
fn a_second_turn_reads_the_results_and_counts_what_the_script_says() {
    for api in APIS {
        let mock = mock();
        let question = first_request(api, "scripted/play");
        let answer = json_of(&respond(&mock, api, &question));
        let next_request = second_request(api, &question, &answer);
        let answer = json_of(&respond(&mock, api, &next_request));
        assert_eq!(reply_text(api, &answer), "Found: result 1");
        assert_eq!(answer["model"], "scripted/play");
        let usage = &answer["usage"];
        let expected = match api {
            ApiKind::Messages => json!([100, 30, 5, 20]),
            ApiKind::Responses | ApiKind::Chat => json!([135, 30, 20, 7, 155]),
        };
        let actual = match api {
            ApiKind::Messages => json!([
                usage["input_tokens"],
                usage["cache_read_input_tokens"],
                usage["cache_creation_input_tokens"],
                usage["output_tokens"],
            ]),
            ApiKind::Responses => json!([
                usage["input_tokens"],
                usage["input_tokens_details"]["cached_tokens"],
                usage["output_tokens"],
                usage["output_tokens_details"]["reasoning_tokens"],
                usage["total_tokens"],
            ]),
            ApiKind::Chat => json!([
                usage["prompt_tokens"],
                usage["prompt_tokens_details"]["cached_tokens"],
                usage["completion_tokens"],
                usage["completion_tokens_details"]["reasoning_tokens"],
                usage["total_tokens"],
            ]),
        };
        assert_eq!(actual, expected, "{api:?}");
    }
}

/// Returns the IDs of all calls in a complete reply.
fn call_ids(api: ApiKind, reply: &Value) -> Vec<String> {
    let (list, field) = match api {
        ApiKind::Messages => (&reply["content"], "id"),
        ApiKind::Responses => (&reply["output"], "call_id"),
        ApiKind::Chat => (&reply["choices"][0]["message"]["tool_calls"], "id"),
    };
    let entries = list.as_array().into_iter().flatten();
    let entries = entries.filter_map(|item| item[field].as_str());
    entries.map(str::to_owned).collect()
}

#[test]
fn ids_are_unique_in_a_conversation_and_the_same_the_next_time() {
    for api in APIS {
        let play_conversation = || {
            let mock = mock();
            let mut question = first_request(api, "play");
            let mut all_ids = Vec::new();
            for _ in 0..3 {
                let answer = json_of(&respond(&mock, api, &question));
                all_ids.extend(call_ids(api, &answer));
                if api == ApiKind::Responses && question["input"].is_array() {
                    let items = question["input"].as_array_mut().unwrap();
                    items.extend(answer["output"].as_array().unwrap().iter().cloned());
                    items.push(json!({ "role": "user", "content": "on" }));
                } else {
                    question = second_request(api, &question, &answer);
                }
            }
            all_ids
        };
        let all_ids = play_conversation();
        let mut unique = all_ids.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!((all_ids.len(), unique.len()), (3, 3), "{api:?}: {all_ids:?}");
        assert_eq!(play_conversation(), all_ids);
    }
}

#[test]
fn the_scripts_are_listed_as_models() {
    let mock = mock();
    let list = json_of(&mock.list_models(ApiKind::Messages));
    spec::check_schema("anthropic.trimmed.json", "ListResponse_ModelInfo_", &list);
    assert_eq!(list["first_id"], "broken");
    let list = json_of(&mock.list_models(ApiKind::Chat));
    spec::check_schema("openai.trimmed.json", "ListModelsResponse", &list);
    let names: Vec<&Value> = list["data"].as_array().unwrap().iter().collect();
    assert_eq!(names.len(), 3, "{names:?}");
}

#[test]
fn each_request_has_an_id_of_its_own() {
    let mock = mock();
    for (api, name) in [
        (ApiKind::Messages, "request-id"),
        (ApiKind::Responses, "x-request-id"),
        (ApiKind::Chat, "x-request-id"),
    ] {
        let first = respond(&mock, api, &first_request(api, "play"));
        let second = respond(&mock, api, &first_request(api, "play"));
        assert_eq!(body(&first), body(&second));
        assert_ne!(header(&first, name).unwrap(), header(&second, name).unwrap());
    }
}
