//! Runs past their retention are forgotten as fast as they come.

use longhaul_core::port::store::RunFilter;
use longhaul_core::time::Millis;
use longhaul_engine::sweep::Retention;

use crate::suite::harness::model::FakeReply;
use crate::suite::harness::{TIMEOUT, TestEngine, engine_with};

/// More than three lots.
const RUNS: usize = 3_300;
/// Simulated time in which all of them have to be gone: 100 steps of 10 ms.
const STEPS: usize = 100;

async fn has_runs_left(house: &TestEngine) -> bool {
    let ask = RunFilter { limit: 2, ..RunFilter::default() };
    house.longhaul.list_brief(ask).await.unwrap().len() > 1
}

#[tokio::test]
async fn thousands_of_runs_are_pruned_within_a_second() {
    let mut house = engine_with([FakeReply::Text("done")]).with_sim_clock().build();
    let clock = house.clock.clone().unwrap();
    for _ in 0..RUNS {
        let run = house.submit().await;
        house.longhaul.cancel(run, "cli:test", "").await.unwrap();
    }
    // The run that was written last stays.
    house.submit().await;
    clock.advance(Millis(2));
    house.spawn_worker(|options| {
        options.retention = Retention { runs: Some(Millis(1)) };
    });
    let forgotten = async {
        let mut steps = 0;
        while has_runs_left(&house).await {
            if steps < STEPS {
                clock.advance(Millis(10));
                steps += 1;
            }
            // The sweep's turn: it writes before it sleeps again.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
        }
    };
    let forgotten = tokio::time::timeout(TIMEOUT, forgotten).await;
    forgotten.expect("all of them are forgotten");
}
