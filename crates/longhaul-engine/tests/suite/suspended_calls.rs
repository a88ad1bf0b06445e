//! Tests of calls that their tools suspend: the run parks, and any worker continues the call.

use longhaul_core::event::tool::{ToolQuestion, ToolSuspension};
use longhaul_core::policy::effect::EffectClass::Once;
use longhaul_core::policy::gate::{GateDecision, GateKind};
use longhaul_core::port::tool::{SuspendedCallWait, SuspendedToolCall};
use longhaul_core::raw::RawJson;
use longhaul_core::time::Millis;
use longhaul_engine::agent::EffectRule;
use serde_json::json;

use crate::suite::harness::model::FakeReply;
use crate::suite::harness::tool::{EffectLog, FakeTool};
use crate::suite::harness::{TestEngineBuilder, answer, count, engine_with, kinds, outcome_text};

fn question(state: &str) -> SuspendedToolCall {
    let state = RawJson::from_serialize(&state);
    let suspension = ToolSuspension { state, may_repeat: false, must_cancel: false };
    let schema = json!({ "properties": { "name": { "type": "string" } }, "required": ["name"] });
    let wait = SuspendedCallWait::Answer(ToolQuestion {
        asker: "The MCP server `billing`".to_owned(),
        message: "Who pays?".to_owned(),
        schema: RawJson::from_serialize(&schema),
    });
    SuspendedToolCall { suspension, wait }
}

fn task(state: &str) -> SuspendedToolCall {
    let state = RawJson::from_serialize(&state);
    let suspension = ToolSuspension { state, may_repeat: true, must_cancel: true };
    let wait = SuspendedCallWait::Poll { after: Millis::from_secs(60), ttl: None, message: None };
    SuspendedToolCall { suspension, wait }
}

fn plan(
    effects: &EffectLog,
    suspensions: impl IntoIterator<Item = SuspendedToolCall>,
) -> TestEngineBuilder {
    let tool = FakeTool::new("pay", Once, effects).with_suspensions(suspensions);
    engine_with([FakeReply::call("pay", json!({ "text": "now" }))]).tools([tool])
}

#[tokio::test]
async fn a_question_of_a_tool_parks_the_run_until_a_person_answers() {
    let effects = EffectLog::default();
    let mut engine = plan(&effects, [question("s1")]).build();
    let first = engine.spawn_worker(|_| ());
    let run = engine.submit().await;
    let gate = engine.gate(run).await;
    assert_eq!(gate.spec.ask, "The MCP server `billing` asks, in its own words: Who pays?");
    engine.until(run, "run.waiting").await;
    assert_eq!(effects.all(), [""; 0]);
    // Another worker continues the call.
    first.request_drain();
    engine.worker_stopped().await;
    let gate_answer = answer(&gate, GateDecision::Answer(r#"{"name":"Ada"}"#.to_owned()));
    engine.longhaul.answer_gate(gate.spec.id, gate_answer).await.unwrap();
    _ = engine.spawn_worker(|_| ());
    let journal = engine.ended(run).await;
    assert_eq!(outcome_text(&journal), "done");
    assert_eq!(
        effects.all(),
        [
            r#"pay continues "s1" Some(Answered({"name":"Ada"}))"#,
            r#"pay begins {"text":"now"}"#,
            r#"pay ends {"text":"now"}"#,
        ]
    );
}

#[tokio::test]
async fn a_pending_call_is_polled_by_a_timer() {
    let effects = EffectLog::default();
    let engine = plan(&effects, [task("t1"), task("t2")]).with_sim_clock().start();
    let run = engine.submit().await;
    let journal = engine.advance_until(run, "run.completed").await;
    assert_eq!(count(&journal, "tool.pending"), 2, "{:?}", kinds(&journal));
    assert_eq!(count(&journal, "tool.resumed"), 2, "{:?}", kinds(&journal));
    assert_eq!(count(&journal, "tool.started"), 1, "{:?}", kinds(&journal));
    assert_eq!(effects.count(r#"pay continues "t1" None"#), 1);
    assert_eq!(effects.count(r#"pay continues "t2" None"#), 1);
    assert_eq!(effects.count("pay begins"), 1);
}

#[tokio::test]
async fn a_cancel_of_the_run_cancels_a_pending_call_at_its_tool() {
    let effects = EffectLog::default();
    let engine = plan(&effects, [task("t1")]).start();
    let run = engine.submit().await;
    engine.until(run, "run.waiting").await;
    engine.longhaul.cancel_run(run, "cli:anna", "enough").await.unwrap();
    let journal = engine.ended(run).await;
    assert_eq!(outcome_text(&journal), "run.cancelled");
    assert_eq!(count(&journal, "tool.interrupted"), 1, "{:?}", kinds(&journal));
    assert_eq!(effects.all(), [r#"pay cancels "t1""#]);
}

#[tokio::test]
async fn a_pending_call_that_takes_too_long_is_cancelled_at_its_tool() {
    let effects = EffectLog::default();
    let short = |state| {
        let (after, ttl) = (Millis::from_secs(60), Some(Millis::from_secs(90)));
        let wait = SuspendedCallWait::Poll { after, ttl, message: None };
        SuspendedToolCall { wait, ..task(state) }
    };
    let suspensions = ["t1", "t2", "t3"].map(short);
    let engine = plan(&effects, suspensions).with_sim_clock().start();
    let run = engine.submit().await;
    let journal = engine.advance_until(run, "run.completed").await;
    assert_eq!(count(&journal, "tool.failed"), 1, "{:?}", kinds(&journal));
    assert_eq!(effects.count(r#"pay cancels "t3""#), 1);
    assert_eq!(effects.count("pay begins"), 0);
    let (text, is_error) = engine.results().remove(0);
    assert!(is_error && text.contains("no result after 1m 30s"), "{text}");
    assert!(text.ends_with("its server was asked to stop the work"), "{text}");
}

#[tokio::test]
async fn a_state_that_can_not_be_stored_fails_the_call() {
    let effects = EffectLog::default();
    let engine = plan(&effects, [question(&"x".repeat(300_000))]).start();
    let run = engine.submit().await;
    engine.ended(run).await;
    let (text, is_error) = engine.results().remove(0);
    assert!(is_error && text.contains("state of it is too long"), "{text}");
}

#[tokio::test]
async fn a_state_that_can_not_be_stored_leaves_a_call_with_an_effect_key_in_doubt() {
    let key = Some("payment".to_owned());
    let rule = EffectRule { tool: "pay".into(), match_glob: None, class: None, key };
    let effects = EffectLog::default();
    let engine = plan(&effects, [question(&"x".repeat(300_000))])
        .agent(|agent| agent.effects = vec![rule])
        .start();
    let run = engine.submit().await;
    assert_eq!(engine.gate(run).await.spec.kind, GateKind::InDoubt);
}
