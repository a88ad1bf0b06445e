//! `longhaul bench tools`: measures the cost of a tool call apart from its turn and its commit:
//! schema check, classification (such as whether the call may be repeated) and journal. A turn
//! without a call would end the run, so runs with one call and with eight calls per turn are
//! compared.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use futures_util::FutureExt as _;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::Tool;
use longhaul_engine::clock::SystemClock;
use longhaul_engine::tool_registry::RegisteredTool;
use serde::Serialize;
use serde_json::json;

use crate::bench::fixture::{BenchFixture, FixedTextTool};
use crate::bench::measure::{DiskSpeed, TurnCost};
use crate::bench::model_source::ModelSource;
use crate::bench::report::{self, BenchReport, met_or_missed};
use crate::bench::write_load::WriteLoad;
use crate::cpu::cpu_time_us;
use crate::runtime;

/// Number of tool calls in a turn with several calls: the maximum number that run in parallel.
const CALLS_PER_TURN: u32 = 8;

/// Number of store appends that are measured.
const APPEND_COUNT: u64 = 2_000;
/// Number of schema checks that are measured.
const CHECK_COUNT: u32 = 20_000;

/// Target CPU time of a tool call without its commit, in microseconds.
const CPU_US_TARGET: f64 = 100.0;

/// Smallest difference between two measurements that is significant, in microseconds.
const NOISE_FLOOR_US: f64 = 5.0;

/// Arguments of `longhaul bench tools`.
#[derive(Debug, Args)]
pub(crate) struct BenchToolsCommand {
    /// Number of turns of each run
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(10..=10_000))]
    turns: u32,
    /// Number of measurement rounds; the cheapest round counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Length of each tool result in bytes
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=8_000))]
    result: u32,
    /// Folder for the stores; the speed of its disk matters
    #[arg(long)]
    dir: Option<std::path::PathBuf>,
    /// Print the measurements as one JSON object
    #[arg(long)]
    json: bool,
}

/// Costs of a turn with one tool call and of a turn with several, and the cost of each further
/// call.
#[derive(Debug, Serialize)]
struct CallCostComparison {
    one: TurnCost,
    several: TurnCost,
    commits_per_call: f64,
    cpu_us_per_call: f64,
}

impl CallCostComparison {
    fn compare(one_call: TurnCost, several_calls: TurnCost) -> Self {
        let per_call = |few: f64, many: f64| (many - few) / f64::from(CALLS_PER_TURN - 1);
        Self {
            one: one_call,
            several: several_calls,
            commits_per_call: per_call(one_call.commits_per_turn, several_calls.commits_per_turn),
            cpu_us_per_call: per_call(one_call.cpu_us_per_turn, several_calls.cpu_us_per_turn),
        }
    }

    fn table_rows(&self, label: &str) -> [Vec<String>; 2] {
        [(label, 1, &self.one), ("", CALLS_PER_TURN, &self.several)].map(|(label, calls, cost)| {
            let mut row = vec![label.to_owned(), calls.to_string()];
            row.extend(cost.cost_table_cells());
            row
        })
    }
}

impl BenchToolsCommand {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let folder = report::create_temp_folder(self.dir.as_deref())?;
        let (turns, bytes, rounds) = (self.turns, self.result, self.rounds);
        let conditions = format!(
            "WAL, synchronous=FULL, scripted model without delay, {turns} turns, {bytes} bytes of \
             result, the cheapest of {rounds} rounds"
        );
        let mut report = BenchReport::new("tools", &conditions, self.json);
        DiskSpeed::measure_disk_speed(folder.path(), &mut report)?;
        runtime::build_multi_thread_tokio()?
            .block_on(self.measure_tool_calls(folder.path(), &mut report))?;
        report.print()
    }

    async fn measure_tool_calls(
        &self,
        folder: &Path,
        report: &mut BenchReport,
    ) -> anyhow::Result<()> {
        let check_ns = self.measure_schema_check_cpu_us()? * 1e3;
        report.print_progress("appending without an engine");
        let append_us = self.measure_append_cpu_us(folder).await?;
        let parallel = self.compare_turn_costs(folder, EffectClass::Keyed, report).await?;
        let sequential = self.compare_turn_costs(folder, EffectClass::Once, report).await?;
        // This is a small difference of two large figures, so a negative value is only noise.
        let cpu_us_without_commit =
            (sequential.cpu_us_per_call - sequential.commits_per_call * append_us).max(0.0);
        report.add_text_line(format!(
            "an append to the store alone  {append_us:.0} us CPU, its commit included"
        ));
        report.add_text_line(format!("input checked against schema  {check_ns:.0} ns CPU"));
        let titles =
            ["", "calls per turn", "commits per turn", "CPU us per turn", "wall us per turn"];
        let rows = [parallel.table_rows("parallel"), sequential.table_rows("sequential")].concat();
        report.add_table(&titles, &rows);
        report.add_text_line(format!(
            "parallel      {} CPU for each further call, with {:.2} commits (target {CPU_US_TARGET:.0} us: {}); \
             {CALLS_PER_TURN} calls cost {:.2} times one",
            format_cpu_difference(parallel.cpu_us_per_call),
            parallel.commits_per_call,
            met_or_missed(parallel.cpu_us_per_call <= CPU_US_TARGET),
            parallel.several.cpu_us_per_turn / parallel.one.cpu_us_per_turn.max(1.0),
        ));
        report.add_text_line(format!(
            "sequential    {} CPU for each further call, with {:.2} commits; {} without them \
             (target {CPU_US_TARGET:.0} us: {})",
            format_cpu_difference(sequential.cpu_us_per_call),
            sequential.commits_per_call,
            format_cpu_difference(cpu_us_without_commit),
            met_or_missed(cpu_us_without_commit <= CPU_US_TARGET),
        ));
        report.add_json_fields(&json!({
            "turns": self.turns,
            "rounds": self.rounds,
            "result_bytes": self.result,
            "calls_at_once": CALLS_PER_TURN,
            "parallel": parallel,
            "sequential": sequential,
            "sequential_cpu_us_per_call_without_commit": cpu_us_without_commit,
            "append_cpu_us": append_us,
            "schema_check_cpu_ns": check_ns,
            "target_cpu_us": CPU_US_TARGET,
        }))
    }

    /// Returns the CPU time of checking a tool input against its schema once, in microseconds.
    fn measure_schema_check_cpu_us(&self) -> anyhow::Result<f64> {
        let echo = Arc::new(FixedTextTool::new(self.result as usize, EffectClass::Keyed)?)
            as Arc<dyn Tool>;
        let tool = RegisteredTool::from_tool(echo)?;
        let input = json!({ "n": 1 });
        let before = cpu_time_us();
        for _ in 0..CHECK_COUNT {
            let error = tool.find_input_error(std::hint::black_box(&input), &SystemClock);
            std::hint::black_box(error.now_or_never());
        }
        Ok((cpu_time_us() - before) / f64::from(CHECK_COUNT))
    }

    /// Returns the CPU time of one append to the store including its commit, without an engine, in
    /// microseconds.
    async fn measure_append_cpu_us(&self, folder: &Path) -> anyhow::Result<f64> {
        let load = WriteLoad { runs: 1, events: APPEND_COUNT, body_bytes: self.result as usize };
        let before = cpu_time_us();
        load.measure_appends(&folder.join("appends.db")).await?;
        Ok((cpu_time_us() - before) / APPEND_COUNT as f64)
    }

    /// Measures turns with one call and with several calls, and returns the cheapest round of each.
    /// The two kinds alternate, so that a disturbance affects both.
    async fn compare_turn_costs(
        &self,
        folder: &Path,
        class: EffectClass,
        report: &BenchReport,
    ) -> anyhow::Result<CallCostComparison> {
        let (mut one_call_costs, mut several_calls_costs) = (Vec::new(), Vec::new());
        for round in 1..=self.rounds {
            report.print_progress(&format!(
                "measuring calls of the effect class {class:?}, round {round}"
            ));
            for (calls, costs) in
                [(1, &mut one_call_costs), (CALLS_PER_TURN, &mut several_calls_costs)]
            {
                let name = format!("{class:?}-{calls}-{round}.db").to_lowercase();
                let source = ModelSource::Scripted { calls };
                let fixture = BenchFixture {
                    class,
                    ..BenchFixture::new(&folder.join(name), source, self.result as usize)?
                };
                fixture.execute_warm_up_run().await?;
                costs.push(fixture.execute_runs(self.turns, 1).await?.cost);
            }
        }
        let by_cpu = |a: &TurnCost, b: &TurnCost| a.cpu_us_per_turn.total_cmp(&b.cpu_us_per_turn);
        let cheapest = |costs: Vec<TurnCost>| costs.into_iter().min_by(by_cpu);
        let (one_call, several_calls) = cheapest(one_call_costs)
            .zip(cheapest(several_calls_costs))
            .context("no round was run")?;
        Ok(CallCostComparison::compare(one_call, several_calls))
    }
}

/// Formats a CPU time difference in microseconds, or says that it is below the noise floor.
fn format_cpu_difference(micros: f64) -> String {
    match micros < NOISE_FLOOR_US {
        true => format!("under {NOISE_FLOOR_US:.0} us (below the noise)"),
        false => format!("{micros:.0} us"),
    }
}

#[cfg(test)]
mod tests {
    use super::format_cpu_difference;

    #[test]
    fn differences_below_the_noise_floor_are_marked() {
        for micros in [-13.0, -0.4, 0.0, 4.9] {
            assert_eq!(format_cpu_difference(micros), "under 5 us (below the noise)");
        }
        assert_eq!(format_cpu_difference(5.0), "5 us");
        assert_eq!(format_cpu_difference(87.6), "88 us");
    }
}
