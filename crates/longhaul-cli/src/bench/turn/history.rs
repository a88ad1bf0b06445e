//! One long run over HTTP, measured at certain lengths of its history. All lengths are measured in
//! one run, because the engine's caches between turns are part of the measurement.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::bail;
use async_trait::async_trait;
use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::port::model::{CostEstimate, DeltaSink, Model, ModelRequest, ModelResponse};
use longhaul_core::time::{Clock as _, Millis};
use longhaul_engine::clock::SystemClock;
use serde::Serialize;

use crate::bench::fixture::{BenchFixture, WARM_UP_TURNS};
use crate::bench::measure::nanos_to_micros;
use crate::bench::model_source::{MockModelApi, MockModelProcess, fetch_mock_model_stats};
use crate::cpu::cpu_time_us;

/// Lengths of the conversation at which a turn is measured, in messages.
const HISTORY_LENGTHS: [u32; 4] = [10, 100, 1_000, 5_000];

/// Number of turns measured at each length of the conversation.
pub(crate) const WINDOW_TURNS: u32 = 20;

/// Cost of a turn at one length of the conversation.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct HistoryCostRow {
    messages: u32,
    body_bytes_per_turn: f64,
    cpu_us_per_turn: f64,
    wall_us_per_turn: f64,
    /// Ratio of the CPU time per turn to that in the first row of the table.
    cpu_to_first: f64,
    /// Additional CPU time per additional byte of the request, compared with the table's first row,
    /// in nanoseconds. `None` if the request is not longer.
    cpu_ns_per_additional_byte: Option<f64>,
}

impl HistoryCostRow {
    pub(crate) fn table_cells(&self) -> Vec<String> {
        let nanos = self.cpu_ns_per_additional_byte;
        vec![
            self.messages.to_string(),
            format!("{:.0}", self.body_bytes_per_turn),
            format!("{:.0}", self.cpu_us_per_turn),
            format!("{:.0}", self.wall_us_per_turn),
            format!("{:.2}", self.cpu_to_first),
            nanos.map_or("-".to_owned(), |nanos| format!("{nanos:.2}")),
        ]
    }
}

/// Executes a run until its conversation has this many messages, and returns the cost of a turn at
/// each measured length.
pub(crate) async fn measure_history_cost(
    folder: &Path,
    api: MockModelApi,
    (messages, result_bytes): (u32, usize),
) -> anyhow::Result<Vec<HistoryCostRow>> {
    let lengths: Vec<u32> =
        HISTORY_LENGTHS.into_iter().filter(|length| *length <= messages).collect();
    // Each turn adds two messages.
    let turns = lengths.last().map_or(0, |length| length / 2) + WINDOW_TURNS;
    let mock = MockModelProcess::start(folder, Millis::ZERO, &[WARM_UP_TURNS, turns])?;
    let fixture =
        BenchFixture::new(&folder.join("history.db"), mock.model_source(api), result_bytes)?;
    fixture.execute_warm_up_run().await?;
    let model = Arc::new(TimeMeasuringModel {
        model: fixture.source.create_model(turns)?,
        url: mock.url.clone(),
        // Start and end of each window, as the number of turns before it.
        sampled_turns: lengths
            .iter()
            .flat_map(|length| [length / 2, length / 2 + WINDOW_TURNS])
            .collect(),
        samples: Mutex::default(),
    });
    fixture.execute_runs_with_model(Arc::clone(&model) as _, turns, 1).await?;
    let samples = model.samples.lock().unwrap_or_else(PoisonError::into_inner);
    if samples.len() != 2 * lengths.len() {
        bail!("a model call was repeated, so the history can't be measured");
    }
    let mut rows: Vec<HistoryCostRow> = Vec::new();
    for (messages, window) in lengths.iter().zip(samples.chunks(2)) {
        let [begin, end] = window else { break };
        let per_turn = |begin: f64, end: f64| (end - begin) / f64::from(WINDOW_TURNS);
        let row = HistoryCostRow {
            messages: *messages,
            body_bytes_per_turn: per_turn(begin.body_bytes, end.body_bytes),
            cpu_us_per_turn: per_turn(begin.after.0, end.before.0),
            wall_us_per_turn: per_turn(begin.after.1, end.before.1),
            cpu_to_first: 1.0,
            cpu_ns_per_additional_byte: None,
        };
        let first = *rows.first().unwrap_or(&row);
        let bytes = row.body_bytes_per_turn - first.body_bytes_per_turn;
        let cpu_us = row.cpu_us_per_turn - first.cpu_us_per_turn;
        rows.push(HistoryCostRow {
            cpu_to_first: row.cpu_us_per_turn / first.cpu_us_per_turn.max(1.0),
            cpu_ns_per_additional_byte: (bytes > 0.0).then(|| cpu_us * 1e3 / bytes),
            ..row
        });
    }
    Ok(rows)
}

/// A model that samples CPU and wall time before certain turns, and otherwise delegates to another
/// model.
#[derive(Debug)]
struct TimeMeasuringModel {
    model: Arc<dyn Model>,
    url: String,
    sampled_turns: Vec<u32>,
    samples: Mutex<Vec<TurnTimeSample>>,
}

/// A sample of CPU and wall time in microseconds, taken before and after the mock's counters were
/// read, so that reading the counters is not part of the measured turns.
#[derive(Debug)]
struct TurnTimeSample {
    before: (f64, f64),
    body_bytes: f64,
    after: (f64, f64),
}

impl TimeMeasuringModel {
    async fn record_time_sample(&self) -> anyhow::Result<()> {
        let read_clocks = || (cpu_time_us(), nanos_to_micros(SystemClock.monotonic_nanos()));
        let before = read_clocks();
        let body_bytes = fetch_mock_model_stats(&self.url).await?.body_bytes as f64;
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        samples.push(TurnTimeSample { before, body_bytes, after: read_clocks() });
        Ok(())
    }
}

#[async_trait]
impl Model for TimeMeasuringModel {
    fn estimate(&self, request: &ModelRequest) -> CostEstimate {
        self.model.estimate(request)
    }

    async fn generate(
        &self,
        request: &ModelRequest,
        sink: &dyn DeltaSink,
    ) -> Result<ModelResponse, Failure> {
        if self.sampled_turns.contains(&request.turn.saturating_sub(1)) {
            let result = self.record_time_sample().await;
            result
                .map_err(|error| Failure::new(FailureClass::InvalidRequest, error.to_string()))?;
        }
        self.model.generate(request, sink).await
    }
}
