//! Tests of lanes and batches as a program uses them. Only `longhaul` is imported.

use std::time::{Duration, SystemTime};

use longhaul::policy::LaneBusyPolicy;
use longhaul::{Agent, Mode, Runtime, Status, Task, models};

#[path = "../../examples/batch.rs"]
mod batch;

#[test]
fn the_batch_example_runs() {
    batch::main().unwrap();
}

#[tokio::test]
async fn a_lane_is_inspected_paused_and_resumed() {
    let script = models::scripted("says", "replies: [{ text: 'Done: {{ input }}' }]").unwrap();
    let agent = Agent::new("npc").model("script").define(|agent| {
        agent.lane = Some("npc-7".into());
    });
    let runtime = Runtime::builder().store("sqlite::memory:").model("script", script).agent(agent);
    let runtime = runtime.open().await.unwrap();
    let lane = runtime.lane("npc-7");
    assert!(!lane.is_busy().await.unwrap() && lane.is_empty().await.unwrap());
    lane.pause().await.unwrap();
    let first = runtime.submit(Task::new("npc").input("one")).await.unwrap();
    let worker = runtime.worker().spawn();
    let free_run = runtime.submit(Task::new("npc").input("two").lane("other")).await.unwrap();
    free_run.wait().await.unwrap();
    assert!(lane.is_paused().await.unwrap() && !lane.is_busy().await.unwrap());
    assert_eq!(lane.len().await.unwrap(), 1);
    lane.resume().await.unwrap();
    assert_eq!(first.wait().await.unwrap().text().unwrap(), "Done: one");
    worker.stop().await.unwrap();
    runtime.submit(Task::new("npc").input("three")).await.unwrap();
    runtime.submit(Task::new("npc").input("four")).await.unwrap();
    assert_eq!((lane.is_busy().await.unwrap(), lane.len().await.unwrap()), (true, 1));
    let lanes = runtime.lanes(None).await.unwrap();
    let lanes: Vec<_> = lanes.iter().map(|lane| (lane.lane.as_str(), lane.waiting)).collect();
    assert_eq!(lanes, [("npc-7", 1)]);
    assert!(runtime.lanes(Some("npc-7")).await.unwrap().is_empty());
    let long = "x".repeat(10_000);
    assert!(runtime.lane(&long).pause().await.unwrap_err().to_string().contains("256"));
    let task = Task::new("npc").lane(&long);
    assert!(runtime.submit(task).await.unwrap_err().to_string().contains("256"));
}

#[tokio::test]
async fn a_task_starts_only_after_its_start_time() {
    let script = models::scripted("says", "replies: [{ text: 'Done.' }]").unwrap();
    let agent = Agent::new("npc").model("script");
    let runtime = Runtime::builder().store("sqlite::memory:").model("script", script).agent(agent);
    let runtime = runtime.open().await.unwrap();
    let day = Duration::from_secs(24 * 60 * 60);
    let year_2169 = SystemTime::UNIX_EPOCH + day * 365 * 200;
    let future_run =
        runtime.submit(Task::new("npc").input("one").start_at(year_2169)).await.unwrap();
    let before_1970 = SystemTime::UNIX_EPOCH - day;
    let past_run =
        runtime.submit(Task::new("npc").input("two").start_at(before_1970)).await.unwrap();
    let worker = runtime.worker().spawn();
    assert_eq!(past_run.wait().await.unwrap().text().unwrap(), "Done.");
    let view = future_run.view().await.unwrap();
    assert_eq!((view.status, view.turns), (Status::Pending, 0), "{}", view.now);
    assert!(view.now.contains("start time"), "{}", view.now);
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_task_of_a_busy_lane_is_added_to_its_run() {
    let script = models::scripted("says", "replies: [{ text: 'Done.' }]").unwrap();
    let agent = Agent::new("npc").model("script").define(|agent| {
        agent.lane = Some("npc-7".into());
        agent.lane_busy = LaneBusyPolicy::Steer;
    });
    let runtime = Runtime::builder().store("sqlite::memory:").model("script", script).agent(agent);
    let runtime = runtime.open().await.unwrap();
    let first = runtime.submit(Task::new("npc").input("one")).await.unwrap();
    let second = runtime.submit(Task::new("npc").input("two")).await.unwrap();
    assert_eq!((first.id(), first.was_added()), (second.id(), false));
    assert!(second.was_added());
    let tasks = ["three", "four"].map(|text| Task::new("npc").input(text));
    let batch = runtime.submit_all(tasks, Mode::Sequential).await.unwrap();
    assert_eq!(batch.runs().len(), 2);
    let worker = runtime.worker().spawn();
    for done in batch.wait().await.unwrap() {
        assert_eq!(done.status, Status::Completed);
    }
    worker.stop().await.unwrap();
}
