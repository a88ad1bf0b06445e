//! Sandboxes of runs: many runs share few, idle ones are stopped and deleted, and nothing leaks when
//! a worker dies or a provider fails.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use longhaul_core::event::Event;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::id::{Epoch, RunId};
use longhaul_core::policy::effect::EffectClass::Pure;
use longhaul_core::policy::gate::{GateDecision, GateKind};
use longhaul_core::port::sandbox::{SandboxCommand, SandboxError, SandboxSpec, Sandboxes as _};
use longhaul_core::port::tool::{ToolContext, ToolFailure};
use longhaul_core::time::{Clock as _, Millis, Timestamp};
use longhaul_engine::agent::config::SandboxConfig;
use longhaul_engine::sandboxes::{SandboxRegistry, SandboxSettings};
use longhaul_testkit::fake_sandboxes::{FAKE_PROVIDER, FakeSandboxes, SandboxOp};
use serde_json::json;

use crate::suite::harness::model::FakeReply;
use crate::suite::harness::tool::{EffectLog, FakeTool, ToolTraits};
use crate::suite::harness::{
    TIMEOUT, TestEngine, TestEngineBuilder, answer, count, engine_with, kinds, outcome_text,
};

fn settings() -> SandboxSettings {
    SandboxSettings { provider: FAKE_PROVIDER.to_owned(), ..SandboxSettings::default() }
}

/// Builds an engine whose agent has a sandbox and the tool `make`, which runs a command in it.
fn engine_with_sandboxes(
    replies: impl IntoIterator<Item = FakeReply>,
    (provider, settings): (&FakeSandboxes, SandboxSettings),
) -> TestEngineBuilder {
    let mut registry = SandboxRegistry::new(settings);
    registry.register(Arc::new(provider.clone()));
    let traits = ToolTraits { works_in_sandbox: true, ..ToolTraits::default() };
    let tool = FakeTool::new("make", Pure, &EffectLog::default())
        .with_traits(traits)
        .with_action(|_, ctx| run_command(ctx).boxed());
    engine_with(replies)
        .tools([tool])
        .agent(|agent| agent.sandbox = Some(SandboxConfig::default()))
        .sandboxes(registry)
}

async fn run_command(ctx: ToolContext) -> Result<ToolOutput, ToolFailure> {
    let sandbox = ctx.sandbox.ok_or_else(|| ToolFailure::new("there is no sandbox"))?;
    let exit = sandbox.exec(SandboxCommand::shell("make"), &mut |_, _| {}).await;
    exit.map(|_| ToolOutput::text("made")).map_err(|error| ToolFailure::new(error.to_string()))
}

fn make() -> FakeReply {
    FakeReply::call("make", json!({}))
}

fn question() -> FakeReply {
    FakeReply::call("ask_human", json!({ "question": "Which?" }))
}

async fn answer_question(engine: &TestEngine, run: RunId) {
    let gate = engine.gate(run).await;
    let reply = answer(&gate, GateDecision::Answer("Blue.".to_owned()));
    engine.longhaul.answer_gate(gate.spec.id, reply).await.unwrap();
}

/// Advances the clock second by second, whenever the provider is not called, until the condition is
/// true. Returns the time.
async fn advance_until(
    (engine, provider): (&TestEngine, &FakeSandboxes),
    is_true: impl Fn(Timestamp) -> bool,
) -> Timestamp {
    let clock = engine.clock.as_ref().expect("a simulated clock");
    let advance = async {
        while !is_true(clock.now()) {
            let called = tokio::time::timeout(Duration::from_millis(1), provider.next_call());
            if called.await.is_err() {
                clock.advance(Millis::from_secs(1));
            }
        }
    };
    let result = tokio::time::timeout(TIMEOUT, advance).await;
    assert!(result.is_ok(), "the condition never came true: {:?}", provider.calls());
    clock.now()
}

/// Returns the names that the sandboxes of a journal have at the provider, in order.
fn sandbox_names(journal: &[JournalEntry]) -> Vec<String> {
    let created = journal.iter().filter_map(|entry| match &entry.event {
        Event::SandboxCreating(data) => Some(data.sandbox.to_string()),
        _ => None,
    });
    created.map(|id| format!("lh-{}", id.replace('_', "-"))).collect()
}

#[tokio::test]
async fn thirty_runs_with_questions_share_ten_sandboxes() {
    let provider = FakeSandboxes::default();
    let replies = [make(), question(), make()];
    let mut engine =
        engine_with_sandboxes(replies, (&provider, settings())).with_sim_clock().build();
    engine.spawn_worker(|options| options.concurrency = 40);
    let mut runs = Vec::new();
    for _ in 0..30 {
        runs.push(engine.submit().await);
    }
    let engine = &engine;
    let answers = join_all(runs.iter().map(|run| answer_question(engine, *run)));
    let finish = async {
        for run in &runs {
            let journal = engine.advance_until(*run, "run.completed").await;
            assert_eq!(sandbox_names(&journal).len(), 1, "{:?}", kinds(&journal));
        }
    };
    tokio::join!(answers, finish);
    advance_until((engine, &provider), |_| provider.running().is_empty()).await;
    assert_eq!(provider.running_max(), 10);
    assert_eq!((provider.count(SandboxOp::Create), provider.names().len()), (30, 30));
    assert_eq!(provider.count(SandboxOp::Exec), 60);
}

#[tokio::test]
async fn the_sandbox_of_a_waiting_run_is_stopped_after_two_minutes_and_started_again() {
    let provider = FakeSandboxes::default();
    let replies = [make(), question(), make()];
    let engine = engine_with_sandboxes(replies, (&provider, settings())).with_sim_clock().start();
    let run = engine.submit().await;
    engine.gate(run).await;
    let parked_at = engine.clock.as_ref().unwrap().now();
    let stopped_at = advance_until((&engine, &provider), |_| provider.running().is_empty()).await;
    let idle = stopped_at.duration_since(parked_at);
    assert!((Millis::from_secs(120)..Millis::from_secs(180)).contains(&idle), "{idle:?}");
    engine.advance_until(run, "sandbox.stopped").await;
    answer_question(&engine, run).await;
    let journal = engine.advance_until(run, "run.completed").await;
    let starts = (provider.count(SandboxOp::Create), provider.count(SandboxOp::Start));
    assert_eq!(starts, (1, 1), "{:?}", kinds(&journal));
    assert_eq!(count(&journal, "sandbox.running"), 2);
}

#[tokio::test]
async fn the_longest_idle_sandbox_is_stopped_when_another_run_waits() {
    let provider = FakeSandboxes::default();
    let settings = SandboxSettings { max_running: 2, idle_stop: None, ..settings() };
    let replies = [make(), question(), make()];
    let engine = engine_with_sandboxes(replies, (&provider, settings)).with_sim_clock().start();
    let mut names = Vec::new();
    let mut runs = Vec::new();
    for _ in 0..2 {
        let run = engine.submit().await;
        engine.gate(run).await;
        let journal = engine.advance_until(run, "run.waiting").await;
        names.extend(sandbox_names(&journal));
        runs.push(run);
        engine.clock.as_ref().unwrap().advance(Millis::from_secs(10));
    }
    let third = engine.submit().await;
    engine.advance_until(third, "tool.completed").await;
    assert_eq!(provider.running_max(), 2);
    let running = provider.running();
    assert!(!running.contains(&names[0]) && running.contains(&names[1]), "{running:?}");
    for run in runs.into_iter().chain([third]) {
        answer_question(&engine, run).await;
        let journal = engine.advance_until(run, "run.completed").await;
        assert_eq!(outcome_text(&journal), "done");
    }
    assert_eq!((provider.running_max(), provider.count(SandboxOp::Create)), (2, 3));
}

#[tokio::test]
async fn the_sandbox_of_an_ended_run_is_stopped_and_later_deleted() {
    let provider = FakeSandboxes::default();
    let settings = SandboxSettings { keep: Some(Millis::from_secs(600)), ..settings() };
    let engine = engine_with_sandboxes([make()], (&provider, settings)).with_sim_clock().start();
    let run = engine.submit().await;
    engine.advance_until(run, "run.completed").await;
    let ended_at = engine.clock.as_ref().unwrap().now();
    advance_until((&engine, &provider), |_| provider.running().is_empty()).await;
    assert_eq!(provider.names().len(), 1);
    let deleted_at = advance_until((&engine, &provider), |_| provider.names().is_empty()).await;
    assert!(deleted_at.duration_since(ended_at) >= Millis::from_secs(590));
}

fn short_lease(options: &mut longhaul_engine::worker::WorkerOptions) {
    options.lease = Millis(300);
}

/// Kills the only worker once the provider has received this call, and starts another worker.
async fn kill_after_call(
    op: SandboxOp,
    replies: Vec<FakeReply>,
    provider: &FakeSandboxes,
) -> (TestEngine, RunId) {
    let settings = SandboxSettings { idle_stop: Some(Millis(50)), ..settings() };
    let mut engine = engine_with_sandboxes(replies, (provider, settings)).build();
    let latch = provider.block_next(op);
    engine.spawn_worker(short_lease);
    let run = engine.submit().await;
    latch.reached(1).await;
    engine.workers.abort_all();
    while engine.workers.join_next().await.is_some() {}
    assert_eq!(provider.commands(), 0, "a command goes on after its worker");
    engine.spawn_worker(short_lease);
    (engine, run)
}

#[tokio::test]
async fn a_run_goes_on_in_its_sandbox_after_its_worker_dies_during_a_command() {
    let provider = FakeSandboxes::default();
    let (engine, run) = kill_after_call(SandboxOp::Exec, vec![make()], &provider).await;
    let journal = engine.ended(run).await;
    assert_eq!((outcome_text(&journal).as_str(), count(&journal, "tool.started")), ("done", 2));
    provider.wait_until(|provider| provider.running().is_empty()).await;
    let calls = provider.calls();
    let epochs = |op| calls.iter().filter(move |call| call.op == op).filter_map(|call| call.epoch);
    let both = vec![Epoch(1), Epoch(2)];
    assert_eq!(epochs(SandboxOp::Exec).collect::<Vec<_>>(), both);
    assert_eq!(epochs(SandboxOp::KillCommandsBefore).collect::<Vec<_>>(), both);
    assert_eq!(provider.names(), sandbox_names(&journal));
}

#[tokio::test]
async fn a_sandbox_whose_creation_was_not_answered_is_found_again() {
    let provider = FakeSandboxes::default();
    let (engine, run) = kill_after_call(SandboxOp::Create, vec![make()], &provider).await;
    let journal = engine.ended(run).await;
    assert_eq!(outcome_text(&journal), "done");
    assert_eq!(provider.count(SandboxOp::Create), 2);
    assert_eq!(provider.names(), sandbox_names(&journal));
    provider.wait_until(|provider| provider.running().is_empty()).await;
}

#[tokio::test]
async fn a_stop_is_finished_after_its_worker_dies() {
    let provider = FakeSandboxes::default();
    let replies = vec![make(), question(), make()];
    let (engine, run) = kill_after_call(SandboxOp::Stop, replies, &provider).await;
    engine.until(run, "sandbox.stopped").await;
    answer_question(&engine, run).await;
    let journal = engine.ended(run).await;
    assert_eq!(outcome_text(&journal), "done");
    assert_eq!(provider.count(SandboxOp::Create), 1);
    provider.wait_until(|provider| provider.running().is_empty()).await;
    assert_eq!(provider.names(), sandbox_names(&journal));
}

#[tokio::test]
async fn a_sandbox_that_no_run_knows_is_deleted_after_a_while() {
    let provider = FakeSandboxes::default();
    for (name, store) in [("forgotten", "default"), ("foreign", "another")] {
        let labels = BTreeMap::from([("longhaul.store".to_owned(), store.to_owned())]);
        let spec = SandboxSpec { name: name.to_owned(), labels, ..SandboxSpec::default() };
        provider.create(&spec).await.unwrap();
    }
    let engine = engine_with_sandboxes([], (&provider, settings())).with_sim_clock().start();
    let started_at = engine.clock.as_ref().unwrap().now();
    let is_deleted = |_| !provider.names().contains(&"forgotten".to_owned());
    let deleted_at = advance_until((&engine, &provider), is_deleted).await;
    assert!(deleted_at.duration_since(started_at) >= Millis::from_secs(600));
    assert_eq!(provider.names(), ["foreign"]);
}

#[tokio::test]
async fn a_sandbox_that_is_lost_during_a_command_is_replaced() {
    let provider = FakeSandboxes::default();
    let latch = provider.block_next(SandboxOp::Exec);
    let replies = [make(), make()];
    let engine = engine_with_sandboxes(replies, (&provider, settings())).start();
    let run = engine.submit().await;
    latch.reached(1).await;
    provider.lose(&provider.names()[0]);
    latch.open();
    let journal = engine.ended(run).await;
    assert_eq!(outcome_text(&journal), "done");
    let events = ["sandbox.lost", "sandbox.creating", "tool.failed", "tool.completed"];
    let counts = events.map(|kind| count(&journal, kind));
    assert_eq!(counts, [1, 2, 1, 1], "{:?}", kinds(&journal));
    assert_eq!(provider.names(), &sandbox_names(&journal)[1..]);
}

#[tokio::test]
async fn a_provider_that_fails_is_asked_again() {
    let provider = FakeSandboxes::default();
    provider.fail_next(SandboxOp::Create, SandboxError::NoCapacity("full".to_owned()));
    provider.fail_next(SandboxOp::Create, SandboxError::Unavailable("timeout".to_owned()));
    let engine = engine_with_sandboxes([make()], (&provider, settings())).with_sim_clock().start();
    let run = engine.submit().await;
    let journal = engine.advance_until(run, "run.completed").await;
    assert_eq!(count(&journal, "run.waiting"), 2, "{:?}", kinds(&journal));
    assert_eq!(provider.names(), &sandbox_names(&journal)[1..], "the unanswered one is used");
    advance_until((&engine, &provider), |_| provider.running().is_empty()).await;
}

#[tokio::test]
async fn a_worker_without_the_provider_says_what_to_change() {
    let provider = FakeSandboxes::default();
    let settings = SandboxSettings { provider: "daytona".to_owned(), ..settings() };
    let engine = engine_with_sandboxes([make()], (&provider, settings)).start();
    let run = engine.submit().await;
    let gate = engine.gate(run).await;
    assert_eq!(gate.spec.kind, GateKind::Blocked);
    let message = gate.spec.ask;
    assert!(message.contains("no sandbox provider `daytona`. It has: fake."), "{message}");
    assert!(message.contains("longhaul.toml"), "{message}");
    assert_eq!(provider.count(SandboxOp::Create), 0);
}

#[tokio::test]
async fn a_sandbox_is_kept_alive_only_while_a_command_runs() {
    let provider = FakeSandboxes::default();
    let latch = provider.block_next(SandboxOp::Exec);
    let replies = [make(), question()];
    let engine = engine_with_sandboxes(replies, (&provider, settings())).with_sim_clock().start();
    let run = engine.submit().await;
    latch.reached(1).await;
    let clock = engine.clock.as_ref().unwrap();
    for expected in 1..=3 {
        clock.advance(Millis::from_secs(60));
        provider.wait_until(|provider| provider.count(SandboxOp::KeepAlive) == expected).await;
    }
    latch.open();
    engine.gate(run).await;
    advance_until((&engine, &provider), |_| provider.running().is_empty()).await;
    assert_eq!(provider.count(SandboxOp::KeepAlive), 3);
}
