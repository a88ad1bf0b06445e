//! Measures turns over real HTTP: one run, a run with a long history, and many concurrent runs. The
//! mock model is another process, and its CPU time is not counted.

use std::path::Path;

use longhaul_core::time::Millis;
use serde_json::json;

use crate::bench::fixture::WARM_UP_TURNS;
use crate::bench::model_source::{MockModelApi, MockModelProcess};
use crate::bench::report::{BenchReport, cpu_core_count, met_or_missed};
use crate::bench::turn::bench_run::BenchRunResult;
use crate::bench::turn::concurrency::{ConcurrencyResult, TURNS_PER_RUN};
use crate::bench::turn::history::{HistoryCostRow, WINDOW_TURNS, measure_history_cost};

/// Number of turns of the run that is measured alone.
const ONE_RUN_TURNS: u32 = 50;

/// Latency of the mock model that stands for a slow provider.
const LATENCY: Millis = Millis(100);

/// Target CPU time of a turn, in microseconds.
const CPU_US_TARGET: f64 = 300.0;

/// Maximum ratio of the CPU time per turn of concurrent runs to that of a single run.
const CONCURRENT_CPU_TARGET: f64 = 1.2;

/// Minimum ratio of the measured turns per second to those that the CPU cores allow.
const CPU_BOUND_SHARE_TARGET: f64 = 0.8;

/// Minimum ratio of the measured turns per second to those that the latency of the slow model
/// allows.
const IDEAL_SHARE_TARGET: f64 = 1_750.0 / 1_818.0;

/// Parameters of the measurements over HTTP.
pub(crate) struct HttpBench<'a> {
    pub(crate) wire: MockModelApi,
    /// Maximum length of the conversation, in messages.
    pub(crate) messages: u32,
    pub(crate) runs: u32,
    pub(crate) result_bytes: usize,
    pub(crate) folder: &'a Path,
}

impl HttpBench<'_> {
    /// Runs all measurements over HTTP, one after another, and adds the results to the report.
    pub(crate) async fn measure_turns_over_http(
        &self,
        report: &mut BenchReport,
    ) -> anyhow::Result<()> {
        let (wire, bytes, folder) = (self.wire, self.result_bytes, self.folder);
        report.print_progress(&format!("executing {ONE_RUN_TURNS} turns over HTTP"));
        let mock = MockModelProcess::start(folder, Millis::ZERO, &[WARM_UP_TURNS, ONE_RUN_TURNS])?;
        let file = folder.join("http-one.db");
        let single_run = BenchRunResult::execute_measured_run(
            &file,
            mock.model_source(wire),
            (ONE_RUN_TURNS, bytes),
        )
        .await?;
        drop(mock);
        report.print_progress(&format!("executing a run of {} messages over HTTP", self.messages));
        let history = measure_history_cost(folder, wire, (self.messages, bytes)).await?;
        report.print_progress(&format!("executing {} concurrent runs over HTTP", self.runs));
        let load = (self.runs, bytes);
        let concurrent =
            ConcurrencyResult::measure_concurrent_runs(folder, wire, load, Millis::ZERO).await?;
        let concurrent_with_latency =
            ConcurrencyResult::measure_concurrent_runs(folder, wire, load, LATENCY).await?;
        report.add_text_line(format!(
            "\nover HTTP: the {wire} API without TLS to `longhaul mock-model` in a separate process, which uses its \
             share of the same {} cores; one tool call per turn with {bytes} bytes of result, each row over {WINDOW_TURNS} turns of one run",
            cpu_core_count(),
        ));
        let titles = ["messages", "request bytes", "CPU us per turn", "wall us per turn"];
        let titles = [&titles[..], &["CPU vs. first row", "CPU ns per further byte"]].concat();
        report.add_table(
            &titles,
            &history.iter().map(HistoryCostRow::table_cells).collect::<Vec<_>>(),
        );
        report.add_text_line(single_run.target_comparison_line("W1  over HTTP: ", CPU_US_TARGET));
        let ratio = concurrent.cost.cpu_us_per_turn / single_run.cost.cpu_us_per_turn.max(1.0);
        let cpu_bound_share = concurrent.share_of_cpu_bound;
        report.add_text_line(format!(
            "W3  {} runs x {TURNS_PER_RUN} turns: {:.0} turns/s with {:.2} commits per turn; {:.0} us CPU per turn, {ratio:.2} times that of one \
             run (target {CONCURRENT_CPU_TARGET}: {}); {cpu_bound_share:.2} of the {:.0}/s that this CPU and the mock's {:.0} us allow \
             (target {CPU_BOUND_SHARE_TARGET}: {})",
            concurrent.runs,
            concurrent.turns_per_second,
            concurrent.cost.commits_per_turn,
            concurrent.cost.cpu_us_per_turn,
            met_or_missed(ratio <= CONCURRENT_CPU_TARGET),
            concurrent.cpu_bound_per_second,
            concurrent.mock_cpu_us_per_turn,
            met_or_missed(cpu_bound_share >= CPU_BOUND_SHARE_TARGET),
        ));
        let ideal = concurrent_with_latency.ideal_per_second.unwrap_or_default();
        report.add_text_line(format!(
            "W3  with {} ms latency: {:.0} turns/s of the ideal {ideal:.0} (target {:.0}: {})",
            LATENCY.0,
            concurrent_with_latency.turns_per_second,
            IDEAL_SHARE_TARGET * ideal,
            met_or_missed(concurrent_with_latency.share_of_ideal >= Some(IDEAL_SHARE_TARGET)),
        ));
        report.add_json_fields(&json!({ "http": {
            "wire": wire,
            "result_bytes": bytes,
            "mock_on_same_cores": true,
            "window_turns": WINDOW_TURNS,
            "one_run": single_run,
            "history": history,
            "concurrent": concurrent,
            "concurrent_cpu_to_one_run": ratio,
            "concurrent_with_latency": concurrent_with_latency,
        }}))
    }
}
