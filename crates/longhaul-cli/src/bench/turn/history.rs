//! One long run over HTTP, measured where its history has reached certain lengths. It is one run
//! for all lengths: what the engine keeps between the turns of a run is what is measured.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::bail;
use async_trait::async_trait;
use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::port::model::{CostEstimate, DeltaSink, Model, ModelRequest, ModelResponse};
use longhaul_core::time::{Clock as _, Millis};
use longhaul_engine::clock::SystemClock;
use serde::Serialize;

use crate::bench::fixture::{Fixture, WARM_UP_TURNS};
use crate::bench::measure::nanos_to_micros;
use crate::bench::model_source::{MockProcess, Wire, fetch_mock_stats};
use crate::cpu::cpu_us;

/// Lengths of the history, in messages.
const HISTORY_LENGTHS: [u32; 4] = [10, 100, 1_000, 5_000];

/// Number of turns over which a length is measured.
pub(crate) const WINDOW_TURNS: u32 = 20;

/// What a turn took at one length of the history.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct HistoryRow {
    messages: u32,
    body_bytes_per_turn: f64,
    cpu_us_per_turn: f64,
    wall_us_per_turn: f64,
    /// CPU as a multiple of the first row's.
    cpu_to_first: f64,
    /// CPU for each byte that is sent more than in the first row.
    cpu_ns_per_additional_byte: Option<f64>,
}

impl HistoryRow {
    /// Its figures as a row of a table.
    pub(crate) fn cells(&self) -> Vec<String> {
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

/// Executes the run up to so many messages; what a turn took at each length.
pub(crate) async fn measure_history(
    folder: &Path,
    wire: Wire,
    (messages, result_bytes): (u32, usize),
) -> anyhow::Result<Vec<HistoryRow>> {
    let lengths: Vec<u32> =
        HISTORY_LENGTHS.into_iter().filter(|length| *length <= messages).collect();
    // A turn leaves two messages.
    let turns = lengths.last().map_or(0, |length| length / 2) + WINDOW_TURNS;
    let mock = MockProcess::start(folder, Millis::ZERO, &[WARM_UP_TURNS, turns])?;
    let fixture = Fixture::new(&folder.join("history.db"), mock.source(wire), result_bytes)?;
    fixture.warm_up().await?;
    let model = Arc::new(SamplingModel {
        model: fixture.source.model(turns)?,
        url: mock.url.clone(),
        // Both ends of each window, as the number of turns before it.
        edges: lengths.iter().flat_map(|length| [length / 2, length / 2 + WINDOW_TURNS]).collect(),
        samples: Mutex::default(),
    });
    fixture.execute_with(Arc::clone(&model) as _, turns, 1).await?;
    let samples = model.samples.lock().unwrap_or_else(PoisonError::into_inner);
    if samples.len() != 2 * lengths.len() {
        bail!("a question was asked twice, so the history can't be measured");
    }
    let mut rows: Vec<HistoryRow> = Vec::new();
    for (messages, window) in lengths.iter().zip(samples.chunks(2)) {
        let [begin, end] = window else { break };
        let each = |begin: f64, end: f64| (end - begin) / f64::from(WINDOW_TURNS);
        let row = HistoryRow {
            messages: *messages,
            body_bytes_per_turn: each(begin.body_bytes, end.body_bytes),
            cpu_us_per_turn: each(begin.after.0, end.before.0),
            wall_us_per_turn: each(begin.after.1, end.before.1),
            cpu_to_first: 1.0,
            cpu_ns_per_additional_byte: None,
        };
        let first = *rows.first().unwrap_or(&row);
        let bytes = row.body_bytes_per_turn - first.body_bytes_per_turn;
        let cpu_us = row.cpu_us_per_turn - first.cpu_us_per_turn;
        rows.push(HistoryRow {
            cpu_to_first: row.cpu_us_per_turn / first.cpu_us_per_turn.max(1.0),
            cpu_ns_per_additional_byte: (bytes > 0.0).then(|| cpu_us * 1e3 / bytes),
            ..row
        });
    }
    Ok(rows)
}

/// A model that reads the clocks before certain turns.
#[derive(Debug)]
struct SamplingModel {
    model: Arc<dyn Model>,
    url: String,
    edges: Vec<u32>,
    samples: Mutex<Vec<Sample>>,
}

/// CPU and wall time in microseconds, before and after the mock was asked for its count: asking
/// falls outside the window.
#[derive(Debug)]
struct Sample {
    before: (f64, f64),
    body_bytes: f64,
    after: (f64, f64),
}

impl SamplingModel {
    async fn sample(&self) -> anyhow::Result<()> {
        let clocks = || (cpu_us(), nanos_to_micros(SystemClock.monotonic_nanos()));
        let before = clocks();
        let body_bytes = fetch_mock_stats(&self.url).await?.body_bytes as f64;
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        samples.push(Sample { before, body_bytes, after: clocks() });
        Ok(())
    }
}

#[async_trait]
impl Model for SamplingModel {
    fn estimate(&self, ask: &ModelRequest) -> CostEstimate {
        self.model.estimate(ask)
    }

    async fn generate(
        &self,
        ask: &ModelRequest,
        ear: &dyn DeltaSink,
    ) -> Result<ModelResponse, Failure> {
        if self.edges.contains(&ask.turn.saturating_sub(1)) {
            let sampled = self.sample().await;
            sampled.map_err(|why| Failure::new(FailureClass::InvalidRequest, why.to_string()))?;
        }
        self.model.generate(ask, ear).await
    }
}
