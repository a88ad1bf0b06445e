//! Runs that events make: in words for the agent, with fewer turns, and on a
//! cheaper model where the agent names one.

use longhaul_core::event::Event;
use longhaul_core::event::entry::Entry;
use longhaul_core::policy::effect::EffectClass::Pure;
use longhaul_core::raw::RawJson;
use longhaul_engine::Task;
use serde_json::{Value, json};

use crate::suite::harness::model::FakeReply;
use crate::suite::harness::tool::{EffectLog, FakeTool};
use crate::suite::harness::{TestEngine, count, engine_with, outcome_text};

fn engine_with_events(lines: Vec<FakeReply>) -> TestEngine {
    let deeds = EffectLog::default();
    engine_with(lines)
        .tools([FakeTool::new("look", Pure, &deeds)])
        .agent(|agent| {
            agent.models = vec!["real/conversation".into()];
            agent.idle_models = vec!["real/idle".into()];
            let words = "{{ actor.name }} enters the {{ input.room }}.";
            agent.events.insert("player_proximity".into(), words.into());
        })
        .start()
}

async fn submit_event(house: &TestEngine, kind: &str, input: Value) -> Vec<Entry> {
    let mut task = Task::new("tester", input);
    task.kind = Some(kind.into());
    task.actor = Some(RawJson::from_serialize(&json!({ "name": "Ada" })));
    let run = house.longhaul.submit(task).await.unwrap();
    house.ended(run).await
}

#[tokio::test]
async fn an_event_is_rendered_as_text_for_the_model() {
    for (kind, input, words, model) in [
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
        let house = engine_with_events(vec![FakeReply::Text("done")]);
        let journal = submit_event(&house, kind, input).await;
        assert_eq!(outcome_text(&journal), "done", "{kind}");
        assert_eq!(house.user_texts(), [words]);
        assert_eq!(house.model.requests()[0].model, model);
    }
}

#[tokio::test]
async fn an_event_run_has_at_most_six_turns() {
    let calls = (0..9).map(|n| FakeReply::call("look", json!({ "count": n })));
    let house = engine_with_events(calls.collect());
    let journal = submit_event(&house, "idle_tick", Value::Null).await;
    assert_eq!(count(&journal, "turn.completed"), 6);
    assert_eq!(count(&journal, "tool.completed"), 5);
    assert_eq!(count(&journal, "tool.failed"), 1);
    let Event::RunFailed(failed) = &journal.last().unwrap().event else {
        panic!("it ends");
    };
    assert_eq!(failed.error.code, "turn_limit");
    assert_eq!(failed.error.message, "the run has made the 6 turns it may make");
}

#[tokio::test]
async fn an_event_without_a_template_value_blocks_the_run() {
    let house = engine_with_events(vec![FakeReply::Text("done")]);
    let mut task = Task::new("tester", json!({}));
    task.kind = Some("player_proximity".into());
    let run = house.longhaul.submit(task).await.unwrap();
    let gate = house.gate(run).await;
    let ask = &gate.spec.ask;
    let opening = "The words for the event `player_proximity` of agent `tester` can't be made:";
    assert!(ask.starts_with(opening) && ask.contains("`actor` is missing"), "{ask}");
}

#[tokio::test]
async fn a_looping_model_is_warned_and_stopped() {
    let calls = (0..40).map(|_| FakeReply::call("look", json!({})));
    let house = engine_with_events(calls.collect());
    let run = house.submit().await;
    let journal = house.ended(run).await;
    assert_eq!(outcome_text(&journal), "loop_detected");
    assert_eq!(count(&journal, "tool.completed"), 16);
    let told = house.user_texts();
    assert!(told[1].contains("the same call 8 times in a row"), "{told:?}");
    assert_eq!(told.len(), 2);
}

#[tokio::test]
async fn a_scripted_model_may_loop_unless_the_agent_sets_a_limit() {
    let deeds = EffectLog::default();
    let calls = || (0..20).map(|_| FakeReply::call("look", json!({})));
    let house = engine_with(calls()).tools([FakeTool::new("look", Pure, &deeds)]);
    let house = house.start();
    let run = house.submit().await;
    assert_eq!(outcome_text(&house.ended(run).await), "done");
    let guards = longhaul_engine::agent::config::LoopGuardConfig { identical_calls: Some(4) };
    let house = engine_with(calls())
        .tools([FakeTool::new("look", Pure, &deeds)])
        .agent(|agent| agent.guards = Some(guards))
        .start();
    let run = house.submit().await;
    let journal = house.ended(run).await;
    assert_eq!(outcome_text(&journal), "loop_detected");
    assert_eq!(count(&journal, "tool.completed"), 4);
}
