//! Tests of the budget of active time, which also ends calls in progress.

use longhaul_core::event::entry::JournalEntry;
use longhaul_core::policy::budget::BudgetRaise;
use longhaul_core::policy::effect::EffectClass::{Once, Pure};
use longhaul_core::port::store::RunFilter;
use longhaul_core::time::Millis;
use longhaul_engine::agent::config::PerceptionInterval;
use longhaul_testkit::latch::Latch;
use serde_json::json;

use crate::suite::harness::context_provider::{FakeContextProvider, FakePerception};
use crate::suite::harness::model::FakeReply;
use crate::suite::harness::tool::{EffectLog, FakeTool};
use crate::suite::harness::{TestEngineBuilder, count, engine_with, kinds, outcome_text};

/// Sets a budget of 2 s of active time.
fn with_active_time(builder: TestEngineBuilder) -> TestEngineBuilder {
    builder.with_sim_clock().agent(|agent| {
        agent.budget.caps.active = Some(Millis::from_secs(2));
    })
}

const RAISE: BudgetRaise =
    BudgetRaise { active: Some(Millis::from_secs(60)), micro_usd: None, tokens: None, turns: None };

/// Returns the kinds of the journal's last events, as many as `expected` has.
fn last_kinds(journal: &[JournalEntry], expected: &[&str]) -> Vec<&'static str> {
    kinds(&journal[journal.len() - expected.len()..])
}

#[tokio::test]
async fn a_model_call_is_cut_at_the_cap_and_repeated_after_a_raise() {
    let latch = Latch::closed();
    let replies = [FakeReply::Text("late").after_latch(&latch), FakeReply::Text("done")];
    let engine = with_active_time(engine_with(replies)).start();
    let run = engine.submit().await;
    let journal = engine.advance_until(run, "run.waiting").await;
    let expected = ["turn.started", "budget.reached", "turn.failed", "run.waiting"];
    assert_eq!(last_kinds(&journal, &expected), expected);
    let explanation = engine.longhaul.explain_run(run).await.unwrap();
    assert_eq!(explanation.message, "The run's budget of active time is used up.");
    assert_eq!(explanation.command, format!("longhaul resume {run} --budget active_time=10m"));
    let active = engine.longhaul.get_run(run).await.unwrap().active_ms;
    assert!((2_000..4_000).contains(&active), "{active}");
    engine.longhaul.resume_run(run, Some(RAISE), "cli:test").await.unwrap();
    assert_eq!(outcome_text(&engine.advance_until(run, "run.completed").await), "done");
}

#[tokio::test]
async fn a_call_that_can_be_stopped_is_stopped_at_the_cap() {
    let (effects, latch) = (EffectLog::default(), Latch::closed());
    let read = FakeTool::new("read", Pure, &effects).after_latch(&latch);
    let replies = [FakeReply::call("read", json!({})), FakeReply::Text("done")];
    let engine = with_active_time(engine_with(replies)).tools([read]).start();
    let run = engine.submit().await;
    let journal = engine.advance_until(run, "run.waiting").await;
    let expected = ["budget.reached", "tool.interrupted", "run.waiting"];
    assert_eq!(last_kinds(&journal, &expected), expected);
    engine.longhaul.resume_run(run, Some(RAISE), "cli:test").await.unwrap();
    assert_eq!(outcome_text(&engine.advance_until(run, "run.completed").await), "done");
    let result = "the call was stopped: the run's budget of active time was used up";
    assert_eq!(engine.results(), [(result.to_owned(), true)]);
}

#[tokio::test]
async fn a_call_that_must_not_be_repeated_ends_and_the_next_one_waits_for_a_raise() {
    let (effects, latch) = (EffectLog::default(), Latch::closed());
    let send = FakeTool::new("send", Once, &effects).after_latch(&latch);
    let later = FakeTool::new("later", Once, &effects);
    let calls = FakeReply::Calls(vec![("send", json!({})), ("later", json!({}))]);
    let engine = with_active_time(engine_with([calls, FakeReply::Text("done")]))
        .tools([send, later])
        .start();
    let run = engine.submit().await;
    latch.reached(1).await;
    engine.clock.as_ref().unwrap().advance(Millis::from_secs(30));
    latch.open();
    let journal = engine.advance_until(run, "run.waiting").await;
    let expected = ["tool.started", "tool.completed", "budget.reached", "run.waiting"];
    assert_eq!(last_kinds(&journal, &expected), expected);
    engine.longhaul.resume_run(run, Some(RAISE), "cli:test").await.unwrap();
    let journal = engine.advance_until(run, "run.completed").await;
    assert_eq!(count(&journal, "tool.completed"), 2, "{:?}", kinds(&journal));
    assert_eq!(count(&journal, "tool.in_doubt"), 0, "{:?}", kinds(&journal));
}

#[tokio::test]
async fn perception_counts_as_active_time() {
    let world = || FakePerception::World(json!("calm"), json!({}));
    for (every, replies) in [
        (PerceptionInterval::Run, vec![FakeReply::Text("done")]),
        (
            PerceptionInterval::Turn,
            vec![FakeReply::call("report_progress", json!({ "percent": 5 }))],
        ),
    ] {
        let mut responses =
            vec![FakePerception::Transient("busy"), FakePerception::Transient("busy"), world()];
        if every == PerceptionInterval::Turn {
            responses.insert(0, world());
        }
        let provider = FakeContextProvider::new(responses);
        let engine = with_active_time(engine_with(replies)).perception(&provider, every).start();
        let run = engine.submit().await;
        let journal = engine.advance_until(run, "run.waiting").await;
        let expected = ["budget.reached", "run.waiting"];
        assert_eq!(last_kinds(&journal, &expected), expected, "{every:?}: {:?}", kinds(&journal));
    }
}

#[tokio::test]
async fn the_time_of_a_call_in_progress_is_active_time() {
    let (effects, latch, tool_latch) = (EffectLog::default(), Latch::closed(), Latch::closed());
    let read = FakeTool::new("read", Pure, &effects).after_latch(&tool_latch);
    let replies = [FakeReply::call("read", json!({})).after_latch(&latch), FakeReply::Text("done")];
    let engine = engine_with(replies).tools([read]).with_sim_clock().start();
    let run = engine.submit().await;
    let clock = engine.clock.clone().unwrap();
    for (waits_at, active_ms) in [(&latch, 3_000), (&tool_latch, 6_000)] {
        waits_at.reached(1).await;
        clock.advance(Millis::from_secs(3));
        let view = engine.longhaul.get_run(run).await.unwrap();
        assert_eq!((view.active_ms, view.waiting_ms), (active_ms, 0));
        let filter = RunFilter { limit: 1, ..RunFilter::default() };
        let listed = engine.longhaul.list_brief_runs(filter).await.unwrap();
        assert_eq!(listed[0].active_ms, active_ms);
        waits_at.open();
    }
    engine.ended(run).await;
    let view = engine.longhaul.get_run(run).await.unwrap();
    assert_eq!((view.active_ms, view.waiting_ms), (6_000, 0));
}
