//! The port of everything beside journal and queue, verb by verb.
//!
//! Never: more than handing a verb to the writer or the readers.

use std::path::Path;

use async_trait::async_trait;
use longhaul_core::change::{LateResult, RuleRow, SandboxRow, SteerRow};
use longhaul_core::id::{LaneKey, NoteId, ResourceKey, RunId, Seq, ThreadKey, WorkerId};
use longhaul_core::message::Message;
use longhaul_core::note::{NewNote, Note, Noted};
use longhaul_core::port::shelves::{
    Account, Checkpoint, DueTimer, Grown, LaneRow, OutboxDue, Place, Repairs, Shelves, Spend,
    SpendAsk, Tail, WorkerRow,
};
use longhaul_core::port::store::StoreError;
use longhaul_core::raw::Hash;
use longhaul_core::time::{Millis, Timestamp};

use crate::options::Role;
use crate::sqlite::handle::SqliteStore;
use crate::sqlite::lock::is_taken;
use crate::sqlite::work::Done;
use crate::sqlite::{blob, budget, lane, note, renew, repair, shelf, steer, tail, timer, usage};

#[async_trait]
impl Shelves for SqliteStore {
    async fn due(&self, limit: usize) -> Result<Vec<DueTimer>, StoreError> {
        self.must_drive("sweep timers")?;
        self.look(move |tx| timer::due(tx, limit)).await
    }

    async fn next_due(&self) -> Result<Option<Timestamp>, StoreError> {
        self.look(timer::next_due).await
    }

    async fn repair(&self) -> Result<Repairs, StoreError> {
        self.must_drive("repair")?;
        if self.look(repair::is_clean).await? {
            return Ok(Repairs::default());
        }
        self.write(repair::repair).await
    }

    async fn blob(&self, hash: Hash) -> Result<Option<Vec<u8>>, StoreError> {
        self.look(move |tx| blob::blob(tx, hash)).await
    }

    async fn definition(&self, hash: Hash) -> Result<Option<Vec<u8>>, StoreError> {
        self.look(move |tx| blob::definition(tx, hash)).await
    }

    async fn thread(&self, thread: &ThreadKey, limit: usize) -> Result<Vec<Message>, StoreError> {
        let thread = thread.clone();
        self.look(move |tx| shelf::thread(tx, &thread, limit)).await
    }

    async fn thread_len(&self, thread: &ThreadKey) -> Result<u64, StoreError> {
        let thread = thread.clone();
        self.look(move |tx| shelf::thread_len(tx, &thread)).await
    }

    async fn extend_thread(
        &self,
        thread: &ThreadKey,
        messages: Vec<Message>,
    ) -> Result<(), StoreError> {
        let thread = thread.clone();
        self.write_quiet(move |tx| shelf::extend_thread(tx, &thread, &messages))
            .await
    }

    async fn clear_thread(&self, thread: &ThreadKey) -> Result<(), StoreError> {
        let thread = thread.clone();
        self.write_quiet(move |tx| shelf::clear_thread(tx, &thread))
            .await
    }

    async fn remember(&self, resource: &ResourceKey, note: NewNote) -> Result<Noted, StoreError> {
        let resource = resource.clone();
        self.write_quiet(move |tx| note::remember(tx, &resource, &note))
            .await
    }

    async fn recall(
        &self,
        resource: &ResourceKey,
        query: &str,
        limit: usize,
    ) -> Result<Vec<Note>, StoreError> {
        let (resource, query) = (resource.clone(), query.to_owned());
        self.look_new(move |tx| note::recall(tx, &resource, &query, limit))
            .await
    }

    async fn notes(
        &self,
        resource: &ResourceKey,
        after: Option<NoteId>,
        limit: usize,
    ) -> Result<Vec<Note>, StoreError> {
        let resource = resource.clone();
        self.look_new(move |tx| note::notes(tx, &resource, after, limit))
            .await
    }

    async fn forget_note(&self, note: NoteId) -> Result<bool, StoreError> {
        self.write_quiet(move |tx| note::forget(tx, note)).await
    }

    async fn clear_notes(&self, resource: &ResourceKey) -> Result<u64, StoreError> {
        let resource = resource.clone();
        self.write_quiet(move |tx| note::clear(tx, &resource)).await
    }

    async fn steers(&self, run: RunId) -> Result<Vec<SteerRow>, StoreError> {
        self.look(move |tx| steer::steers(tx, run)).await
    }

    async fn rules(&self, run: RunId) -> Result<Vec<RuleRow>, StoreError> {
        self.look(move |tx| shelf::rules(tx, run)).await
    }

    async fn sandboxes(&self, run: RunId) -> Result<Vec<SandboxRow>, StoreError> {
        self.look(move |tx| shelf::sandboxes(tx, run)).await
    }

    async fn account(&self, root: RunId) -> Result<Option<Account>, StoreError> {
        self.look(move |tx| budget::account(tx, root)).await
    }

    async fn spend(&self, ask: SpendAsk) -> Result<Vec<Spend>, StoreError> {
        self.look(move |tx| usage::spend(tx, ask)).await
    }

    async fn lane(&self, lane: &LaneKey) -> Result<Option<LaneRow>, StoreError> {
        let lane = lane.clone();
        self.look(move |tx| lane::lane(tx, &lane)).await
    }

    async fn lanes(
        &self,
        after: Option<&LaneKey>,
        limit: usize,
    ) -> Result<Vec<LaneRow>, StoreError> {
        let after = after.cloned();
        self.look(move |tx| lane::lanes(tx, after.as_ref(), limit))
            .await
    }

    async fn heads(&self, worker: WorkerId) -> Result<Vec<(RunId, Seq)>, StoreError> {
        self.look(move |tx| renew::heads(tx, worker)).await
    }

    async fn workers(&self) -> Result<Vec<WorkerRow>, StoreError> {
        self.look(renew::workers).await
    }

    async fn is_driven(&self) -> Result<bool, StoreError> {
        match self.role {
            Role::Driver => Ok(true),
            Role::Outsider => is_taken(Path::new(&*self.at)),
        }
    }

    async fn keep_late(&self, run: RunId, late: LateResult) -> Result<(), StoreError> {
        self.write(move |tx| Ok(Done::Kept(shelf::keep_late(tx, run, &late)?)))
            .await
    }

    async fn late(&self, run: RunId) -> Result<Vec<LateResult>, StoreError> {
        self.look(move |tx| shelf::late(tx, run)).await
    }

    async fn tail(&self, after: Place, limit: usize) -> Result<Tail, StoreError> {
        self.look(move |tx| tail::tail(tx, after, limit)).await
    }

    async fn grown(&self, after: Place, limit: usize) -> Result<Grown, StoreError> {
        self.look(move |tx| tail::grown(tx, after, limit)).await
    }

    async fn end(&self) -> Result<Place, StoreError> {
        self.look(tail::end).await
    }

    async fn outbox(&self, limit: usize) -> Result<Vec<OutboxDue>, StoreError> {
        self.look(move |tx| shelf::outbox(tx, limit)).await
    }

    async fn settle_outbox(&self, id: u64, again: Option<Millis>) -> Result<(), StoreError> {
        self.write_quiet(move |tx| shelf::settle_outbox(tx, id, again))
            .await
    }

    async fn block_bucket(&self, account: &str, span: Millis) -> Result<(), StoreError> {
        let account = account.to_owned();
        self.write_quiet(move |tx| shelf::block_bucket(tx, &account, span))
            .await
    }

    async fn bucket(&self, account: &str) -> Result<Option<Timestamp>, StoreError> {
        let account = account.to_owned();
        self.look(move |tx| shelf::bucket(tx, &account)).await
    }

    async fn save_checkpoint(&self, run: RunId, at: Checkpoint) -> Result<(), StoreError> {
        self.write_quiet(move |tx| shelf::save_checkpoint(tx, run, &at))
            .await
    }

    async fn checkpoint(&self, run: RunId, fold: &str) -> Result<Option<Checkpoint>, StoreError> {
        let kept = self.look(move |tx| shelf::checkpoint(tx, run)).await?;
        match kept {
            Some(kept) if kept.fold == fold => Ok(Some(kept)),
            Some(_) => {
                let fold = fold.to_owned();
                self.write_quiet(move |tx| shelf::drop_checkpoint(tx, run, &fold))
                    .await?;
                Ok(None)
            }
            None => Ok(None),
        }
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        Ok(self.clock.now())
    }
}
