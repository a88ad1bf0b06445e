//! Tests of submitting tasks: idempotency, atomicity and error messages.

use longhaul_core::event::steer::SteerDelivery;
use longhaul_core::id::{LaneKey, ThreadKey};
use longhaul_core::port::store::RunFilter;
use longhaul_core::raw::RawJson;
use longhaul_core::task::EarliestStart;
use longhaul_core::time::Millis;
use longhaul_engine::handle::SubmitOutcome;
use longhaul_engine::{Error, Task};
use serde_json::json;

use crate::suite::harness::failing_store::StoreFault;
use crate::suite::harness::{SECRET, TestEngine, engine_with};

async fn rows(engine: &TestEngine) -> usize {
    let filter = RunFilter { limit: 100, ..RunFilter::default() };
    engine.longhaul.list_brief_runs(filter).await.unwrap().len()
}

fn keyed(input: &str, key: &str) -> Task {
    let mut task = Task::new("tester", input);
    task.idempotency_key = Some(key.to_owned());
    task
}

#[tokio::test]
async fn an_unknown_agent_is_rejected_with_a_suggestion() {
    let engine = engine_with([]).build();
    for (name, expected) in [("testr", Some("tester")), ("unrelated_name", None)] {
        let error = engine.longhaul.submit(Task::new(name, "x")).await.unwrap_err();
        let Error::AgentNotFound { name: unknown_name, suggestion } = error else {
            panic!("{error:?}");
        };
        assert_eq!((unknown_name.as_str(), suggestion.as_deref()), (name, expected));
    }
    assert_eq!(rows(&engine).await, 0);
}

#[tokio::test]
async fn an_idempotency_key_is_used_once_and_for_one_request() {
    let engine = engine_with([]).build();
    let first = engine.longhaul.submit_all(vec![keyed("x", "k")]).await.unwrap();
    assert!(matches!(first, SubmitOutcome::Created(_)));
    let repeated = engine.longhaul.submit_all(vec![keyed("x", "k")]).await.unwrap();
    assert_eq!(repeated, SubmitOutcome::Existing(first.run_ids().to_vec()));
    let error = engine.longhaul.submit(keyed("y", "k")).await.unwrap_err();
    assert_eq!(error.code(), "idempotency_key_reused");
    let mut other_task = keyed("y", "k");
    other_task.submitter = Some("cli:ben".into());
    engine.longhaul.submit(other_task).await.unwrap();
    assert_eq!(rows(&engine).await, 2, "keys of different callers are independent");
}

#[tokio::test]
async fn the_view_and_the_explanation_of_a_run_with_a_start_time_agree() {
    let engine = engine_with([]).build();
    let now = engine.longhaul.store_time().await.unwrap();
    let mut task = Task::new("tester", "x");
    task.start = EarliestStart::At(now.plus(Millis::from_secs(3_600)));
    let EarliestStart::At(start) = task.start else {
        panic!("{task:?}");
    };
    let run = engine.longhaul.submit(task).await.unwrap();
    // A message makes a worker look at the run, and does not change its start time.
    for _ in 0..2 {
        let view = engine.longhaul.get_run(run).await.unwrap();
        assert_eq!(view.now, format!("The run waits for its start time, {start}."));
        assert_eq!(engine.longhaul.explain_run(run).await.unwrap().message, view.now);
        engine.longhaul.steer(run, "hurry", SteerDelivery::AfterBatch, "cli:anna").await.unwrap();
    }
}

#[tokio::test]
async fn a_text_of_one_mebibyte_is_accepted_whatever_its_escapes() {
    let engine = engine_with([]).build();
    let max = 1024 * 1024;
    for input in ["x".repeat(max), "\n".repeat(max)] {
        engine.longhaul.submit(Task::new("tester", &input)).await.unwrap();
        let error = engine.longhaul.submit(Task::new("tester", input + "x")).await.unwrap_err();
        assert_eq!(error.code(), "too_long");
    }
    let error = engine.longhaul.submit(Task::new("tester", ["x".repeat(max)])).await.unwrap_err();
    assert_eq!(error.code(), "too_long", "other JSON is measured as written");
}

#[tokio::test]
async fn invalid_types_and_idempotency_keys_are_rejected() {
    let engine = engine_with([]).build();
    for text in ["", "two\nlines", "\u{1b}[2J", "nul\0"] {
        let mut task_with_kind = Task::new("tester", "x");
        task_with_kind.kind = Some(text.to_owned());
        for task in [task_with_kind, keyed("x", text)] {
            let error = engine.longhaul.submit(task).await.unwrap_err();
            assert_eq!(error.code(), "invalid_task", "{text:?}");
        }
    }
    let error = engine.longhaul.submit(keyed("x", &"k".repeat(10_000))).await.unwrap_err();
    assert_eq!((error.code(), rows(&engine).await), ("invalid_task", 0));
}

#[tokio::test]
async fn the_metadata_can_name_the_thread_and_the_resource() {
    let engine = engine_with([]).build();
    let task = |metadata: serde_json::Value| {
        let mut task = Task::new("tester", "x");
        task.metadata = Some(RawJson::from_serialize(&metadata));
        task
    };
    let task_with_metadata = task(json!({ "threadId": "t", "resourceId": "r" }));
    let run = engine.longhaul.submit(task_with_metadata).await.unwrap();
    let view = engine.longhaul.get_run(run).await.unwrap();
    assert_eq!((view.thread.as_deref(), view.resource.as_deref()), (Some("t"), Some("r")));
    for metadata in [json!({ "threadId": 7 }), json!({ "resourceId": "" })] {
        let error = engine.longhaul.submit(task(metadata)).await.unwrap_err();
        assert!(error.to_string().contains("`metadata."), "{error}");
    }
    let mut task_with_thread = task(json!({ "threadId": 7 }));
    task_with_thread.thread = Some(ThreadKey::new("own").unwrap());
    let run = engine.longhaul.submit(task_with_thread).await.unwrap();
    assert_eq!(engine.longhaul.get_run(run).await.unwrap().thread.as_deref(), Some("own"));
}

#[tokio::test]
async fn every_view_of_a_run_says_that_its_lane_is_paused() {
    let engine = engine_with([]).build();
    let lane = LaneKey::new("docs").unwrap();
    engine.longhaul.pause_lane(&lane).await.unwrap();
    let mut task = Task::new("tester", "x");
    task.lane = Some(lane);
    let run = engine.longhaul.submit(task).await.unwrap();
    let message = "The lane `docs` is paused.";
    assert_eq!(engine.longhaul.get_run(run).await.unwrap().now, message);
    assert_eq!(engine.longhaul.explain_run(run).await.unwrap().message, message);
    let filter = RunFilter { limit: 10, ..RunFilter::default() };
    assert_eq!(engine.longhaul.list_brief_runs(filter).await.unwrap()[0].now, message);
    let secret = LaneKey::new(format!("p-{SECRET}")).unwrap();
    let error = engine.longhaul.pause_lane(&secret).await.unwrap_err();
    assert!(error.to_string().contains("the lane holds the secret"), "{error}");
}

#[tokio::test]
async fn tasks_are_submitted_all_or_none() {
    let engine = engine_with([]).build();
    let tasks = vec![Task::new("tester", "x"), Task::new("nobody", "y")];
    let error = engine.longhaul.submit_all(tasks).await.unwrap_err();
    assert_eq!((error.code(), rows(&engine).await), ("agent_not_found", 0));
    let tasks = vec![Task::new("tester", "x"), Task::new("tester", "y")];
    let outcome = engine.longhaul.submit_all(tasks).await.unwrap();
    assert_eq!((outcome.run_ids().len(), rows(&engine).await), (2, 2));
    let none = engine.longhaul.submit_all(Vec::new()).await.unwrap_err();
    assert_eq!(none.code(), "invalid_task");
    let tasks = vec![Task::new("tester", "x"); 1_001];
    let error = engine.longhaul.submit_all(tasks).await.unwrap_err();
    assert_eq!((error.code(), rows(&engine).await), ("invalid_task", 2));
}

#[tokio::test]
async fn an_invalid_lane_is_rejected() {
    for lane in ["repo:{{ input.repo }}", "{{ input.gone | shout }}", "{{ context.blank }}"] {
        let engine = engine_with([]).agent(|agent| agent.lane = Some(lane.into())).build();
        let task = Task::new("tester", json!({ "branch": "main" }));
        let error = engine.longhaul.submit(task).await.unwrap_err();
        assert_eq!((error.code(), rows(&engine).await), ("template", 0), "{lane}");
        assert!(error.to_string().contains("the lane of agent `tester`"), "{error}");
    }
}

#[tokio::test]
async fn too_long_tasks_are_rejected() {
    let engine = engine_with([]).build();
    let task = Task::new("tester", "x".repeat(1024 * 1024 + 1));
    let error = engine.longhaul.submit(task).await.unwrap_err();
    assert_eq!((error.code(), rows(&engine).await), ("too_long", 0));
    let mut task = Task::new("tester", "x");
    task.tags = vec!["tag".into(); 33];
    assert_eq!(engine.longhaul.submit(task).await.unwrap_err().code(), "invalid_task");
    let with_tag =
        |bytes| Task { tags: vec!["tag".into(), "t".repeat(bytes)], ..Task::new("tester", "x") };
    for (task, code) in [
        (with_tag(256), None),
        (with_tag(257), Some("too_long")),
        (keyed("x", &"k".repeat(255)), None),
        (keyed("x", &"k".repeat(352)), Some("invalid_task")),
    ] {
        let submitted = engine.longhaul.submit(task).await;
        assert_eq!(submitted.err().map(|error| error.code()), code);
    }
}

#[tokio::test]
async fn a_submitted_run_is_returned_even_if_it_can_not_be_read() {
    let engine = engine_with([]).build();
    let task = || keyed("x", "k");
    engine.store.fail_reads(StoreFault::Broken, 1);
    let first = engine.longhaul.submit_and_view_run(task()).await.unwrap();
    assert!(engine.store.has_failed(), "the read failed");
    let view = engine.longhaul.get_run(first.id).await.unwrap();
    assert_eq!(json!(first.input), json!(view.input));
    assert_eq!((first.status, first.agent), (view.status, view.agent.clone()));
    // The repeated submit creates nothing, so a failed read is returned as an error.
    engine.store.fail_reads(StoreFault::Broken, 1);
    let repeated = engine.longhaul.submit_and_view_run(task()).await;
    assert!(matches!(repeated, Err(Error::Store(_))), "{repeated:?}");
    let repeated = engine.longhaul.submit_and_view_run(task()).await.unwrap();
    assert_eq!(repeated.id, first.id);
    assert_eq!(rows(&engine).await, 1);
}
