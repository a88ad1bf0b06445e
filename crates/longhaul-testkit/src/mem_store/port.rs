//! The three ports, each verb handed to its room.
//!
//! Never: a rule. Nothing here knows what a verb does.

use async_trait::async_trait;

use longhaul_core::change::{LateResult, RuleRow, SandboxRow, SteerRow};
use longhaul_core::id::{
    KeyName, LaneKey, NoteId, ResourceKey, RuleId, RunId, Seq, ThreadKey, WorkerId,
};
use longhaul_core::message::Message;
use longhaul_core::note::{NewNote, Note, Noted};
use longhaul_core::policy::gate::GateRow;
use longhaul_core::port::keyring::{
    Begun, KeyRow, Keyring, LinkRow, NewKey, NewPass, PassKind, PassRow, Reply, ReplyAsk, ReplyKey,
};
use longhaul_core::port::shelves::{
    Account, Checkpoint, DueTimer, Grown, LaneRow, OutboxDue, Place, Repairs, Shelves, Spend,
    SpendAsk, Tail, WorkerRow,
};
use longhaul_core::port::store::{
    Append, Appended, Beat, ClaimAsk, Claimed, GatesAsk, OpenAsk, Opened, Page, PruneAsk, Pruned,
    ReadAsk, Renewed, RowsAsk, RunRow, Store, StoreError, Watch,
};
use longhaul_core::raw::Hash;
use longhaul_core::time::{Millis, Timestamp};

use crate::mem_store::journal;
use crate::mem_store::store::MemStore;

type Answer<T> = Result<T, StoreError>;

#[async_trait]
impl Store for MemStore {
    async fn open(&self, ask: OpenAsk) -> Answer<Opened> {
        self.change(|tx| tx.open(ask))
    }

    async fn claim(&self, ask: ClaimAsk) -> Answer<Vec<Claimed>> {
        self.change(|tx| Ok(tx.claim(&ask)?))
    }

    async fn renew(&self, beat: Beat) -> Answer<Renewed> {
        self.change(|tx| Ok(tx.renew(beat)))
    }

    async fn read(&self, ask: ReadAsk) -> Answer<Page> {
        self.look(|tx| journal::page(tx, ask))
    }

    async fn append(&self, append: Append) -> Answer<Appended> {
        self.change(|tx| tx.append(append))
    }

    async fn row(&self, run: RunId) -> Answer<Option<RunRow>> {
        Ok(self.look(|tx| tx.tables.heads.get(&run).map(|head| head.row(run))))
    }

    async fn rows(&self, ask: RowsAsk) -> Answer<Vec<RunRow>> {
        Ok(self.look(|tx| tx.tables.rows(&ask)))
    }

    async fn gates(&self, ask: GatesAsk) -> Answer<Vec<GateRow>> {
        Ok(self.look(|tx| tx.tables.gates(&ask)))
    }

    fn watch(&self) -> Box<dyn Watch> {
        self.changes()
    }

    async fn prune(&self, ask: PruneAsk) -> Answer<Pruned> {
        self.change(|tx| Ok(tx.prune(ask)))
    }
}

#[async_trait]
impl Shelves for MemStore {
    async fn due(&self, limit: usize) -> Answer<Vec<DueTimer>> {
        Ok(self.look(|tx| tx.due(limit)))
    }

    async fn next_due(&self) -> Answer<Option<Timestamp>> {
        Ok(self.look(|tx| tx.tables.due.iter().next().map(|((due, _), ())| *due)))
    }

    async fn repair(&self) -> Answer<Repairs> {
        self.change(|tx| Ok(tx.repair()))
    }

    async fn blob(&self, hash: Hash) -> Answer<Option<Vec<u8>>> {
        Ok(self.look(|tx| tx.tables.blobs.get(&hash).map(|blob| blob.bytes.to_vec())))
    }

    async fn definition(&self, hash: Hash) -> Answer<Option<Vec<u8>>> {
        Ok(self.look(|tx| tx.tables.definitions.get(&hash).map(|bytes| bytes.to_vec())))
    }

    async fn thread(&self, thread: &ThreadKey, limit: usize) -> Answer<Vec<Message>> {
        Ok(self.look(|tx| tx.tables.thread(thread, limit)))
    }

    async fn thread_len(&self, thread: &ThreadKey) -> Answer<u64> {
        Ok(self.look(|tx| tx.tables.thread(thread, usize::MAX).len() as u64))
    }

    async fn extend_thread(&self, thread: &ThreadKey, messages: Vec<Message>) -> Answer<()> {
        self.change(|tx| {
            tx.extend_thread(thread, messages);
            Ok(())
        })
    }

    async fn remember(&self, resource: &ResourceKey, note: NewNote) -> Answer<Noted> {
        self.change(|tx| Ok(tx.remember(resource, &note)))
    }

    async fn recall(&self, resource: &ResourceKey, query: &str, limit: usize) -> Answer<Vec<Note>> {
        Ok(self.look(|tx| tx.tables.recall(resource, query, limit)))
    }

    async fn notes(
        &self,
        resource: &ResourceKey,
        after: Option<NoteId>,
        limit: usize,
    ) -> Answer<Vec<Note>> {
        Ok(self.look(|tx| tx.tables.notes_after(resource, after, limit)))
    }

    async fn forget_note(&self, note: NoteId) -> Answer<bool> {
        self.change(|tx| Ok(tx.tables.notes.take_where(|_, kept| kept.note.id == note) > 0))
    }

    async fn clear_notes(&self, resource: &ResourceKey) -> Answer<u64> {
        self.change(|tx| Ok(tx.tables.notes.take_where(|(of, _), _| of == resource) as u64))
    }

    async fn clear_thread(&self, thread: &ThreadKey) -> Answer<()> {
        self.change(|tx| {
            tx.tables.threads.take_where(|(of, _), _| of == thread);
            Ok(())
        })
    }

    async fn steers(&self, run: RunId) -> Answer<Vec<SteerRow>> {
        Ok(self.look(|tx| {
            tx.tables
                .steers_of(run)
                .map(|(_, row)| row.clone())
                .collect()
        }))
    }

    async fn rules(&self, run: RunId) -> Answer<Vec<RuleRow>> {
        let all = (run, RuleId::from_bits(0))..=(run, RuleId::from_bits(u128::MAX));
        Ok(self.look(|tx| {
            tx.tables
                .rules
                .range(all)
                .map(|(_, row)| row.clone())
                .collect()
        }))
    }

    async fn sandboxes(&self, run: RunId) -> Answer<Vec<SandboxRow>> {
        Ok(self.look(|tx| {
            let rows = tx.tables.sandboxes.iter().map(|(_, row)| row);
            rows.filter(|row| row.owner == run).cloned().collect()
        }))
    }

    async fn account(&self, root: RunId) -> Answer<Option<Account>> {
        Ok(self.look(|tx| tx.tables.accounts.get(&root).copied()))
    }

    async fn spend(&self, ask: SpendAsk) -> Answer<Vec<Spend>> {
        Ok(self.look(|tx| tx.tables.spend(ask)))
    }

    async fn lane(&self, lane: &LaneKey) -> Answer<Option<LaneRow>> {
        Ok(self.look(|tx| tx.tables.lane(lane)))
    }

    async fn lanes(&self, after: Option<&LaneKey>, limit: usize) -> Answer<Vec<LaneRow>> {
        Ok(self.look(|tx| tx.tables.lanes(after, limit)))
    }

    async fn heads(&self, worker: WorkerId) -> Answer<Vec<(RunId, Seq)>> {
        Ok(self.look(|tx| tx.tables.heads_of(worker)))
    }

    async fn workers(&self) -> Answer<Vec<WorkerRow>> {
        Ok(self.look(|tx| tx.tables.workers()))
    }

    async fn keep_late(&self, run: RunId, late: LateResult) -> Answer<()> {
        self.change(|tx| {
            let place = tx.tables.count();
            tx.tables.late.put((run, place), late);
            Ok(())
        })
    }

    async fn late(&self, run: RunId) -> Answer<Vec<LateResult>> {
        Ok(self.look(|tx| tx.tables.late(run)))
    }

    async fn tail(&self, after: Place, limit: usize) -> Answer<Tail> {
        self.look(|tx| tx.tables.tail(after, limit))
    }

    async fn grown(&self, after: Place, limit: usize) -> Answer<Grown> {
        Ok(self.look(|tx| tx.tables.grown(after, limit)))
    }

    async fn end(&self) -> Answer<Place> {
        Ok(self.look(|tx| tx.tables.end()))
    }

    async fn outbox(&self, limit: usize) -> Answer<Vec<OutboxDue>> {
        Ok(self.look(|tx| tx.outbox(limit)))
    }

    async fn settle_outbox(&self, id: u64, again: Option<Millis>) -> Answer<()> {
        self.change(|tx| {
            tx.settle_outbox(id, again);
            Ok(())
        })
    }

    async fn block_bucket(&self, account: &str, span: Millis) -> Answer<()> {
        self.change(|tx| {
            tx.block_bucket(account, span);
            Ok(())
        })
    }

    async fn bucket(&self, account: &str) -> Answer<Option<Timestamp>> {
        Ok(self.look(|tx| {
            let until = tx.tables.buckets.get(&account.to_owned()).copied();
            until.filter(|until| *until > tx.now)
        }))
    }

    async fn save_checkpoint(&self, run: RunId, at: Checkpoint) -> Answer<()> {
        self.change(|tx| {
            tx.tables.checkpoints.put(run, at);
            Ok(())
        })
    }

    async fn checkpoint(&self, run: RunId, fold: &str) -> Answer<Option<Checkpoint>> {
        self.change(|tx| Ok(tx.checkpoint(run, fold)))
    }

    async fn now(&self) -> Answer<Timestamp> {
        Ok(self.time())
    }
}

#[async_trait]
impl Keyring for MemStore {
    async fn add_key(&self, key: NewKey) -> Answer<bool> {
        self.change(|tx| Ok(tx.add_key(key)?))
    }

    async fn key(&self, hash: Hash) -> Answer<Option<KeyRow>> {
        Ok(self.look(|tx| tx.tables.key(hash).map(|(_, row)| row.clone())))
    }

    async fn keys(&self) -> Answer<Vec<KeyRow>> {
        Ok(self.look(|tx| tx.tables.doors.iter().map(|(_, row)| row.clone()).collect()))
    }

    async fn revoke_key(&self, name: &KeyName) -> Answer<Option<KeyRow>> {
        let revoked = self.change(|tx| Ok(tx.revoke_key(name).map(Box::new)))?;
        Ok(revoked.map(|row| *row))
    }

    async fn touch_key(&self, hash: Hash) -> Answer<()> {
        self.change(|tx| {
            tx.touch_key(hash);
            Ok(())
        })
    }

    async fn add_pass(&self, pass: NewPass) -> Answer<()> {
        self.change(|tx| {
            tx.add_pass(pass);
            Ok(())
        })
    }

    async fn pass(&self, kind: PassKind, hash: Hash) -> Answer<Option<PassRow>> {
        Ok(self.look(|tx| tx.pass(kind, hash)))
    }

    async fn spend_pass(&self, kind: PassKind, hash: Hash) -> Answer<Option<PassRow>> {
        self.change(|tx| Ok(tx.spend_pass(kind, hash)))
    }

    async fn add_link(&self, link: LinkRow) -> Answer<()> {
        self.change(|tx| {
            tx.add_link(link);
            Ok(())
        })
    }

    async fn link(&self, hash: Hash) -> Answer<Option<LinkRow>> {
        Ok(self.look(|tx| tx.tables.links.get(&hash).cloned()))
    }

    async fn begin_reply(&self, ask: ReplyAsk) -> Answer<Begun> {
        self.change(|tx| Ok(tx.begin_reply(ask)))
    }

    async fn keep_reply(&self, of: ReplyKey, reply: Reply) -> Answer<()> {
        self.change(|tx| {
            tx.keep_reply(&of, reply);
            Ok(())
        })
    }

    async fn drop_reply(&self, of: ReplyKey) -> Answer<()> {
        self.change(|tx| {
            tx.drop_reply(&of);
            Ok(())
        })
    }
}
