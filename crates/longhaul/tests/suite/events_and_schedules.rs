//! Tests of events and schedules in a program.

use std::time::Duration;

use longhaul::{
    Agent, CatchUp, Error, HandlerRequest, Overlap, Runtime, RuntimeBuilder, Schedule, Task, models,
};
use serde_json::json;

#[path = "../../examples/village.rs"]
mod village;

#[test]
fn the_example_runs() {
    village::main().unwrap();
}

#[tokio::test]
async fn the_characters_of_the_example_act_and_trade() {
    let (texts, gold, items) = village::play_round().await.unwrap();
    assert_eq!(
        texts,
        [
            "smith: Back to work.",
            "baker: Nobody comes.",
            "guard: All quiet.",
            "guard: I watch you.",
            "smith: Sold: sword for 5 gold.",
        ]
    );
    assert_eq!((gold, items), (5, vec!["sword".to_owned()]));
}

fn builder() -> RuntimeBuilder {
    let script = models::scripted("echo", "replies: [{ text: 'Done.' }]").unwrap();
    Runtime::builder()
        .store("sqlite::memory:")
        .model("echo", script)
        .agent(Agent::new("npc").model("echo"))
        .handler("inputs", |request: HandlerRequest, _| async move {
            request.input::<serde_json::Value>()
        })
}

#[tokio::test]
async fn an_event_is_a_run_of_at_most_six_turns() {
    let runtime = builder().open().await.unwrap();
    let event = runtime.event("npc", "player_action").actor(json!({ "name": "Ada" }));
    let run = event.payload("Hello").lane("npc-7").send().await.unwrap();
    let view = run.view().await.unwrap();
    assert_eq!(
        (view.kind.as_deref(), view.lane.as_deref()),
        (Some("player_action"), Some("npc-7"))
    );
    assert_eq!(view.actor.map(|actor| actor.to_value()), Some(json!({ "name": "Ada" })));
    assert_eq!((view.input.to_value(), view.budget.turns), (json!("Hello"), Some(6)));
    let task = Task::new("npc").input("Hi").links(json!({ "taskIds": ["t1"] }));
    let view = runtime.submit(task).await.unwrap().view().await.unwrap();
    assert_eq!(view.links.map(|links| links.to_value()), Some(json!({ "taskIds": ["t1"] })));
    for (agent, kind, code) in [("npc", "", "empty"), ("nobody", "idle_tick", "agent_not_found")] {
        let error = runtime.event(agent, kind).send().await.unwrap_err();
        assert_eq!(error.code(), code);
    }
}

#[tokio::test]
async fn a_worker_fires_the_schedules_of_the_program() {
    let runtime = builder().open().await.unwrap();
    let schedules = runtime.schedules();
    let schedule = Schedule::every("ticking", Duration::from_secs(1), "inputs");
    let schedule = schedule.input(json!({ "n": 1 })).overlap(Overlap::Queue);
    assert_eq!(schedules.add(schedule.clone()).await.unwrap().every_ms, Some(1_000));
    let digest = Schedule::cron("digest", "0 9 * * MON-FRI", "npc")
        .tz("Europe/Berlin")
        .input("Sum up.")
        .catch_up(CatchUp::Once);
    schedules.add(digest).await.unwrap();
    let (start_sender, mut start_receiver) = tokio::sync::mpsc::unbounded_channel();
    let worker = runtime.worker().on_task_start(move |run| _ = start_sender.send(run)).spawn();
    let run = tokio::time::timeout(Duration::from_secs(30), start_receiver.recv())
        .await
        .unwrap()
        .unwrap();
    let names: Vec<_> = schedules.list().await.unwrap().into_iter().map(|one| one.name).collect();
    assert_eq!(names, ["digest", "ticking"]);
    let done = runtime.run(run).wait().await.unwrap();
    assert_eq!(done.data::<serde_json::Value>().unwrap(), json!({ "n": 1 }));
    let manual_run = schedules.run("digest").await.unwrap().wait().await.unwrap();
    assert_eq!(manual_run.text().unwrap(), "Done.");
    assert_eq!(schedules.add(schedule).await.unwrap_err().code(), "schedule_exists");
    schedules.remove("ticking").await.unwrap();
    let error = schedules.remove("ticking").await.unwrap_err();
    assert!(matches!(error, Error::Engine(_)) && error.code() == "schedule_not_found", "{error}");
    worker.stop().await.unwrap();
}
