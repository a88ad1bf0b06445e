//! Tests of external tools. The tool table that the model was told is final.

use longhaul_core::policy::gate::{
    ApprovalRequirement, GateDecision, GateRule, GateRuleAction, GateTimeout, GateTimeoutAction,
    ResultApprovalGate,
};
use longhaul_core::raw::{RawJson, StoredText};
use longhaul_core::time::Millis;
use longhaul_testkit::latch::Latch;
use serde_json::{Value, json};

use crate::suite::harness::model::FakeReply;
use crate::suite::harness::tool_source::FakeToolSource;
use crate::suite::harness::{TestEngine, answer, engine_with, outcome_text};

/// A run that first asks a person and then calls both tools.
fn engine_with_source(source: &FakeToolSource) -> TestEngine {
    let both =
        FakeReply::Calls(vec![("mcp__shop__buy", json!({})), ("mcp__shop__sell", json!({}))]);
    let question = FakeReply::call("ask_human", json!({ "question": "Which?" }));
    engine_with([question, both]).external_tools(source).start()
}

#[tokio::test]
async fn external_tools_are_pinned_and_a_removed_one_is_an_error() {
    let source = FakeToolSource::default();
    source.set_tools(Some(vec!["mcp:shop/buy", "mcp:shop/gone"]));
    let engine = engine_with_source(&source);
    let run = engine.submit().await;
    let gate = engine.gate(run).await;
    assert_eq!(source.released_runs(), [run]);
    source.set_tools(Some(vec!["mcp:shop/buy", "mcp:shop/sell"]));
    let gate_answer = answer(&gate, GateDecision::Answer("Both.".into()));
    engine.longhaul.answer_gate(gate.spec.id, gate_answer).await.unwrap();
    assert_eq!(outcome_text(&engine.ended(run).await), "done");
    let results = engine.results();
    assert_eq!(results[0], ("{}".to_owned(), false));
    let (text, is_error) = &results[1];
    assert!(*is_error && text.contains("there is no tool `mcp__shop__sell`"), "{text}");
    assert_eq!(source.effects().all().len(), 2);
    let requests = engine.model.requests();
    let StoredText::Inline(tools) = &requests[1].tools else {
        panic!("expected an inline text");
    };
    let tools: Value = serde_json::from_str(tools).unwrap();
    let names = tools.as_array().unwrap().iter().map(|row| &row["name"]);
    let names: Vec<&Value> = names.filter(|name| name.as_str().unwrap().contains("shop")).collect();
    assert_eq!(names, ["mcp__shop__buy", "mcp__shop__gone"]);
}

#[tokio::test]
async fn an_unreachable_tool_server_blocks_the_run() {
    let source = FakeToolSource::default();
    source.set_tools(Some(vec!["mcp:shop/buy", "mcp:shop/sell"]));
    let engine = engine_with_source(&source);
    let run = engine.submit().await;
    let gate = engine.gate(run).await;
    source.set_tools(None);
    let gate_answer = answer(&gate, GateDecision::Answer("Both.".into()));
    engine.longhaul.answer_gate(gate.spec.id, gate_answer).await.unwrap();
    engine.until(run, "run.blocked").await;
    let gate = engine.gate(run).await;
    assert_eq!(gate.spec.ask, "The shop can't be reached. Start it.");
    source.set_tools(Some(vec!["mcp:shop/buy", "mcp:shop/sell"]));
    let gate_answer = answer(&gate, GateDecision::Answer("It is there.".into()));
    engine.longhaul.answer_gate(gate.spec.id, gate_answer).await.unwrap();
    assert_eq!(outcome_text(&engine.ended(run).await), "done");
    assert_eq!(engine.results().len(), 2);
}

/// A tool source that waits at a latch, on a clock that only the test advances.
fn slow() -> (FakeToolSource, Latch, TestEngine) {
    let (source, latch) = (FakeToolSource::default(), Latch::closed());
    source.set_tools(Some(vec!["mcp:shop/buy"]));
    source.block_load(&latch);
    let engine = engine_with([]).external_tools(&source).with_sim_clock().build();
    (source, latch, engine)
}

#[tokio::test]
async fn a_cancel_is_processed_while_a_tool_server_starts() {
    let (source, latch, mut engine) = slow();
    engine.spawn_worker(|_| {});
    let run = engine.submit().await;
    latch.reached(1).await;
    engine.longhaul.cancel_run(run, "cli:anna", "enough").await.unwrap();
    assert_eq!(outcome_text(&engine.ended(run).await), "run.cancelled");
    assert_eq!(source.effects().all(), Vec::<String>::new());
}

#[tokio::test]
async fn a_worker_shutdown_does_not_wait_for_a_tool_server() {
    let (_, latch, mut engine) = slow();
    let stop = engine.spawn_worker(|_| {});
    let run = engine.submit().await;
    latch.reached(1).await;
    // The clock does not advance, so the worker stops by itself and not because of an abort.
    stop.request_drain();
    engine.worker_stopped().await;
    let row = engine.longhaul.services().store.get_run(run).await.unwrap();
    assert_eq!(row.unwrap().worker, None);
    latch.open();
    engine.spawn_worker(|_| {});
    assert_eq!(outcome_text(&engine.ended(run).await), "done");
}

#[tokio::test]
async fn a_tool_server_that_never_starts_is_named() {
    let (_, latch, mut engine) = slow();
    engine.spawn_worker(|_| {});
    let run = engine.submit().await;
    latch.reached(1).await;
    engine.advance_until(run, "run.blocked").await;
    let gate = engine.gate(run).await;
    let expected = "were not available after 90 s: `mcp:shop`";
    assert!(gate.spec.ask.contains(expected), "{}", gate.spec.ask);
    latch.open();
    let gate_answer = answer(&gate, GateDecision::Answer("It is there.".into()));
    engine.longhaul.answer_gate(gate.spec.id, gate_answer).await.unwrap();
    assert_eq!(outcome_text(&engine.ended(run).await), "done");
}

#[tokio::test]
async fn editing_a_call_does_not_wait_for_a_tool_server() {
    let source = FakeToolSource::default();
    source.set_tools(Some(vec!["mcp:shop/buy"]));
    let rule = GateRule {
        tool: "mcp:shop/buy".into(),
        match_glob: None,
        action: GateRuleAction::Ask("May it?".into()),
        always: false,
        timeout: None,
        on_timeout: GateTimeoutAction::Reject,
        in_doubt: None,
        approvers: ApprovalRequirement::default(),
        remind: None,
        escalation: Vec::new(),
        tags: Vec::new(),
    };
    let engine = engine_with([FakeReply::call("mcp__shop__buy", json!({}))])
        .external_tools(&source)
        .agent(|agent| agent.rules = vec![rule])
        .with_sim_clock()
        .start();
    let run = engine.submit().await;
    let gate = engine.gate(run).await;
    let latch = Latch::closed();
    source.block_load(&latch);
    let edit = GateDecision::Edit(RawJson::from_serialize(&json!({ "text": "two" })));
    let result = engine.longhaul.answer_gate(gate.spec.id, answer(&gate, edit));
    let advance_clock = async {
        latch.reached(1).await;
        engine.clock.as_ref().unwrap().advance(Millis::from_secs(20));
    };
    let (result, ()) = tokio::join!(result, advance_clock);
    let message = result.unwrap_err().to_string();
    assert!(message.contains("can't be checked now"), "{message}");
}

#[tokio::test]
async fn editing_a_result_needs_no_tool_server() {
    let source = FakeToolSource::default();
    source.set_tools(Some(vec!["mcp:shop/buy"]));
    let gate = ResultApprovalGate {
        auto_approve: None,
        ask: "Is it good?".into(),
        timeout: Some(GateTimeout::Never),
        on_timeout: GateTimeoutAction::Reject,
        approvers: ApprovalRequirement::default(),
        tags: Vec::new(),
    };
    let engine = engine_with([FakeReply::Text("7")])
        .external_tools(&source)
        .agent(|agent| {
            agent.output = Some(RawJson::from_serialize(&json!({ "type": "integer" })));
            agent.result_gate = Some(gate);
        })
        .start();
    let run = engine.submit().await;
    let gate = engine.gate(run).await;
    source.set_tools(None);
    let edit = |value: Value| answer(&gate, GateDecision::Edit(RawJson::from_serialize(&value)));
    let error = engine.longhaul.answer_gate(gate.spec.id, edit(json!("x"))).await.unwrap_err();
    assert!(error.to_string().contains("the edited result is invalid"), "{error}");
    engine.longhaul.answer_gate(gate.spec.id, edit(json!(8))).await.unwrap();
}

#[tokio::test]
async fn external_tools_are_released_after_a_panic() {
    let (source, exit) = (FakeToolSource::default(), Latch::closed());
    source.panic_on_load();
    source.block_release(&exit);
    exit.open();
    let engine = engine_with([]).external_tools(&source).start();
    let run = engine.submit().await;
    exit.reached(1).await;
    assert_eq!(source.released_runs()[0], run);
}

#[tokio::test]
async fn releasing_external_tools_has_a_timeout() {
    let (source, exit) = (FakeToolSource::default(), Latch::closed());
    source.set_tools(Some(vec!["mcp:shop/buy"]));
    source.block_release(&exit);
    let mut engine = engine_with([]).external_tools(&source).with_sim_clock().build();
    engine.spawn_worker(|options| options.concurrency = 1);
    let (first, second) = (engine.submit().await, engine.submit().await);
    engine.ended(first).await;
    exit.reached(1).await;
    engine.advance_until(second, "run.completed").await;
}
