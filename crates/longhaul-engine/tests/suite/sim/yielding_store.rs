//! A store wrapper that allows a crash before each call takes effect, and after it but before the
//! response.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use longhaul_core::change::{
    LateToolResult, NewThreadMessages, SandboxFilter, SandboxRow, SandboxState, SlotQueueLength,
    SteerRow,
};
use longhaul_core::checkpoint::RunCheckpoint;
use longhaul_core::id::{
    BatchId, InboxName, LaneKey, NoteId, ResourceKey, RuleId, RunId, Seq, ThreadKey, WorkerId,
};
use longhaul_core::message::Message;
use longhaul_core::note::{AddNoteOutcome, MemoryNote, NewMemoryNote};
use longhaul_core::policy::effect_key::ClaimedEffectKey;
use longhaul_core::policy::gate::{GateRow, RulePattern};
use longhaul_core::policy::rule::{
    RememberedApprovalFilter, RememberedApprovalRow, RememberedApprovalScope,
};
use longhaul_core::policy::spend_cap::{CapCounterRow, CapLimitChange};
use longhaul_core::port::queue::{PeekRequest, QueuePosition};
use longhaul_core::port::records::{
    BudgetAccount, ChangedRuns, DeleteRunsOutcome, DueOutboxMessage, DueTimer, GlobalJournalPage,
    GlobalSeq, InboxRunCounts, LaneRow, RecordStore, RepairedRowCounts, UsageQuery, UsageSum,
    WorkerRow,
};
use longhaul_core::port::store::{
    AppendRequest, AppendResult, Claim, CreateRunsOutcome, CreateRunsRequest, GateFilter,
    Heartbeat, HeartbeatAck, JournalAuthor, JournalPage, JournalReadRequest, PruneOutcome,
    PruneRequest, RunClaimRequest, RunCounts, RunFilter, RunRow, Store, StoreError, StoreWatcher,
};
use longhaul_core::raw::Hash;
use longhaul_core::time::{Millis, Timestamp};
use longhaul_testkit::sim::driver::SimServices;

use crate::suite::sim::random::yield_once;

/// A store with an await point before and after every call.
#[derive(Debug)]
pub(super) struct YieldingStore {
    store: Arc<dyn Store>,
    records: Arc<dyn RecordStore>,
    /// Number of batches that drivers have appended.
    commits: AtomicUsize,
}

impl YieldingStore {
    pub(super) fn new(services: &SimServices) -> Self {
        Self {
            store: services.store.clone(),
            records: services.records.clone(),
            commits: AtomicUsize::new(0),
        }
    }

    /// Returns the record store without await points.
    pub(super) fn records(&self) -> &dyn RecordStore {
        &*self.records
    }

    /// Returns the number of batches that drivers have appended.
    pub(super) fn commits(&self) -> usize {
        self.commits.load(Ordering::Relaxed)
    }
}

/// Runs a call with an await point before and after it.
async fn yield_around<T>(work: impl Future<Output = T>) -> T {
    yield_once().await;
    let answer = work.await;
    yield_once().await;
    answer
}

#[async_trait]
impl Store for YieldingStore {
    async fn create_runs(
        &self,
        request: CreateRunsRequest,
    ) -> Result<CreateRunsOutcome, StoreError> {
        yield_around(self.store.create_runs(request)).await
    }

    async fn claim_runs(&self, request: RunClaimRequest) -> Result<Vec<Claim>, StoreError> {
        yield_around(self.store.claim_runs(request)).await
    }

    async fn peek_queue(&self, request: PeekRequest) -> Result<Vec<QueuePosition>, StoreError> {
        yield_around(self.store.peek_queue(request)).await
    }

    async fn heartbeat(&self, heartbeat: Heartbeat) -> Result<HeartbeatAck, StoreError> {
        yield_around(self.store.heartbeat(heartbeat)).await
    }

    async fn read_journal(&self, request: JournalReadRequest) -> Result<JournalPage, StoreError> {
        yield_around(self.store.read_journal(request)).await
    }

    async fn get_run(&self, run: RunId) -> Result<Option<RunRow>, StoreError> {
        yield_around(self.store.get_run(run)).await
    }

    async fn list_runs(&self, filter: RunFilter) -> Result<Vec<RunRow>, StoreError> {
        yield_around(self.store.list_runs(filter)).await
    }

    async fn list_gates(&self, filter: GateFilter) -> Result<Vec<GateRow>, StoreError> {
        yield_around(self.store.list_gates(filter)).await
    }

    async fn prune_old_data(&self, request: PruneRequest) -> Result<PruneOutcome, StoreError> {
        yield_around(self.store.prune_old_data(request)).await
    }

    async fn append_to_journal(&self, append: AppendRequest) -> Result<AppendResult, StoreError> {
        let is_driver = matches!(append.author, JournalAuthor::Driver { .. });
        let work = async {
            let appended = self.store.append_to_journal(append).await;
            if is_driver && matches!(appended, Ok(AppendResult::Committed { .. })) {
                self.commits.fetch_add(1, Ordering::Relaxed);
            }
            appended
        };
        yield_around(work).await
    }

    fn watch_for_changes(&self) -> Box<dyn StoreWatcher> {
        self.store.watch_for_changes()
    }
}

#[async_trait]
impl RecordStore for YieldingStore {
    async fn due_timers(&self, limit: usize) -> Result<Vec<DueTimer>, StoreError> {
        yield_around(self.records.due_timers(limit)).await
    }

    async fn next_timer_due(&self) -> Result<Option<Timestamp>, StoreError> {
        yield_around(self.records.next_timer_due()).await
    }

    async fn move_delays_set_by_later_clock(&self) -> Result<usize, StoreError> {
        yield_around(self.records.move_delays_set_by_later_clock()).await
    }

    async fn repair_inconsistent_rows(&self) -> Result<RepairedRowCounts, StoreError> {
        yield_around(self.records.repair_inconsistent_rows()).await
    }

    async fn blob(&self, hash: Hash) -> Result<Option<Vec<u8>>, StoreError> {
        yield_around(self.records.blob(hash)).await
    }

    async fn agent_definition(&self, hash: Hash) -> Result<Option<Vec<u8>>, StoreError> {
        yield_around(self.records.agent_definition(hash)).await
    }

    async fn thread_messages(
        &self,
        thread: &ThreadKey,
        limit: usize,
    ) -> Result<Vec<Message>, StoreError> {
        yield_around(self.records.thread_messages(thread, limit)).await
    }

    async fn thread_message_count(&self, thread: &ThreadKey) -> Result<u64, StoreError> {
        yield_around(self.records.thread_message_count(thread)).await
    }

    async fn append_thread_messages(
        &self,
        added: NewThreadMessages,
        request: Option<longhaul_core::request::IdempotencyKey>,
    ) -> Result<(), StoreError> {
        yield_around(self.records.append_thread_messages(added, request)).await
    }

    async fn add_note(
        &self,
        resource: &ResourceKey,
        note: NewMemoryNote,
    ) -> Result<AddNoteOutcome, StoreError> {
        yield_around(self.records.add_note(resource, note)).await
    }

    async fn search_notes(
        &self,
        resource: &ResourceKey,
        query: &str,
        limit: usize,
    ) -> Result<Vec<MemoryNote>, StoreError> {
        yield_around(self.records.search_notes(resource, query, limit)).await
    }

    async fn list_notes(
        &self,
        resource: &ResourceKey,
        after: Option<NoteId>,
        limit: usize,
    ) -> Result<Vec<MemoryNote>, StoreError> {
        yield_around(self.records.list_notes(resource, after, limit)).await
    }

    async fn delete_note(&self, note: NoteId) -> Result<bool, StoreError> {
        yield_around(self.records.delete_note(note)).await
    }

    async fn clear_notes(&self, resource: &ResourceKey) -> Result<u64, StoreError> {
        yield_around(self.records.clear_notes(resource)).await
    }

    async fn clear_thread(&self, thread: &ThreadKey) -> Result<(), StoreError> {
        yield_around(self.records.clear_thread(thread)).await
    }

    async fn queued_steer_messages(&self, run: RunId) -> Result<Vec<SteerRow>, StoreError> {
        yield_around(self.records.queued_steer_messages(run)).await
    }

    async fn list_rules(
        &self,
        filter: RememberedApprovalFilter,
    ) -> Result<Vec<RememberedApprovalRow>, StoreError> {
        yield_around(self.records.list_rules(filter)).await
    }

    async fn active_remembered_approvals(
        &self,
        scopes: Vec<RememberedApprovalScope>,
        patterns: Vec<RulePattern>,
    ) -> Result<Vec<RememberedApprovalRow>, StoreError> {
        yield_around(self.records.active_remembered_approvals(scopes, patterns)).await
    }

    async fn revoke_rule(&self, rule: RuleId, by: &str) -> Result<bool, StoreError> {
        yield_around(self.records.revoke_rule(rule, by)).await
    }

    async fn list_sandboxes(&self, filter: SandboxFilter) -> Result<Vec<SandboxRow>, StoreError> {
        yield_around(self.records.list_sandboxes(filter)).await
    }

    async fn update_sandbox_of_ended_run(
        &self,
        row: SandboxRow,
        from: SandboxState,
    ) -> Result<bool, StoreError> {
        yield_around(self.records.update_sandbox_of_ended_run(row, from)).await
    }

    async fn wake_runs_for_free_slots(
        &self,
        provider: &str,
        capacity: u32,
    ) -> Result<SlotQueueLength, StoreError> {
        yield_around(self.records.wake_runs_for_free_slots(provider, capacity)).await
    }

    async fn slot_queue_position(&self, run: RunId) -> Result<Option<u32>, StoreError> {
        yield_around(self.records.slot_queue_position(run)).await
    }

    async fn budget_account(&self, root: RunId) -> Result<Option<BudgetAccount>, StoreError> {
        yield_around(self.records.budget_account(root)).await
    }

    async fn cap_counter_rows(&self) -> Result<Vec<CapCounterRow>, StoreError> {
        yield_around(self.records.cap_counter_rows()).await
    }

    async fn wake_runs_waiting_at_caps(&self) -> Result<(), StoreError> {
        yield_around(self.records.wake_runs_waiting_at_caps()).await
    }

    async fn set_cap_limit(&self, change: CapLimitChange) -> Result<(), StoreError> {
        yield_around(self.records.set_cap_limit(change)).await
    }

    async fn usage_sums(&self, query: UsageQuery) -> Result<Vec<UsageSum>, StoreError> {
        yield_around(self.records.usage_sums(query)).await
    }

    async fn find_lane(&self, lane: &LaneKey) -> Result<Option<LaneRow>, StoreError> {
        yield_around(self.records.find_lane(lane)).await
    }

    async fn list_lanes(
        &self,
        after: Option<&LaneKey>,
        limit: usize,
    ) -> Result<Vec<LaneRow>, StoreError> {
        yield_around(self.records.list_lanes(after, limit)).await
    }

    async fn set_lane_pause_state(
        &self,
        lane: &LaneKey,
        paused: bool,
    ) -> Result<LaneRow, StoreError> {
        yield_around(self.records.set_lane_pause_state(lane, paused)).await
    }

    async fn runs_of_batch(&self, batch: BatchId) -> Result<Vec<RunId>, StoreError> {
        yield_around(self.records.runs_of_batch(batch)).await
    }

    async fn count_runs_by_inbox(
        &self,
        inbox: Option<&InboxName>,
    ) -> Result<Vec<InboxRunCounts>, StoreError> {
        yield_around(self.records.count_runs_by_inbox(inbox)).await
    }

    async fn count_runs(&self) -> Result<RunCounts, StoreError> {
        yield_around(self.records.count_runs()).await
    }

    async fn claimed_runs_with_last_seq(
        &self,
        worker: WorkerId,
    ) -> Result<Vec<(RunId, Seq)>, StoreError> {
        yield_around(self.records.claimed_runs_with_last_seq(worker)).await
    }

    async fn list_workers(&self) -> Result<Vec<WorkerRow>, StoreError> {
        yield_around(self.records.list_workers()).await
    }

    async fn delete_run_tree(&self, root: RunId) -> Result<DeleteRunsOutcome, StoreError> {
        yield_around(self.records.delete_run_tree(root)).await
    }

    async fn effect_key(&self, key: Hash) -> Result<Option<ClaimedEffectKey>, StoreError> {
        yield_around(self.records.effect_key(key)).await
    }

    async fn free_effect_key(&self, run: RunId, freed: LateToolResult) -> Result<bool, StoreError> {
        yield_around(self.records.free_effect_key(run, freed)).await
    }

    async fn save_late_tool_result(
        &self,
        run: RunId,
        late: LateToolResult,
    ) -> Result<(), StoreError> {
        yield_around(self.records.save_late_tool_result(run, late)).await
    }

    async fn late_tool_results(&self, run: RunId) -> Result<Vec<LateToolResult>, StoreError> {
        yield_around(self.records.late_tool_results(run)).await
    }

    async fn read_all_journals(
        &self,
        after: GlobalSeq,
        limit: usize,
    ) -> Result<GlobalJournalPage, StoreError> {
        yield_around(self.records.read_all_journals(after, limit)).await
    }

    async fn changed_runs_since(
        &self,
        after: GlobalSeq,
        limit: usize,
    ) -> Result<ChangedRuns, StoreError> {
        yield_around(self.records.changed_runs_since(after, limit)).await
    }

    async fn last_global_seq(&self) -> Result<GlobalSeq, StoreError> {
        yield_around(self.records.last_global_seq()).await
    }

    async fn due_outbox_messages(
        &self,
        endpoint: &str,
        limit: usize,
    ) -> Result<Vec<DueOutboxMessage>, StoreError> {
        yield_around(self.records.due_outbox_messages(endpoint, limit)).await
    }

    async fn record_outbox_attempt(
        &self,
        id: u64,
        retry_delay: Option<Millis>,
    ) -> Result<(), StoreError> {
        yield_around(self.records.record_outbox_attempt(id, retry_delay)).await
    }

    async fn block_provider(&self, account: &str, duration: Millis) -> Result<(), StoreError> {
        yield_around(self.records.block_provider(account, duration)).await
    }

    async fn unblock_provider(&self, account: &str) -> Result<(), StoreError> {
        yield_around(self.records.unblock_provider(account)).await
    }

    async fn provider_blocked_until(&self, account: &str) -> Result<Option<Timestamp>, StoreError> {
        yield_around(self.records.provider_blocked_until(account)).await
    }

    async fn newest_checkpoint(
        &self,
        run: RunId,
        fold: &str,
    ) -> Result<Option<RunCheckpoint>, StoreError> {
        yield_around(self.records.newest_checkpoint(run, fold)).await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        yield_around(self.records.now()).await
    }
}
