//! Tests of workers: concurrency, shutdown, hooks, missing dependencies, and sharing work between
//! workers.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use longhaul_core::event::Event;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::failure::FailureClass;
use longhaul_core::id::{InboxName, LaneKey, RunId};
use longhaul_core::policy::effect::EffectClass::{Once, Pure};
use longhaul_core::policy::gate::{GateDecision, GateKind};
use longhaul_core::port::store::{RunFilter, RunRow};
use longhaul_core::port::tool::Tool;
use longhaul_core::status::Status;
use longhaul_core::wait::WaitReason;
use longhaul_engine::Task;
use longhaul_engine::services::Services;
use longhaul_engine::shutdown::Shutdown;
use longhaul_engine::tools::read_output::ReadOutputTool;
use longhaul_engine::tools::registry::ToolRegistry;
use longhaul_engine::worker::WorkerHooks;
use longhaul_engine::worker::{Worker, WorkerOptions};
use serde_json::json;

use crate::suite::harness::failing_store::StoreFault;
use crate::suite::harness::model::FakeReply;
use crate::suite::harness::tool::{EffectLog, FakeTool};
use crate::suite::harness::{TestEngine, answer, count, engine_with, kinds, outcome_text};
use longhaul_testkit::latch::Latch;

#[tokio::test]
async fn never_more_runs_at_once_than_a_worker_has_permits() {
    let latch = Latch::closed();
    let mut engine = engine_with([FakeReply::Text("done").after_latch(&latch)]).build();
    let mut runs = Vec::new();
    for _ in 0..8 {
        runs.push(engine.submit().await);
    }
    engine.spawn_worker(|options| options.concurrency = 3);
    latch.reached(3).await;
    let rows = engine
        .longhaul
        .services()
        .store
        .list_runs(RunFilter { limit: 100, ..RunFilter::default() });
    let rows = rows.await.unwrap();
    let driven = rows.iter().filter(|row| row.worker.is_some());
    assert_eq!((driven.count(), latch.arrivals()), (3, 3));
    latch.open();
    for run in runs {
        assert_eq!(outcome_text(&engine.ended(run).await), "done");
    }
}

/// Whether the journal shows that the run was released to another worker.
fn was_released(journal: &[JournalEntry]) -> bool {
    journal.iter().any(
        |entry| matches!(&entry.event, Event::RunWaiting(waiting) if waiting.wait == WaitReason::Worker),
    )
}

#[tokio::test]
async fn a_run_in_a_model_call_is_released_and_completed_by_another_worker() {
    let latch = Latch::closed();
    let mut engine = engine_with([FakeReply::Text("never").after_latch(&latch)]).build();
    let stop = engine.spawn_worker(|_| {});
    let run = engine.submit().await;
    latch.reached(1).await;
    stop.request_drain();
    engine.worker_stopped().await;
    engine.spawn_worker(|_| {});
    let journal = engine.ended(run).await;
    assert!(was_released(&journal), "{:?}", kinds(&journal));
    assert_eq!((outcome_text(&journal).as_str(), count(&journal, "run.claimed")), ("done", 2));
    let stopped = journal.iter().any(|entry| {
        matches!(&entry.event, Event::TurnFailed(failed)
            if failed.failure.class == FailureClass::Stopped)
    });
    assert!(stopped, "{:?}", kinds(&journal));
}

#[tokio::test]
async fn a_run_in_a_tool_call_finishes_the_call_before_release() {
    for class in [Pure, Once] {
        let (latch, effects) = (Latch::closed(), EffectLog::default());
        let tool = FakeTool::new("act", class, &effects).after_latch(&latch);
        let mut engine = engine_with([FakeReply::call("act", json!({}))]).tools([tool]).build();
        let stop = engine
            .spawn_worker(|options| options.drain_timeout = longhaul_core::time::Millis(5_000));
        let run = engine.submit().await;
        latch.reached(1).await;
        stop.request_drain();
        latch.open();
        engine.worker_stopped().await;
        assert_eq!(engine.model.requests().len(), 1);
        engine.spawn_worker(|_| {});
        let journal = engine.ended(run).await;
        assert!(was_released(&journal), "{:?}", kinds(&journal));
        assert_eq!(effects.count("act begins"), 1);
        assert_eq!(count(&journal, "tool.in_doubt"), 0);
        assert_eq!(engine.results(), [("{}".to_owned(), false)]);
    }
}

#[tokio::test]
async fn an_aborted_pure_call_is_repeated_at_once() {
    let (latch, effects) = (Latch::closed(), EffectLog::default());
    let tool = FakeTool::new("act", Pure, &effects).after_latch(&latch);
    let mut engine = engine_with([FakeReply::call("act", json!({}))]).tools([tool]).build();
    let stop = engine.spawn_worker(|_| {});
    let run = engine.submit().await;
    latch.reached(1).await;
    stop.request_abort();
    engine.worker_stopped().await;
    latch.open();
    engine.spawn_worker(|_| {});
    let journal = engine.ended(run).await;
    assert!(was_released(&journal), "{:?}", kinds(&journal));
    assert_eq!(outcome_text(&journal), "done");
    assert_eq!((effects.count("act begins"), effects.count("act ends")), (2, 1));
    assert_eq!(engine.results(), [("{}".to_owned(), false)]);
}

#[tokio::test]
async fn a_run_is_released_without_rereading_its_journal() {
    let latch = Latch::closed();
    let tool = FakeTool::new("act", Pure, &EffectLog::default()).after_latch(&latch);
    let mut engine = engine_with([FakeReply::call("act", json!({}))]).tools([tool]).build();
    let stop = engine.spawn_worker(|_| {});
    let run = engine.submit().await;
    latch.reached(1).await;
    engine.store.fail_reads(StoreFault::Broken, 1);
    stop.request_abort();
    engine.worker_stopped().await;
    assert!(!engine.store.has_failed(), "the store was not read");
    let row = engine.longhaul.services().store.get_run(run).await.unwrap();
    assert_eq!(row.unwrap().worker, None);
}

#[tokio::test]
async fn two_workers_share_the_work() {
    let latch = Latch::closed();
    let mut engine = engine_with([FakeReply::Text("done").after_latch(&latch)]).build();
    for _ in 0..2 {
        engine.spawn_worker(|options| options.concurrency = 1);
    }
    let runs = [engine.submit().await, engine.submit().await];
    latch.reached(2).await;
    latch.open();
    let mut workers = BTreeSet::new();
    for run in runs {
        for entry in engine.ended(run).await {
            if let Event::RunClaimed(claimed) = entry.event {
                workers.insert(claimed.worker);
            }
        }
    }
    assert_eq!(workers.len(), 2);
}

#[tokio::test]
async fn the_runs_of_a_lane_go_one_after_another() {
    let effects = EffectLog::default();
    let tool = FakeTool::new("act", Once, &effects);
    let mut engine = engine_with([FakeReply::call("act", json!({}))])
        .tools([tool])
        .agent(|agent| agent.lane = Some("repo:{{ input.repo }}".into()))
        .build();
    let submit = |n: usize| {
        let mut task = Task::new("tester", json!({ "repo": "a", "n": n }));
        task.lane = (n == 2).then(|| LaneKey::new("repo:a").unwrap());
        engine.longhaul.submit(task)
    };
    let runs = [submit(0).await, submit(1).await, submit(2).await].map(Result::unwrap);
    let explanation = engine.longhaul.explain_run(runs[1]).await.unwrap();
    assert!(explanation.message.contains("the lane `repo:a`"), "{}", explanation.message);
    engine.spawn_worker(|_| {});
    let mut ended_at = None;
    for run in runs {
        let journal = engine.ended(run).await;
        let claimed = journal.iter().find(|entry| entry.event.kind() == "run.claimed");
        assert!(claimed.map(|entry| entry.at) >= ended_at, "the run before it has ended");
        ended_at = journal.last().map(|entry| entry.at);
    }
    let entries = effects.all();
    assert!(entries.chunks(2).all(|pair| pair == ["act begins {}", "act ends {}"]), "{entries:?}");
}

/// Records the hooks that are called, and panics if it should.
#[derive(Debug, Default)]
struct RecordingHooks {
    calls: Mutex<BTreeSet<&'static str>>,
    panics: bool,
}

impl RecordingHooks {
    fn record(&self, hook: &'static str) {
        self.calls.lock().unwrap().insert(hook);
        assert!(!self.panics, "a bug in the hook");
    }
}

#[async_trait]
impl WorkerHooks for RecordingHooks {
    async fn on_run_claimed(&self, _run: RunId) {
        self.record("start");
    }

    async fn on_run_completed(&self, run: &RunRow) {
        assert_eq!(run.status, Status::Completed);
        self.record("complete");
    }

    async fn on_run_failed(&self, run: &RunRow) {
        assert_eq!(run.code.as_deref(), Some("auth"));
        self.record("error");
    }

    async fn on_run_idle(&self, _run: &RunRow) {
        self.record("rest");
    }

    async fn on_no_run_found(&self) {
        self.record("empty");
    }
}

#[tokio::test]
async fn hooks_are_called_and_a_panicking_hook_is_contained() {
    for panics in [false, true] {
        let hooks = Arc::new(RecordingHooks { panics, ..RecordingHooks::default() });
        let question = json!({ "question": "Which?" });
        let mut engine = engine_with([FakeReply::call("ask_human", question)]).build();
        let stop = engine.spawn_worker_with_hooks(hooks.clone());
        let run = engine.submit().await;
        let gate = engine.gate(run).await;
        let gate_answer = answer(&gate, GateDecision::Answer("this".into()));
        engine.longhaul.answer_gate(gate.spec.id, gate_answer).await.unwrap();
        assert_eq!(outcome_text(&engine.ended(run).await), "done");
        engine.model.set_replies(vec![FakeReply::Fail(FailureClass::Auth)]);
        let failing = engine.submit().await;
        assert_eq!(outcome_text(&engine.ended(failing).await), "auth");
        stop.request_drain();
        engine.worker_stopped().await;
        let called: Vec<&str> = hooks.calls.lock().unwrap().iter().copied().collect();
        assert_eq!(called, ["complete", "empty", "error", "rest", "start"], "{panics}");
    }
}

/// Returns the gate of a blocked run and its message.
async fn blocked(
    engine: &TestEngine,
    run: RunId,
) -> (longhaul_core::policy::gate::GateRow, String) {
    let gate = engine.gate(run).await;
    assert_eq!(gate.spec.kind, GateKind::Blocked);
    let row = engine.longhaul.get_run(run).await.unwrap();
    assert_eq!(row.status, Status::Blocked);
    let question = gate.spec.ask.clone();
    (gate, question)
}

async fn unblock(engine: &TestEngine, run: RunId, gate: &longhaul_core::policy::gate::GateRow) {
    let gate_answer = answer(gate, GateDecision::Answer("it is there now".into()));
    engine.longhaul.answer_gate(gate.spec.id, gate_answer).await.unwrap();
    let journal = engine.ended(run).await;
    assert_eq!(outcome_text(&journal), "done", "{:?}", kinds(&journal));
}

#[tokio::test]
async fn a_missing_model_blocks_until_it_is_there() {
    const MESSAGE: &str = "No model is configured. Set one with `longhaul init`.";
    let engine = engine_with([]).start();
    *engine.models.missing_message.lock().unwrap() = Some(MESSAGE);
    let run = engine.submit().await;
    let (gate, message) = blocked(&engine, run).await;
    assert_eq!(message, MESSAGE);
    // An answer while the model is still missing only blocks the run again.
    let gate_answer = answer(&gate, GateDecision::Answer("surely?".into()));
    engine.longhaul.answer_gate(gate.spec.id, gate_answer).await.unwrap();
    let entries = engine.until(run, "gate.answered").await;
    engine.until_after(run, entries.last().unwrap().seq, "run.blocked").await;
    let (gate, _) = blocked(&engine, run).await;
    *engine.models.missing_message.lock().unwrap() = None;
    unblock(&engine, run, &gate).await;
}

#[tokio::test]
async fn a_missing_definition_blocks_until_it_is_there() {
    let engine = engine_with([]).start();
    engine.store.hides_definitions.store(true, Ordering::SeqCst);
    let run = engine.submit().await;
    let (gate, message) = blocked(&engine, run).await;
    assert!(message.contains("is not in the store"), "{message}");
    engine.store.hides_definitions.store(false, Ordering::SeqCst);
    unblock(&engine, run, &gate).await;
}

/// Returns the same services without the tools of the test.
fn without_tools(services: &Services) -> Services {
    let read_output = ReadOutputTool::new(services.store.clone(), services.records.clone());
    Services {
        tools: Arc::new(ToolRegistry::new([Arc::new(read_output) as Arc<dyn Tool>]).unwrap()),
        ..services.clone()
    }
}

#[tokio::test]
async fn a_missing_tool_blocks_until_a_worker_has_it() {
    let effects = EffectLog::default();
    let tool = FakeTool::new("act", Pure, &effects);
    let mut engine = engine_with([FakeReply::call("act", json!({}))]).tools([tool]).build();
    let options = WorkerOptions::new(InboxName::new("default").unwrap());
    let stop = Shutdown::new();
    let worker = Worker::new(&without_tools(engine.longhaul.services()), options);
    engine.workers.spawn(worker.run(stop.clone()));
    let run = engine.submit().await;
    let (gate, message) = blocked(&engine, run).await;
    assert!(message.contains("the tool `act`, which this worker does not have"), "{message}");
    stop.request_drain();
    engine.worker_stopped().await;
    engine.spawn_worker(|_| {});
    unblock(&engine, run, &gate).await;
    assert_eq!(effects.count("act ends"), 1);
}

#[tokio::test]
async fn a_prompt_that_can_not_be_rendered_blocks_the_run() {
    let engine =
        engine_with([]).agent(|agent| agent.prompt = "You tidy {{ input.room }}.".into()).start();
    let run = engine.submit().await;
    let (_, message) = blocked(&engine, run).await;
    assert!(message.contains("The prompt of agent `tester` can't be rendered"), "{message}");
    // The run keeps its agent, so an answer does not help.
    assert!(message.contains("cancel this run"), "{message}");
    let explanation = engine.longhaul.explain_run(run).await.unwrap();
    assert_eq!(explanation.command, format!("longhaul cancel {run}"));
}
