//! The port of everything beside journal and queue, verb by verb.
//!
//! Never: more than handing a verb to the writer or the readers.

use std::path::Path;

use async_trait::async_trait;
use longhaul_core::change::{LateResult, RuleRow, SandboxRow, SteerRow};
use longhaul_core::id::{LaneKey, NoteId, ResourceKey, RunId, Seq, ThreadKey, WorkerId};
use longhaul_core::message::Message;
use longhaul_core::note::{NewNote, Note, NoteOutcome};
use longhaul_core::port::records::{
    BudgetAccount, ChangedRuns, Checkpoint, DueTimer, GlobalPage, GlobalSeq, LaneRow, ModelUsage,
    OutboxItem, RecordStore, Repairs, UsageQuery, WorkerRow,
};
use longhaul_core::port::store::StoreError;
use longhaul_core::raw::Hash;
use longhaul_core::time::{Millis, Timestamp};

use crate::options::OpenMode;
use crate::sqlite::command::CommandOutcome;
use crate::sqlite::handle::SqliteStore;
use crate::sqlite::lock::is_driven;
use crate::sqlite::{
    blob, budget, global_log, heartbeat, lane, note, records, repair, steer, timer, usage,
};

#[async_trait]
impl RecordStore for SqliteStore {
    async fn due_timers(&self, limit: usize) -> Result<Vec<DueTimer>, StoreError> {
        self.require_driver("sweep timers")?;
        self.read_with(move |tx| timer::due_timers(tx, limit)).await
    }

    async fn next_timer_due(&self) -> Result<Option<Timestamp>, StoreError> {
        self.read_with(timer::next_timer_due).await
    }

    async fn repair(&self) -> Result<Repairs, StoreError> {
        self.require_driver("repair")?;
        if self.read_with(repair::is_clean).await? {
            return Ok(Repairs::default());
        }
        self.write(repair::repair).await
    }

    async fn blob(&self, hash: Hash) -> Result<Option<Vec<u8>>, StoreError> {
        self.read_with(move |tx| blob::blob(tx, hash)).await
    }

    async fn definition(&self, hash: Hash) -> Result<Option<Vec<u8>>, StoreError> {
        self.read_with(move |tx| blob::definition(tx, hash)).await
    }

    async fn thread_messages(
        &self,
        thread: &ThreadKey,
        limit: usize,
    ) -> Result<Vec<Message>, StoreError> {
        let thread = thread.clone();
        self.read_with(move |tx| records::thread_messages(tx, &thread, limit)).await
    }

    async fn thread_len(&self, thread: &ThreadKey) -> Result<u64, StoreError> {
        let thread = thread.clone();
        self.read_with(move |tx| records::thread_len(tx, &thread)).await
    }

    async fn extend_thread(
        &self,
        thread: &ThreadKey,
        messages: Vec<Message>,
    ) -> Result<(), StoreError> {
        let thread = thread.clone();
        self.write_silent(move |tx| records::extend_thread(tx, &thread, &messages)).await
    }

    async fn clear_thread(&self, thread: &ThreadKey) -> Result<(), StoreError> {
        let thread = thread.clone();
        self.write_silent(move |tx| records::clear_thread(tx, &thread)).await
    }

    async fn add_note(
        &self,
        resource: &ResourceKey,
        note: NewNote,
    ) -> Result<NoteOutcome, StoreError> {
        let resource = resource.clone();
        self.write_silent(move |tx| note::add(tx, &resource, &note)).await
    }

    async fn search_notes(
        &self,
        resource: &ResourceKey,
        query: &str,
        limit: usize,
    ) -> Result<Vec<Note>, StoreError> {
        let (resource, query) = (resource.clone(), query.to_owned());
        self.read_current_schema(move |tx| note::search(tx, &resource, &query, limit)).await
    }

    async fn list_notes(
        &self,
        resource: &ResourceKey,
        after: Option<NoteId>,
        limit: usize,
    ) -> Result<Vec<Note>, StoreError> {
        let resource = resource.clone();
        self.read_current_schema(move |tx| note::notes(tx, &resource, after, limit)).await
    }

    async fn delete_note(&self, note: NoteId) -> Result<bool, StoreError> {
        self.write_silent(move |tx| note::delete(tx, note)).await
    }

    async fn clear_notes(&self, resource: &ResourceKey) -> Result<u64, StoreError> {
        let resource = resource.clone();
        self.write_silent(move |tx| note::clear(tx, &resource)).await
    }

    async fn steers(&self, run: RunId) -> Result<Vec<SteerRow>, StoreError> {
        self.read_with(move |tx| steer::steers(tx, run)).await
    }

    async fn rules(&self, run: RunId) -> Result<Vec<RuleRow>, StoreError> {
        self.read_with(move |tx| records::rules(tx, run)).await
    }

    async fn sandboxes(&self, run: RunId) -> Result<Vec<SandboxRow>, StoreError> {
        self.read_with(move |tx| records::sandboxes(tx, run)).await
    }

    async fn budget_account(&self, root: RunId) -> Result<Option<BudgetAccount>, StoreError> {
        self.read_with(move |tx| budget::account(tx, root)).await
    }

    async fn usage_by_model(&self, ask: UsageQuery) -> Result<Vec<ModelUsage>, StoreError> {
        self.read_with(move |tx| usage::usage_by_model(tx, ask)).await
    }

    async fn lane(&self, lane: &LaneKey) -> Result<Option<LaneRow>, StoreError> {
        let lane = lane.clone();
        self.read_with(move |tx| lane::lane(tx, &lane)).await
    }

    async fn lanes(
        &self,
        after: Option<&LaneKey>,
        limit: usize,
    ) -> Result<Vec<LaneRow>, StoreError> {
        let after = after.cloned();
        self.read_with(move |tx| lane::lanes(tx, after.as_ref(), limit)).await
    }

    async fn claimed_runs(&self, worker: WorkerId) -> Result<Vec<(RunId, Seq)>, StoreError> {
        self.read_with(move |tx| heartbeat::claimed_runs(tx, worker)).await
    }

    async fn workers(&self) -> Result<Vec<WorkerRow>, StoreError> {
        self.read_with(heartbeat::workers).await
    }

    async fn has_driver(&self) -> Result<bool, StoreError> {
        match self.mode {
            OpenMode::Driver => Ok(true),
            OpenMode::Outsider => is_driven(Path::new(&*self.at)),
        }
    }

    async fn save_late_result(&self, run: RunId, late: LateResult) -> Result<(), StoreError> {
        self.write(move |tx| {
            Ok(CommandOutcome::Changed(records::save_late_result(tx, run, &late)?))
        })
        .await
    }

    async fn late_results(&self, run: RunId) -> Result<Vec<LateResult>, StoreError> {
        self.read_with(move |tx| records::late_results(tx, run)).await
    }

    async fn read_all(&self, after: GlobalSeq, limit: usize) -> Result<GlobalPage, StoreError> {
        self.read_with(move |tx| global_log::read_all(tx, after, limit)).await
    }

    async fn changed_since(
        &self,
        after: GlobalSeq,
        limit: usize,
    ) -> Result<ChangedRuns, StoreError> {
        self.read_with(move |tx| global_log::changed_since(tx, after, limit)).await
    }

    async fn last_global_seq(&self) -> Result<GlobalSeq, StoreError> {
        self.read_with(global_log::last_global_seq).await
    }

    async fn due_outbox(&self, limit: usize) -> Result<Vec<OutboxItem>, StoreError> {
        self.read_with(move |tx| records::due_outbox(tx, limit)).await
    }

    async fn settle_outbox(&self, id: u64, again: Option<Millis>) -> Result<(), StoreError> {
        self.write_silent(move |tx| records::settle_outbox(tx, id, again)).await
    }

    async fn block_provider(&self, account: &str, span: Millis) -> Result<(), StoreError> {
        let account = account.to_owned();
        self.write_silent(move |tx| records::block_provider(tx, &account, span)).await
    }

    async fn provider_blocked_until(&self, account: &str) -> Result<Option<Timestamp>, StoreError> {
        let account = account.to_owned();
        self.read_with(move |tx| records::provider_blocked_until(tx, &account)).await
    }

    async fn save_checkpoint(&self, run: RunId, at: Checkpoint) -> Result<(), StoreError> {
        self.write_silent(move |tx| records::save_checkpoint(tx, run, &at)).await
    }

    async fn checkpoint(&self, run: RunId, fold: &str) -> Result<Option<Checkpoint>, StoreError> {
        let kept = self.read_with(move |tx| records::checkpoint(tx, run)).await?;
        match kept {
            Some(kept) if kept.fold_hash == fold => Ok(Some(kept)),
            Some(_) => {
                let fold = fold.to_owned();
                self.write_silent(move |tx| records::delete_other_checkpoint(tx, run, &fold))
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
