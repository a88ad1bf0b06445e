//! Implementation of the three store ports. Each method delegates to its module.

use async_trait::async_trait;

use longhaul_core::change::{
    LateToolResult, NewThreadMessages, SandboxFilter, SandboxRow, SandboxState, SlotQueueLength,
    SteerRow,
};
use longhaul_core::checkpoint::RunCheckpoint;
use longhaul_core::id::{
    ApiKeyName, BatchId, InboxName, LaneKey, NoteId, ResourceKey, RuleId, RunId, Seq, ThreadKey,
    WorkerId,
};
use longhaul_core::message::Message;
use longhaul_core::note::{AddNoteOutcome, MemoryNote, NewMemoryNote};
use longhaul_core::policy::effect_key::ClaimedEffectKey;
use longhaul_core::policy::gate::{GateRow, RulePattern};
use longhaul_core::policy::rule::{
    RememberedApprovalFilter, RememberedApprovalRow, RememberedApprovalScope,
};
use longhaul_core::policy::spend_cap::{CapCounterRow, CapLimitChange};
use longhaul_core::port::auth::{
    ApiKeyRow, AuthStore, GateLinkRow, IdempotencyKey, IdempotencyRequest, IdempotentRequestState,
    LoginTokenKind, LoginTokenRow, NewApiKey, NewLoginToken, StoredHttpResponse,
};
use longhaul_core::port::queue::{PeekRequest, QueuePosition};
use longhaul_core::port::records::{
    BudgetAccount, ChangedRuns, DeleteRunsOutcome, DueOutboxMessage, DueTimer, GlobalJournalPage,
    GlobalSeq, InboxRunCounts, LaneRow, RecordStore, RepairedRowCounts, UsageQuery, UsageSum,
    WorkerRow,
};
use longhaul_core::port::store::{
    AppendRequest, AppendResult, Claim, CreateRunsOutcome, CreateRunsRequest, GateFilter,
    Heartbeat, HeartbeatAck, JournalPage, JournalReadRequest, PruneOutcome, PruneRequest,
    RunClaimRequest, RunCounts, RunFilter, RunRow, Store, StoreError, StoreWatcher,
};
use longhaul_core::raw::Hash;
use longhaul_core::request::IdempotentRequestEffect;
use longhaul_core::time::{Millis, Timestamp};

use crate::mem_store::journal;
use crate::mem_store::rows::Head;
use crate::mem_store::store::MemStore;

type StoreResult<T> = Result<T, StoreError>;

#[async_trait]
impl Store for MemStore {
    async fn create_runs(&self, request: CreateRunsRequest) -> StoreResult<CreateRunsOutcome> {
        self.write_tx(|tx| tx.open(request))
    }

    async fn claim_runs(&self, request: RunClaimRequest) -> StoreResult<Vec<Claim>> {
        self.write_tx(|tx| Ok(tx.claim(&request)?))
    }

    async fn peek_queue(&self, request: PeekRequest) -> StoreResult<Vec<QueuePosition>> {
        Ok(self.read_tx(|tx| tx.peek_queue(&request)))
    }

    async fn heartbeat(&self, heartbeat: Heartbeat) -> StoreResult<HeartbeatAck> {
        self.write_tx(|tx| Ok(tx.heartbeat(heartbeat)))
    }

    async fn read_journal(&self, request: JournalReadRequest) -> StoreResult<JournalPage> {
        self.read_tx(|tx| journal::page_with_time(tx, request))
    }

    async fn append_to_journal(&self, append: AppendRequest) -> StoreResult<AppendResult> {
        self.write_tx(|tx| tx.append(append))
    }

    async fn get_run(&self, run: RunId) -> StoreResult<Option<RunRow>> {
        Ok(self.read_tx(|tx| tx.tables.heads.get(&run).map(|head| tx.tables.run_row(run, head))))
    }

    async fn list_runs(&self, filter: RunFilter) -> StoreResult<Vec<RunRow>> {
        Ok(self.read_tx(|tx| tx.tables.list_runs(&filter, tx.now)))
    }

    async fn list_gates(&self, filter: GateFilter) -> StoreResult<Vec<GateRow>> {
        Ok(self.read_tx(|tx| tx.tables.gates(&filter)))
    }

    fn watch_for_changes(&self) -> Box<dyn StoreWatcher> {
        self.watch_changes()
    }

    async fn prune_old_data(&self, request: PruneRequest) -> StoreResult<PruneOutcome> {
        self.write_tx(|tx| Ok(tx.prune(request)))
    }
}

#[async_trait]
impl RecordStore for MemStore {
    async fn due_timers(&self, limit: usize) -> StoreResult<Vec<DueTimer>> {
        Ok(self.read_tx(|tx| tx.due_timers(limit)))
    }

    async fn next_timer_due(&self) -> StoreResult<Option<Timestamp>> {
        Ok(self.read_tx(|tx| tx.tables.due.iter().next().map(|((due, _), ())| *due)))
    }

    async fn move_delays_set_by_later_clock(&self) -> StoreResult<usize> {
        self.write_tx(|tx| Ok(tx.move_delays_set_by_later_clock()))
    }

    async fn repair_inconsistent_rows(&self) -> StoreResult<RepairedRowCounts> {
        self.write_tx(|tx| Ok(tx.repair()))
    }

    async fn blob(&self, hash: Hash) -> StoreResult<Option<Vec<u8>>> {
        Ok(self.read_tx(|tx| tx.tables.blobs.get(&hash).map(|blob| blob.bytes.to_vec())))
    }

    async fn agent_definition(&self, hash: Hash) -> StoreResult<Option<Vec<u8>>> {
        Ok(self.read_tx(|tx| tx.tables.definitions.get(&hash).map(|bytes| bytes.to_vec())))
    }

    async fn thread_messages(&self, thread: &ThreadKey, limit: usize) -> StoreResult<Vec<Message>> {
        Ok(self.read_tx(|tx| tx.tables.thread_messages(thread, limit)))
    }

    async fn thread_message_count(&self, thread: &ThreadKey) -> StoreResult<u64> {
        Ok(self.read_tx(|tx| tx.tables.thread_messages(thread, usize::MAX).len() as u64))
    }

    async fn append_thread_messages(
        &self,
        added: NewThreadMessages,
        request: Option<IdempotencyKey>,
    ) -> StoreResult<()> {
        self.write_tx(|tx| {
            if let Some(key) = &request {
                if tx.request_effect(key).is_some() {
                    return Ok(());
                }
                tx.mark_request(key, IdempotentRequestEffect::Thread);
            }
            tx.extend_thread(&added.thread, added.messages);
            Ok(())
        })
    }

    async fn add_note(
        &self,
        resource: &ResourceKey,
        note: NewMemoryNote,
    ) -> StoreResult<AddNoteOutcome> {
        self.write_tx(|tx| Ok(tx.add_note(resource, &note)))
    }

    async fn search_notes(
        &self,
        resource: &ResourceKey,
        query: &str,
        limit: usize,
    ) -> StoreResult<Vec<MemoryNote>> {
        Ok(self.read_tx(|tx| tx.tables.search_notes(resource, query, limit)))
    }

    async fn list_notes(
        &self,
        resource: &ResourceKey,
        after: Option<NoteId>,
        limit: usize,
    ) -> StoreResult<Vec<MemoryNote>> {
        Ok(self.read_tx(|tx| tx.tables.notes_after(resource, after, limit)))
    }

    async fn delete_note(&self, note: NoteId) -> StoreResult<bool> {
        self.write_tx(|tx| Ok(tx.tables.notes.remove_where(|_, row| row.note.id == note) > 0))
    }

    async fn clear_notes(&self, resource: &ResourceKey) -> StoreResult<u64> {
        self.write_tx(|tx| {
            Ok(tx.tables.notes.remove_where(|(owner, _), _| owner == resource) as u64)
        })
    }

    async fn clear_thread(&self, thread: &ThreadKey) -> StoreResult<()> {
        self.write_tx(|tx| {
            tx.tables.threads.remove_where(|(owner, _), _| owner == thread);
            Ok(())
        })
    }

    async fn queued_steer_messages(&self, run: RunId) -> StoreResult<Vec<SteerRow>> {
        Ok(self.read_tx(|tx| tx.tables.steers_of(run).map(|(_, row)| row.clone()).collect()))
    }

    async fn list_rules(
        &self,
        filter: RememberedApprovalFilter,
    ) -> StoreResult<Vec<RememberedApprovalRow>> {
        Ok(self.read_tx(|tx| tx.tables.rules_matching(&filter)))
    }

    async fn active_remembered_approvals(
        &self,
        scopes: Vec<RememberedApprovalScope>,
        patterns: Vec<RulePattern>,
    ) -> StoreResult<Vec<RememberedApprovalRow>> {
        Ok(self.read_tx(|tx| tx.tables.active_remembered_approvals(&scopes, &patterns)))
    }

    async fn revoke_rule(&self, rule: RuleId, by: &str) -> StoreResult<bool> {
        self.write_tx(|tx| Ok(tx.revoke_rule(rule, by).is_ok()))
    }

    async fn list_sandboxes(&self, filter: SandboxFilter) -> StoreResult<Vec<SandboxRow>> {
        Ok(self.read_tx(|tx| tx.tables.sandboxes(&filter)))
    }

    async fn update_sandbox_of_ended_run(
        &self,
        row: SandboxRow,
        from: SandboxState,
    ) -> StoreResult<bool> {
        self.write_tx(|tx| Ok(tx.update_sandbox_of_ended_run(row, from)))
    }

    async fn wake_runs_for_free_slots(
        &self,
        provider: &str,
        capacity: u32,
    ) -> StoreResult<SlotQueueLength> {
        self.write_tx(|tx| Ok(tx.wake_runs_for_free_slots(provider, capacity)))
    }

    async fn slot_queue_position(&self, run: RunId) -> StoreResult<Option<u32>> {
        Ok(self.read_tx(|tx| tx.tables.slot_queue_position(run)))
    }

    async fn budget_account(&self, root: RunId) -> StoreResult<Option<BudgetAccount>> {
        Ok(self.read_tx(|tx| tx.tables.account_of_tree(root)))
    }

    async fn cap_counter_rows(&self) -> StoreResult<Vec<CapCounterRow>> {
        Ok(self.read_tx(|tx| tx.cap_counter_rows()))
    }

    async fn set_cap_limit(&self, change: CapLimitChange) -> StoreResult<()> {
        self.write_tx(|tx| {
            tx.set_cap_limit(change);
            Ok(())
        })
    }

    async fn wake_runs_waiting_at_caps(&self) -> StoreResult<()> {
        self.write_tx(|tx| {
            tx.wake_runs_waiting_at_caps();
            Ok(())
        })
    }

    async fn usage_sums(&self, query: UsageQuery) -> StoreResult<Vec<UsageSum>> {
        Ok(self.read_tx(|tx| tx.tables.usage_sums(query)))
    }

    async fn find_lane(&self, lane: &LaneKey) -> StoreResult<Option<LaneRow>> {
        Ok(self.read_tx(|tx| tx.tables.lane(lane)))
    }

    async fn list_lanes(&self, after: Option<&LaneKey>, limit: usize) -> StoreResult<Vec<LaneRow>> {
        Ok(self.read_tx(|tx| tx.tables.lanes(after, limit)))
    }

    async fn set_lane_pause_state(&self, lane: &LaneKey, paused: bool) -> StoreResult<LaneRow> {
        self.write_tx(|tx| {
            tx.set_lane_paused(lane, paused);
            let row = tx.tables.lane(lane);
            Ok(row.unwrap_or_else(|| LaneRow::empty(lane.clone())))
        })
    }

    async fn runs_of_batch(&self, batch: BatchId) -> StoreResult<Vec<RunId>> {
        Ok(self.read_tx(|tx| {
            let heads = tx.tables.heads.iter();
            // A batch lists its chains by their first runs.
            let is_later_step =
                |head: &Head| head.task.chain.is_some() && head.task.parent.is_some();
            let is_in_batch = |head: &Head| {
                head.task.batch.is_some_and(|position| position.id == batch) && !is_later_step(head)
            };
            heads.filter(|(_, head)| is_in_batch(head)).map(|(run, _)| *run).collect()
        }))
    }

    async fn count_runs_by_inbox(
        &self,
        inbox: Option<&InboxName>,
    ) -> StoreResult<Vec<InboxRunCounts>> {
        Ok(self.read_tx(|tx| tx.tables.count_by_inbox(inbox)))
    }

    async fn count_runs(&self) -> StoreResult<RunCounts> {
        Ok(self.read_tx(|tx| tx.tables.count_runs()))
    }

    async fn claimed_runs_with_last_seq(&self, worker: WorkerId) -> StoreResult<Vec<(RunId, Seq)>> {
        Ok(self.read_tx(|tx| tx.tables.claimed_runs_with_last_seq(worker)))
    }

    async fn list_workers(&self) -> StoreResult<Vec<WorkerRow>> {
        Ok(self.read_tx(|tx| tx.tables.workers()))
    }

    async fn delete_run_tree(&self, root: RunId) -> StoreResult<DeleteRunsOutcome> {
        self.write_tx(|tx| Ok(tx.delete_run_tree(root)))
    }

    async fn effect_key(&self, key: Hash) -> StoreResult<Option<ClaimedEffectKey>> {
        Ok(self.read_tx(|tx| tx.tables.effect_keys.get(&key).copied()))
    }

    async fn free_effect_key(&self, run: RunId, freed: LateToolResult) -> StoreResult<bool> {
        self.write_tx(|tx| Ok(tx.free_effect_key(run, freed)))
    }

    async fn save_late_tool_result(&self, run: RunId, result: LateToolResult) -> StoreResult<()> {
        self.write_tx(|tx| {
            let row_id = tx.tables.next_row_id();
            tx.tables.late_results.insert((run, row_id), result);
            Ok(())
        })
    }

    async fn late_tool_results(&self, run: RunId) -> StoreResult<Vec<LateToolResult>> {
        Ok(self.read_tx(|tx| tx.tables.late_results(run)))
    }

    async fn read_all_journals(
        &self,
        after: GlobalSeq,
        limit: usize,
    ) -> StoreResult<GlobalJournalPage> {
        self.read_tx(|tx| tx.tables.read_all(after, limit))
    }

    async fn changed_runs_since(&self, after: GlobalSeq, limit: usize) -> StoreResult<ChangedRuns> {
        Ok(self.read_tx(|tx| tx.tables.changed_since(after, limit)))
    }

    async fn last_global_seq(&self) -> StoreResult<GlobalSeq> {
        Ok(self.read_tx(|tx| tx.tables.last_global_seq()))
    }

    async fn due_outbox_messages(
        &self,
        endpoint: &str,
        limit: usize,
    ) -> StoreResult<Vec<DueOutboxMessage>> {
        Ok(self.read_tx(|tx| tx.due_outbox(endpoint, limit)))
    }

    async fn record_outbox_attempt(&self, id: u64, retry_after: Option<Millis>) -> StoreResult<()> {
        self.write_tx(|tx| {
            tx.settle_outbox(id, retry_after);
            Ok(())
        })
    }

    async fn block_provider(&self, account: &str, duration: Millis) -> StoreResult<()> {
        self.write_tx(|tx| {
            tx.block_provider(account, duration);
            Ok(())
        })
    }

    async fn unblock_provider(&self, account: &str) -> StoreResult<()> {
        self.write_tx(|tx| {
            tx.tables.blocked_providers.remove(&account.to_owned());
            Ok(())
        })
    }

    async fn provider_blocked_until(&self, account: &str) -> StoreResult<Option<Timestamp>> {
        Ok(self.read_tx(|tx| {
            let until = tx.tables.blocked_providers.get(&account.to_owned()).copied();
            until.filter(|until| *until > tx.now)
        }))
    }

    async fn newest_checkpoint(
        &self,
        run: RunId,
        fold: &str,
    ) -> StoreResult<Option<RunCheckpoint>> {
        self.write_tx(|tx| Ok(tx.checkpoint(run, fold)))
    }

    async fn now(&self) -> StoreResult<Timestamp> {
        Ok(self.time())
    }
}

#[async_trait]
impl AuthStore for MemStore {
    async fn add_api_key(&self, key: NewApiKey) -> StoreResult<bool> {
        self.write_tx(|tx| Ok(tx.add_api_key(key)?))
    }

    async fn find_api_key(&self, hash: Hash) -> StoreResult<Option<ApiKeyRow>> {
        Ok(self.read_tx(|tx| tx.tables.key(hash).map(|(_, row)| row.clone())))
    }

    async fn list_api_keys(&self) -> StoreResult<Vec<ApiKeyRow>> {
        Ok(self.read_tx(|tx| tx.tables.api_keys.iter().map(|(_, row)| row.clone()).collect()))
    }

    async fn revoke_api_key(&self, name: &ApiKeyName) -> StoreResult<Option<ApiKeyRow>> {
        let revoked = self.write_tx(|tx| Ok(tx.revoke_api_key(name).map(Box::new)))?;
        Ok(revoked.map(|row| *row))
    }

    async fn record_api_key_use(&self, hash: Hash) -> StoreResult<()> {
        self.write_tx(|tx| {
            tx.touch_key(hash);
            Ok(())
        })
    }

    async fn add_login_token(&self, token: NewLoginToken) -> StoreResult<()> {
        self.write_tx(|tx| {
            tx.add_login_token(token);
            Ok(())
        })
    }

    async fn find_login_token(
        &self,
        kind: LoginTokenKind,
        hash: Hash,
    ) -> StoreResult<Option<LoginTokenRow>> {
        Ok(self.read_tx(|tx| tx.token(kind, hash)))
    }

    async fn consume_login_token(
        &self,
        kind: LoginTokenKind,
        hash: Hash,
    ) -> StoreResult<Option<LoginTokenRow>> {
        self.write_tx(|tx| Ok(tx.consume_login_token(kind, hash)))
    }

    async fn add_gate_link(&self, link: GateLinkRow) -> StoreResult<()> {
        self.write_tx(|tx| {
            tx.add_link(link);
            Ok(())
        })
    }

    async fn find_gate_link(&self, hash: Hash) -> StoreResult<Option<GateLinkRow>> {
        Ok(self.read_tx(|tx| tx.tables.links.get(&hash).cloned()))
    }

    async fn begin_idempotent_request(
        &self,
        request: IdempotencyRequest,
    ) -> StoreResult<IdempotentRequestState> {
        self.write_tx(|tx| Ok(tx.begin_request(request)))
    }

    async fn complete_idempotent_request(
        &self,
        key: IdempotencyKey,
        response: StoredHttpResponse,
    ) -> StoreResult<()> {
        self.write_tx(|tx| {
            tx.complete_request(&key, response);
            Ok(())
        })
    }

    async fn abort_idempotent_request(&self, key: IdempotencyKey) -> StoreResult<()> {
        self.write_tx(|tx| {
            tx.abort_request(&key);
            Ok(())
        })
    }
}
