//! References to outputs in the inputs of calls: the tool gets the recorded output, and the model,
//! the journal and the card see the reference.

use futures_util::FutureExt as _;
use longhaul_core::event::Event;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::policy::effect::EffectClass::{Once, Pure};
use longhaul_core::policy::gate::{GateDecision, GateRuleAction};
use longhaul_core::port::tool::ToolFailure;
use longhaul_core::raw::RawJson;
use longhaul_engine::agent::EffectRule;
use longhaul_engine::view::gate_view;
use longhaul_testkit::latch::Latch;
use serde_json::{Value, json};

use crate::suite::gates::rule;
use crate::suite::harness::failing_store::StoreFault;
use crate::suite::harness::model::FakeReply;
use crate::suite::harness::tool::{EffectLog, FakeTool};
use crate::suite::harness::{SECRET, TIMEOUT, TestEngine, TestEngineBuilder, answer, engine_with};

/// Returns a JSON output of 300 KB that contains a secret.
fn large_output() -> String {
    json!({ "body": "long ".repeat(60_000), "count": 7, "note": SECRET }).to_string()
}

/// Creates a builder whose model calls `fetch`, then `send` with this input.
fn engine_passing_on(input: Value, effects: &EffectLog) -> TestEngineBuilder {
    let fetch = FakeTool::new("fetch", Pure, &EffectLog::default()).with_action(|input, _| {
        let output = match input["text"].as_str() {
            Some("fail") => Err(ToolFailure::new("no network")),
            _ => Ok(ToolOutput::text(large_output())),
        };
        async move { output }.boxed()
    });
    let calls = vec![("fetch", json!({})), ("fetch", json!({ "text": "fail" }))];
    let send = FakeTool::new("send", Once, effects)
        .with_action(|_, _| async { Ok(ToolOutput::text("sent")) }.boxed());
    engine_with([FakeReply::Calls(calls), FakeReply::call("send", input)]).tools([fetch, send])
}

async fn finished(engine: &TestEngine) -> (Vec<JournalEntry>, String, bool) {
    let run = engine.submit().await;
    let journal = engine.ended(run).await;
    let (text, is_error) = engine.results().pop().unwrap();
    (journal, text, is_error)
}

#[tokio::test]
async fn a_large_output_reaches_the_next_tool_but_not_the_model_or_the_journal() {
    let effects = EffectLog::default();
    let input = json!({
        "text": { "$output": "t1.1", "path": "/body" },
        "count": { "$output": "t1.1", "path": "/count" },
    });
    let engine = engine_passing_on(input, &effects).start();
    let (journal, text, is_error) = finished(&engine).await;
    assert_eq!((text.as_str(), is_error), ("sent", false));
    let entries = effects.all();
    assert!(entries[0].contains(&"long ".repeat(60_000)) && entries[0].contains("\"count\":7"));
    for entry in &journal {
        let bytes = RawJson::from_serialize(&format!("{:?}", entry.event)).as_str().len();
        assert!(bytes < 60_000, "{} has {bytes} bytes", entry.event.kind());
    }
    // The model learns the syntax where its result was cut.
    let requests = engine.model.requests();
    let (text, _) = crate::suite::harness::model::results(&requests[1]).remove(0);
    assert!(text.contains(r#"{"$output": "t1.1"} as a value of its input"#), "{text}");
}

#[tokio::test]
async fn an_output_without_a_path_is_passed_on_as_its_redacted_text() {
    let effects = EffectLog::default();
    let engine = engine_passing_on(json!({ "text": { "$output": "t1.1" } }), &effects).start();
    finished(&engine).await;
    let entry = effects.all().remove(0);
    assert!(entry.contains("{{secret:WORD}}") && !entry.contains(SECRET), "{}", &entry[..200]);
}

#[tokio::test]
async fn an_invalid_reference_is_an_invalid_call() {
    for (reference, expect) in [
        (json!({ "$output": "t9.9" }), "the call t9.9 has no recorded output"),
        (json!({ "$output": "t2.1" }), "the call t2.1 has no recorded output"),
        (json!({ "$output": "t1.2" }), "the call t1.2 has not completed"),
        (json!({ "$output": "t1.1", "path": "/title" }), "has nothing at the path `/title`"),
        (json!({ "$output": "run_1:t1.1" }), "is invalid: write"),
        // The tool's own schema: the text must be a string.
        (json!({ "$output": "t1.1", "path": "/count" }), "7 is not of type \"string\""),
    ] {
        let effects = EffectLog::default();
        let engine = engine_passing_on(json!({ "text": reference }), &effects).start();
        let (_, text, is_error) = finished(&engine).await;
        assert!(is_error && text.contains(expect), "{text}");
        assert_eq!(effects.all(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_reference_to_a_child_run_in_the_background_is_replaced_by_the_result_of_the_child() {
    let (effects, latch) = (EffectLog::default(), Latch::closed());
    let child = json!({ "agent": "reader", "input": "Read.", "background": true });
    let send = || FakeReply::call("send", json!({ "text": { "$output": "t1.1" } }));
    let replies =
        [FakeReply::call("run_agent", child), send(), FakeReply::Text("Meanwhile."), send()];
    let tool = FakeTool::new("send", Once, &effects)
        .with_action(|_, _| async { Ok(ToolOutput::text("sent")) }.boxed());
    let engine = engine_with(replies)
        .tools([tool])
        .agent(|agent| agent.tools.push("run_agent".to_owned()))
        .start();
    let long: &'static str = "0123456789abcdef".repeat(2_000).leak();
    engine.add_agent("reader", [FakeReply::Text(long).after_latch(&latch)]);
    let run = engine.submit().await;
    engine.until(run, "tool.failed").await;
    let entries = effects.all();
    assert_eq!(entries, Vec::<String>::new(), "the child has not ended");
    latch.open();
    engine.ended(run).await;
    assert!(effects.all()[0].contains(long), "{:?}", effects.all());
}

#[tokio::test]
async fn references_to_too_much_are_refused() {
    let effects = EffectLog::default();
    let references = vec![json!({ "$output": "t1.1" }); 15];
    let engine = engine_passing_on(json!({ "text": references }), &effects).start();
    let (_, text, is_error) = finished(&engine).await;
    assert!(is_error && text.contains("have more than 4194304 bytes"), "{text}");
    let references = vec![json!({ "$output": "t1.1" }); 17];
    let engine = engine_passing_on(json!({ "text": references }), &effects).start();
    let (_, text, _) = finished(&engine).await;
    assert!(text.contains("more than 16 references"), "{text}");
}

#[tokio::test]
async fn control_tools_take_no_references() {
    let question = json!({ "question": { "$output": "t1.1" } });
    let engine = engine_passing_on(json!({}), &EffectLog::default()).build();
    let calls = [FakeReply::call("fetch", json!({})), FakeReply::call("ask_human", question)];
    engine.model.set_replies(calls.into());
    let mut engine = engine;
    engine.spawn_worker(|_| {});
    let (_, text, is_error) = finished(&engine).await;
    assert!(is_error && text.contains("`ask_human` takes no references to outputs"), "{text}");
}

#[tokio::test]
async fn a_rule_sees_the_value_of_a_reference() {
    let deny = || GateRuleAction::Deny("not long".into());
    for (match_glob, path, is_denied) in
        [("*note*", "/body", true), ("7*", "/note", false), ("{{secret*", "/note", true)]
    {
        let effects = EffectLog::default();
        let input = json!({ "text": { "$output": "t1.1", "path": path } });
        let rules = vec![rule(Some(match_glob), deny())];
        let engine = engine_passing_on(input, &effects).agent(|agent| agent.rules = rules).start();
        let (_, text, is_error) = finished(&engine).await;
        assert_eq!(is_error, is_denied, "{match_glob} {path}: {text}");
    }
}

#[tokio::test]
async fn an_edit_keeps_references_but_adds_and_changes_none() {
    let effects = EffectLog::default();
    let note = json!({ "$output": "t1.1", "path": "/note" });
    let count = json!({ "$output": "t1.1", "path": "/count" });
    let mut ask = rule(None, GateRuleAction::Ask("Send it?".into()));
    ask.approvers.count = 2;
    let input = json!({ "text": note, "count": count });
    let engine = engine_passing_on(input, &effects).agent(|agent| agent.rules = vec![ask]).start();
    let run = engine.submit().await;
    let gate = engine.gate(run).await;
    assert_eq!(gate_view(&gate).outputs.len(), 2);
    let edit = |input: Value| answer(&gate, GateDecision::Edit(RawJson::from_serialize(&input)));
    for text in [json!({ "$output": "t1.1", "path": "/body" }), json!({ "$output": "t1.1" })] {
        let changed = edit(json!({ "text": text }));
        let error = engine.longhaul.answer_gate(gate.spec.id, changed).await.unwrap_err();
        assert!(error.to_string().contains("write the value itself"), "{error}");
    }
    let kept = edit(json!({ "text": note, "count": 8 }));
    engine.longhaul.answer_gate(gate.spec.id, kept).await.unwrap();
    // The second person sees the value that is still passed on.
    let gate = engine.longhaul.get_gate(gate.spec.id).await.unwrap();
    let view = gate_view(&gate);
    let values: Vec<&str> =
        view.values_from_earlier_calls().into_iter().map(|(_, value)| value).collect();
    assert_eq!(values, ["{{secret:WORD}}"]);
    let mut approval = answer(&gate, GateDecision::Approve);
    approval.by = "cli:ben".into();
    approval.digest = view.digest;
    engine.longhaul.answer_gate(gate.spec.id, approval).await.unwrap();
    engine.ended(run).await;
    assert!(effects.all()[0].contains("{{secret:WORD}}") && effects.all()[0].contains("8"));
}

#[tokio::test]
async fn a_busy_store_is_no_invalid_reference() {
    let (effects, latch) = (EffectLog::default(), Latch::closed());
    let input = json!({ "text": { "$output": "t1.1" } });
    let mut builder = engine_passing_on(input, &effects);
    builder.replies[1] = builder.replies[1].clone().after_latch(&latch);
    let engine = builder.start();
    let run = engine.submit().await;
    latch.reached(1).await;
    engine.store.fail_reads(StoreFault::Busy, 2);
    latch.open();
    let failed = async {
        while !engine.store.has_failed() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, failed).await.expect("the output is read");
    engine.ended(run).await;
    assert_eq!(engine.results().pop(), Some(("sent".to_owned(), false)));
}

#[tokio::test]
async fn a_reference_to_a_call_that_was_not_made_is_replaced_by_the_result_of_the_other_call() {
    let long = "x".repeat(20_000);
    for content in ["short".to_owned(), long] {
        let (effects, json) = (EffectLog::default(), json!({ "body": content }).to_string());
        let pay = FakeTool::new("pay", Once, &EffectLog::default()).with_action(move |_, _| {
            let json = json.clone();
            async move { Ok(ToolOutput::text(json)) }.boxed()
        });
        let pay_call = || ("pay", json!({ "text": "once\n\nonly" }));
        let send = |call: &str| {
            let text = json!({ "$output": call, "path": "/body" });
            FakeReply::call("send", json!({ "text": text }))
        };
        // The other call is one of the same reply, or of an earlier turn.
        let calls = FakeReply::Calls(vec![pay_call(), pay_call()]);
        let replies = [calls, FakeReply::Calls(vec![pay_call()]), send("t1.2"), send("t2.1")];
        let engine = engine_with(replies)
            .tools([pay, FakeTool::new("send", Once, &effects)])
            .agent(|agent| {
                agent.effects = vec![EffectRule {
                    tool: "pay".into(),
                    match_glob: None,
                    class: None,
                    key: Some("{{ input.text }}".to_owned()),
                }];
            })
            .start();
        let run = engine.submit().await;
        engine.ended(run).await;
        let input = json!({ "text": content });
        assert_eq!(effects.count(&format!("send begins {input}")), 2, "{}", content.len());
    }
}

#[tokio::test]
async fn the_card_shows_the_reference_its_size_and_how_it_begins() {
    let effects = EffectLog::default();
    let input = json!({ "text": { "$output": "t1.1", "path": "/body" } });
    let ask = rule(None, GateRuleAction::Ask("Send it?".into()));
    let engine =
        engine_passing_on(input.clone(), &effects).agent(|agent| agent.rules = vec![ask]).start();
    let run = engine.submit().await;
    let gate = engine.gate(run).await;
    assert_eq!(gate.spec.input.as_ref().map(RawJson::to_value), Some(input));
    let view = gate_view(&gate);
    let (description, value) = view.values_from_earlier_calls().remove(0);
    let expected = format!(
        "the input at /text is the output of the call t1.1 at /body, 300000 bytes; only its \
         first 4096 bytes are shown, and `longhaul show {run} --transcript` prints what \
         the model has read of the output"
    );
    assert_eq!((description, value), (expected, &"long ".repeat(820)[..4096]));
    let gate_answer = answer(&gate, GateDecision::Approve);
    engine.longhaul.answer_gate(gate.spec.id, gate_answer).await.unwrap();
    let journal = engine.ended(run).await;
    assert_eq!(effects.count("send begins"), 1);
    let is_raised = journal.iter().any(
        |entry| matches!(&entry.event, Event::GateRaised(data) if data.gate.outputs.len() == 1),
    );
    assert!(is_raised);
}
