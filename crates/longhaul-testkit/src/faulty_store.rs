//! A store whose answers can be lost on the way, after the work was done.
//!
//! Never: loses the work itself, and never loses an answer unless it was told to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;

use longhaul_core::id::RunId;
use longhaul_core::policy::gate::GateRow;
use longhaul_core::port::store::{
    Append, Appended, Beat, ClaimAsk, Claimed, GatesAsk, OpenAsk, Opened, Page, PruneAsk, Pruned,
    ReadAsk, Renewed, RowsAsk, RunRow, Store, StoreError, Watch,
};

/// Another store behind a connection that breaks on order.
#[derive(Debug, Clone)]
pub struct FaultyStore {
    behind: Arc<dyn Store>,
    /// Each bit from the lowest on is one writing call to come; 1 loses its answer.
    losses: Arc<AtomicU64>,
}

impl FaultyStore {
    /// A connection to `behind` that holds.
    pub fn new(behind: Arc<dyn Store>) -> Self {
        Self {
            behind,
            losses: Arc::default(),
        }
    }

    /// Says for the next 64 writing calls whose answers are lost: the lowest
    /// bit is the next one. What a seed gives is a pattern.
    pub fn lose(&self, pattern: u64) {
        self.losses.store(pattern, Ordering::SeqCst);
    }

    /// Hands an answer on, unless this one is to be lost.
    fn answer<T>(&self, answer: Result<T, StoreError>) -> Result<T, StoreError> {
        let drop_bit = |pattern: u64| Some(pattern >> 1);
        let before = self
            .losses
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, drop_bit);
        if before.unwrap_or(0) & 1 == 1 {
            return Err(lost());
        }
        answer
    }
}

fn lost() -> StoreError {
    StoreError::Busy {
        at: "a connection that broke".to_owned(),
    }
}

#[async_trait]
impl Store for FaultyStore {
    async fn open(&self, ask: OpenAsk) -> Result<Opened, StoreError> {
        self.answer(self.behind.open(ask).await)
    }

    async fn claim(&self, ask: ClaimAsk) -> Result<Vec<Claimed>, StoreError> {
        self.answer(self.behind.claim(ask).await)
    }

    async fn renew(&self, beat: Beat) -> Result<Renewed, StoreError> {
        self.answer(self.behind.renew(beat).await)
    }

    async fn read(&self, ask: ReadAsk) -> Result<Page, StoreError> {
        self.behind.read(ask).await
    }

    async fn append(&self, append: Append) -> Result<Appended, StoreError> {
        self.answer(self.behind.append(append).await)
    }

    async fn row(&self, run: RunId) -> Result<Option<RunRow>, StoreError> {
        self.behind.row(run).await
    }

    async fn rows(&self, ask: RowsAsk) -> Result<Vec<RunRow>, StoreError> {
        self.behind.rows(ask).await
    }

    async fn gates(&self, ask: GatesAsk) -> Result<Vec<GateRow>, StoreError> {
        self.behind.gates(ask).await
    }

    fn watch(&self) -> Box<dyn Watch> {
        self.behind.watch()
    }

    async fn prune(&self, ask: PruneAsk) -> Result<Pruned, StoreError> {
        self.answer(self.behind.prune(ask).await)
    }
}
