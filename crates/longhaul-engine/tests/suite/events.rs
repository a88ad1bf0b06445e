//! Tests of runs started by events: their text, their turn limit, and the cheaper model for idle
//! ticks.

use longhaul_core::event::Event;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::policy::effect::EffectClass::Pure;
use longhaul_core::raw::RawJson;
use longhaul_engine::Task;
use longhaul_engine::agent::config::LoopGuardConfig;
use serde_json::{Value, json};

use crate::suite::harness::model::FakeReply;
use crate::suite::harness::tool::{EffectLog, FakeTool};
use crate::suite::harness::{TestEngine, count, engine_with, outcome_text};

fn engine_with_events(replies: Vec<FakeReply>) -> TestEngine {
    let effects = EffectLog::default();
    engine_with(replies)
        .tools([FakeTool::new("look", Pure, &effects)])
        .agent(|agent| {
            agent.models = vec!["real/conversation".into()];
            agent.idle_models = vec!["real/idle".into()];
            let template = "{{ actor.name }} enters the {{ input.room }}.";
            agent.events.insert("player_proximity".into(), template.into());
        })
        .start()
}

async fn submit_event(engine: &TestEngine, kind: &str, input: Value) -> Vec<JournalEntry> {
    let mut task = Task::new("tester", input);
    task.kind = Some(kind.into());
    task.actor = Some(RawJson::from_serialize(&json!({ "name": "Ada" })));
    let run = engine.longhaul.submit(task).await.unwrap();
    engine.ended(run).await
}

#[tokio::test]
async fn an_event_is_rendered_as_text_for_the_model() {
    for (kind, input, expected, model) in [
        (
            "player_proximity",
            json!({ "room": "tavern" }),
            "Ada enters the tavern.",
            "real/conversation",
        ),
        (
            "player_action",
            json!({ "message": "A beer." }),
            "A player named Ada is talking to you.\n\nThey say: A beer.",
            "real/conversation",
        ),
        ("idle_tick", Value::Null, "You have a moment to yourself. What do you do?", "real/idle"),
    ] {
        let engine = engine_with_events(vec![FakeReply::Text("done")]);
        let journal = submit_event(&engine, kind, input).await;
        assert_eq!(outcome_text(&journal), "done", "{kind}");
        assert_eq!(engine.user_texts(), [expected]);
        assert_eq!(engine.model.requests()[0].model, model);
    }
}

#[tokio::test]
async fn an_idle_tick_without_idle_models_gets_the_idle_model_of_the_provider() {
    for (agent_model, kind, expected) in [
        ("real/conversation", "idle_tick", "real/provider-idle"),
        ("real/conversation", "player_action", "real/conversation"),
        ("other/model", "idle_tick", "other/model"),
    ] {
        let engine = engine_with([FakeReply::Text("done")])
            .agent(|agent| agent.models = vec![agent_model.into()])
            .start();
        submit_event(&engine, kind, Value::Null).await;
        assert_eq!(engine.model.requests()[0].model, expected, "{agent_model} {kind}");
    }
}

#[tokio::test]
async fn an_event_run_has_at_most_six_turns() {
    let calls = (0..9).map(|n| FakeReply::call("look", json!({ "count": n })));
    let engine = engine_with_events(calls.collect());
    let journal = submit_event(&engine, "idle_tick", Value::Null).await;
    assert_eq!(count(&journal, "turn.completed"), 6);
    assert_eq!(count(&journal, "tool.completed"), 5);
    assert_eq!(count(&journal, "tool.failed"), 1);
    let Event::RunFailed(failed) = &journal.last().unwrap().event else {
        panic!("the run must fail");
    };
    assert_eq!(failed.error.code, "turn_limit");
    assert_eq!(failed.error.message, "the run has reached its limit of 6 turns");
}

#[tokio::test]
async fn an_event_without_a_template_value_blocks_the_run() {
    let engine = engine_with_events(vec![FakeReply::Text("done")]);
    let mut task = Task::new("tester", json!({}));
    task.kind = Some("player_proximity".into());
    let run = engine.longhaul.submit(task).await.unwrap();
    let gate = engine.gate(run).await;
    let question = &gate.spec.ask;
    let prefix = "The text for the event `player_proximity` of agent `tester` can't be rendered:";
    assert!(question.starts_with(prefix) && question.contains("`actor` is missing"), "{question}");
}

#[tokio::test]
async fn a_looping_model_is_warned_and_stopped() {
    let calls = (0..40).map(|_| FakeReply::call("look", json!({})));
    let engine = engine_with_events(calls.collect());
    let run = engine.submit().await;
    let journal = engine.ended(run).await;
    assert_eq!(outcome_text(&journal), "loop_detected");
    assert_eq!(count(&journal, "tool.completed"), 16);
    let texts = engine.user_texts();
    assert!(texts[1].contains("the same call 8 times in a row"), "{texts:?}");
    assert_eq!(texts.len(), 2);
}

#[tokio::test]
async fn a_scripted_model_may_loop_unless_the_agent_sets_a_limit() {
    let effects = EffectLog::default();
    let calls = || (0..20).map(|_| FakeReply::call("look", json!({})));
    let engine = engine_with(calls()).tools([FakeTool::new("look", Pure, &effects)]);
    let engine = engine.start();
    let run = engine.submit().await;
    assert_eq!(outcome_text(&engine.ended(run).await), "done");
    let guards = LoopGuardConfig { identical_calls: Some(4), ..LoopGuardConfig::OFF };
    let engine = engine_with(calls())
        .tools([FakeTool::new("look", Pure, &effects)])
        .agent(|agent| agent.guards = Some(guards))
        .start();
    let run = engine.submit().await;
    let journal = engine.ended(run).await;
    assert_eq!(outcome_text(&journal), "loop_detected");
    assert_eq!(count(&journal, "tool.completed"), 4);
}
