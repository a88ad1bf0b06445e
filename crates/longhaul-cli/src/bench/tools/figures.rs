//! What was measured of tools, for people and for machines.
//!
//! Never: a figure without its conditions.

use serde::Serialize;

use crate::bench::conditions::{build, cores, met};
use crate::bench::cost::TurnCost;
use crate::bench::tools::measure::{Bench, CALLS, Measured};
use crate::bench::turn::disk::Disk;

/// CPU of a call apart from its commit, in microseconds.
const CPU_US_TARGET: f64 = 100.0;

/// Two runs differ by so much for no reason.
const TOLD_US_MIN: f64 = 5.0;

/// What was measured, and under which conditions.
#[derive(Debug, Serialize)]
pub(crate) struct Figures {
    build: &'static str,
    cores: usize,
    turns: u32,
    rounds: u32,
    result_bytes: usize,
    calls_at_once: u32,
    #[serde(flatten)]
    disk: Disk,
    #[serde(flatten)]
    measured: Measured,
    /// CPU of a call that commits for itself, without the commit.
    in_a_row_cpu_us_per_call_apart_from_commit: f64,
    difference_us_that_can_be_told: f64,
    target_cpu_us: f64,
}

impl Figures {
    pub(crate) fn new(bench: &Bench<'_>, disk: Disk, measured: Measured) -> Self {
        let row = &measured.in_a_row;
        let apart = row.cpu_us_per_call - row.commits_per_call * measured.append_cpu_us;
        Self {
            build: build(),
            cores: cores(),
            turns: bench.turns,
            rounds: bench.rounds,
            result_bytes: bench.result_bytes,
            calls_at_once: CALLS,
            disk,
            // It is a small difference of two large figures: below nothing it says nothing.
            in_a_row_cpu_us_per_call_apart_from_commit: apart.max(0.0),
            measured,
            difference_us_that_can_be_told: TOLD_US_MIN,
            target_cpu_us: CPU_US_TARGET,
        }
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        let measured = &self.measured;
        let mut lines = vec![format!(
            "bench tools: {} cores, {}, WAL, synchronous=FULL, scripted model without delay, {} turns, \
             {} bytes of result, the cheapest of {} rounds",
            cores(),
            build(),
            self.turns,
            self.result_bytes,
            self.rounds,
        )];
        lines.extend(self.disk.lines());
        lines.push(format!(
            "an append of the store alone  {:.0} us CPU, its commit included",
            measured.append_cpu_us
        ));
        lines.push(format!(
            "a check against the schema    {:.0} ns CPU",
            measured.schema_check_cpu_ns
        ));
        lines.push(String::new());
        lines.push(
            "                 calls a turn  commits a turn  CPU us a turn  wall us a turn"
                .to_owned(),
        );
        for (name, pair) in [
            ("side by side", &measured.side_by_side),
            ("one by one", &measured.in_a_row),
        ] {
            lines.push(row(name, 1, &pair.one));
            lines.push(row("", CALLS, &pair.several));
        }
        lines.push(String::new());
        lines.extend(self.verdicts());
        lines
    }

    fn verdicts(&self) -> Vec<String> {
        let (beside, row) = (&self.measured.side_by_side, &self.measured.in_a_row);
        let one = beside.cpu_us_per_call;
        let apart = self.in_a_row_cpu_us_per_call_apart_from_commit;
        vec![
            format!(
                "side by side  {} CPU for each further call, with {:.2} commits (target {CPU_US_TARGET:.0} us: {}); \
                 {CALLS} calls cost {:.2} of one",
                told(one),
                beside.commits_per_call,
                met(one <= CPU_US_TARGET),
                beside.several.cpu_us_per_turn / beside.one.cpu_us_per_turn.max(1.0),
            ),
            format!(
                "one by one    {} CPU for each further call, with {:.2} commits; {} apart from them \
                 (target {CPU_US_TARGET:.0} us: {})",
                told(row.cpu_us_per_call),
                row.commits_per_call,
                told(apart),
                met(apart <= CPU_US_TARGET),
            ),
        ]
    }
}

/// A difference in words, where it is one that can be told.
fn told(us: f64) -> String {
    match us < TOLD_US_MIN {
        true => format!("under {TOLD_US_MIN:.0} us (less than can be told here)"),
        false => format!("{us:.0} us"),
    }
}

fn row(name: &str, calls: u32, took: &TurnCost) -> String {
    format!(
        "{name:<15}  {calls:>12}  {:>14.2}  {:>13.0}  {:>14.0}",
        took.commits_per_turn, took.cpu_us_per_turn, took.wall_us_per_turn,
    )
}

#[cfg(test)]
mod tests {
    use super::told;

    #[test]
    fn what_can_not_be_told_is_said_so() {
        for us in [-13.0, -0.4, 0.0, 4.9] {
            assert_eq!(told(us), "under 5 us (less than can be told here)");
        }
        assert_eq!(told(5.0), "5 us");
        assert_eq!(told(87.6), "88 us");
    }
}
