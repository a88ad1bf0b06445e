//! A store that fails on request, before or after a call takes effect.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

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
use longhaul_testkit::mem_store::MemStore;

pub(crate) use super::store_fault::StoreFault;

type StoreResult<T> = Result<T, StoreError>;

/// An in-memory store that fails on request.
#[derive(Debug)]
pub(crate) struct FailingStore {
    inner: MemStore,
    /// Kinds of events whose append by a driver fails, and how.
    appends: Mutex<VecDeque<(&'static str, StoreFault)>>,
    /// Number of conflicts that drivers get for appends without events.
    conflicts: AtomicUsize,
    claims: Mutex<VecDeque<StoreFault>>,
    /// Number of claims that are refused, as if the worker were not live.
    refused_claims: AtomicUsize,
    reads: Mutex<VecDeque<StoreFault>>,
    timer_reads: Mutex<VecDeque<StoreFault>>,
    /// Run whose journal can't be read.
    unreadable: Mutex<Option<RunId>>,
    pub(crate) hides_definitions: AtomicBool,
    pub(crate) hides_checkpoints: AtomicBool,
    /// Sequence numbers after which journals were read.
    pub(crate) journal_reads: Mutex<Vec<Seq>>,
    pub(crate) worker_reads: AtomicUsize,
}

impl FailingStore {
    pub(crate) fn new(inner: MemStore) -> Self {
        Self {
            inner,
            appends: Mutex::default(),
            conflicts: AtomicUsize::new(0),
            claims: Mutex::default(),
            refused_claims: AtomicUsize::new(0),
            reads: Mutex::default(),
            timer_reads: Mutex::default(),
            unreadable: Mutex::default(),
            hides_definitions: AtomicBool::new(false),
            hides_checkpoints: AtomicBool::new(false),
            journal_reads: Mutex::default(),
            worker_reads: AtomicUsize::new(0),
        }
    }

    /// Makes the next append of a driver with an event of this kind fail.
    pub(crate) fn fail_append(&self, kind: &'static str, fault: StoreFault) {
        self.appends.lock().unwrap().push_back((kind, fault));
    }

    /// Makes the next appends of drivers without events fail with a conflict.
    pub(crate) fn fail_with_conflicts(&self, count: usize) {
        self.conflicts.store(count, Ordering::SeqCst);
    }

    fn takes_conflict(&self, append: &AppendRequest) -> bool {
        let decrement = |count: usize| count.checked_sub(1);
        append.batch.events.is_empty()
            && matches!(append.author, JournalAuthor::Driver { .. })
            && self.conflicts.fetch_update(Ordering::SeqCst, Ordering::SeqCst, decrement).is_ok()
    }

    /// Makes the next claim fail. `Lost` applies to the next claim that returns a run.
    pub(crate) fn fail_claim(&self, fault: StoreFault) {
        self.claims.lock().unwrap().push_back(fault);
    }

    /// Makes the next claims return no run, as if the worker were not live.
    pub(crate) fn refuse_claims(&self, count: usize) {
        self.refused_claims.store(count, Ordering::SeqCst);
    }

    /// Makes the next read of due timers fail.
    pub(crate) fn fail_timer_read(&self, fault: StoreFault) {
        self.timer_reads.lock().unwrap().push_back(fault);
    }

    /// Makes every read of this run's journal fail.
    pub(crate) fn fail_reads_of_run(&self, run: RunId) {
        *self.unreadable.lock().unwrap() = Some(run);
    }

    /// Makes the next reads fail.
    pub(crate) fn fail_reads(&self, fault: StoreFault, count: usize) {
        self.reads.lock().unwrap().extend(std::iter::repeat_n(fault, count));
    }

    /// Whether every requested failure has happened.
    pub(crate) fn has_failed(&self) -> bool {
        self.appends.lock().unwrap().is_empty()
            && self.refused_claims.load(Ordering::SeqCst) == 0
            && [&self.claims, &self.reads, &self.timer_reads]
                .iter()
                .all(|faults| faults.lock().unwrap().is_empty())
    }

    fn take_fault(&self, append: &AppendRequest) -> Option<StoreFault> {
        matches!(append.author, JournalAuthor::Driver { .. }).then_some(())?;
        let mut appends = self.appends.lock().unwrap();
        let (kind, fault) = *appends.front()?;
        let is_match = append.batch.events.iter().any(|event| event.kind() == kind);
        is_match.then(|| appends.pop_front()).map(|_| fault)
    }
}

#[async_trait]
impl Store for FailingStore {
    async fn create_runs(&self, request: CreateRunsRequest) -> StoreResult<CreateRunsOutcome> {
        self.inner.create_runs(request).await
    }

    async fn claim_runs(&self, request: RunClaimRequest) -> StoreResult<Vec<Claim>> {
        let decrement = |count: usize| count.checked_sub(1);
        if self.refused_claims.fetch_update(Ordering::SeqCst, Ordering::SeqCst, decrement).is_ok() {
            return Ok(Vec::new());
        }
        let fault = self.claims.lock().unwrap().front().copied();
        if let Some(fault) = fault.filter(|fault| *fault != StoreFault::Lost) {
            self.claims.lock().unwrap().pop_front();
            return Err(fault.error());
        }
        let claimed = self.inner.claim_runs(request).await?;
        match fault.filter(|_| !claimed.is_empty()) {
            Some(fault) => {
                self.claims.lock().unwrap().pop_front();
                Err(fault.error())
            }
            None => Ok(claimed),
        }
    }

    async fn peek_queue(&self, request: PeekRequest) -> StoreResult<Vec<QueuePosition>> {
        self.inner.peek_queue(request).await
    }

    async fn heartbeat(&self, heartbeat: Heartbeat) -> StoreResult<HeartbeatAck> {
        self.inner.heartbeat(heartbeat).await
    }

    async fn read_journal(&self, request: JournalReadRequest) -> StoreResult<JournalPage> {
        if *self.unreadable.lock().unwrap() == Some(request.run) {
            return Err(StoreFault::Broken.error());
        }
        self.journal_reads.lock().unwrap().push(request.after);
        let fault = self.reads.lock().unwrap().pop_front();
        match fault {
            Some(fault) => Err(fault.error()),
            None => self.inner.read_journal(request).await,
        }
    }

    async fn get_run(&self, run: RunId) -> StoreResult<Option<RunRow>> {
        self.inner.get_run(run).await
    }

    async fn list_runs(&self, filter: RunFilter) -> StoreResult<Vec<RunRow>> {
        self.inner.list_runs(filter).await
    }

    async fn list_gates(&self, filter: GateFilter) -> StoreResult<Vec<GateRow>> {
        self.inner.list_gates(filter).await
    }

    async fn prune_old_data(&self, request: PruneRequest) -> StoreResult<PruneOutcome> {
        self.inner.prune_old_data(request).await
    }

    async fn append_to_journal(&self, append: AppendRequest) -> StoreResult<AppendResult> {
        if self.takes_conflict(&append) {
            return Ok(AppendResult::Conflict);
        }
        match self.take_fault(&append) {
            None => self.inner.append_to_journal(append).await,
            Some(StoreFault::Lost) => {
                self.inner.append_to_journal(append).await?;
                Err(StoreFault::Lost.error())
            }
            Some(StoreFault::Hang) => std::future::pending().await,
            Some(fault) => Err(fault.error()),
        }
    }

    fn watch_for_changes(&self) -> Box<dyn StoreWatcher> {
        self.inner.watch_for_changes()
    }
}

#[async_trait]
impl RecordStore for FailingStore {
    async fn due_timers(&self, limit: usize) -> StoreResult<Vec<DueTimer>> {
        let fault = self.timer_reads.lock().unwrap().pop_front();
        match fault {
            Some(fault) => Err(fault.error()),
            None => self.inner.due_timers(limit).await,
        }
    }

    async fn next_timer_due(&self) -> StoreResult<Option<Timestamp>> {
        self.inner.next_timer_due().await
    }

    async fn move_delays_set_by_later_clock(&self) -> StoreResult<usize> {
        self.inner.move_delays_set_by_later_clock().await
    }

    async fn repair_inconsistent_rows(&self) -> StoreResult<RepairedRowCounts> {
        self.inner.repair_inconsistent_rows().await
    }

    async fn blob(&self, hash: Hash) -> StoreResult<Option<Vec<u8>>> {
        self.inner.blob(hash).await
    }

    async fn agent_definition(&self, hash: Hash) -> StoreResult<Option<Vec<u8>>> {
        if self.hides_definitions.load(Ordering::SeqCst) {
            return Ok(None);
        }
        self.inner.agent_definition(hash).await
    }

    async fn thread_messages(&self, thread: &ThreadKey, limit: usize) -> StoreResult<Vec<Message>> {
        self.inner.thread_messages(thread, limit).await
    }

    async fn thread_message_count(&self, thread: &ThreadKey) -> StoreResult<u64> {
        self.inner.thread_message_count(thread).await
    }

    async fn append_thread_messages(
        &self,
        added: NewThreadMessages,
        request: Option<longhaul_core::request::IdempotencyKey>,
    ) -> StoreResult<()> {
        self.inner.append_thread_messages(added, request).await
    }

    async fn add_note(
        &self,
        resource: &ResourceKey,
        note: NewMemoryNote,
    ) -> StoreResult<AddNoteOutcome> {
        self.inner.add_note(resource, note).await
    }

    async fn search_notes(
        &self,
        resource: &ResourceKey,
        query: &str,
        limit: usize,
    ) -> StoreResult<Vec<MemoryNote>> {
        self.inner.search_notes(resource, query, limit).await
    }

    async fn list_notes(
        &self,
        resource: &ResourceKey,
        after: Option<NoteId>,
        limit: usize,
    ) -> StoreResult<Vec<MemoryNote>> {
        self.inner.list_notes(resource, after, limit).await
    }

    async fn delete_note(&self, note: NoteId) -> StoreResult<bool> {
        self.inner.delete_note(note).await
    }

    async fn clear_notes(&self, resource: &ResourceKey) -> StoreResult<u64> {
        self.inner.clear_notes(resource).await
    }

    async fn clear_thread(&self, thread: &ThreadKey) -> StoreResult<()> {
        self.inner.clear_thread(thread).await
    }

    async fn queued_steer_messages(&self, run: RunId) -> StoreResult<Vec<SteerRow>> {
        self.inner.queued_steer_messages(run).await
    }

    async fn list_rules(
        &self,
        filter: RememberedApprovalFilter,
    ) -> StoreResult<Vec<RememberedApprovalRow>> {
        self.inner.list_rules(filter).await
    }

    async fn active_remembered_approvals(
        &self,
        scopes: Vec<RememberedApprovalScope>,
        patterns: Vec<RulePattern>,
    ) -> StoreResult<Vec<RememberedApprovalRow>> {
        self.inner.active_remembered_approvals(scopes, patterns).await
    }

    async fn revoke_rule(&self, rule: RuleId, by: &str) -> StoreResult<bool> {
        self.inner.revoke_rule(rule, by).await
    }

    async fn list_sandboxes(&self, filter: SandboxFilter) -> StoreResult<Vec<SandboxRow>> {
        self.inner.list_sandboxes(filter).await
    }

    async fn update_sandbox_of_ended_run(
        &self,
        row: SandboxRow,
        from: SandboxState,
    ) -> StoreResult<bool> {
        self.inner.update_sandbox_of_ended_run(row, from).await
    }

    async fn wake_runs_for_free_slots(
        &self,
        provider: &str,
        capacity: u32,
    ) -> StoreResult<SlotQueueLength> {
        self.inner.wake_runs_for_free_slots(provider, capacity).await
    }

    async fn slot_queue_position(&self, run: RunId) -> StoreResult<Option<u32>> {
        self.inner.slot_queue_position(run).await
    }

    async fn budget_account(&self, root: RunId) -> StoreResult<Option<BudgetAccount>> {
        self.inner.budget_account(root).await
    }

    async fn cap_counter_rows(&self) -> StoreResult<Vec<CapCounterRow>> {
        self.inner.cap_counter_rows().await
    }

    async fn wake_runs_waiting_at_caps(&self) -> StoreResult<()> {
        self.inner.wake_runs_waiting_at_caps().await
    }

    async fn set_cap_limit(&self, change: CapLimitChange) -> StoreResult<()> {
        self.inner.set_cap_limit(change).await
    }

    async fn usage_sums(&self, query: UsageQuery) -> StoreResult<Vec<UsageSum>> {
        self.inner.usage_sums(query).await
    }

    async fn find_lane(&self, lane: &LaneKey) -> StoreResult<Option<LaneRow>> {
        self.inner.find_lane(lane).await
    }

    async fn list_lanes(&self, after: Option<&LaneKey>, limit: usize) -> StoreResult<Vec<LaneRow>> {
        self.inner.list_lanes(after, limit).await
    }

    async fn set_lane_pause_state(&self, lane: &LaneKey, paused: bool) -> StoreResult<LaneRow> {
        self.inner.set_lane_pause_state(lane, paused).await
    }

    async fn runs_of_batch(&self, batch: BatchId) -> StoreResult<Vec<RunId>> {
        self.inner.runs_of_batch(batch).await
    }

    async fn count_runs_by_inbox(
        &self,
        inbox: Option<&InboxName>,
    ) -> StoreResult<Vec<InboxRunCounts>> {
        self.inner.count_runs_by_inbox(inbox).await
    }

    async fn count_runs(&self) -> StoreResult<RunCounts> {
        self.inner.count_runs().await
    }

    async fn claimed_runs_with_last_seq(&self, worker: WorkerId) -> StoreResult<Vec<(RunId, Seq)>> {
        RecordStore::claimed_runs_with_last_seq(&self.inner, worker).await
    }

    async fn list_workers(&self) -> StoreResult<Vec<WorkerRow>> {
        self.worker_reads.fetch_add(1, Ordering::SeqCst);
        self.inner.list_workers().await
    }

    async fn delete_run_tree(&self, root: RunId) -> StoreResult<DeleteRunsOutcome> {
        self.inner.delete_run_tree(root).await
    }

    async fn effect_key(&self, key: Hash) -> StoreResult<Option<ClaimedEffectKey>> {
        self.inner.effect_key(key).await
    }

    async fn free_effect_key(&self, run: RunId, freed: LateToolResult) -> StoreResult<bool> {
        self.inner.free_effect_key(run, freed).await
    }

    async fn save_late_tool_result(&self, run: RunId, late: LateToolResult) -> StoreResult<()> {
        self.inner.save_late_tool_result(run, late).await
    }

    async fn late_tool_results(&self, run: RunId) -> StoreResult<Vec<LateToolResult>> {
        self.inner.late_tool_results(run).await
    }

    async fn read_all_journals(
        &self,
        after: GlobalSeq,
        limit: usize,
    ) -> StoreResult<GlobalJournalPage> {
        self.inner.read_all_journals(after, limit).await
    }

    async fn changed_runs_since(&self, after: GlobalSeq, limit: usize) -> StoreResult<ChangedRuns> {
        self.inner.changed_runs_since(after, limit).await
    }

    async fn last_global_seq(&self) -> StoreResult<GlobalSeq> {
        self.inner.last_global_seq().await
    }

    async fn due_outbox_messages(
        &self,
        endpoint: &str,
        limit: usize,
    ) -> StoreResult<Vec<DueOutboxMessage>> {
        self.inner.due_outbox_messages(endpoint, limit).await
    }

    async fn record_outbox_attempt(&self, id: u64, retry_delay: Option<Millis>) -> StoreResult<()> {
        self.inner.record_outbox_attempt(id, retry_delay).await
    }

    async fn block_provider(&self, account: &str, duration: Millis) -> StoreResult<()> {
        self.inner.block_provider(account, duration).await
    }

    async fn unblock_provider(&self, account: &str) -> StoreResult<()> {
        self.inner.unblock_provider(account).await
    }

    async fn provider_blocked_until(&self, account: &str) -> StoreResult<Option<Timestamp>> {
        self.inner.provider_blocked_until(account).await
    }

    async fn newest_checkpoint(
        &self,
        run: RunId,
        fold: &str,
    ) -> StoreResult<Option<RunCheckpoint>> {
        match self.hides_checkpoints.load(Ordering::SeqCst) {
            true => Ok(None),
            false => self.inner.newest_checkpoint(run, fold).await,
        }
    }

    async fn now(&self) -> StoreResult<Timestamp> {
        self.inner.now().await
    }
}
