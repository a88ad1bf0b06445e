//! Measures many concurrent runs over HTTP, all driven by one process.

use std::path::Path;

use longhaul_core::time::Millis;
use serde::Serialize;

use crate::bench::fixture::{BenchFixture, WARM_UP_TURNS};
use crate::bench::measure::TurnCost;
use crate::bench::model_source::{MockModelApi, MockModelProcess, fetch_mock_model_stats};
use crate::bench::report::cpu_core_count;

/// Number of turns of each concurrent run.
pub(crate) const TURNS_PER_RUN: u32 = 10;

/// Measured costs and rates of concurrent runs.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct ConcurrencyResult {
    pub(crate) runs: u32,
    turns: u32,
    latency_ms: u64,
    pub(crate) turns_per_second: f64,
    #[serde(flatten)]
    pub(crate) cost: TurnCost,
    pub(crate) mock_cpu_us_per_turn: f64,
    /// Turns per second that the CPU cores allow, if the mock model runs on the same cores.
    pub(crate) cpu_bound_per_second: f64,
    pub(crate) share_of_cpu_bound: f64,
    /// Turns per second if only the model took time. `None` if the mock model has no latency.
    pub(crate) ideal_per_second: Option<f64>,
    pub(crate) share_of_ideal: Option<f64>,
}

impl ConcurrencyResult {
    /// Executes this many concurrent runs against a mock model with this latency, and measures
    /// them.
    pub(crate) async fn measure_concurrent_runs(
        folder: &Path,
        api: MockModelApi,
        (runs, result_bytes): (u32, usize),
        latency: Millis,
    ) -> anyhow::Result<Self> {
        let mock = MockModelProcess::start(folder, latency, &[WARM_UP_TURNS, TURNS_PER_RUN])?;
        let file = folder.join(format!("concurrent-{}.db", latency.0));
        let fixture = BenchFixture::new(&file, mock.model_source(api), result_bytes)?;
        fixture.execute_warm_up_run().await?;
        let mock_cpu_us_before = fetch_mock_model_stats(&mock.url).await?.cpu_us;
        let cost = fixture.execute_runs(TURNS_PER_RUN, runs).await?.cost;
        let turns = f64::from(runs * TURNS_PER_RUN);
        let mock_cpu_us =
            (fetch_mock_model_stats(&mock.url).await?.cpu_us - mock_cpu_us_before) / turns;
        let turns_per_second = 1e6 / cost.wall_us_per_turn.max(f64::MIN_POSITIVE);
        let total_cpu_us = cost.cpu_us_per_turn + mock_cpu_us;
        let allowed_per_second = cpu_core_count() as f64 * 1e6 / total_cpu_us.max(1.0);
        // A run makes one model call more than it has turns.
        let model_wait_ms = latency.0 as f64 * f64::from(TURNS_PER_RUN + 1);
        let ideal_per_second = (latency.0 > 0).then(|| turns * 1e3 / model_wait_ms);
        Ok(Self {
            runs,
            turns: TURNS_PER_RUN,
            latency_ms: latency.0,
            turns_per_second,
            cost,
            mock_cpu_us_per_turn: mock_cpu_us,
            cpu_bound_per_second: allowed_per_second,
            share_of_cpu_bound: turns_per_second / allowed_per_second,
            ideal_per_second,
            share_of_ideal: ideal_per_second.map(|ideal| turns_per_second / ideal),
        })
    }
}
