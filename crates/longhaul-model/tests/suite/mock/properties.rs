//! Property tests of the mock provider.

use longhaul_model::mock::{ApiKind, MockBody};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::harness::{
    APIS, as_stream, data, events, first_request, incoming_request, json_of, mock, reply_text,
};

/// Generates arbitrary JSON with the field names of requests.
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

fn any_api() -> impl Strategy<Value = ApiKind> {
    prop::sample::select(&APIS[..])
}

fn streamed_text(api: ApiKind, events: Vec<&str>) -> String {
    let pointer = match api {
        ApiKind::Messages => "/delta/text",
        ApiKind::Responses => "/delta",
        ApiKind::Chat => "/choices/0/delta/content",
    };
    let received = events.into_iter().filter_map(data);
    let received =
        received.filter(|event| event["type"] != "response.function_call_arguments.delta");
    received.filter_map(|event| event.pointer(pointer)?.as_str().map(str::to_owned)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_are_rejected_with_a_json_error(api in any_api(), body: Vec<u8>) {
        let answer = mock().respond(&incoming_request(api, &body));
        prop_assert_eq!(answer.status, 400);
        prop_assert!(json_of(&answer)["error"]["message"].is_string());
    }

    #[test]
    fn arbitrary_field_values_do_not_panic(
        api in any_api(),
        field in "model|messages|input|system|instructions|tools|stream|stream_options|max_tokens|previous_response_id",
        value in any_json(),
    ) {
        let mut question = first_request(api, "play");
        question[field] = value;
        let text = question.to_string();
        let answer = mock().respond(&incoming_request(api, text.as_bytes()));
        prop_assert!([200, 400, 404].contains(&answer.status), "{}", answer.status);
        if let MockBody::Full(_) = answer.body {
            prop_assert!(json_of(&answer).is_object());
        }
    }

    #[test]
    fn arbitrary_text_survives_streaming(api in any_api(), content: String) {
        let mut question = first_request(api, "play");
        let messages = json!([{ "role": "user", "content": content }]);
        let field = if api == ApiKind::Responses { "input" } else { "messages" };
        question[field] = messages;
        let send = |question: &Value| {
            let text = question.to_string();
            mock().respond(&incoming_request(api, text.as_bytes()))
        };
        let full_text = reply_text(api, &json_of(&send(&question)));
        let stream = send(&as_stream(question));
        prop_assert_eq!(streamed_text(api, events(&stream)), full_text);
    }
}
