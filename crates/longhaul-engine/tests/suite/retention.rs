//! Runs past their retention are forgotten as fast as they come.

use longhaul_core::port::store::RowsAsk;
use longhaul_core::time::Millis;
use longhaul_engine::sweep::Retention;

use crate::suite::house::model::Line;
use crate::suite::house::{House, PATIENCE, plan};

/// More than three lots.
const RUNS: usize = 3_300;
/// Simulated time in which all of them have to be gone: 100 steps of 10 ms.
const STEPS: usize = 100;

async fn is_left(house: &House) -> bool {
    let ask = RowsAsk {
        limit: 2,
        ..RowsAsk::default()
    };
    house.longhaul.brief(ask).await.unwrap().len() > 1
}

#[tokio::test]
async fn thousands_of_runs_are_forgotten_within_a_second() {
    let mut house = plan([Line::Text("done")]).at_standing_clock().open();
    let clock = house.clock.clone().unwrap();
    for _ in 0..RUNS {
        let run = house.submit().await;
        house.longhaul.cancel(run, "cli:test", "").await.unwrap();
    }
    // The run that was written last stays.
    house.submit().await;
    clock.advance(Millis(2));
    house.hire(|options| {
        options.retention = Retention {
            runs: Some(Millis(1)),
        };
    });
    let forgotten = async {
        let mut steps = 0;
        while is_left(&house).await {
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
    let forgotten = tokio::time::timeout(PATIENCE, forgotten).await;
    forgotten.expect("all of them are forgotten");
}
