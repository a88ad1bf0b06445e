//! What a reply looks like on each wire, byte for byte.

use longhaul_model::mock::Dialect;
use serde_json::{Value, json};

use super::kit::{
    DIALECTS, ask, body, events, first, header, json_of, mock, second, streamed, words,
};
use super::spec;

#[test]
fn a_reply_with_words_and_two_calls_is_spelled_as_the_provider_would() {
    for dialect in DIALECTS {
        let answer = ask(&mock(), dialect, &first(dialect, "play"));
        let pretty = format!("{:#}", json_of(&answer));
        insta::assert_snapshot!(format!("whole_{dialect:?}"), pretty);
        assert_eq!(header(&answer, "content-type"), Some("application/json"));
    }
}

#[test]
fn the_same_reply_as_a_stream() {
    for dialect in DIALECTS {
        let mut question = streamed(first(dialect, "play"));
        if dialect == Dialect::Chat {
            question["stream_options"] = json!({ "include_usage": true });
        }
        let answer = ask(&mock(), dialect, &question);
        insta::assert_snapshot!(format!("stream_{dialect:?}"), events(&answer).concat());
        let kind = header(&answer, "content-type").unwrap();
        assert!(kind.starts_with("text/event-stream"), "{kind}");
    }
}

#[test]
fn a_second_turn_reads_the_results_and_counts_what_the_script_says() {
    for dialect in DIALECTS {
        let mock = mock();
        let question = first(dialect, "scripted/play");
        let answer = json_of(&ask(&mock, dialect, &question));
        let next = second(dialect, &question, &answer);
        let answer = json_of(&ask(&mock, dialect, &next));
        assert_eq!(words(dialect, &answer), "Found: result 1");
        assert_eq!(answer["model"], "scripted/play");
        let usage = &answer["usage"];
        let expected = match dialect {
            Dialect::Messages => json!([100, 30, 5, 20]),
            Dialect::Responses | Dialect::Chat => json!([135, 30, 20, 7, 155]),
        };
        let seen = match dialect {
            Dialect::Messages => json!([
                usage["input_tokens"],
                usage["cache_read_input_tokens"],
                usage["cache_creation_input_tokens"],
                usage["output_tokens"],
            ]),
            Dialect::Responses => json!([
                usage["input_tokens"],
                usage["input_tokens_details"]["cached_tokens"],
                usage["output_tokens"],
                usage["output_tokens_details"]["reasoning_tokens"],
                usage["total_tokens"],
            ]),
            Dialect::Chat => json!([
                usage["prompt_tokens"],
                usage["prompt_tokens_details"]["cached_tokens"],
                usage["completion_tokens"],
                usage["completion_tokens_details"]["reasoning_tokens"],
                usage["total_tokens"],
            ]),
        };
        assert_eq!(seen, expected, "{dialect:?}");
    }
}

/// Every id of a call in a whole reply.
fn ids(dialect: Dialect, reply: &Value) -> Vec<String> {
    let (list, field) = match dialect {
        Dialect::Messages => (&reply["content"], "id"),
        Dialect::Responses => (&reply["output"], "call_id"),
        Dialect::Chat => (&reply["choices"][0]["message"]["tool_calls"], "id"),
    };
    let found = list.as_array().into_iter().flatten();
    let found = found.filter_map(|item| item[field].as_str());
    found.map(str::to_owned).collect()
}

#[test]
fn ids_are_unique_in_a_conversation_and_the_same_the_next_time() {
    for dialect in DIALECTS {
        let play = || {
            let mock = mock();
            let mut question = first(dialect, "play");
            let mut seen = Vec::new();
            for _ in 0..3 {
                let answer = json_of(&ask(&mock, dialect, &question));
                seen.extend(ids(dialect, &answer));
                if dialect == Dialect::Responses && question["input"].is_array() {
                    let items = question["input"].as_array_mut().unwrap();
                    items.extend(answer["output"].as_array().unwrap().iter().cloned());
                    items.push(json!({ "role": "user", "content": "on" }));
                } else {
                    question = second(dialect, &question, &answer);
                }
            }
            seen
        };
        let seen = play();
        let mut unique = seen.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!((seen.len(), unique.len()), (3, 3), "{dialect:?}: {seen:?}");
        assert_eq!(play(), seen);
    }
}

#[test]
fn the_scripts_are_listed_as_models() {
    let mock = mock();
    let list = json_of(&mock.models(Dialect::Messages));
    spec::judge("anthropic.trimmed.json", "ListResponse_ModelInfo_", &list);
    assert_eq!(list["first_id"], "broken");
    let list = json_of(&mock.models(Dialect::Chat));
    spec::judge("openai.trimmed.json", "ListModelsResponse", &list);
    let names: Vec<&Value> = list["data"].as_array().unwrap().iter().collect();
    assert_eq!(names.len(), 3, "{names:?}");
}

#[test]
fn each_request_has_an_id_of_its_own() {
    let mock = mock();
    for (dialect, name) in [
        (Dialect::Messages, "request-id"),
        (Dialect::Responses, "x-request-id"),
        (Dialect::Chat, "x-request-id"),
    ] {
        let one = ask(&mock, dialect, &first(dialect, "play"));
        let other = ask(&mock, dialect, &first(dialect, "play"));
        assert_eq!(body(&one), body(&other));
        assert_ne!(header(&one, name).unwrap(), header(&other, name).unwrap());
    }
}
