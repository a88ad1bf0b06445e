//! The three ports, each verb handed to its room.
//!
//! Never: a rule. Nothing here knows what a verb does.

use async_trait::async_trait;

use longhaul_core::change::{LateResult, RuleRow, SandboxRow, SteerRow};
use longhaul_core::id::{
    KeyName, LaneKey, NoteId, ResourceKey, RuleId, RunId, Seq, ThreadKey, WorkerId,
};
use longhaul_core::message::Message;
use longhaul_core::note::{NewNote, Note, NoteOutcome};
use longhaul_core::policy::gate::GateRow;
use longhaul_core::port::auth::{
    AuthStore, IdempotencyKey, IdempotencyRequest, IdempotencyState, KeyRow, LinkRow, NewKey,
    NewToken, StoredResponse, TokenKind, TokenRow,
};
use longhaul_core::port::records::{
    BudgetAccount, ChangedRuns, Checkpoint, DueTimer, GlobalPage, GlobalSeq, LaneRow, ModelUsage,
    OutboxItem, RecordStore, Repairs, UsageQuery, WorkerRow,
};
use longhaul_core::port::store::{
    AppendRequest, Appended, Claim, ClaimRequest, GateFilter, Heartbeat, HeartbeatAck, JournalPage,
    OpenOutcome, OpenRequest, PruneOutcome, PruneRequest, ReadRequest, RunFilter, RunRow, Store,
    StoreError, Watch,
};
use longhaul_core::raw::Hash;
use longhaul_core::time::{Millis, Timestamp};

use crate::mem_store::journal;
use crate::mem_store::store::MemStore;

type StoreResult<T> = Result<T, StoreError>;

#[async_trait]
impl Store for MemStore {
    async fn open_runs(&self, ask: OpenRequest) -> StoreResult<OpenOutcome> {
        self.write_tx(|tx| tx.open(ask))
    }

    async fn claim(&self, ask: ClaimRequest) -> StoreResult<Vec<Claim>> {
        self.write_tx(|tx| Ok(tx.claim(&ask)?))
    }

    async fn heartbeat(&self, beat: Heartbeat) -> StoreResult<HeartbeatAck> {
        self.write_tx(|tx| Ok(tx.heartbeat(beat)))
    }

    async fn read(&self, ask: ReadRequest) -> StoreResult<JournalPage> {
        self.read_tx(|tx| journal::page_with_time(tx, ask))
    }

    async fn append(&self, append: AppendRequest) -> StoreResult<Appended> {
        self.write_tx(|tx| tx.append(append))
    }

    async fn get_run(&self, run: RunId) -> StoreResult<Option<RunRow>> {
        Ok(self.read_tx(|tx| tx.tables.heads.get(&run).map(|head| head.row(run))))
    }

    async fn list_runs(&self, ask: RunFilter) -> StoreResult<Vec<RunRow>> {
        Ok(self.read_tx(|tx| tx.tables.list_runs(&ask)))
    }

    async fn list_gates(&self, ask: GateFilter) -> StoreResult<Vec<GateRow>> {
        Ok(self.read_tx(|tx| tx.tables.gates(&ask)))
    }

    fn watch(&self) -> Box<dyn Watch> {
        self.watch_changes()
    }

    async fn prune(&self, ask: PruneRequest) -> StoreResult<PruneOutcome> {
        self.write_tx(|tx| Ok(tx.prune(ask)))
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

    async fn repair(&self) -> StoreResult<Repairs> {
        self.write_tx(|tx| Ok(tx.repair()))
    }

    async fn blob(&self, hash: Hash) -> StoreResult<Option<Vec<u8>>> {
        Ok(self.read_tx(|tx| tx.tables.blobs.get(&hash).map(|blob| blob.bytes.to_vec())))
    }

    async fn definition(&self, hash: Hash) -> StoreResult<Option<Vec<u8>>> {
        Ok(self.read_tx(|tx| tx.tables.definitions.get(&hash).map(|bytes| bytes.to_vec())))
    }

    async fn thread_messages(&self, thread: &ThreadKey, limit: usize) -> StoreResult<Vec<Message>> {
        Ok(self.read_tx(|tx| tx.tables.thread_messages(thread, limit)))
    }

    async fn thread_len(&self, thread: &ThreadKey) -> StoreResult<u64> {
        Ok(self.read_tx(|tx| tx.tables.thread_messages(thread, usize::MAX).len() as u64))
    }

    async fn extend_thread(&self, thread: &ThreadKey, messages: Vec<Message>) -> StoreResult<()> {
        self.write_tx(|tx| {
            tx.extend_thread(thread, messages);
            Ok(())
        })
    }

    async fn add_note(&self, resource: &ResourceKey, note: NewNote) -> StoreResult<NoteOutcome> {
        self.write_tx(|tx| Ok(tx.add_note(resource, &note)))
    }

    async fn search_notes(
        &self,
        resource: &ResourceKey,
        query: &str,
        limit: usize,
    ) -> StoreResult<Vec<Note>> {
        Ok(self.read_tx(|tx| tx.tables.search_notes(resource, query, limit)))
    }

    async fn list_notes(
        &self,
        resource: &ResourceKey,
        after: Option<NoteId>,
        limit: usize,
    ) -> StoreResult<Vec<Note>> {
        Ok(self.read_tx(|tx| tx.tables.notes_after(resource, after, limit)))
    }

    async fn delete_note(&self, note: NoteId) -> StoreResult<bool> {
        self.write_tx(|tx| Ok(tx.tables.notes.remove_where(|_, kept| kept.note.id == note) > 0))
    }

    async fn clear_notes(&self, resource: &ResourceKey) -> StoreResult<u64> {
        self.write_tx(|tx| Ok(tx.tables.notes.remove_where(|(of, _), _| of == resource) as u64))
    }

    async fn clear_thread(&self, thread: &ThreadKey) -> StoreResult<()> {
        self.write_tx(|tx| {
            tx.tables.threads.remove_where(|(of, _), _| of == thread);
            Ok(())
        })
    }

    async fn steers(&self, run: RunId) -> StoreResult<Vec<SteerRow>> {
        Ok(self.read_tx(|tx| tx.tables.steers_of(run).map(|(_, row)| row.clone()).collect()))
    }

    async fn rules(&self, run: RunId) -> StoreResult<Vec<RuleRow>> {
        let all = (run, RuleId::from_bits(0))..=(run, RuleId::from_bits(u128::MAX));
        Ok(self.read_tx(|tx| tx.tables.rules.range(all).map(|(_, row)| row.clone()).collect()))
    }

    async fn sandboxes(&self, run: RunId) -> StoreResult<Vec<SandboxRow>> {
        Ok(self.read_tx(|tx| {
            let rows = tx.tables.sandboxes.iter().map(|(_, row)| row);
            rows.filter(|row| row.owner == run).cloned().collect()
        }))
    }

    async fn budget_account(&self, root: RunId) -> StoreResult<Option<BudgetAccount>> {
        Ok(self.read_tx(|tx| tx.tables.accounts.get(&root).copied()))
    }

    async fn usage_by_model(&self, ask: UsageQuery) -> StoreResult<Vec<ModelUsage>> {
        Ok(self.read_tx(|tx| tx.tables.usage_by_model(ask)))
    }

    async fn lane(&self, lane: &LaneKey) -> StoreResult<Option<LaneRow>> {
        Ok(self.read_tx(|tx| tx.tables.lane(lane)))
    }

    async fn lanes(&self, after: Option<&LaneKey>, limit: usize) -> StoreResult<Vec<LaneRow>> {
        Ok(self.read_tx(|tx| tx.tables.lanes(after, limit)))
    }

    async fn claimed_runs(&self, worker: WorkerId) -> StoreResult<Vec<(RunId, Seq)>> {
        Ok(self.read_tx(|tx| tx.tables.claimed_runs(worker)))
    }

    async fn workers(&self) -> StoreResult<Vec<WorkerRow>> {
        Ok(self.read_tx(|tx| tx.tables.workers()))
    }

    async fn save_late_result(&self, run: RunId, late: LateResult) -> StoreResult<()> {
        self.write_tx(|tx| {
            let place = tx.tables.next_row_id();
            tx.tables.late_results.insert((run, place), late);
            Ok(())
        })
    }

    async fn late_results(&self, run: RunId) -> StoreResult<Vec<LateResult>> {
        Ok(self.read_tx(|tx| tx.tables.late_results(run)))
    }

    async fn read_all(&self, after: GlobalSeq, limit: usize) -> StoreResult<GlobalPage> {
        self.read_tx(|tx| tx.tables.read_all(after, limit))
    }

    async fn changed_since(&self, after: GlobalSeq, limit: usize) -> StoreResult<ChangedRuns> {
        Ok(self.read_tx(|tx| tx.tables.changed_since(after, limit)))
    }

    async fn last_global_seq(&self) -> StoreResult<GlobalSeq> {
        Ok(self.read_tx(|tx| tx.tables.last_global_seq()))
    }

    async fn due_outbox(&self, limit: usize) -> StoreResult<Vec<OutboxItem>> {
        Ok(self.read_tx(|tx| tx.due_outbox(limit)))
    }

    async fn settle_outbox(&self, id: u64, again: Option<Millis>) -> StoreResult<()> {
        self.write_tx(|tx| {
            tx.settle_outbox(id, again);
            Ok(())
        })
    }

    async fn block_provider(&self, account: &str, span: Millis) -> StoreResult<()> {
        self.write_tx(|tx| {
            tx.block_provider(account, span);
            Ok(())
        })
    }

    async fn provider_blocked_until(&self, account: &str) -> StoreResult<Option<Timestamp>> {
        Ok(self.read_tx(|tx| {
            let until = tx.tables.blocked_providers.get(&account.to_owned()).copied();
            until.filter(|until| *until > tx.now)
        }))
    }

    async fn save_checkpoint(&self, run: RunId, at: Checkpoint) -> StoreResult<()> {
        self.write_tx(|tx| {
            tx.tables.checkpoints.insert(run, at);
            Ok(())
        })
    }

    async fn checkpoint(&self, run: RunId, fold: &str) -> StoreResult<Option<Checkpoint>> {
        self.write_tx(|tx| Ok(tx.checkpoint(run, fold)))
    }

    async fn now(&self) -> StoreResult<Timestamp> {
        Ok(self.time())
    }
}

#[async_trait]
impl AuthStore for MemStore {
    async fn add_key(&self, key: NewKey) -> StoreResult<bool> {
        self.write_tx(|tx| Ok(tx.add_key(key)?))
    }

    async fn key(&self, hash: Hash) -> StoreResult<Option<KeyRow>> {
        Ok(self.read_tx(|tx| tx.tables.key(hash).map(|(_, row)| row.clone())))
    }

    async fn keys(&self) -> StoreResult<Vec<KeyRow>> {
        Ok(self.read_tx(|tx| tx.tables.api_keys.iter().map(|(_, row)| row.clone()).collect()))
    }

    async fn revoke_key(&self, name: &KeyName) -> StoreResult<Option<KeyRow>> {
        let revoked = self.write_tx(|tx| Ok(tx.revoke_key(name).map(Box::new)))?;
        Ok(revoked.map(|row| *row))
    }

    async fn touch_key(&self, hash: Hash) -> StoreResult<()> {
        self.write_tx(|tx| {
            tx.touch_key(hash);
            Ok(())
        })
    }

    async fn add_token(&self, pass: NewToken) -> StoreResult<()> {
        self.write_tx(|tx| {
            tx.add_token(pass);
            Ok(())
        })
    }

    async fn token(&self, kind: TokenKind, hash: Hash) -> StoreResult<Option<TokenRow>> {
        Ok(self.read_tx(|tx| tx.token(kind, hash)))
    }

    async fn consume_token(&self, kind: TokenKind, hash: Hash) -> StoreResult<Option<TokenRow>> {
        self.write_tx(|tx| Ok(tx.consume_token(kind, hash)))
    }

    async fn add_link(&self, link: LinkRow) -> StoreResult<()> {
        self.write_tx(|tx| {
            tx.add_link(link);
            Ok(())
        })
    }

    async fn link(&self, hash: Hash) -> StoreResult<Option<LinkRow>> {
        Ok(self.read_tx(|tx| tx.tables.links.get(&hash).cloned()))
    }

    async fn begin_request(&self, ask: IdempotencyRequest) -> StoreResult<IdempotencyState> {
        self.write_tx(|tx| Ok(tx.begin_request(ask)))
    }

    async fn complete_request(&self, of: IdempotencyKey, reply: StoredResponse) -> StoreResult<()> {
        self.write_tx(|tx| {
            tx.complete_request(&of, reply);
            Ok(())
        })
    }

    async fn abort_request(&self, of: IdempotencyKey) -> StoreResult<()> {
        self.write_tx(|tx| {
            tx.abort_request(&of);
            Ok(())
        })
    }
}
