//! One run of many turns, through the real engine and the real store.
//!
//! Never: a shortcut. It is submitted, claimed and driven like any other.

use std::path::Path;
use std::sync::Arc;

use longhaul_core::message::Message;
use longhaul_engine::clock::Stopwatch;
use longhaul_run::Run;
use longhaul_store::SqliteStore;
use serde::Serialize;

use crate::bench::cost::{Meter, TurnCost, micros};
use crate::bench::turn::setting::{drive, longhaul, store, task};
use crate::bench::turn::source::Source;
use crate::runtime;

/// So long is the life before the one that counts.
pub(crate) const WARM_UP_TURNS: u32 = 3;

/// Length of the results in a life that is lived alone.
const ALONE_RESULT_BYTES: usize = 2_048;

/// A life to be lived.
pub(crate) struct Life {
    pub(crate) turns: u32,
    pub(crate) result_bytes: usize,
    pub(crate) source: Source,
}

/// A life that was lived.
#[derive(Debug, Serialize)]
pub(crate) struct Lived {
    pub(crate) turns: u32,
    #[serde(flatten)]
    pub(crate) cost: TurnCost,
    pub(crate) stored_bytes_per_turn: f64,
    said_bytes_per_turn: f64,
    pub(crate) stored_per_said: f64,
    /// How long the whole journal takes to fold.
    pub(crate) recovery_fold_ms: f64,
}

impl Life {
    /// Lives it in a new store.
    pub(crate) async fn live(&self, file: &Path) -> anyhow::Result<Lived> {
        let empty = self.size_of_nothing(file)?;
        let store = Arc::new(store(file)?);
        let mut said = warm_up(&store, &self.source, self.result_bytes).await?;
        let model = self.source.model(self.turns)?;
        let longhaul = longhaul(&store, model, self.result_bytes)?;
        let run = longhaul.submit(task()).await?;
        let meter = Meter::start(&store);
        drive(&longhaul, &[run], self.turns).await?;
        let cost = meter.cost(self.turns);
        let folding = Stopwatch::start();
        let folded = longhaul.fold(run).await?;
        let recovery_fold_ms = micros(folding.nanos()) / 1e3;
        said += said_in(&folded);
        drop((longhaul, folded, store));
        let stored = std::fs::metadata(file)?.len().saturating_sub(empty) as f64;
        // The warm-up is stored too.
        let turns = f64::from(self.turns + WARM_UP_TURNS);
        Ok(Lived {
            turns: self.turns,
            cost,
            stored_bytes_per_turn: stored / turns,
            said_bytes_per_turn: said as f64 / turns,
            stored_per_said: stored / said.max(1) as f64,
            recovery_fold_ms,
        })
    }

    /// What a store takes before anything is in it.
    fn size_of_nothing(&self, file: &Path) -> anyhow::Result<u64> {
        let empty = file
            .with_file_name(format!("empty-{}", self.turns))
            .join("empty.db");
        drop(store(&empty)?);
        Ok(std::fs::metadata(&empty)?.len())
    }
}

/// Lives one life and nothing else: `scripts/instructions` counts it under callgrind.
pub(crate) fn live_alone(source: &Source, turns: u32, folder: &Path) -> anyhow::Result<()> {
    let file = folder.join("life.db");
    runtime::driving()?.block_on(async {
        let store = Arc::new(store(&file)?);
        let longhaul = longhaul(&store, source.model(turns)?, ALONE_RESULT_BYTES)?;
        let run = longhaul.submit(task()).await?;
        drive(&longhaul, &[run], turns).await
    })
}

/// A short life before the one that counts: statements are prepared and code is
/// read in once a process, not once a turn. What was said in it.
pub(crate) async fn warm_up(
    store: &Arc<SqliteStore>,
    source: &Source,
    result_bytes: usize,
) -> anyhow::Result<u64> {
    let model = source.model(WARM_UP_TURNS)?;
    let longhaul = longhaul(store, model, result_bytes)?;
    let run = longhaul.submit(task()).await?;
    drive(&longhaul, &[run], WARM_UP_TURNS).await?;
    Ok(said_in(&longhaul.fold(run).await?))
}

/// The bytes that the model and the tools have said.
fn said_in(run: &Run) -> u64 {
    let messages = run.transcript().messages().iter();
    messages
        .filter(|message| !matches!(***message, Message::User(_)))
        .map(|message| message.bytes())
        .sum()
}
