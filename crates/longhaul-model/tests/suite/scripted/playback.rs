//! Replies, failures, usage and costs of the scripted model.

use std::sync::Arc;

use longhaul_core::message::{Block, Message, Reply, TextBlock};
use longhaul_core::port::model::Model as _;
use longhaul_core::time::{Clock as _, Timestamp};
use longhaul_core::usage::{MicroUsd, Price, Usage};
use longhaul_model::scripted::{Script, ScriptedModel};

use super::harness::{
    JumpClock, TIDY, TextSink, answer, conversation, model, model_request, summary,
};

/// Returns the response of a script in this turn and attempt, after these messages.
async fn play(script: &str, turn_and_attempt: (u32, u32), messages: Vec<Message>) -> String {
    summary(
        &answer(&model(script), &model_request(turn_and_attempt.0, turn_and_attempt.1, messages))
            .await,
    )
}

#[tokio::test]
async fn the_documented_script_plays_as_documented() {
    const LIST: &str = r#"vault_list {"folder":"Tasks"} -> ToolUse"#;
    const WRITE: &str = r#"vault_write {"folder":"Tasks","title":"Buy milk","content":"...","tags":[],"confidence":90} -> ToolUse"#;
    const OUTAGE: &str = "!overloaded 529: the script makes this call fail with status 529";
    let table = [
        ((1, 1), format!("Looking first. | call_1_1={LIST}")),
        ((1, 2), format!("Looking first. | call_1_1={LIST}")),
        ((2, 1), format!("Wrote it. | call_2_1={WRITE}")),
        ((3, 1), format!("Looking first. | call_3_1={LIST}")),
        ((99, 1), format!("Looking first. | call_99_1={LIST}")),
        ((100, 1), format!("Wrote it. | call_100_1={WRITE}")),
        ((101, 1), "Done: saved -> EndTurn".into()),
        ((102, 1), format!("{OUTAGE}, attempt 1 of 2")),
        ((102, 2), format!("{OUTAGE}, attempt 2 of 2")),
        ((102, 3), "After the outage. -> EndTurn".into()),
        ((500, 1), format!("{OUTAGE}, attempt 1 of 2")),
        ((500, 3), "After the outage. -> EndTurn".into()),
    ];
    for (turn_and_attempt, expected) in table {
        let output = play(TIDY, turn_and_attempt, conversation("milk", &["listed", "saved"])).await;
        assert_eq!(output, expected, "turn and attempt {turn_and_attempt:?}");
    }
}

#[tokio::test]
async fn a_scripted_status_maps_to_a_failure_class() {
    let table = [
        (429, "rate_limit"),
        (529, "overloaded"),
        (503, "overloaded"),
        (408, "timeout"),
        (504, "timeout"),
        (500, "server"),
        (502, "server"),
        (599, "server"),
        (401, "auth"),
        (403, "auth"),
        (400, "invalid_request"),
        (404, "invalid_request"),
        (422, "invalid_request"),
        (413, "context_overflow"),
        (402, "quota"),
    ];
    for (status, class) in table {
        let script = format!("replies: [{{ text: a, error: {{ status: {status} }} }}]");
        let output = play(&script, (1, 1), conversation("x", &[])).await;
        assert!(output.starts_with(&format!("!{class} {status}: ")), "{output}");
        assert_eq!(play(&script, (1, 2), conversation("x", &[])).await, "a -> EndTurn");
    }
}

#[tokio::test]
async fn the_template_input_is_the_runs_own_message() {
    let assistant = |text: &str| {
        let block = TextBlock { text: text.into(), extra: None };
        Message::Assistant(Arc::new(Reply {
            api: "scripted".into(),
            blocks: vec![Block::Text(block)],
        }))
    };
    let before = [Message::user("one"), assistant("A one")];
    let own_messages = [Message::user("two")];
    let later_messages = [Message::user("two"), assistant("A two"), Message::user("three")];
    let table = [
        (1, own_messages.to_vec(), "two"),
        (1, [&before[..], &own_messages[..]].concat(), "two"),
        (2, [&before[..], &later_messages[..]].concat(), "two"),
        (2, later_messages.to_vec(), "two"),
        // In a compacted conversation the first user message is used.
        (9, [&before[..], &later_messages[..]].concat(), "one"),
    ];
    let script = "replies: [{ text: '{{ input }}' }]";
    for (turn, messages, expected) in table {
        let line = play(script, (turn, 1), messages).await;
        assert_eq!(line, format!("{expected} -> EndTurn"));
    }
}

#[tokio::test]
async fn templates_are_filled_from_the_conversation() {
    let table = [
        ("{{ input }}", "milk & <b>", "milk & <b>"),
        ("{{ input }}", "{{ last_result }}", "{{ last_result }}"),
        ("{{ input }}", r#"{"b": 1, "a": [true, null]}"#, r#"{"b":1,"a":[true,null]}"#),
        ("{{ input.who }}", r#"{"who": "Ada"}"#, "Ada"),
        ("{{ input }}", r#""quoted""#, "quoted"),
        ("{{ input }}", "007", "007"),
        ("{{ input }}", "1.50", "1.50"),
        ("{{ input + 1 }}", "41", "42"),
        ("{{ input | upper }}", "loud", "LOUD"),
        ("{{ last_result }}", "x", "new"),
        ("{% if input == 'x' %}yes{% else %}no{% endif %}", "x", "yes"),
        ("{{ 'yes' if input == 'y' }}.", "x", "."),
        ("no template } { here", "x", "no template } { here"),
    ];
    for (template, input, expected) in table {
        let text = serde_json::Value::from(template);
        let script = format!(
            "replies: [{{ text: {text}, tools: [{{ name: t, input: {{ a: [{text}] }} }}] }}]"
        );
        let output = play(&script, (1, 1), conversation(input, &["old", "new"])).await;
        let call = serde_json::json!({ "a": [expected] });
        let expected_output = format!("{expected} | call_1_1=t {call} -> ToolUse");
        assert_eq!(output, expected_output, "{template} of {input}");
    }
}

#[tokio::test]
async fn line_ends_and_order_of_the_script_are_kept() {
    let script = "replies:\n  - text: |\n      a {{ input }}\n      b\n    tools:\n      - name: one\n      - { name: two, input: { z: on, a: 1.0, m: null, n: ~, t: true } }\n";
    let output = play(script, (3, 1), conversation("x", &[])).await;
    let second_call = r#"call_3_2=two {"z":"on","a":1.0,"m":null,"n":null,"t":true}"#;
    assert_eq!(output, format!("a x\nb\n | call_3_1=one {{}} | {second_call} -> ToolUse"));
}

#[tokio::test]
async fn a_template_that_can_not_be_filled_is_a_failure_that_names_script_and_reply() {
    let table = [
        (
            "{ text: '{{ last_result }}' }",
            "undefined value in `{{ last_result }}`, the conversation has no `last_result` yet",
        ),
        (
            "{ text: '{{ input.nme }}' }",
            "undefined value: `input.nme` is undefined in `{{ input.nme }}`",
        ),
        (
            "{ tools: [{ name: t, input: '{{ input.a.b }}' }] }",
            "can't render the input of `t`: undefined value: `input.a` is undefined in `{{ input.a.b }}`",
        ),
        (
            "{ text: '{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}' }",
            "engine ran out of fuel in `{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}`",
        ),
        (
            "{ text: '{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}' }",
            "invalid operation: recursion limit exceeded in `{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}`",
        ),
        (
            "{ text: '{% include \"/etc/passwd\" %}' }",
            "template not found: tried to include non-existing template '/etc/passwd' in `{% include \"/etc/passwd\" %}`",
        ),
    ];
    for (reply, expected) in table {
        let script = format!("replies: [{{ text: a }}, {reply}]");
        let output = play(&script, (2, 1), conversation("{}", &[])).await;
        assert_eq!(output, format!("!invalid_request: scripted/tidy: replies[1]: {expected}"));
    }
}

#[tokio::test]
async fn usage_is_scripted_or_estimated_and_free() {
    let response =
        answer(&model(TIDY), &model_request(101, 1, conversation("x", &["y"]))).await.unwrap();
    let usage = Usage { input_tokens: 120, output_tokens: 8, ..Usage::default() };
    assert_eq!((response.usage, response.cost), (usage, Some(MicroUsd::ZERO)));

    let model = model("replies: [{ text: 'four words of text', tools: [{ name: t }] }]");
    let request = model_request(1, 1, conversation("123456789", &[]));
    let response = answer(&model, &request).await.unwrap();
    // 8 and 2 bytes of system prompt and tools, 9 of messages; 18 of text and 3 of the call.
    let usage =
        Usage { input_tokens: 4 + 3, output_tokens: 7, estimated: true, ..Usage::default() };
    assert_eq!((response.usage, response.cost), (usage, Some(MicroUsd::ZERO)));

    let estimate = model.estimate(&request);
    assert_eq!(estimate.pricing.price, Some(Price::default()));
    assert_eq!((estimate.hold.micro_usd, estimate.hold.tokens), (MicroUsd::ZERO, 4 + 3 + 100));
}

#[tokio::test]
async fn a_delay_waits_on_the_clock_whether_the_call_fails_or_not() {
    let table = [("50ms", 50), ("2s", 2_000), ("1m 30s", 90_000), ("0s", 0)];
    for (delay, millis) in table {
        let text = format!("replies: [{{ text: a, delay: {delay}, error: {{ status: 500 }} }}]");
        let clock = Arc::new(JumpClock::default());
        let script = Script::parse_yaml("s.yaml", &text).unwrap();
        let model = ScriptedModel::new("s", script, Arc::clone(&clock) as _);
        for attempt in 1..3 {
            let _ = answer(&model, &model_request(1, attempt, Vec::new())).await;
            let expected_time = Timestamp::from_micros(i64::from(attempt) * millis * 1_000);
            assert_eq!(clock.now(), expected_time, "{delay}");
        }
    }
}

#[tokio::test]
async fn text_is_streamed_in_a_few_chunks() {
    let table = [
        ("", vec![]),
        ("one", vec!["one"]),
        ("one two", vec!["one ", "two"]),
        ("a b c d e f g", vec!["a b ", "c d ", "e f ", "g"]),
        ("ä\u{2003}ö  ü", vec!["ä\u{2003}", "ö ", " ", "ü"]),
    ];
    for (text, expected) in table {
        let sink = TextSink::default();
        let model = model(&format!("replies: [{{ text: '{text}' }}]"));
        let response = model.generate(&model_request(1, 1, Vec::new()), &sink).await.unwrap();
        assert_eq!(*sink.0.lock().unwrap(), expected);
        assert_eq!(response.reply.text(), text);
    }
}

#[test]
fn the_model_name_says_that_replies_are_scripted() {
    let model = model(TIDY);
    assert_eq!(model.model_name(), "scripted/tidy");
}
