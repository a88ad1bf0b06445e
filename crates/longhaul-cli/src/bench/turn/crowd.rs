//! Many runs at once over HTTP.
//!
//! Never: a worker for each. One process drives them all.

use std::path::Path;
use std::sync::Arc;

use longhaul_core::time::Millis;
use serde::Serialize;

use crate::bench::conditions::cores;
use crate::bench::cost::{Meter, TurnCost};
use crate::bench::turn::life::warm_up;
use crate::bench::turn::setting::{drive, longhaul, store, task};
use crate::bench::turn::source::{Source, Wire, write_script};
use crate::bench::turn::stand_in::StandIn;

/// So many turns has each run of the crowd.
pub(crate) const TURNS: u32 = 10;

/// What is to be measured.
pub(crate) struct Crowd<'a> {
    pub(crate) wire: Wire,
    pub(crate) runs: u32,
    pub(crate) result_bytes: usize,
    /// Where the mock finds its scripts.
    pub(crate) scripts: &'a Path,
    /// What a turn of one run alone costs.
    pub(crate) one_run: TurnCost,
}

/// What came of it.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Crowded {
    pub(crate) runs: u32,
    turns: u32,
    latency_ms: u64,
    pub(crate) turns_per_second: f64,
    #[serde(flatten)]
    pub(crate) cost: TurnCost,
    pub(crate) mock_cpu_us_per_turn: f64,
    /// CPU as a multiple of that of one run alone.
    pub(crate) cpu_to_one_run: f64,
    /// The turns a second for which these cores suffice, with the mock on them.
    pub(crate) allowed_per_second: f64,
    pub(crate) share_of_allowed: f64,
    /// The turns a second if nothing but the model took time; `None` for one that takes none.
    pub(crate) ideal_per_second: Option<f64>,
    pub(crate) share_of_ideal: Option<f64>,
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
        let turns = self.runs * TURNS;
        let meter = Meter::start(&store);
        drive(&longhaul, submitted.runs(), TURNS).await?;
        let cost = meter.cost(turns);
        let mock_cpu_us = (mock.counted().await?.cpu_us - mock_before) / f64::from(turns);
        let turns_per_second = 1e6 / cost.wall_us_per_turn.max(f64::MIN_POSITIVE);
        let both_us = cost.cpu_us_per_turn + mock_cpu_us;
        let allowed_per_second = cores() as f64 * 1e6 / both_us.max(1.0);
        // A run asks once more than it has turns.
        let waits_ms = latency.0 as f64 * f64::from(TURNS + 1);
        let ideal_per_second = (latency.0 > 0).then(|| f64::from(turns) * 1e3 / waits_ms);
        Ok(Crowded {
            runs: self.runs,
            turns: TURNS,
            latency_ms: latency.0,
            turns_per_second,
            cost,
            mock_cpu_us_per_turn: mock_cpu_us,
            cpu_to_one_run: cost.cpu_us_per_turn / self.one_run.cpu_us_per_turn.max(1.0),
            allowed_per_second,
            share_of_allowed: turns_per_second / allowed_per_second,
            ideal_per_second,
            share_of_ideal: ideal_per_second.map(|ideal| turns_per_second / ideal),
        })
    }
}
