//! Executes one benchmark run of many turns in a new store, and measures it.

use std::path::Path;

use longhaul_core::time::Clock as _;
use longhaul_engine::clock::SystemClock;
use serde::Serialize;

use crate::bench::fixture::{BenchFixture, WARM_UP_TURNS, open_bench_store};
use crate::bench::measure::{TurnCost, nanos_to_micros};
use crate::bench::model_source::ModelSource;
use crate::bench::report::met_or_missed;

/// Measured costs of one benchmark run.
#[derive(Debug, Serialize)]
pub(crate) struct BenchRunResult {
    pub(crate) turns: u32,
    #[serde(flatten)]
    pub(crate) cost: TurnCost,
    stored_bytes_per_turn: f64,
    transcript_bytes_per_turn: f64,
    pub(crate) stored_per_transcript_byte: f64,
    /// Time to replay the run's whole journal into its state, in milliseconds.
    recovery_fold_ms: f64,
}

impl BenchRunResult {
    /// Executes and measures a run with this many turns and tool results of this many bytes.
    pub(crate) async fn execute_measured_run(
        file: &Path,
        source: ModelSource,
        (turns, result_bytes): (u32, usize),
    ) -> anyhow::Result<Self> {
        let empty_store_file = file.with_extension("empty");
        drop(open_bench_store(&empty_store_file)?);
        let fixture = BenchFixture::new(file, source, result_bytes)?;
        let mut transcript_bytes =
            fixture.execute_warm_up_run().await?.measure_transcript_bytes().await?;
        let measured_runs = fixture.execute_runs(turns, 1).await?;
        let cost = measured_runs.cost;
        let start = SystemClock.monotonic_nanos();
        transcript_bytes += measured_runs.measure_transcript_bytes().await?;
        let recovery_fold_ms = nanos_to_micros(SystemClock.monotonic_nanos() - start) / 1e3;
        drop((measured_runs, fixture));
        let size = |file: &Path| std::fs::metadata(file).map(|file| file.len());
        let stored_bytes = size(file)?.saturating_sub(size(&empty_store_file)?) as f64;
        // The warm-up is stored too.
        let all_turns = f64::from(turns + WARM_UP_TURNS);
        Ok(Self {
            turns,
            cost,
            stored_bytes_per_turn: stored_bytes / all_turns,
            transcript_bytes_per_turn: transcript_bytes as f64 / all_turns,
            stored_per_transcript_byte: stored_bytes / transcript_bytes.max(1) as f64,
            recovery_fold_ms,
        })
    }

    /// Returns the measured costs as a table row.
    pub(crate) fn table_row(&self) -> Vec<String> {
        let mut row = vec![self.turns.to_string()];
        row.extend(self.cost.cost_table_cells());
        row.extend([
            format!("{:.0}", self.stored_bytes_per_turn),
            format!("{:.2}", self.stored_per_transcript_byte),
            format!("{:.1} ms", self.recovery_fold_ms),
        ]);
        row
    }

    /// Returns a report line that compares the CPU time per turn with a target.
    pub(crate) fn target_comparison_line(&self, label: &str, target_us: f64) -> String {
        let cost = &self.cost;
        format!(
            "{label}{:.0} us CPU per turn at {} turns with {:.2} commits per turn (target {target_us:.0} us: {})",
            cost.cpu_us_per_turn,
            self.turns,
            cost.commits_per_turn,
            met_or_missed(cost.cpu_us_per_turn <= target_us),
        )
    }
}
