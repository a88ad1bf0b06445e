//! Workers: how many runs at once, how they go home, whom they tell, what they
//! do about a part that is missing, and how several share the work.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use longhaul_core::event::Event;
use longhaul_core::event::entry::Entry;
use longhaul_core::failure::FailureClass;
use longhaul_core::id::{InboxName, LaneKey, RunId};
use longhaul_core::policy::effect::EffectClass::{Once, Pure};
use longhaul_core::policy::gate::{Decision, GateKind};
use longhaul_core::port::store::{RunFilter, RunRow};
use longhaul_core::port::tool::Tool;
use longhaul_core::status::{Status, Wait};
use longhaul_engine::Task;
use longhaul_engine::hooks::Hooks;
use longhaul_engine::read_output::ReadOutput;
use longhaul_engine::services::EngineServices;
use longhaul_engine::shutdown::Shutdown;
use longhaul_engine::tool_registry::ToolRegistry;
use longhaul_engine::worker::{Worker, WorkerOptions};
use serde_json::json;

use crate::suite::harness::failing_store::StoreFault;
use crate::suite::harness::model::FakeReply;
use crate::suite::harness::tool::{EffectLog, FakeTool};
use crate::suite::harness::{TestEngine, answer, count, engine_with, kinds, outcome_text};
use longhaul_testkit::latch::Latch;

#[tokio::test]
async fn never_more_runs_at_once_than_a_worker_has_permits() {
    let door = Latch::new();
    let mut house = engine_with([FakeReply::Text("done").after_latch(&door)]).build();
    let mut runs = Vec::new();
    for _ in 0..8 {
        runs.push(house.submit().await);
    }
    house.spawn_worker(|options| options.concurrency = 3);
    door.reached(3).await;
    let rows =
        house.longhaul.services().store.list_runs(RunFilter { limit: 100, ..RunFilter::default() });
    let rows = rows.await.unwrap();
    let driven = rows.iter().filter(|row| row.worker.is_some());
    assert_eq!((driven.count(), door.arrivals()), (3, 3));
    door.open();
    for run in runs {
        assert_eq!(outcome_text(&house.ended(run).await), "done");
    }
}

/// Whether a journal says that its run was let go of for another worker.
fn was_released(journal: &[Entry]) -> bool {
    journal.iter().any(
        |entry| matches!(&entry.event, Event::RunWaiting(waiting) if waiting.wait == Wait::Worker),
    )
}

#[tokio::test]
async fn a_run_in_a_model_call_is_released_and_completed_by_another_worker() {
    let door = Latch::new();
    let mut house = engine_with([FakeReply::Text("never").after_latch(&door)]).build();
    let stop = house.spawn_worker(|_| {});
    let run = house.submit().await;
    door.reached(1).await;
    stop.drain();
    house.worker_stopped().await;
    house.spawn_worker(|_| {});
    let journal = house.ended(run).await;
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
        let (door, deeds) = (Latch::new(), EffectLog::default());
        let hand = FakeTool::new("act", class, &deeds).after_latch(&door);
        let mut house = engine_with([FakeReply::call("act", json!({}))]).tools([hand]).build();
        let stop = house
            .spawn_worker(|options| options.drain_timeout = longhaul_core::time::Millis(5_000));
        let run = house.submit().await;
        door.reached(1).await;
        stop.drain();
        door.open();
        house.worker_stopped().await;
        assert_eq!(house.model.requests().len(), 1);
        house.spawn_worker(|_| {});
        let journal = house.ended(run).await;
        assert!(was_released(&journal), "{:?}", kinds(&journal));
        assert_eq!(deeds.count("act begins"), 1);
        assert_eq!(count(&journal, "tool.in_doubt"), 0);
        assert_eq!(house.results(), [("{}".to_owned(), false)]);
    }
}

#[tokio::test]
async fn an_aborted_pure_call_is_repeated_at_once() {
    let (door, deeds) = (Latch::new(), EffectLog::default());
    let hand = FakeTool::new("act", Pure, &deeds).after_latch(&door);
    let mut house = engine_with([FakeReply::call("act", json!({}))]).tools([hand]).build();
    let stop = house.spawn_worker(|_| {});
    let run = house.submit().await;
    door.reached(1).await;
    stop.abort();
    house.worker_stopped().await;
    door.open();
    house.spawn_worker(|_| {});
    let journal = house.ended(run).await;
    assert!(was_released(&journal), "{:?}", kinds(&journal));
    assert_eq!(outcome_text(&journal), "done");
    assert_eq!((deeds.count("act begins"), deeds.count("act ends")), (2, 1));
    assert_eq!(house.results(), [("{}".to_owned(), false)]);
}

#[tokio::test]
async fn a_run_is_released_without_rereading_its_journal() {
    let door = Latch::new();
    let hand = FakeTool::new("act", Pure, &EffectLog::default()).after_latch(&door);
    let mut house = engine_with([FakeReply::call("act", json!({}))]).tools([hand]).build();
    let stop = house.spawn_worker(|_| {});
    let run = house.submit().await;
    door.reached(1).await;
    house.store.fail_reads(StoreFault::Broken, 1);
    stop.abort();
    house.worker_stopped().await;
    assert!(!house.store.has_failed(), "nobody has read");
    let row = house.longhaul.services().store.get_run(run).await.unwrap();
    assert_eq!(row.unwrap().worker, None);
}

#[tokio::test]
async fn two_workers_share_the_work() {
    let door = Latch::new();
    let mut house = engine_with([FakeReply::Text("done").after_latch(&door)]).build();
    for _ in 0..2 {
        house.spawn_worker(|options| options.concurrency = 1);
    }
    let runs = [house.submit().await, house.submit().await];
    door.reached(2).await;
    door.open();
    let mut workers = BTreeSet::new();
    for run in runs {
        for entry in house.ended(run).await {
            if let Event::RunClaimed(claimed) = entry.event {
                workers.insert(claimed.worker);
            }
        }
    }
    assert_eq!(workers.len(), 2);
}

#[tokio::test]
async fn the_runs_of_a_lane_go_one_after_another() {
    let deeds = EffectLog::default();
    let hand = FakeTool::new("act", Once, &deeds);
    let mut house = engine_with([FakeReply::call("act", json!({}))])
        .tools([hand])
        .agent(|agent| agent.lane = Some("repo:{{ input.repo }}".into()))
        .build();
    let submit = |n: usize| {
        let mut task = Task::new("tester", json!({ "repo": "a", "n": n }));
        task.lane = (n == 2).then(|| LaneKey::new("repo:a").unwrap());
        house.longhaul.submit(task)
    };
    let runs = [submit(0).await, submit(1).await, submit(2).await].map(Result::unwrap);
    let why = house.longhaul.why_view(runs[1]).await.unwrap();
    assert!(why.message.contains("the lane `repo:a`"), "{}", why.message);
    house.spawn_worker(|_| {});
    let mut ended_at = None;
    for run in runs {
        let journal = house.ended(run).await;
        let claimed = journal.iter().find(|entry| entry.event.kind() == "run.claimed");
        assert!(claimed.map(|entry| entry.at) >= ended_at, "the one before has ended");
        ended_at = journal.last().map(|entry| entry.at);
    }
    let alone = deeds.all();
    assert!(alone.chunks(2).all(|pair| pair == ["act begins {}", "act ends {}"]), "{alone:?}");
}

/// Writes down what it is told, and panics if it should.
#[derive(Debug, Default)]
struct RecordingHooks {
    calls: Mutex<BTreeSet<&'static str>>,
    panics: bool,
}

impl RecordingHooks {
    fn record(&self, what: &'static str) {
        self.calls.lock().unwrap().insert(what);
        assert!(!self.panics, "a hook with a mistake");
    }
}

#[async_trait]
impl Hooks for RecordingHooks {
    async fn on_start(&self, _run: RunId) {
        self.record("start");
    }

    async fn on_complete(&self, run: &RunRow) {
        assert_eq!(run.status, Status::Completed);
        self.record("complete");
    }

    async fn on_error(&self, run: &RunRow) {
        assert_eq!(run.code.as_deref(), Some("auth"));
        self.record("error");
    }

    async fn on_idle(&self, _run: &RunRow) {
        self.record("rest");
    }

    async fn on_empty(&self) {
        self.record("empty");
    }
}

#[tokio::test]
async fn hooks_are_called_and_a_panicking_hook_is_contained() {
    for panics in [false, true] {
        let hooks = Arc::new(RecordingHooks { panics, ..RecordingHooks::default() });
        let question = json!({ "question": "Which?" });
        let mut house = engine_with([FakeReply::call("ask_human", question)]).build();
        let stop = house.spawn_worker_with_hooks(hooks.clone());
        let run = house.submit().await;
        let gate = house.gate(run).await;
        let said = answer(&gate, Decision::Answer("this".into()));
        house.longhaul.answer(gate.spec.id, said).await.unwrap();
        assert_eq!(outcome_text(&house.ended(run).await), "done");
        house.model.set_replies(vec![FakeReply::Fail(FailureClass::Auth)]);
        let bad = house.submit().await;
        assert_eq!(outcome_text(&house.ended(bad).await), "auth");
        stop.drain();
        house.worker_stopped().await;
        let told: Vec<&str> = hooks.calls.lock().unwrap().iter().copied().collect();
        assert_eq!(told, ["complete", "empty", "error", "rest", "start"], "{panics}");
    }
}

/// A run that is blocked, what it says, and how it ends after an answer.
async fn blocked(house: &TestEngine, run: RunId) -> (longhaul_core::policy::gate::GateRow, String) {
    let gate = house.gate(run).await;
    assert_eq!(gate.spec.kind, GateKind::Blocked);
    let row = house.longhaul.show(run).await.unwrap();
    assert_eq!(row.status, Status::Blocked);
    let ask = gate.spec.ask.clone();
    (gate, ask)
}

async fn unblock(house: &TestEngine, run: RunId, gate: &longhaul_core::policy::gate::GateRow) {
    let said = answer(gate, Decision::Answer("it is there now".into()));
    house.longhaul.answer(gate.spec.id, said).await.unwrap();
    let journal = house.ended(run).await;
    assert_eq!(outcome_text(&journal), "done", "{:?}", kinds(&journal));
}

#[tokio::test]
async fn a_missing_model_blocks_until_it_is_there() {
    const MESSAGE: &str = "No model is configured. Set one with `longhaul init`.";
    let house = engine_with([]).start();
    *house.models.missing_message.lock().unwrap() = Some(MESSAGE);
    let run = house.submit().await;
    let (gate, sentence) = blocked(&house, run).await;
    assert_eq!(sentence, MESSAGE);
    // An answer while it is still missing only asks anew.
    let said = answer(&gate, Decision::Answer("surely?".into()));
    house.longhaul.answer(gate.spec.id, said).await.unwrap();
    let seen = house.until(run, "gate.answered").await;
    house.until_after(run, seen.last().unwrap().seq, "run.blocked").await;
    let (gate, _) = blocked(&house, run).await;
    *house.models.missing_message.lock().unwrap() = None;
    unblock(&house, run, &gate).await;
}

#[tokio::test]
async fn a_missing_definition_blocks_until_it_is_there() {
    let house = engine_with([]).start();
    house.store.hides_definitions.store(true, Ordering::SeqCst);
    let run = house.submit().await;
    let (gate, sentence) = blocked(&house, run).await;
    assert!(sentence.contains("is not in the store"), "{sentence}");
    house.store.hides_definitions.store(false, Ordering::SeqCst);
    unblock(&house, run, &gate).await;
}

/// The same parts without any tool of a test.
fn without_tools(ports: &EngineServices) -> EngineServices {
    let paging = ReadOutput::new(ports.store.clone(), ports.records.clone()).unwrap();
    EngineServices {
        tools: Arc::new(ToolRegistry::new([Arc::new(paging) as Arc<dyn Tool>]).unwrap()),
        ..ports.clone()
    }
}

#[tokio::test]
async fn a_missing_tool_blocks_until_a_worker_has_it() {
    let deeds = EffectLog::default();
    let hand = FakeTool::new("act", Pure, &deeds);
    let mut house = engine_with([FakeReply::call("act", json!({}))]).tools([hand]).build();
    let options = WorkerOptions::new(InboxName::new("default").unwrap());
    let stop = Shutdown::new();
    let poor = Worker::new(&without_tools(house.longhaul.services()), options);
    house.workers.spawn(poor.run(stop.clone()));
    let run = house.submit().await;
    let (gate, sentence) = blocked(&house, run).await;
    assert!(sentence.contains("the tool `act`, which this worker does not have"), "{sentence}");
    stop.drain();
    house.worker_stopped().await;
    house.spawn_worker(|_| {});
    unblock(&house, run, &gate).await;
    assert_eq!(deeds.count("act ends"), 1);
}

#[tokio::test]
async fn a_prompt_that_can_not_be_rendered_blocks_the_run() {
    let house =
        engine_with([]).agent(|agent| agent.prompt = "You tidy {{ input.room }}.".into()).start();
    let run = house.submit().await;
    let (_, sentence) = blocked(&house, run).await;
    assert!(sentence.contains("The prompt of agent `tester` can't be made"), "{sentence}");
    // The run keeps its agent, so no answer helps.
    assert!(sentence.contains("cancel this run"), "{sentence}");
    let why = house.longhaul.why_view(run).await.unwrap();
    assert_eq!(why.command, format!("longhaul cancel {run}"));
}
