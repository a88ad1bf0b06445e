//! What a turn costs on average, and the meter that counts it.

use longhaul_engine::clock::Stopwatch;
use longhaul_store::SqliteStore;
use longhaul_store::bench::Spans;
use serde::Serialize;

use crate::cpu::cpu_us;

/// The average cost of the turns of some runs.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct TurnCost {
    pub(crate) commits_per_turn: f64,
    pub(crate) cpu_us_per_turn: f64,
    pub(crate) wall_us_per_turn: f64,
}

/// Counts from its start on.
#[derive(Debug)]
pub(crate) struct Meter<'a> {
    store: &'a SqliteStore,
    commits: u64,
    cpu_us: f64,
    watch: Stopwatch,
}

impl<'a> Meter<'a> {
    pub(crate) fn start(store: &'a SqliteStore) -> Self {
        Self {
            store,
            commits: store.commits(),
            cpu_us: cpu_us(),
            watch: Stopwatch::start(),
        }
    }

    /// The cost of each of so many turns since the start.
    pub(crate) fn cost(&self, turns: u32) -> TurnCost {
        let turns = f64::from(turns);
        TurnCost {
            commits_per_turn: (self.store.commits() - self.commits) as f64 / turns,
            cpu_us_per_turn: (cpu_us() - self.cpu_us) / turns,
            wall_us_per_turn: micros(self.watch.nanos()) / turns,
        }
    }
}

/// How long half and almost all of some spans are at most.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Percentiles {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
}

impl Percentiles {
    /// Those of these spans, in microseconds.
    pub(crate) fn in_micros(spans: &Spans) -> Self {
        Self {
            p50: micros(spans.percentile(50)),
            p99: micros(spans.percentile(99)),
        }
    }
}

pub(crate) fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}
