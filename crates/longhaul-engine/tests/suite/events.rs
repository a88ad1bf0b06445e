//! Runs that events make: in words for the agent, with fewer turns, and on a
//! cheaper model where the agent names one.

use longhaul_core::event::Event;
use longhaul_core::event::entry::Entry;
use longhaul_core::policy::effect::EffectClass::Pure;
use longhaul_core::raw::RawJson;
use longhaul_engine::Task;
use serde_json::{Value, json};

use crate::suite::house::model::Line;
use crate::suite::house::tool::{Deeds, Hand};
use crate::suite::house::{House, count, end, plan};

fn tavern(lines: Vec<Line>) -> House {
    let deeds = Deeds::default();
    plan(lines)
        .hands([Hand::new("look", Pure, &deeds)])
        .agent(|agent| {
            agent.models = vec!["real/conversation".into()];
            agent.idle_models = vec!["real/idle".into()];
            let words = "{{ actor.name }} enters the {{ input.room }}.";
            agent.events.insert("player_proximity".into(), words.into());
        })
        .at_work()
}

async fn happens(house: &House, kind: &str, input: Value) -> Vec<Entry> {
    let mut task = Task::new("tester", input);
    task.kind = Some(kind.into());
    task.actor = Some(RawJson::of(&json!({ "name": "Ada" })));
    let run = house.longhaul.submit(task).await.unwrap();
    house.ended(run).await
}

#[tokio::test]
async fn an_event_is_told_in_words_and_asks_the_model_for_it() {
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
        (
            "idle_tick",
            Value::Null,
            "You have a moment to yourself. What do you do?",
            "real/idle",
        ),
    ] {
        let house = tavern(vec![Line::Text("done")]);
        let journal = happens(&house, kind, input).await;
        assert_eq!(end(&journal), "done", "{kind}");
        assert_eq!(house.heard(), [words]);
        assert_eq!(house.actor.asked()[0].model, model);
    }
}

#[tokio::test]
async fn a_run_of_an_event_has_six_turns_and_ends_with_a_word() {
    let calls = (0..9).map(|n| Line::call("look", json!({ "count": n })));
    let house = tavern(calls.collect());
    let journal = happens(&house, "idle_tick", Value::Null).await;
    assert_eq!(count(&journal, "turn.completed"), 6);
    assert_eq!(count(&journal, "tool.completed"), 5);
    assert_eq!(count(&journal, "tool.failed"), 1);
    let Event::RunFailed(failed) = &journal.last().unwrap().event else {
        panic!("it ends");
    };
    assert_eq!(failed.fault.code, "turn_limit");
    assert_eq!(
        failed.fault.message,
        "the run has made the 6 turns it may make"
    );
}

#[tokio::test]
async fn an_event_that_lacks_what_its_words_need_waits_and_says_so() {
    let house = tavern(vec![Line::Text("done")]);
    let mut task = Task::new("tester", json!({}));
    task.kind = Some("player_proximity".into());
    let run = house.longhaul.submit(task).await.unwrap();
    let gate = house.gate(run).await;
    let ask = &gate.spec.ask;
    let opening = "The words for the event `player_proximity` of agent `tester` can't be made:";
    assert!(
        ask.starts_with(opening) && ask.contains("`actor` is missing"),
        "{ask}"
    );
}

#[tokio::test]
async fn a_model_that_turns_in_circles_is_told_and_stopped() {
    let calls = (0..40).map(|_| Line::call("look", json!({})));
    let house = tavern(calls.collect());
    let run = house.submit().await;
    let journal = house.ended(run).await;
    assert_eq!(end(&journal), "stuck");
    assert_eq!(count(&journal, "tool.completed"), 16);
    let told = house.heard();
    assert!(
        told[1].contains("the same call 8 times in a row"),
        "{told:?}"
    );
    assert_eq!(told.len(), 2);
}

#[tokio::test]
async fn a_script_may_repeat_itself_unless_its_agent_says_otherwise() {
    let deeds = Deeds::default();
    let calls = || (0..20).map(|_| Line::call("look", json!({})));
    let house = plan(calls()).hands([Hand::new("look", Pure, &deeds)]);
    let house = house.at_work();
    let run = house.submit().await;
    assert_eq!(end(&house.ended(run).await), "done");
    let guards = longhaul_engine::agent::wish::Guards {
        identical_calls: Some(4),
    };
    let house = plan(calls())
        .hands([Hand::new("look", Pure, &deeds)])
        .agent(|agent| agent.guards = Some(guards))
        .at_work();
    let run = house.submit().await;
    let journal = house.ended(run).await;
    assert_eq!(end(&journal), "stuck");
    assert_eq!(count(&journal, "tool.completed"), 4);
}
