//! Implements the trait `RecordStore`: all records besides journals and the ready queue.

use std::path::Path;

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
use longhaul_core::policy::gate::RulePattern;
use longhaul_core::policy::rule::{
    RememberedApprovalFilter, RememberedApprovalRow, RememberedApprovalScope,
};
use longhaul_core::policy::spend_cap::{CapCounterRow, CapLimitChange};
use longhaul_core::port::records::{
    BudgetAccount, ChangedRuns, DeleteRunsOutcome, DueOutboxMessage, DueTimer, GlobalJournalPage,
    GlobalSeq, InboxRunCounts, LaneRow, RecordStore, RepairedRowCounts, UsageQuery, UsageSum,
    WorkerRow,
};
use longhaul_core::port::store::{RunCounts, StoreError};
use longhaul_core::raw::Hash;
use longhaul_core::request::IdempotencyKey;
use longhaul_core::time::{Millis, Timestamp};

use crate::sqlite::command::CommandOutcome;
use crate::sqlite::handle::SqliteStore;
use crate::sqlite::lock::store_has_driver_process;
use crate::sqlite::{
    blob, budget, delete_run, effect_key, global_log, heartbeat, inbox, lane, note, records,
    repair, rule, run_list, run_row, sandbox, slot, spend, steer, timer, usage,
};

#[async_trait]
impl RecordStore for SqliteStore {
    async fn due_timers(&self, limit: usize) -> Result<Vec<DueTimer>, StoreError> {
        self.require_driver_process("sweep timers")?;
        self.run_query(move |tx| timer::due_timers(tx, limit)).await
    }

    async fn next_timer_due(&self) -> Result<Option<Timestamp>, StoreError> {
        self.run_query(timer::next_timer_due).await
    }

    async fn move_delays_set_by_later_clock(&self) -> Result<usize, StoreError> {
        self.run_command(|tx| {
            Ok(CommandOutcome::Changed(timer::move_delays_set_by_later_clock(tx)?))
        })
        .await
    }

    async fn repair_inconsistent_rows(&self) -> Result<RepairedRowCounts, StoreError> {
        self.require_driver_process("repair")?;
        let after = self.consistency_check_cursor();
        let (page, is_consistent) = self
            .run_query(move |tx| repair::check_consistency_of_next_page(tx, after.clone()))
            .await?;
        self.set_consistency_check_cursor(page.clone().into_next_cursor());
        if is_consistent {
            return Ok(RepairedRowCounts::default());
        }
        self.run_command(move |tx| repair::repair_inconsistent_rows(tx, &page)).await
    }

    async fn blob(&self, blob_hash: Hash) -> Result<Option<Vec<u8>>, StoreError> {
        self.run_query(move |tx| blob::get_blob(tx, blob_hash)).await
    }

    async fn agent_definition(&self, hash: Hash) -> Result<Option<Vec<u8>>, StoreError> {
        self.run_query(move |tx| blob::get_agent_definition(tx, hash)).await
    }

    async fn thread_messages(
        &self,
        thread: &ThreadKey,
        limit: usize,
    ) -> Result<Vec<Message>, StoreError> {
        let thread = thread.clone();
        self.run_query(move |tx| records::thread_messages(tx, &thread, limit)).await
    }

    async fn thread_message_count(&self, thread: &ThreadKey) -> Result<u64, StoreError> {
        let thread = thread.clone();
        self.run_query(move |tx| records::thread_message_count(tx, &thread)).await
    }

    async fn append_thread_messages(
        &self,
        added: NewThreadMessages,
        request: Option<IdempotencyKey>,
    ) -> Result<(), StoreError> {
        self.run_command_without_notifying_watchers(move |tx| {
            records::append_thread_messages(tx, &added, request.as_ref())
        })
        .await
    }

    async fn clear_thread(&self, thread: &ThreadKey) -> Result<(), StoreError> {
        let thread = thread.clone();
        self.run_command_without_notifying_watchers(move |tx| records::clear_thread(tx, &thread))
            .await
    }

    async fn add_note(
        &self,
        resource: &ResourceKey,
        note: NewMemoryNote,
    ) -> Result<AddNoteOutcome, StoreError> {
        let resource = resource.clone();
        self.run_command_without_notifying_watchers(move |tx| note::add_note(tx, &resource, &note))
            .await
    }

    async fn search_notes(
        &self,
        resource: &ResourceKey,
        query: &str,
        limit: usize,
    ) -> Result<Vec<MemoryNote>, StoreError> {
        let (resource, query) = (resource.clone(), query.to_owned());
        self.query_requiring_current_schema(move |tx| {
            note::search_notes(tx, &resource, &query, limit)
        })
        .await
    }

    async fn list_notes(
        &self,
        resource: &ResourceKey,
        after: Option<NoteId>,
        limit: usize,
    ) -> Result<Vec<MemoryNote>, StoreError> {
        let resource = resource.clone();
        self.query_requiring_current_schema(move |tx| note::list_notes(tx, &resource, after, limit))
            .await
    }

    async fn delete_note(&self, note: NoteId) -> Result<bool, StoreError> {
        self.run_command_without_notifying_watchers(move |tx| note::delete_note(tx, note)).await
    }

    async fn clear_notes(&self, resource: &ResourceKey) -> Result<u64, StoreError> {
        let resource = resource.clone();
        self.run_command_without_notifying_watchers(move |tx| note::clear_notes(tx, &resource))
            .await
    }

    async fn queued_steer_messages(&self, run: RunId) -> Result<Vec<SteerRow>, StoreError> {
        self.run_query(move |tx| steer::list_steers(tx, run)).await
    }

    async fn list_rules(
        &self,
        filter: RememberedApprovalFilter,
    ) -> Result<Vec<RememberedApprovalRow>, StoreError> {
        self.query_requiring_current_schema(move |tx| rule::list_rules(tx, &filter)).await
    }

    async fn active_remembered_approvals(
        &self,
        scopes: Vec<RememberedApprovalScope>,
        patterns: Vec<RulePattern>,
    ) -> Result<Vec<RememberedApprovalRow>, StoreError> {
        self.run_query(move |tx| rule::active_remembered_approvals(tx, &scopes, &patterns)).await
    }

    async fn revoke_rule(&self, rule: RuleId, by: &str) -> Result<bool, StoreError> {
        let by = by.to_owned();
        self.run_command_without_notifying_watchers(move |tx| rule::revoke_rule(tx, rule, &by))
            .await
    }

    async fn list_sandboxes(&self, filter: SandboxFilter) -> Result<Vec<SandboxRow>, StoreError> {
        self.query_requiring_current_schema(move |tx| sandbox::list_sandboxes(tx, &filter)).await
    }

    async fn update_sandbox_of_ended_run(
        &self,
        row: SandboxRow,
        from: SandboxState,
    ) -> Result<bool, StoreError> {
        self.run_command(move |tx| sandbox::update_sandbox_of_ended_run(tx, &row, from)).await
    }

    async fn wake_runs_for_free_slots(
        &self,
        provider: &str,
        capacity: u32,
    ) -> Result<SlotQueueLength, StoreError> {
        let checked = provider.to_owned();
        let (queue, free) =
            self.run_query(move |tx| slot::free_slots(tx, &checked, capacity)).await?;
        if free == 0 {
            return Ok(queue);
        }
        let provider = provider.to_owned();
        self.run_command(move |tx| {
            let queue = slot::wake_runs_for_free_slots(tx, &provider, capacity)?;
            Ok(CommandOutcome::Changed(queue))
        })
        .await
    }

    async fn slot_queue_position(&self, run: RunId) -> Result<Option<u32>, StoreError> {
        self.run_query(move |tx| slot::queue_position(tx, run)).await
    }

    async fn budget_account(&self, root_run: RunId) -> Result<Option<BudgetAccount>, StoreError> {
        self.run_query(move |tx| budget::budget_account_of_root_run(tx, root_run)).await
    }

    async fn cap_counter_rows(&self) -> Result<Vec<CapCounterRow>, StoreError> {
        self.query_requiring_current_schema(spend::list_spend_rows).await
    }

    async fn set_cap_limit(&self, change: CapLimitChange) -> Result<(), StoreError> {
        self.run_command(move |tx| Ok(CommandOutcome::Changed(spend::set_cap_limit(tx, &change)?)))
            .await
    }

    async fn wake_runs_waiting_at_caps(&self) -> Result<(), StoreError> {
        self.run_command(|tx| Ok(CommandOutcome::Changed(spend::wake_runs_waiting_at_caps(tx)?)))
            .await
    }

    async fn usage_sums(&self, query: UsageQuery) -> Result<Vec<UsageSum>, StoreError> {
        self.run_query(move |tx| usage::usage_sums(tx, query)).await
    }

    async fn find_lane(&self, lane: &LaneKey) -> Result<Option<LaneRow>, StoreError> {
        let lane = lane.clone();
        self.run_query(move |tx| lane::get_lane(tx, &lane)).await
    }

    async fn list_lanes(
        &self,
        after: Option<&LaneKey>,
        limit: usize,
    ) -> Result<Vec<LaneRow>, StoreError> {
        let after = after.cloned();
        self.run_query(move |tx| lane::list_lanes(tx, after.as_ref(), limit)).await
    }

    async fn set_lane_pause_state(
        &self,
        lane: &LaneKey,
        paused: bool,
    ) -> Result<LaneRow, StoreError> {
        let lane = lane.clone();
        self.run_command(move |tx| {
            Ok(CommandOutcome::Changed(lane::set_lane_paused(tx, &lane, paused)?))
        })
        .await
    }

    async fn runs_of_batch(&self, batch: BatchId) -> Result<Vec<RunId>, StoreError> {
        self.run_query(move |tx| run_row::list_batch_runs(tx, batch)).await
    }

    async fn count_runs_by_inbox(
        &self,
        inbox: Option<&InboxName>,
    ) -> Result<Vec<InboxRunCounts>, StoreError> {
        let inbox = inbox.cloned();
        self.run_query(move |tx| inbox::run_counts_by_inbox(tx, inbox.as_ref())).await
    }

    async fn count_runs(&self) -> Result<RunCounts, StoreError> {
        self.run_query(run_list::count_runs).await
    }

    async fn claimed_runs_with_last_seq(
        &self,
        worker: WorkerId,
    ) -> Result<Vec<(RunId, Seq)>, StoreError> {
        self.run_query(move |tx| heartbeat::claimed_runs_with_last_seq(tx, worker)).await
    }

    async fn list_workers(&self) -> Result<Vec<WorkerRow>, StoreError> {
        self.run_query(heartbeat::list_workers).await
    }

    async fn has_process_driving_runs(&self) -> Result<bool, StoreError> {
        match self.is_driver_process() {
            true => Ok(true),
            false => store_has_driver_process(Path::new(&*self.location)),
        }
    }

    async fn delete_run_tree(&self, root: RunId) -> Result<DeleteRunsOutcome, StoreError> {
        self.run_command(move |tx| Ok(delete_run::delete_run_tree(tx, root)?)).await
    }

    async fn effect_key(&self, key: Hash) -> Result<Option<ClaimedEffectKey>, StoreError> {
        self.run_query(move |tx| effect_key::load_effect_key(tx, key)).await
    }

    async fn free_effect_key(&self, run: RunId, freed: LateToolResult) -> Result<bool, StoreError> {
        self.run_command_without_notifying_watchers(move |tx| {
            effect_key::free_effect_key(tx, run, &freed)
        })
        .await
    }

    async fn save_late_tool_result(
        &self,
        run: RunId,
        late_result: LateToolResult,
    ) -> Result<(), StoreError> {
        self.run_command(move |tx| {
            Ok(CommandOutcome::Changed(records::save_late_result(tx, run, &late_result)?))
        })
        .await
    }

    async fn late_tool_results(&self, run: RunId) -> Result<Vec<LateToolResult>, StoreError> {
        self.run_query(move |tx| records::list_late_results(tx, run)).await
    }

    async fn read_all_journals(
        &self,
        after: GlobalSeq,
        limit: usize,
    ) -> Result<GlobalJournalPage, StoreError> {
        self.run_query(move |tx| global_log::read_global_log(tx, after, limit)).await
    }

    async fn changed_runs_since(
        &self,
        after: GlobalSeq,
        limit: usize,
    ) -> Result<ChangedRuns, StoreError> {
        self.run_query(move |tx| global_log::runs_changed_since(tx, after, limit)).await
    }

    async fn last_global_seq(&self) -> Result<GlobalSeq, StoreError> {
        self.run_query(global_log::last_global_seq).await
    }

    async fn due_outbox_messages(
        &self,
        endpoint: &str,
        limit: usize,
    ) -> Result<Vec<DueOutboxMessage>, StoreError> {
        let endpoint = endpoint.to_owned();
        self.run_query(move |tx| records::due_outbox_items(tx, &endpoint, limit)).await
    }

    async fn record_outbox_attempt(
        &self,
        id: u64,
        retry_delay: Option<Millis>,
    ) -> Result<(), StoreError> {
        self.run_command_without_notifying_watchers(move |tx| {
            records::delete_or_retry_outbox_item(tx, id, retry_delay)
        })
        .await
    }

    async fn block_provider(&self, account: &str, duration: Millis) -> Result<(), StoreError> {
        let account = account.to_owned();
        self.run_command_without_notifying_watchers(move |tx| {
            records::block_provider(tx, &account, duration)
        })
        .await
    }

    async fn unblock_provider(&self, provider_account: &str) -> Result<(), StoreError> {
        let provider_account = provider_account.to_owned();
        self.run_command_without_notifying_watchers(move |tx| {
            records::unblock_provider(tx, &provider_account)
        })
        .await
    }

    async fn provider_blocked_until(&self, account: &str) -> Result<Option<Timestamp>, StoreError> {
        let account = account.to_owned();
        self.run_query(move |tx| records::provider_blocked_until(tx, &account)).await
    }

    async fn newest_checkpoint(
        &self,
        run: RunId,
        fold_hash: &str,
    ) -> Result<Option<RunCheckpoint>, StoreError> {
        let checkpoint = self.run_query(move |tx| records::get_checkpoint(tx, run)).await?;
        match checkpoint {
            Some(checkpoint) if checkpoint.fold_hash == fold_hash => Ok(Some(checkpoint)),
            Some(_) => {
                let fold_hash = fold_hash.to_owned();
                self.run_command_without_notifying_watchers(move |tx| {
                    records::delete_incompatible_checkpoint(tx, run, &fold_hash)
                })
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
