//! A store that loses the responses of chosen calls after the underlying store has executed
//! them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;

use longhaul_core::id::RunId;
use longhaul_core::policy::gate::GateRow;
use longhaul_core::port::queue::{PeekRequest, QueuePosition};
use longhaul_core::port::store::{
    AppendRequest, AppendResult, Claim, CreateRunsOutcome, CreateRunsRequest, GateFilter,
    Heartbeat, HeartbeatAck, JournalPage, JournalReadRequest, PruneOutcome, PruneRequest,
    RunClaimRequest, RunFilter, RunRow, Store, StoreError, StoreWatcher,
};

/// A store behind a simulated connection that loses chosen responses.
#[derive(Debug, Clone)]
pub struct FaultyStore {
    inner: Arc<dyn Store>,
    /// Bit pattern for the next write calls, lowest bit first. A 1 loses the response.
    losses: Arc<AtomicU64>,
}

impl FaultyStore {
    /// Wraps `inner`. No responses are lost yet.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, losses: Arc::default() }
    }

    /// Sets which responses of the next 64 write calls are lost. The lowest bit stands for the
    /// next call.
    pub fn lose_answers(&self, pattern: u64) {
        self.losses.store(pattern, Ordering::SeqCst);
    }

    /// Returns the response, or an error if this response is to be lost.
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
    StoreError::Busy { location: "a connection that was closed".to_owned() }
}

#[async_trait]
impl Store for FaultyStore {
    async fn create_runs(
        &self,
        request: CreateRunsRequest,
    ) -> Result<CreateRunsOutcome, StoreError> {
        self.deliver(self.inner.create_runs(request).await)
    }

    async fn claim_runs(&self, request: RunClaimRequest) -> Result<Vec<Claim>, StoreError> {
        self.deliver(self.inner.claim_runs(request).await)
    }

    async fn peek_queue(&self, request: PeekRequest) -> Result<Vec<QueuePosition>, StoreError> {
        self.inner.peek_queue(request).await
    }

    async fn heartbeat(&self, heartbeat: Heartbeat) -> Result<HeartbeatAck, StoreError> {
        self.deliver(self.inner.heartbeat(heartbeat).await)
    }

    async fn read_journal(&self, request: JournalReadRequest) -> Result<JournalPage, StoreError> {
        self.inner.read_journal(request).await
    }

    async fn append_to_journal(&self, append: AppendRequest) -> Result<AppendResult, StoreError> {
        self.deliver(self.inner.append_to_journal(append).await)
    }

    async fn get_run(&self, run: RunId) -> Result<Option<RunRow>, StoreError> {
        self.inner.get_run(run).await
    }

    async fn list_runs(&self, filter: RunFilter) -> Result<Vec<RunRow>, StoreError> {
        self.inner.list_runs(filter).await
    }

    async fn list_gates(&self, filter: GateFilter) -> Result<Vec<GateRow>, StoreError> {
        self.inner.list_gates(filter).await
    }

    fn watch_for_changes(&self) -> Box<dyn StoreWatcher> {
        self.inner.watch_for_changes()
    }

    async fn prune_old_data(&self, request: PruneRequest) -> Result<PruneOutcome, StoreError> {
        self.deliver(self.inner.prune_old_data(request).await)
    }
}
