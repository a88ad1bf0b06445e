//! Tasks become runs: once, all or none, and what is wrong with them is said.

use longhaul_core::port::store::RunFilter;
use longhaul_engine::handle::SubmitOutcome;
use longhaul_engine::{Error, Task};
use serde_json::json;

use crate::suite::harness::failing_store::StoreFault;
use crate::suite::harness::{TestEngine, engine_with};

async fn rows(house: &TestEngine) -> usize {
    let ask = RunFilter { limit: 100, ..RunFilter::default() };
    house.longhaul.list_brief(ask).await.unwrap().len()
}

fn keyed(input: &str, key: &str) -> Task {
    let mut task = Task::new("tester", input);
    task.idempotency_key = Some(key.to_owned());
    task
}

#[tokio::test]
async fn an_unknown_agent_is_rejected_with_a_suggestion() {
    let house = engine_with([]).build();
    for (name, meant) in [("testr", Some("tester")), ("painter_of_doors", None)] {
        let no = house.longhaul.submit(Task::new(name, "x")).await.unwrap_err();
        let Error::AgentNotFound { name: said, suggestion: like } = no else {
            panic!("{no:?}");
        };
        assert_eq!((said.as_str(), like.as_deref()), (name, meant));
    }
    assert_eq!(rows(&house).await, 0);
}

#[tokio::test]
async fn an_idempotency_key_is_used_once_and_for_one_request() {
    let house = engine_with([]).build();
    let first = house.longhaul.submit_all(vec![keyed("x", "k")]).await.unwrap();
    assert!(matches!(first, SubmitOutcome::Created(_)));
    let again = house.longhaul.submit_all(vec![keyed("x", "k")]).await.unwrap();
    assert_eq!(again, SubmitOutcome::Existing(first.runs().to_vec()));
    let no = house.longhaul.submit(keyed("y", "k")).await.unwrap_err();
    assert_eq!(no.code(), "idempotency_key_reused");
    let mut stranger = keyed("y", "k");
    stranger.submitter = Some("cli:ben".into());
    house.longhaul.submit(stranger).await.unwrap();
    assert_eq!(rows(&house).await, 2, "another's keys are others");
}

#[tokio::test]
async fn tasks_are_submitted_all_or_none() {
    let house = engine_with([]).build();
    let tasks = vec![Task::new("tester", "x"), Task::new("nobody", "y")];
    let no = house.longhaul.submit_all(tasks).await.unwrap_err();
    assert_eq!((no.code(), rows(&house).await), ("no_agent", 0));
    let both = vec![Task::new("tester", "x"), Task::new("tester", "y")];
    let made = house.longhaul.submit_all(both).await.unwrap();
    assert_eq!((made.runs().len(), rows(&house).await), (2, 2));
    let none = house.longhaul.submit_all(Vec::new()).await.unwrap_err();
    assert_eq!(none.code(), "invalid_task");
    let many = vec![Task::new("tester", "x"); 1_001];
    let no = house.longhaul.submit_all(many).await.unwrap_err();
    assert_eq!((no.code(), rows(&house).await), ("invalid_task", 2));
}

#[tokio::test]
async fn an_invalid_lane_is_rejected() {
    for lane in ["repo:{{ input.repo }}", "{{ input.gone | shout }}", "{{ context.blank }}"] {
        let house = engine_with([]).agent(|agent| agent.lane = Some(lane.into())).build();
        let task = Task::new("tester", json!({ "branch": "main" }));
        let no = house.longhaul.submit(task).await.unwrap_err();
        assert_eq!((no.code(), rows(&house).await), ("template", 0), "{lane}");
        assert!(no.to_string().contains("the lane of agent `tester`"), "{no}");
    }
}

#[tokio::test]
async fn too_long_tasks_are_rejected() {
    let house = engine_with([]).build();
    let task = Task::new("tester", "x".repeat(1024 * 1024));
    let no = house.longhaul.submit(task).await.unwrap_err();
    assert_eq!((no.code(), rows(&house).await), ("too_long", 0));
    let mut task = Task::new("tester", "x");
    task.tags = vec!["tag".into(); 33];
    assert_eq!(house.longhaul.submit(task).await.unwrap_err().code(), "invalid_task");
}

#[tokio::test]
async fn a_submitted_run_is_returned_even_if_it_can_not_be_read() {
    let house = engine_with([]).build();
    let task = || keyed("x", "k");
    house.store.fail_reads(StoreFault::Broken, 1);
    let first = house.longhaul.submit_and_show(task()).await.unwrap();
    assert!(house.store.has_failed(), "the read failed");
    let read = house.longhaul.show(first.id).await.unwrap();
    assert_eq!(json!(first.input), json!(read.input));
    assert_eq!((first.status, first.agent), (read.status, read.agent.clone()));
    // Sent again it made nothing, so that a failed read is a fault of its own.
    house.store.fail_reads(StoreFault::Broken, 1);
    let again = house.longhaul.submit_and_show(task()).await;
    assert!(matches!(again, Err(Error::Store(_))), "{again:?}");
    let again = house.longhaul.submit_and_show(task()).await.unwrap();
    assert_eq!(again.id, first.id);
    assert_eq!(rows(&house).await, 1);
}
