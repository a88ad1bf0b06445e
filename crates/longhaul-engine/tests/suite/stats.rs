//! Tests of the statistics of an agent's runs.

use longhaul_core::id::AgentName;
use longhaul_core::time::Millis;
use longhaul_engine::Task;

use crate::suite::harness::engine_with;
use crate::suite::harness::model::FakeReply;

const DAY: Millis = Millis::from_secs(24 * 60 * 60);

#[tokio::test]
async fn runs_are_counted_by_outcome_in_the_window() {
    let replies = [FakeReply::Text("old"), FakeReply::Text("new")];
    let mut engine = engine_with(replies).with_sim_clock().build();
    engine.spawn_worker(|_| {});
    let agent = AgentName::new("tester").unwrap();
    let old = engine.submit().await;
    engine.ended(old).await;
    engine.clock.as_ref().unwrap().advance(Millis(DAY.0 * 2));
    let new = engine.submit().await;
    engine.ended(new).await;
    let in_other_inbox =
        || Task { inbox: Some("unserved".parse().unwrap()), ..Task::new("tester", "Wait.") };
    let cancelled = engine.longhaul.submit(in_other_inbox()).await.unwrap();
    engine.longhaul.cancel_run(cancelled, "cli:anna", "enough").await.unwrap();
    engine.longhaul.submit(in_other_inbox()).await.unwrap();

    let stats = engine.longhaul.agent_stats(&agent, DAY).await.unwrap();
    let runs = stats.runs;
    assert_eq!((runs.total, runs.completed, runs.failed), (3, 1, 0));
    assert_eq!((runs.cancelled, runs.open), (1, 1));
    assert_eq!((stats.success_rate, stats.truncated), (Some(1.0), false));
    assert_eq!((stats.turns.total, stats.turns.p50, stats.turns.p95), (1, 0, 1));
    assert_eq!(stats.until.duration_since(stats.since), DAY);

    let stats = engine.longhaul.agent_stats(&agent, Millis(DAY.0 * 3)).await.unwrap();
    assert_eq!((stats.runs.total, stats.runs.completed), (4, 2));
    let usage = engine.longhaul.run_row(new).await.unwrap().usage;
    assert_eq!(stats.input_tokens.total, usage.input_tokens * 2);
    assert_eq!(stats.output_tokens.p95, usage.output_tokens);
    let all = engine.longhaul.agent_stats(&agent, Millis(u64::MAX)).await.unwrap();
    assert_eq!(all.runs, stats.runs);

    let unknown = AgentName::new("testr").unwrap();
    let error = engine.longhaul.agent_stats(&unknown, DAY).await.unwrap_err();
    assert_eq!(error.code(), "agent_not_found");
}
