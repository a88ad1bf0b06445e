//! Many runs at once over HTTP.
//!
//! Never: a worker for each. One process drives them all.

use std::path::Path;
use std::sync::Arc;

use longhaul_core::time::Millis;
use longhaul_engine::clock::Stopwatch;

use crate::bench::turn::life::warm_up;
use crate::bench::turn::setting::{drive, longhaul, store, task};
use crate::bench::turn::source::{Source, Wire, write_script};
use crate::bench::turn::stand_in::StandIn;
use crate::cpu::cpu_us;

/// So many turns has each run of the crowd.
pub(crate) const TURNS: u32 = 10;

/// What is to be measured.
pub(crate) struct Crowd<'a> {
    pub(crate) wire: Wire,
    pub(crate) runs: u32,
    pub(crate) result_bytes: usize,
    /// Where the mock finds its scripts.
    pub(crate) scripts: &'a Path,
}

/// What came of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Crowded {
    runs: u32,
    latency: Millis,
    commits: u64,
    cpu_us: f64,
    mock_cpu_us: f64,
    wall_us: f64,
}

impl Crowded {
    fn turns(&self) -> f64 {
        f64::from(self.runs) * f64::from(TURNS)
    }

    pub(crate) fn turns_per_second(&self) -> f64 {
        self.turns() * 1e6 / self.wall_us.max(1.0)
    }

    pub(crate) fn commits_per_turn(&self) -> f64 {
        self.commits as f64 / self.turns()
    }

    pub(crate) fn cpu_us_per_turn(&self) -> f64 {
        self.cpu_us / self.turns()
    }

    pub(crate) fn mock_cpu_us_per_turn(&self) -> f64 {
        self.mock_cpu_us / self.turns()
    }

    /// The turns a second for which these cores suffice, with the mock on them.
    pub(crate) fn allowed_per_second(&self, cores: usize) -> f64 {
        let both = self.cpu_us_per_turn() + self.mock_cpu_us_per_turn();
        cores as f64 * 1e6 / both.max(1.0)
    }

    /// The turns a second if nothing but the model took time: a run asks once more
    /// than it has turns.
    pub(crate) fn ideal_per_second(&self) -> f64 {
        let wait = self.latency.0.max(1) as f64 / 1_000.0;
        self.turns() / (wait * f64::from(TURNS + 1))
    }
}

impl Crowd<'_> {
    /// Lives all runs against a mock that takes so long.
    pub(crate) async fn measure(&self, file: &Path, latency: Millis) -> anyhow::Result<Crowded> {
        write_script(self.scripts, TURNS)?;
        let mock = StandIn::start(self.scripts, latency)?;
        let source = Source::Wire {
            wire: self.wire,
            url: mock.url.clone(),
        };
        let store = Arc::new(store(file)?);
        warm_up(&store, &source, self.result_bytes).await?;
        let longhaul = longhaul(&store, source.model(TURNS)?, self.result_bytes)?;
        let tasks = (0..self.runs).map(|_| task()).collect();
        let submitted = longhaul.submit_all(tasks).await?;
        let mock_before = mock.counted().await?.cpu_us;
        let before = (store.commits(), cpu_us(), Stopwatch::start());
        drive(&longhaul, submitted.runs(), TURNS).await?;
        let wall_us = before.2.nanos() as f64 / 1_000.0;
        Ok(Crowded {
            runs: self.runs,
            latency,
            commits: store.commits() - before.0,
            cpu_us: cpu_us() - before.1,
            mock_cpu_us: mock.counted().await?.cpu_us - mock_before,
            wall_us,
        })
    }
}
