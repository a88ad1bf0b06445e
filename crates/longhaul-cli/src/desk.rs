//! The desk where every command asks: the same questions and the same answers,
//! whether the store is in this process's hands or behind a server.
//!
//! Never: a row of the store or a fold. Answers are views, which a server can
//! send as well.

pub(crate) mod find;
pub(crate) mod here;
pub(crate) mod there;

use async_trait::async_trait;
use longhaul_api::gate::GateView;
use longhaul_api::key::KeyView;
use longhaul_api::run::{BriefView, RunView};
use longhaul_api::steer::SteerView;
use longhaul_api::transcript::TranscriptView;
use longhaul_api::why::WhyView;
use longhaul_core::event::entry::Entry;
use longhaul_core::event::steer::Delivery;
use longhaul_core::id::{GateId, KeyName, RunId, Seq, SteerId};
use longhaul_core::policy::budget::Raise;
use longhaul_core::policy::gate::{Answer, GateStatus};
use longhaul_core::port::store::{GatesAsk, RowsAsk};
use longhaul_core::time::Timestamp;
use longhaul_engine::Task;
use longhaul_engine::handle::{KeyAsk, MadeKey, Verdict};

use crate::no::No;

/// So many open gates of one run are looked at.
const OPEN_MAX: usize = 100;

/// Whom commands ask.
#[async_trait]
pub(crate) trait Desk: Send + Sync {
    /// Takes a task in; it is on disk when this returns.
    async fn submit(&self, task: Task) -> Result<RunId, No>;

    /// One run, whole.
    async fn show(&self, run: RunId) -> Result<RunView, No>;

    /// Why a run stands as it does, by its journal and its row.
    async fn why(&self, run: RunId) -> Result<WhyView, No>;

    /// The conversation of a run.
    async fn transcript(&self, run: RunId) -> Result<TranscriptView, No>;

    /// A part of a run's journal.
    async fn events(&self, run: RunId, after: Seq, limit: usize) -> Result<Vec<Entry>, No>;

    /// Follows a run from after a place on.
    async fn follow(&self, run: RunId, after: Seq) -> Result<Box<dyn Following>, No>;

    /// Runs as lists show them, newest first.
    async fn brief(&self, ask: RowsAsk) -> Result<Vec<BriefView>, No>;

    /// The same runs, each of them whole.
    async fn whole(&self, ask: RowsAsk) -> Result<Vec<RunView>, No>;

    /// Gates, newest first.
    async fn gates(&self, ask: GatesAsk) -> Result<Vec<GateView>, No>;

    /// One gate.
    async fn gate(&self, gate: GateId) -> Result<GateView, No>;

    /// Answers a gate; what came of it, and the gate as it stands then.
    async fn answer(&self, gate: GateId, answer: Answer) -> Result<(Verdict, GateView), No>;

    /// Writes a message to a run; its id is the receipt.
    async fn steer(&self, run: RunId, text: String, delivery: Delivery) -> Result<SteerId, No>;

    /// The messages that were sent to a run, and what became of each.
    async fn steers(&self, run: RunId) -> Result<Vec<SteerView>, No>;

    /// Ends a run; how it stands then.
    async fn cancel(&self, run: RunId, reason: &str) -> Result<RunView, No>;

    /// Lets a run stand still; how it stands then.
    async fn pause(&self, run: RunId) -> Result<RunView, No>;

    /// Lets a run go on, maybe with more to spend; how it stands then.
    async fn resume(&self, run: RunId, raise: Option<Raise>) -> Result<RunView, No>;

    /// Makes a key; its secret is in the answer and nowhere else.
    async fn make_key(&self, ask: KeyAsk) -> Result<MadeKey, No>;

    /// All keys, the oldest first.
    async fn keys(&self) -> Result<Vec<KeyView>, No>;

    /// Ends a key and everything that it gave out.
    async fn revoke_key(&self, name: &KeyName) -> Result<KeyView, No>;

    /// The time there.
    async fn now(&self) -> Result<Timestamp, No>;

    /// Whether somebody drives.
    async fn is_driven(&self) -> Result<bool, No>;

    /// The gates that a run waits at, newest first.
    async fn open_gates(&self, run: RunId) -> Result<Vec<GateView>, No> {
        let ask = GatesAsk {
            run: Some(run),
            status: Some(GateStatus::Open),
            limit: OPEN_MAX,
            ..GatesAsk::default()
        };
        self.gates(ask).await
    }
}

/// Somebody who follows a run.
#[async_trait]
pub(crate) trait Following: Send {
    /// What comes next, in order and each once; none: the run has ended and all
    /// of it was told. Whoever stops waiting in the middle loses nothing.
    async fn next(&mut self) -> Result<Option<Vec<Entry>>, No>;
}
