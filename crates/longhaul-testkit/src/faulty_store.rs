//! A store whose answers can be lost on the way, after the work was done.
//!
//! Never: loses the work itself, and never loses an answer unless it was told to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;

use longhaul_core::id::RunId;
use longhaul_core::policy::gate::GateRow;
use longhaul_core::port::store::{
    AppendRequest, Appended, Claim, ClaimRequest, GateFilter, Heartbeat, HeartbeatAck, JournalPage,
    OpenOutcome, OpenRequest, PruneOutcome, PruneRequest, ReadRequest, RunFilter, RunRow, Store,
    StoreError, Watch,
};

/// Another store behind a connection that breaks on order.
#[derive(Debug, Clone)]
pub struct FaultyStore {
    inner: Arc<dyn Store>,
    /// Each bit from the lowest on is one writing call to come; 1 loses its answer.
    losses: Arc<AtomicU64>,
}

impl FaultyStore {
    /// A connection to `behind` that holds.
    pub fn new(behind: Arc<dyn Store>) -> Self {
        Self { inner: behind, losses: Arc::default() }
    }

    /// Says for the next 64 writing calls whose answers are lost: the lowest
    /// bit is the next one. What a seed gives is a pattern.
    pub fn lose_answers(&self, pattern: u64) {
        self.losses.store(pattern, Ordering::SeqCst);
    }

    /// Hands an answer on, unless this one is to be lost.
    fn deliver<T>(&self, answer: Result<T, StoreError>) -> Result<T, StoreError> {
        let drop_bit = |pattern: u64| Some(pattern >> 1);
        let before = self.losses.fetch_update(Ordering::SeqCst, Ordering::SeqCst, drop_bit);
        if before.unwrap_or(0) & 1 == 1 {
            return Err(lost_answer());
        }
        answer
    }
}

fn lost_answer() -> StoreError {
    StoreError::Busy { at: "a connection that broke".to_owned() }
}

#[async_trait]
impl Store for FaultyStore {
    async fn open_runs(&self, ask: OpenRequest) -> Result<OpenOutcome, StoreError> {
        self.deliver(self.inner.open_runs(ask).await)
    }

    async fn claim(&self, ask: ClaimRequest) -> Result<Vec<Claim>, StoreError> {
        self.deliver(self.inner.claim(ask).await)
    }

    async fn heartbeat(&self, beat: Heartbeat) -> Result<HeartbeatAck, StoreError> {
        self.deliver(self.inner.heartbeat(beat).await)
    }

    async fn read(&self, ask: ReadRequest) -> Result<JournalPage, StoreError> {
        self.inner.read(ask).await
    }

    async fn append(&self, append: AppendRequest) -> Result<Appended, StoreError> {
        self.deliver(self.inner.append(append).await)
    }

    async fn get_run(&self, run: RunId) -> Result<Option<RunRow>, StoreError> {
        self.inner.get_run(run).await
    }

    async fn list_runs(&self, ask: RunFilter) -> Result<Vec<RunRow>, StoreError> {
        self.inner.list_runs(ask).await
    }

    async fn list_gates(&self, ask: GateFilter) -> Result<Vec<GateRow>, StoreError> {
        self.inner.list_gates(ask).await
    }

    fn watch(&self) -> Box<dyn Watch> {
        self.inner.watch()
    }

    async fn prune(&self, ask: PruneRequest) -> Result<PruneOutcome, StoreError> {
        self.deliver(self.inner.prune(ask).await)
    }
}
