//! `longhaul bench tools`: what a tool call costs apart from its turn and its commit: the schema
//! check, the appraisal, the journal. A turn without a call ends its run, so runs of the same turns
//! with one call and with eight are compared.

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

use crate::bench::fixture::{EchoTool, Fixture};
use crate::bench::measure::{DiskLimits, TurnCost};
use crate::bench::model_source::ModelSource;
use crate::bench::report::{self, Report, met_or_missed};
use crate::bench::write_load::WriteLoad;
use crate::cpu::cpu_us;
use crate::runtime;

/// Number of calls of a turn that has several: as many as go side by side.
const CALLS_PER_TURN: u32 = 8;

/// Number of appends and of checks that are measured.
const APPEND_COUNT: u64 = 2_000;
const CHECK_COUNT: u32 = 20_000;

/// CPU of a call apart from its commit, in microseconds.
const CPU_US_TARGET: f64 = 100.0;

/// A smaller difference between two runs means nothing.
const NOISE_FLOOR_US: f64 = 5.0;

/// What a tool call costs.
#[derive(Debug, Args)]
pub(crate) struct Tools {
    /// How many turns each run has
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(10..=10_000))]
    turns: u32,
    /// How often each run is made; the cheapest of them counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// The length of each result, in bytes
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=8_000))]
    result: u32,
    /// The folder in which to measure; its disk counts
    #[arg(long)]
    dir: Option<std::path::PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The same turns with one call and with several, and what each call beyond the first costs.
#[derive(Debug, Serialize)]
struct CallComparison {
    one: TurnCost,
    several: TurnCost,
    commits_per_call: f64,
    cpu_us_per_call: f64,
}

impl CallComparison {
    fn new(one: TurnCost, several: TurnCost) -> Self {
        let each = |few: f64, many: f64| (many - few) / f64::from(CALLS_PER_TURN - 1);
        Self {
            one,
            several,
            commits_per_call: each(one.commits_per_turn, several.commits_per_turn),
            cpu_us_per_call: each(one.cpu_us_per_turn, several.cpu_us_per_turn),
        }
    }

    fn rows(&self, name: &str) -> [Vec<String>; 2] {
        [(name, 1, &self.one), ("", CALLS_PER_TURN, &self.several)].map(|(name, calls, cost)| {
            let mut row = vec![name.to_owned(), calls.to_string()];
            row.extend(cost.cells());
            row
        })
    }
}

impl Tools {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let folder = report::create_temp_folder(self.dir.as_deref())?;
        let (turns, bytes, rounds) = (self.turns, self.result, self.rounds);
        let conditions = format!(
            "WAL, synchronous=FULL, scripted model without delay, {turns} turns, {bytes} bytes of \
             result, the cheapest of {rounds} rounds"
        );
        let mut report = Report::new("tools", &conditions, self.json);
        DiskLimits::measure(folder.path(), &mut report)?;
        runtime::multi_thread()?.block_on(self.measure(folder.path(), &mut report))?;
        report.print()
    }

    async fn measure(&self, folder: &Path, report: &mut Report) -> anyhow::Result<()> {
        let check_ns = self.measure_schema_check()? * 1e3;
        report.print_progress("appending without an engine");
        let append_us = self.measure_append(folder).await?;
        let beside = self.compare(folder, EffectClass::Keyed, report).await?;
        let row = self.compare(folder, EffectClass::Once, report).await?;
        // It is a small difference of two large figures: below zero it says nothing.
        let apart = (row.cpu_us_per_call - row.commits_per_call * append_us).max(0.0);
        report.add_line(format!(
            "an append of the store alone  {append_us:.0} us CPU, its commit included"
        ));
        report.add_line(format!("a check against the schema    {check_ns:.0} ns CPU"));
        let head = ["", "calls a turn", "commits a turn", "CPU us a turn", "wall us a turn"];
        let rows = [beside.rows("side by side"), row.rows("one by one")].concat();
        report.add_table(&head, &rows);
        report.add_line(format!(
            "side by side  {} CPU for each further call, with {:.2} commits (target {CPU_US_TARGET:.0} us: {}); \
             {CALLS_PER_TURN} calls cost {:.2} of one",
            format_difference(beside.cpu_us_per_call),
            beside.commits_per_call,
            met_or_missed(beside.cpu_us_per_call <= CPU_US_TARGET),
            beside.several.cpu_us_per_turn / beside.one.cpu_us_per_turn.max(1.0),
        ));
        report.add_line(format!(
            "one by one    {} CPU for each further call, with {:.2} commits; {} apart from them \
             (target {CPU_US_TARGET:.0} us: {})",
            format_difference(row.cpu_us_per_call),
            row.commits_per_call,
            format_difference(apart),
            met_or_missed(apart <= CPU_US_TARGET),
        ));
        report.add_figures(&json!({
            "turns": self.turns,
            "rounds": self.rounds,
            "result_bytes": self.result,
            "calls_at_once": CALLS_PER_TURN,
            "parallel": beside,
            "sequential": row,
            "sequential_cpu_us_per_call_without_commit": apart,
            "append_cpu_us": append_us,
            "schema_check_cpu_ns": check_ns,
            "target_cpu_us": CPU_US_TARGET,
        }))
    }

    /// CPU of the check of one input against its schema, in microseconds.
    fn measure_schema_check(&self) -> anyhow::Result<f64> {
        let echo =
            Arc::new(EchoTool::new(self.result as usize, EffectClass::Keyed)?) as Arc<dyn Tool>;
        let equipped = RegisteredTool::new(echo)?;
        let input = json!({ "n": 1 });
        let before = cpu_us();
        for _ in 0..CHECK_COUNT {
            let fault = equipped.input_error(std::hint::black_box(&input), &SystemClock);
            std::hint::black_box(fault.now_or_never());
        }
        Ok((cpu_us() - before) / f64::from(CHECK_COUNT))
    }

    /// CPU of an append of one event with its commit, by the store alone, in microseconds.
    async fn measure_append(&self, folder: &Path) -> anyhow::Result<f64> {
        let load = WriteLoad { runs: 1, events: APPEND_COUNT, body_bytes: self.result as usize };
        let before = cpu_us();
        load.measure(&folder.join("appends.db")).await?;
        Ok((cpu_us() - before) / APPEND_COUNT as f64)
    }

    /// The cheapest of some rounds, which take turns: what disturbs one of them disturbs the other
    /// too.
    async fn compare(
        &self,
        folder: &Path,
        class: EffectClass,
        report: &Report,
    ) -> anyhow::Result<CallComparison> {
        let (mut one, mut several) = (Vec::new(), Vec::new());
        for round in 1..=self.rounds {
            report.print_progress(&format!("{class:?} calls, round {round}"));
            for (calls, costs) in [(1, &mut one), (CALLS_PER_TURN, &mut several)] {
                let name = format!("{class:?}-{calls}-{round}.db").to_lowercase();
                let source = ModelSource::Scripted { calls };
                let fixture = Fixture {
                    class,
                    ..Fixture::new(&folder.join(name), source, self.result as usize)?
                };
                fixture.warm_up().await?;
                costs.push(fixture.execute(self.turns, 1).await?.cost);
            }
        }
        let by_cpu = |a: &TurnCost, b: &TurnCost| a.cpu_us_per_turn.total_cmp(&b.cpu_us_per_turn);
        let cheapest = |costs: Vec<TurnCost>| costs.into_iter().min_by(by_cpu);
        let (one, several) = cheapest(one).zip(cheapest(several)).context("no round was made")?;
        Ok(CallComparison::new(one, several))
    }
}

/// A difference in words, where it means anything.
fn format_difference(us: f64) -> String {
    match us < NOISE_FLOOR_US {
        true => format!("under {NOISE_FLOOR_US:.0} us (less than can be told here)"),
        false => format!("{us:.0} us"),
    }
}

#[cfg(test)]
mod tests {
    use super::format_difference;

    #[test]
    fn differences_below_the_noise_floor_are_marked() {
        for us in [-13.0, -0.4, 0.0, 4.9] {
            assert_eq!(format_difference(us), "under 5 us (less than can be told here)");
        }
        assert_eq!(format_difference(5.0), "5 us");
        assert_eq!(format_difference(87.6), "88 us");
    }
}
