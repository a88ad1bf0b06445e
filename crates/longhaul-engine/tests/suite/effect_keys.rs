//! Effect keys: calls of several runs with the same key take effect once, over crashes too.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt as _;
use longhaul_core::event::Event;
use longhaul_core::event::tool::{ToolKeyTaken, ToolOutput};
use longhaul_core::policy::effect::EffectClass::{self, Keyed, Once};
use longhaul_core::policy::effect::InDoubtPolicy;
use longhaul_core::policy::effect_key::EffectKeyHolder;
use longhaul_core::policy::gate::{GateDecision, GateKind};
use longhaul_core::port::tool::ToolFailure;
use longhaul_core::time::Millis;
use longhaul_engine::agent::{Agent, EffectRule};
use longhaul_testkit::latch::Latch;
use serde_json::{Value, json};

use crate::suite::harness::model::{FakeReply, results};
use crate::suite::harness::tool::{EffectLog, FakeTool};
use crate::suite::harness::{TestEngine, TestEngineBuilder, answer, count, engine_with, kinds};

/// Adds a key to the calls of `send`: the text of the message.
fn add_key(agent: &mut Agent, template: &str) {
    agent.effects = vec![EffectRule {
        tool: "send".into(),
        match_glob: None,
        class: None,
        key: Some(template.to_owned()),
    }];
}

/// Creates a builder whose model calls `send` with each of these inputs, in one turn per input.
fn engine_sending(inputs: &[Value], tool: FakeTool) -> TestEngineBuilder {
    let calls = inputs.iter().map(|input| FakeReply::call("send", input.clone()));
    engine_with(calls).tools([tool]).agent(|agent| add_key(agent, "mail:{{ input.text }}"))
}

async fn kill_workers(engine: &mut TestEngine) {
    engine.workers.abort_all();
    while engine.workers.join_next().await.is_some() {}
}

fn short_lease(options: &mut longhaul_engine::worker::WorkerOptions) {
    options.lease = Millis(300);
}

#[tokio::test]
async fn a_second_call_with_the_same_key_gets_the_recorded_result() {
    let effects = EffectLog::default();
    let inputs = [json!({ "text": "hi" }), json!({ "text": "hi" }), json!({ "text": "other" })];
    let engine = engine_sending(&inputs, FakeTool::new("send", Once, &effects)).start();
    let run = engine.submit().await;
    let journal = engine.ended(run).await;
    assert_eq!(count(&journal, "tool.key_taken"), 1, "{:?}", kinds(&journal));
    assert_eq!(effects.count("send begins"), 2);
    let requests = engine.model.requests();
    let (text, is_error) = results(&requests[2]).pop().unwrap();
    assert!(!is_error && text.contains("This call was not made: the call t1.1 of"), "{text}");
    assert!(text.contains("`mail:hi`") && text.contains(r#"{"text":"hi"}"#), "{text}");
    // Another run gets the same result.
    engine.model.set_replies([FakeReply::call("send", json!({ "text": "hi" }))].into());
    let second = engine.submit().await;
    engine.ended(second).await;
    assert_eq!(effects.count("send begins"), 2);
    let (text, _) = engine.results().remove(0);
    assert!(text.contains(&format!("the call t1.1 of {run}")), "{text}");
}

/// Returns a tool whose first call fails, if it should, once the latch is open.
fn latched_tool(effects: &EffectLog, latch: &Latch, first_fails: bool) -> FakeTool {
    let calls = Arc::new(AtomicUsize::new(0));
    let tool = FakeTool::new("send", Once, effects).with_action(move |_, _| {
        let must_fail = calls.fetch_add(1, Ordering::Relaxed) == 0 && first_fails;
        let output = match must_fail {
            true => Err(ToolFailure::new("refused")),
            false => Ok(ToolOutput::text("sent")),
        };
        async move { output }.boxed()
    });
    tool.after_latch(latch)
}

#[tokio::test]
async fn a_run_waits_for_the_call_of_another_run_and_is_woken_by_its_end() {
    for (first_fails, send_count) in [(false, 1), (true, 2)] {
        let (effects, latch) = (EffectLog::default(), Latch::closed());
        let tool = latched_tool(&effects, &latch, first_fails);
        let engine = engine_sending(&[json!({ "text": "hi" })], tool).start();
        let first = engine.submit().await;
        latch.reached(1).await;
        let second = engine.submit().await;
        let waiting = engine.until(second, "run.waiting").await;
        assert_eq!(kinds(&waiting)[waiting.len() - 2..], ["tool.key_taken", "run.waiting"]);
        let explanation = engine.longhaul.explain_run(second).await.unwrap();
        assert!(
            explanation.message.contains("which has the same effect key"),
            "{}",
            explanation.message
        );
        latch.open();
        engine.ended(first).await;
        let journal = engine.ended(second).await;
        assert_eq!(effects.count("send begins"), send_count, "{:?}", kinds(&journal));
        assert_eq!(count(&journal, "tool.completed"), 1, "{:?}", kinds(&journal));
    }
}

#[tokio::test]
async fn a_crash_leaves_one_call_in_doubt_and_a_person_decides_for_both_runs() {
    let (effects, latch) = (EffectLog::default(), Latch::closed());
    let tool = FakeTool::new("send", Once, &effects).after_latch(&latch);
    let mut engine = engine_sending(&[json!({ "text": "hi" })], tool).build();
    engine.spawn_worker(short_lease);
    let first = engine.submit().await;
    latch.reached(1).await;
    kill_workers(&mut engine).await;
    latch.open();
    engine.spawn_worker(short_lease);
    let gate = engine.gate(first).await;
    assert_eq!(gate.spec.kind, GateKind::InDoubt);
    let second = engine.submit().await;
    engine.until(second, "run.waiting").await;
    assert_eq!(engine.open_gates(second).await.len(), 0, "one question is enough");
    let gate_answer = answer(&gate, GateDecision::Answer("it was sent".into()));
    engine.longhaul.answer_gate(gate.spec.id, gate_answer).await.unwrap();
    engine.ended(first).await;
    engine.ended(second).await;
    assert_eq!(effects.count("send begins"), 1);
    let results = engine.model.requests().iter().flat_map(results).collect::<Vec<_>>();
    assert!(results.iter().all(|(text, _)| text.ends_with("it was sent")), "{results:?}");
    assert_eq!(results.len(), 2);
}

/// Lets a run end whose call is in doubt. Returns the engine and the number of its effects.
async fn abandoned_call(class: EffectClass) -> (TestEngine, EffectLog) {
    let (effects, latch) = (EffectLog::default(), Latch::closed());
    let tool = FakeTool::new("send", class, &effects)
        .after_latch(&latch)
        .with_timeout(Millis(20))
        .with_in_doubt(InDoubtPolicy::Fail);
    let engine = engine_sending(&[json!({ "text": "hi" })], tool).start();
    let first = engine.submit().await;
    let journal = engine.ended(first).await;
    assert_eq!(count(&journal, "tool.in_doubt"), 1, "{class:?}: {:?}", kinds(&journal));
    latch.open();
    (engine, effects)
}

#[tokio::test]
async fn an_unknown_outcome_keeps_the_key_even_if_the_call_could_be_repeated() {
    for class in [Once, Keyed] {
        let (engine, effects) = abandoned_call(class).await;
        engine.model.set_replies([FakeReply::call("send", json!({ "text": "hi" }))].into());
        let second = engine.submit().await;
        let journal = engine.ended(second).await;
        let taken = journal.iter().any(|entry| matches!(entry.event, Event::ToolKeyTaken(_)));
        assert!(taken && effects.count("send begins") == 1, "{:?}", kinds(&journal));
    }
}

#[tokio::test]
async fn a_person_frees_the_key_of_an_ended_run() {
    let (engine, effects) = abandoned_call(Once).await;
    let submit_same_call = async || {
        engine.model.set_replies([FakeReply::call("send", json!({ "text": "hi" }))].into());
        let run = engine.submit().await;
        (run, engine.ended(run).await)
    };
    let (second, journal) = submit_same_call().await;
    let taken = journal.iter().find(|entry| matches!(entry.event, Event::ToolKeyTaken(_)));
    let Event::ToolKeyTaken(ToolKeyTaken { holder, .. }) = taken.unwrap().event else {
        unreachable!("only such an event is searched");
    };
    let hint = engine.longhaul.get_run(second).await.unwrap().error.unwrap().hint;
    let command = format!("longhaul free-key {} {}", holder.run, holder.call);
    assert!(hint.contains(&command), "{hint}");
    let free = async |run| {
        let holder = EffectKeyHolder { run, ..holder };
        engine.longhaul.free_effect_key(holder, "not in the list", "cli:anna").await
    };
    assert_eq!(free(second).await.unwrap_err().code(), "key_not_in_doubt");
    let freed = free(holder.run).await.unwrap();
    let text = freed.text.strip_prefix("effect key freed by cli:anna at ").unwrap();
    assert!(text.ends_with(": not in the list"), "{text}");
    assert_eq!(engine.longhaul.get_run(holder.run).await.unwrap().late, [freed]);
    assert_eq!(free(holder.run).await.unwrap_err().code(), "key_not_in_doubt");
    let (_, journal) = submit_same_call().await;
    assert_eq!(effects.count("send begins"), 2, "{:?}", kinds(&journal));
}

#[tokio::test]
async fn a_key_that_is_empty_or_missing_is_an_invalid_call() {
    for (template, input, expect) in [
        (
            "{{ input.id }}",
            json!({ "text": "hi" }),
            "can't be rendered: line 1: `input.id` is missing",
        ),
        ("{{ input.text }}", json!({ "text": " " }), "is empty"),
        ("a:{{ none }}", json!({ "text": "hi" }), "one of its values is null"),
        ("{{ input.text }}", json!({ "text": "x".repeat(1_025) }), "is longer than 1024 bytes"),
    ] {
        let effects = EffectLog::default();
        let engine = engine_with([FakeReply::call("send", input)])
            .tools([FakeTool::new("send", Once, &effects)])
            .agent(|agent| add_key(agent, template))
            .start();
        let run = engine.submit().await;
        engine.ended(run).await;
        let (text, is_error) = engine.results().remove(0);
        assert!(is_error && text.contains(expect), "{text}");
        assert_eq!(effects.count("send begins"), 0);
    }
}

#[tokio::test]
async fn a_long_result_of_another_run_can_be_paged() {
    let effects = EffectLog::default();
    let input = json!({ "text": "hi" });
    let tool = FakeTool::new("send", Once, &effects)
        .with_action(|_, _| async { Ok(ToolOutput::text("long ".repeat(20_000))) }.boxed());
    let engine = engine_sending(std::slice::from_ref(&input), tool).start();
    let run = engine.submit().await;
    engine.ended(run).await;
    let read_output = FakeReply::call("read_output", json!({ "call": "t1.1", "offset": 90_140 }));
    engine.model.set_replies([FakeReply::call("send", input), read_output].into());
    let second = engine.submit().await;
    engine.ended(second).await;
    assert_eq!(effects.count("send begins"), 1);
    let (text, is_error) = engine.results().pop().unwrap();
    assert!(!is_error && text.contains("long long"), "{text}");
}
