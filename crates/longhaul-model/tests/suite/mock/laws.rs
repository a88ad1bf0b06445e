//! What holds for every request, whoever made it up.

use longhaul_model::mock::{Content, Dialect};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::kit::{DIALECTS, asked, data, events, first, json_of, mock, streamed, words};

/// Any JSON, with the names that requests have.
fn any_json() -> impl Strategy<Value = Value> {
    let names = "role|content|type|text|input|output|name|arguments|messages|model|tool_calls|\
                 function|user|assistant|message|tool_result|reasoning|play";
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        names.prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((names, inner), 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn any_dialect() -> impl Strategy<Value = Dialect> {
    prop::sample::select(&DIALECTS[..])
}

/// All words of a stream.
fn spoken(dialect: Dialect, events: Vec<&str>) -> String {
    let place = match dialect {
        Dialect::Messages => "/delta/text",
        Dialect::Responses => "/delta",
        Dialect::Chat => "/choices/0/delta/content",
    };
    let told = events.into_iter().filter_map(data);
    let told = told.filter(|event| event["type"] != "response.function_call_arguments.delta");
    told.filter_map(|event| event.pointer(place)?.as_str().map(str::to_owned))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bytes_of_any_kind_are_refused_in_json(dialect in any_dialect(), body: Vec<u8>) {
        let answer = mock().answer(&asked(dialect, &body));
        prop_assert_eq!(answer.status, 400);
        prop_assert!(json_of(&answer)["error"]["message"].is_string());
    }

    #[test]
    fn a_field_may_hold_anything(
        dialect in any_dialect(),
        field in "model|messages|input|system|instructions|tools|stream|stream_options|max_tokens|previous_response_id",
        value in any_json(),
    ) {
        let mut question = first(dialect, "play");
        question[field] = value;
        let text = question.to_string();
        let answer = mock().answer(&asked(dialect, text.as_bytes()));
        prop_assert!([200, 400, 404].contains(&answer.status), "{}", answer.status);
        if let Content::Whole(_) = answer.content {
            prop_assert!(json_of(&answer).is_object());
        }
    }

    #[test]
    fn words_of_any_kind_come_whole_out_of_a_stream(dialect in any_dialect(), said: String) {
        let mut question = first(dialect, "play");
        let talk = json!([{ "role": "user", "content": said }]);
        let field = if dialect == Dialect::Responses { "input" } else { "messages" };
        question[field] = talk;
        let ask = |question: &Value| {
            let text = question.to_string();
            mock().answer(&asked(dialect, text.as_bytes()))
        };
        let whole = words(dialect, &json_of(&ask(&question)));
        let stream = ask(&streamed(question));
        prop_assert_eq!(spoken(dialect, events(&stream)), whole);
    }
}
