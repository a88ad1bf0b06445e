//! Runs past their retention are pruned as fast as they are created.

use longhaul_core::port::store::RunFilter;
use longhaul_core::time::Millis;
use longhaul_engine::background::sweep::RunRetention;

use crate::suite::harness::model::FakeReply;
use crate::suite::harness::{TIMEOUT, TestEngine, engine_with};

/// More than three prune batches.
const RUNS: usize = 3_300;
/// Simulated time within which all runs have to be pruned: 100 steps of 10 ms.
const STEPS: usize = 100;

async fn has_runs_left(engine: &TestEngine) -> bool {
    let filter = RunFilter { limit: 2, ..RunFilter::default() };
    engine.longhaul.list_brief_runs(filter).await.unwrap().len() > 1
}

#[tokio::test]
async fn thousands_of_runs_are_pruned_within_a_second() {
    let mut engine = engine_with([FakeReply::Text("done")]).with_sim_clock().build();
    let clock = engine.clock.clone().unwrap();
    for _ in 0..RUNS {
        let run = engine.submit().await;
        engine.longhaul.cancel_run(run, "cli:test", "").await.unwrap();
    }
    // The run that was written last stays.
    engine.submit().await;
    clock.advance(Millis(2));
    engine.spawn_worker(|options| {
        options.retention = RunRetention { runs: Some(Millis(1)) };
    });
    let wait_until_pruned = async {
        let mut steps = 0;
        while has_runs_left(&engine).await {
            if steps < STEPS {
                clock.advance(Millis(10));
                steps += 1;
            }
            // Lets the sweep run: it writes before it sleeps again.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
        }
    };
    let result = tokio::time::timeout(TIMEOUT, wait_until_pruned).await;
    result.expect("all runs are pruned");
}
