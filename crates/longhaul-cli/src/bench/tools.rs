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
use longhaul_engine::toolbox::Equipped;
use serde::Serialize;
use serde_json::json;

use crate::bench::fixture::{Echo, Fixture};
use crate::bench::measure::{Disk, TurnCost};
use crate::bench::model_source::ModelSource;
use crate::bench::report::{self, Report, met};
use crate::bench::write_load::WriteLoad;
use crate::cpu::cpu_us;
use crate::runtime;

/// Number of calls of a turn that has several: as many as go side by side.
const CALLS: u32 = 8;

/// Number of appends and of checks that are measured.
const APPENDS: u64 = 2_000;
const CHECKS: u32 = 20_000;

/// CPU of a call apart from its commit, in microseconds.
const CPU_US_TARGET: f64 = 100.0;

/// A smaller difference between two runs means nothing.
const NOISE_US: f64 = 5.0;

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
struct Pair {
    one: TurnCost,
    several: TurnCost,
    commits_per_call: f64,
    cpu_us_per_call: f64,
}

impl Pair {
    fn new(one: TurnCost, several: TurnCost) -> Self {
        let each = |few: f64, many: f64| (many - few) / f64::from(CALLS - 1);
        Self {
            one,
            several,
            commits_per_call: each(one.commits_per_turn, several.commits_per_turn),
            cpu_us_per_call: each(one.cpu_us_per_turn, several.cpu_us_per_turn),
        }
    }

    fn rows(&self, name: &str) -> [Vec<String>; 2] {
        [(name, 1, &self.one), ("", CALLS, &self.several)].map(|(name, calls, cost)| {
            let mut row = vec![name.to_owned(), calls.to_string()];
            row.extend(cost.cells());
            row
        })
    }
}

impl Tools {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let folder = report::folder(self.dir.as_deref())?;
        let (turns, bytes, rounds) = (self.turns, self.result, self.rounds);
        let conditions = format!(
            "WAL, synchronous=FULL, scripted model without delay, {turns} turns, {bytes} bytes of \
             result, the cheapest of {rounds} rounds"
        );
        let mut report = Report::new("tools", &conditions, self.json);
        Disk::measure(folder.path(), &mut report)?;
        runtime::driving()?.block_on(self.measure(folder.path(), &mut report))?;
        report.print()
    }

    async fn measure(&self, folder: &Path, report: &mut Report) -> anyhow::Result<()> {
        let check_ns = self.check()? * 1e3;
        report.progress("appending without an engine");
        let append_us = self.append(folder).await?;
        let beside = self.pair(folder, EffectClass::Keyed, report).await?;
        let row = self.pair(folder, EffectClass::Once, report).await?;
        // It is a small difference of two large figures: below zero it says nothing.
        let apart = (row.cpu_us_per_call - row.commits_per_call * append_us).max(0.0);
        report.line(format!(
            "an append of the store alone  {append_us:.0} us CPU, its commit included"
        ));
        report.line(format!(
            "a check against the schema    {check_ns:.0} ns CPU"
        ));
        let head = [
            "",
            "calls a turn",
            "commits a turn",
            "CPU us a turn",
            "wall us a turn",
        ];
        let rows = [beside.rows("side by side"), row.rows("one by one")].concat();
        report.table(&head, &rows);
        report.line(format!(
            "side by side  {} CPU for each further call, with {:.2} commits (target {CPU_US_TARGET:.0} us: {}); \
             {CALLS} calls cost {:.2} of one",
            difference(beside.cpu_us_per_call),
            beside.commits_per_call,
            met(beside.cpu_us_per_call <= CPU_US_TARGET),
            beside.several.cpu_us_per_turn / beside.one.cpu_us_per_turn.max(1.0),
        ));
        report.line(format!(
            "one by one    {} CPU for each further call, with {:.2} commits; {} apart from them \
             (target {CPU_US_TARGET:.0} us: {})",
            difference(row.cpu_us_per_call),
            row.commits_per_call,
            difference(apart),
            met(apart <= CPU_US_TARGET),
        ));
        report.figures(&json!({
            "turns": self.turns,
            "rounds": self.rounds,
            "result_bytes": self.result,
            "calls_at_once": CALLS,
            "side_by_side": beside,
            "in_a_row": row,
            "in_a_row_cpu_us_per_call_apart_from_commit": apart,
            "append_cpu_us": append_us,
            "schema_check_cpu_ns": check_ns,
            "target_cpu_us": CPU_US_TARGET,
        }))
    }

    /// CPU of the check of one input against its schema, in microseconds.
    fn check(&self) -> anyhow::Result<f64> {
        let echo = Arc::new(Echo::new(self.result as usize, EffectClass::Keyed)?) as Arc<dyn Tool>;
        let equipped = Equipped::new(echo)?;
        let input = json!({ "n": 1 });
        let before = cpu_us();
        for _ in 0..CHECKS {
            let fault = equipped.fault(std::hint::black_box(&input), &SystemClock);
            std::hint::black_box(fault.now_or_never());
        }
        Ok((cpu_us() - before) / f64::from(CHECKS))
    }

    /// CPU of an append of one event with its commit, by the store alone, in microseconds.
    async fn append(&self, folder: &Path) -> anyhow::Result<f64> {
        let load = WriteLoad {
            runs: 1,
            events: APPENDS,
            body_bytes: self.result as usize,
        };
        let before = cpu_us();
        load.measure(&folder.join("appends.db")).await?;
        Ok((cpu_us() - before) / APPENDS as f64)
    }

    /// The cheapest of some rounds, which take turns: what disturbs one of them disturbs the other
    /// too.
    async fn pair(
        &self,
        folder: &Path,
        class: EffectClass,
        report: &Report,
    ) -> anyhow::Result<Pair> {
        let (mut one, mut several) = (Vec::new(), Vec::new());
        for round in 1..=self.rounds {
            report.progress(&format!("{class:?} calls, round {round}"));
            for (calls, costs) in [(1, &mut one), (CALLS, &mut several)] {
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
        let (one, several) = cheapest(one)
            .zip(cheapest(several))
            .context("no round was made")?;
        Ok(Pair::new(one, several))
    }
}

/// A difference in words, where it means anything.
fn difference(us: f64) -> String {
    match us < NOISE_US {
        true => format!("under {NOISE_US:.0} us (less than can be told here)"),
        false => format!("{us:.0} us"),
    }
}

#[cfg(test)]
mod tests {
    use super::difference;

    #[test]
    fn a_difference_below_the_noise_is_said_to_be() {
        for us in [-13.0, -0.4, 0.0, 4.9] {
            assert_eq!(difference(us), "under 5 us (less than can be told here)");
        }
        assert_eq!(difference(5.0), "5 us");
        assert_eq!(difference(87.6), "88 us");
    }
}
