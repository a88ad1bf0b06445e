//! One run of many turns in a new store.

use std::path::Path;

use longhaul_core::time::Clock as _;
use longhaul_engine::clock::SystemClock;
use serde::Serialize;

use crate::bench::fixture::{Fixture, WARM_UP_TURNS, open_store};
use crate::bench::measure::{TurnCost, nanos_to_micros};
use crate::bench::model_source::ModelSource;
use crate::bench::report::met_or_missed;

/// What one run took.
#[derive(Debug, Serialize)]
pub(crate) struct BenchRun {
    pub(crate) turns: u32,
    #[serde(flatten)]
    pub(crate) cost: TurnCost,
    stored_bytes_per_turn: f64,
    transcript_bytes_per_turn: f64,
    pub(crate) stored_per_transcript_byte: f64,
    /// How long the whole journal takes to fold.
    recovery_fold_ms: f64,
}

impl BenchRun {
    /// Executes a run of so many turns with results of so many bytes.
    pub(crate) async fn execute(
        file: &Path,
        source: ModelSource,
        (turns, result_bytes): (u32, usize),
    ) -> anyhow::Result<Self> {
        let empty = file.with_extension("empty");
        drop(open_store(&empty)?);
        let fixture = Fixture::new(file, source, result_bytes)?;
        let mut said = fixture.warm_up().await?.transcript_bytes().await?;
        let executed = fixture.execute(turns, 1).await?;
        let cost = executed.cost;
        let begun = SystemClock.monotonic_nanos();
        said += executed.transcript_bytes().await?;
        let recovery_fold_ms = nanos_to_micros(SystemClock.monotonic_nanos() - begun) / 1e3;
        drop((executed, fixture));
        let size = |file: &Path| std::fs::metadata(file).map(|file| file.len());
        let stored = size(file)?.saturating_sub(size(&empty)?) as f64;
        // The warm-up is stored too.
        let all = f64::from(turns + WARM_UP_TURNS);
        Ok(Self {
            turns,
            cost,
            stored_bytes_per_turn: stored / all,
            transcript_bytes_per_turn: said as f64 / all,
            stored_per_transcript_byte: stored / said.max(1) as f64,
            recovery_fold_ms,
        })
    }

    /// Its figures as a row of a table.
    pub(crate) fn row(&self) -> Vec<String> {
        let mut row = vec![self.turns.to_string()];
        row.extend(self.cost.cells());
        row.extend([
            format!("{:.0}", self.stored_bytes_per_turn),
            format!("{:.2}", self.stored_per_transcript_byte),
            format!("{:.1} ms", self.recovery_fold_ms),
        ]);
        row
    }

    /// Its CPU against a target.
    pub(crate) fn target_line(&self, name: &str, target_us: f64) -> String {
        let cost = &self.cost;
        format!(
            "{name}{:.0} us CPU a turn at {} turns with {:.2} commits a turn (target {target_us:.0} us: {})",
            cost.cpu_us_per_turn,
            self.turns,
            cost.commits_per_turn,
            met_or_missed(cost.cpu_us_per_turn <= target_us),
        )
    }
}
