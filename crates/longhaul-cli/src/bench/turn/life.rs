//! One run of many turns, through the real engine and the real store.
//!
//! Never: a shortcut. It is submitted, claimed and driven like any other.

use std::path::Path;
use std::sync::Arc;

use longhaul_core::message::Message;
use longhaul_engine::clock::Stopwatch;
use longhaul_run::Run;
use longhaul_store::SqliteStore;

use crate::bench::turn::setting::{drive, longhaul, store, task};
use crate::bench::turn::source::Source;
use crate::cpu::cpu_us;
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
#[derive(Debug)]
pub(crate) struct Lived {
    pub(crate) turns: u32,
    commits: u64,
    cpu_us: f64,
    wall_us: f64,
    stored: u64,
    said: u64,
    /// How long the whole journal takes to fold.
    pub(crate) fold_ms: f64,
}

impl Lived {
    fn each(&self, sum: f64) -> f64 {
        sum / f64::from(self.turns)
    }

    pub(crate) fn commits_per_turn(&self) -> f64 {
        self.each(self.commits as f64)
    }

    pub(crate) fn cpu_us_per_turn(&self) -> f64 {
        self.each(self.cpu_us)
    }

    pub(crate) fn wall_us_per_turn(&self) -> f64 {
        self.each(self.wall_us)
    }

    /// The warm-up is stored too.
    pub(crate) fn stored_per_turn(&self) -> f64 {
        self.stored as f64 / f64::from(self.turns + WARM_UP_TURNS)
    }

    pub(crate) fn said_per_turn(&self) -> f64 {
        self.said as f64 / f64::from(self.turns + WARM_UP_TURNS)
    }

    pub(crate) fn stored_per_said(&self) -> f64 {
        self.stored as f64 / self.said.max(1) as f64
    }
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
        let before = (store.commits(), cpu_us(), Stopwatch::start());
        drive(&longhaul, &[run], self.turns).await?;
        let commits = store.commits() - before.0;
        let cpu_us = cpu_us() - before.1;
        let wall_us = before.2.nanos() as f64 / 1_000.0;
        let folding = Stopwatch::start();
        let folded = longhaul.fold(run).await?;
        let fold_ms = folding.nanos() as f64 / 1_000_000.0;
        said += said_in(&folded);
        drop((longhaul, folded, store));
        let stored = std::fs::metadata(file)?.len().saturating_sub(empty);
        Ok(Lived {
            turns: self.turns,
            commits,
            cpu_us,
            wall_us,
            stored,
            said,
            fold_ms,
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
