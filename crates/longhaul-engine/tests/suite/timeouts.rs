//! Tests of the soft and the hard timeout of an attempt.

use longhaul_core::event::Event;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::policy::effect::EffectClass::{Once, Pure};
use longhaul_core::time::{Clock as _, Millis};
use longhaul_engine::Task;
use longhaul_testkit::latch::Latch;
use serde_json::json;

use crate::suite::harness::model::FakeReply;
use crate::suite::harness::tool::{EffectLog, FakeTool};
use crate::suite::harness::{TestEngineBuilder, count, engine_with, kinds, outcome_text};

const SECOND: Millis = Millis::from_secs(1);

/// Sets a soft timeout of 2 s and a hard timeout of 4 s.
fn with_timeouts(builder: TestEngineBuilder) -> TestEngineBuilder {
    builder.with_sim_clock().agent(|agent| {
        agent.retry.soft_timeout = Some(Millis::from_secs(2));
        agent.retry.hard_timeout = Some(Millis::from_secs(4));
    })
}

/// Returns the time between the first events of these kinds.
fn time_between(journal: &[JournalEntry], earlier: &str, later: &str) -> Millis {
    let at = |kind: &str| journal.iter().find(|entry| entry.event.kind() == kind).unwrap().at;
    at(later).duration_since(at(earlier))
}

#[tokio::test]
async fn a_model_that_does_not_reply_is_stopped_and_the_run_fails_after_one_retry() {
    let latch = Latch::closed();
    let late_reply = || FakeReply::Text("late").after_latch(&latch);
    let engine = with_timeouts(engine_with([late_reply(), late_reply()])).start();
    let run = engine.submit().await;
    let journal = engine.advance_until(run, "run.failed").await;
    assert_eq!(outcome_text(&journal), "timeout");
    for kind in ["run.overdue", "run.timed_out", "turn.failed"] {
        assert_eq!(count(&journal, kind), 2, "{kind}: {:?}", kinds(&journal));
    }
    assert_eq!(count(&journal, "run.retried"), 1);
    assert!(time_between(&journal, "turn.started", "run.overdue") >= SECOND.plus(SECOND));
    let stopped = time_between(&journal, "turn.started", "run.timed_out");
    assert!((4_000..6_000).contains(&stopped.0), "{stopped:?}");
    let Some(Event::RunFailed(failed)) = journal.last().map(|last| &last.event) else {
        panic!("the run must fail");
    };
    let message = "attempt 2 of the run was stopped after its hard timeout of 4s";
    assert_eq!(failed.error.message, message);
    assert_eq!(engine.longhaul.get_run(run).await.unwrap().attempt, 2);
}

#[tokio::test]
async fn a_running_call_is_aborted_and_the_next_attempt_reads_its_result() {
    for (class, ended) in [(Pure, "tool.interrupted"), (Once, "tool.in_doubt")] {
        let (effects, latch) = (EffectLog::default(), Latch::closed());
        let mut tool = FakeTool::new("slow", class, &effects).after_latch(&latch);
        tool.spec.in_doubt = Some(longhaul_core::policy::effect::InDoubtPolicy::Tell);
        let replies = [FakeReply::call("slow", json!({})), FakeReply::Text("gave up")];
        let engine = with_timeouts(engine_with(replies)).tools([tool]).start();
        let run = engine.submit().await;
        let journal = engine.advance_until(run, "run.completed").await;
        assert_eq!(outcome_text(&journal), "gave up", "{class:?}");
        for kind in ["run.overdue", "run.timed_out", ended, "run.retried"] {
            assert_eq!(count(&journal, kind), 1, "{class:?} {kind}: {:?}", kinds(&journal));
        }
    }
}

#[tokio::test]
async fn a_step_of_the_wall_clock_does_not_end_an_attempt() {
    let latch = Latch::closed();
    let engine = with_timeouts(engine_with([FakeReply::Text("done").after_latch(&latch)])).start();
    let run = engine.submit().await;
    latch.reached(1).await;
    let clock = engine.clock.as_ref().unwrap();
    clock.set(clock.now().plus(Millis::from_secs(3_600)));
    clock.advance(SECOND);
    latch.open();
    let journal = engine.advance_until(run, "run.completed").await;
    assert_eq!(count(&journal, "run.timed_out") + count(&journal, "run.overdue"), 0);
}

#[tokio::test]
async fn runs_that_events_start_have_timeouts_and_other_runs_have_none() {
    let engine = engine_with([]).build();
    for (kind, soft, hard) in [(None, None, None), (Some("idle_tick"), Some(120), Some(300))] {
        let mut task = Task::new("tester", "x");
        task.kind = kind.map(str::to_owned);
        let run = engine.longhaul.submit(task).await.unwrap();
        let folded = engine.longhaul.replay_run(run).await.unwrap();
        let retry = folded.task().policy.retry;
        assert_eq!(retry.soft_timeout, soft.map(Millis::from_secs), "{kind:?}");
        assert_eq!(retry.hard_timeout, hard.map(Millis::from_secs), "{kind:?}");
    }
}

#[tokio::test]
async fn the_delay_before_a_retry_is_jittered() {
    let mut delays = std::collections::BTreeSet::new();
    for _ in 0..8 {
        let latch = Latch::closed();
        let late_reply = FakeReply::Text("late").after_latch(&latch);
        let engine = with_timeouts(engine_with([late_reply])).start();
        let run = engine.submit().await;
        let journal = engine.advance_until(run, "run.retry_scheduled").await;
        for entry in journal {
            if let Event::RunRetryScheduled(scheduled) = entry.event {
                assert!((1_000..=1_250).contains(&scheduled.delay.0), "{scheduled:?}");
                delays.insert(scheduled.delay);
            }
        }
    }
    assert!(delays.len() > 1, "{delays:?}");
}
