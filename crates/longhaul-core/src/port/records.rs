//! The record store port: everything a store holds besides journals and the ready queue,
//! such as timers, threads, notes, definitions, blobs, budget accounts and checkpoints.
//!
//! Invariant: nothing here appends to a journal. Only
//! [`Store::append_to_journal`](crate::port::store::Store::append_to_journal) does.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::change::{
    LateToolResult, NewThreadMessages, OutboxRow, SandboxFilter, SandboxRow, SandboxState,
    SlotQueueLength, SteerRow, TimerKind,
};
use crate::checkpoint::RunCheckpoint;
use crate::event::entry::JournalEntry;
use crate::id::{
    AgentName, BatchId, InboxName, LaneKey, NoteId, ResourceKey, RuleId, RunId, SandboxId, Seq,
    ThreadKey, TimerId, WorkerId,
};
use crate::message::Message;
use crate::note::{AddNoteOutcome, MemoryNote, NewMemoryNote};
pub use crate::policy::budget::BudgetAccount;
use crate::policy::effect_key::ClaimedEffectKey;
use crate::policy::gate::{GateRow, RulePattern};
use crate::policy::rule::{
    RememberedApprovalFilter, RememberedApprovalRow, RememberedApprovalScope,
};
use crate::policy::spend_cap::{CapCounterRow, CapLimitChange};
use crate::port::store::{RunCounts, StoreError, WorkerLiveness};
use crate::raw::Hash;
use crate::request::IdempotencyKey;
use crate::time::{Millis, Timestamp};
use crate::usage::{MicroUsd, Usage};

/// Maximum delay between two attempts to deliver an outbox message.
pub const OUTBOX_DELAY_MAX: Millis = Millis::from_secs(5 * 60);

/// Store of everything besides journals and the ready queue.
#[async_trait]
pub trait RecordStore: Send + Sync + std::fmt::Debug {
    /// Returns due timers, the longest overdue first.
    async fn due_timers(&self, limit: usize) -> Result<Vec<DueTimer>, StoreError>;

    /// Returns the due time of the next timer. `None` means that no timer is set.
    async fn next_timer_due(&self) -> Result<Option<Timestamp>, StoreError>;

    /// Moves each timer of a delay that is due later than this delay from now to the end of the
    /// delay, because the clock was set back since the timer was set. The same holds for automatic
    /// approvals. Outbox messages whose next attempt is later than the maximum delay from now
    /// become due. Returns the number of moved timers and attempts.
    async fn move_delays_set_by_later_clock(&self) -> Result<usize, StoreError>;

    /// Repairs rows that violate an invariant, and returns the numbers of repaired rows. Every such
    /// row is evidence of a bug.
    async fn repair_inconsistent_rows(&self) -> Result<RepairedRowCounts, StoreError>;

    /// Returns the content of the blob with this hash, if it is stored.
    async fn blob(&self, hash: Hash) -> Result<Option<Vec<u8>>, StoreError>;

    async fn agent_definition(&self, hash: Hash) -> Result<Option<Vec<u8>>, StoreError>;

    /// Returns the newest messages of a thread, oldest first.
    async fn thread_messages(
        &self,
        thread: &ThreadKey,
        limit: usize,
    ) -> Result<Vec<Message>, StoreError>;

    async fn thread_message_count(&self, thread: &ThreadKey) -> Result<u64, StoreError>;

    /// Appends messages to a thread outside of any run. If an idempotent request does so, an earlier
    /// attempt of which has already appended them, nothing changes.
    async fn append_thread_messages(
        &self,
        added: NewThreadMessages,
        request: Option<IdempotencyKey>,
    ) -> Result<(), StoreError>;

    /// Deletes all messages of a thread.
    async fn clear_thread(&self, thread: &ThreadKey) -> Result<(), StoreError>;

    /// Stores a note about a resource (a person or thing). Nothing changes if the resource has a
    /// note with the same key.
    async fn add_note(
        &self,
        resource: &ResourceKey,
        note: NewMemoryNote,
    ) -> Result<AddNoteOutcome, StoreError>;

    /// Returns the notes about a resource (a person or thing) that contain any word of `query`,
    /// best match first and newer notes first among equal matches. Returns the newest notes if the
    /// query has no words. The query is untrusted text: it has no syntax, only words.
    async fn search_notes(
        &self,
        resource: &ResourceKey,
        query: &str,
        limit: usize,
    ) -> Result<Vec<MemoryNote>, StoreError>;

    /// Lists the notes about a resource (a person or thing), newest first, continuing after the
    /// given note.
    async fn list_notes(
        &self,
        resource: &ResourceKey,
        after: Option<NoteId>,
        limit: usize,
    ) -> Result<Vec<MemoryNote>, StoreError>;

    /// Deletes a note. Returns `false` if there is no such note.
    async fn delete_note(&self, note: NoteId) -> Result<bool, StoreError>;

    /// Deletes all notes about a resource (a person or thing) and returns how many were deleted.
    async fn clear_notes(&self, resource: &ResourceKey) -> Result<u64, StoreError>;

    /// Returns the messages queued for a run, in order of arrival.
    async fn queued_steer_messages(&self, run: RunId) -> Result<Vec<SteerRow>, StoreError>;

    /// Lists remembered approvals, newest first.
    async fn list_rules(
        &self,
        filter: RememberedApprovalFilter,
    ) -> Result<Vec<RememberedApprovalRow>, StoreError>;

    /// Returns the active remembered approvals that have one of these scopes and one of these
    /// patterns. The cost does not depend on the number of other approvals.
    async fn active_remembered_approvals(
        &self,
        scopes: Vec<RememberedApprovalScope>,
        patterns: Vec<RulePattern>,
    ) -> Result<Vec<RememberedApprovalRow>, StoreError>;

    /// Revokes a remembered approval without an event in a journal. Returns `false` if no active
    /// one has this id.
    async fn revoke_rule(&self, rule: RuleId, by: &str) -> Result<bool, StoreError>;

    /// Lists sandboxes by id, i.e. in the order in which they were created.
    async fn list_sandboxes(&self, filter: SandboxFilter) -> Result<Vec<SandboxRow>, StoreError>;

    /// Replaces the row of a sandbox whose owner has ended, and releases its slot if its new state
    /// needs none. Returns `false` and changes nothing if the owner has not ended, or if the
    /// sandbox is no longer in the state `from`.
    async fn update_sandbox_of_ended_run(
        &self,
        row: SandboxRow,
        from: SandboxState,
    ) -> Result<bool, StoreError>;

    /// Wakes runs that wait for a slot of this sandbox provider, as long as fewer slots are occupied
    /// or kept for woken runs than the capacity. Returns the remaining queue.
    async fn wake_runs_for_free_slots(
        &self,
        provider: &str,
        capacity: u32,
    ) -> Result<SlotQueueLength, StoreError>;

    /// Returns the position of a run in the queue for sandbox slots, from 1. `None` means that the
    /// run is not in the queue.
    async fn slot_queue_position(&self, run: RunId) -> Result<Option<u32>, StoreError>;

    /// Returns the budget account of the tree of runs with this root. `None` if there is no such
    /// account.
    async fn budget_account(&self, root: RunId) -> Result<Option<BudgetAccount>, StoreError>;

    /// Returns the counters of spend caps whose window contains the current time, at most
    /// [`SPEND_ROWS_MAX`](crate::policy::spend_cap::SPEND_ROWS_MAX), those with waiting runs and
    /// with the highest usage first.
    async fn cap_counter_rows(&self) -> Result<Vec<CapCounterRow>, StoreError>;

    /// Changes the limit of a spend cap in one window, and wakes the runs whose amounts now fit.
    async fn set_cap_limit(&self, change: CapLimitChange) -> Result<(), StoreError>;

    /// Wakes runs that wait at a spend cap although the cap covers the amounts that they need. Such
    /// runs are left over if a run that was woken first makes no request: it was paused or
    /// cancelled, or another cap refuses it.
    async fn wake_runs_waiting_at_caps(&self) -> Result<(), StoreError>;

    /// Returns token usage and cost by day, agent and model, the newest day first, and of each day the
    /// highest cost first. Runs that have not ended are included.
    async fn usage_sums(&self, query: UsageQuery) -> Result<Vec<UsageSum>, StoreError>;

    /// Returns the state of a lane. `None` means that the lane does not exist.
    async fn find_lane(&self, lane: &LaneKey) -> Result<Option<LaneRow>, StoreError>;

    /// Lists lanes that contain runs or are paused, ordered by name, continuing after the given
    /// lane.
    async fn list_lanes(
        &self,
        after: Option<&LaneKey>,
        limit: usize,
    ) -> Result<Vec<LaneRow>, StoreError>;

    /// Pauses or resumes a lane and returns its new state. No run of a paused lane starts; a run
    /// that has started continues. An empty lane can be paused too.
    async fn set_lane_pause_state(
        &self,
        lane: &LaneKey,
        paused: bool,
    ) -> Result<LaneRow, StoreError>;

    /// Returns the runs of a batch, in the order in which they were submitted.
    async fn runs_of_batch(&self, batch: BatchId) -> Result<Vec<RunId>, StoreError>;

    /// Returns the number of runs in each inbox by status, ordered by the inboxes' names. Inboxes
    /// without open and failed runs are left out. `inbox` restricts the list to one inbox.
    async fn count_runs_by_inbox(
        &self,
        inbox: Option<&InboxName>,
    ) -> Result<Vec<InboxRunCounts>, StoreError>;

    /// Counts all runs of the store, and sums up what they have cost.
    async fn count_runs(&self) -> Result<RunCounts, StoreError>;

    /// Returns the runs claimed by a worker, each with the last sequence number of its journal. A
    /// single query thus shows which of these journals other processes have appended to.
    async fn claimed_runs_with_last_seq(
        &self,
        worker: WorkerId,
    ) -> Result<Vec<(RunId, Seq)>, StoreError>;

    /// Returns all workers that are not recorded as dead in the store.
    async fn list_workers(&self) -> Result<Vec<WorkerRow>, StoreError>;

    /// Returns whether any process currently drives the runs of this store. The default
    /// implementation checks the heartbeats of workers; a store with more precise information
    /// overrides it.
    async fn has_process_driving_runs(&self) -> Result<bool, StoreError> {
        let workers = self.list_workers().await?;
        Ok(workers.iter().any(|worker| worker.liveness == WorkerLiveness::Live))
    }

    /// Deletes all runs of the tree with this root, and the notes that they wrote, unless one of them
    /// is still in use.
    async fn delete_run_tree(&self, root: RunId) -> Result<DeleteRunsOutcome, StoreError>;

    /// Returns the call that has claimed the effect key with this hash. `None` if the key is free.
    async fn effect_key(&self, key: Hash) -> Result<Option<ClaimedEffectKey>, StoreError>;

    /// Frees the effect key of a call of this run whose outcome is unknown, and stores the text of
    /// `freed` with the run. Returns `false` if the call holds no such key.
    async fn free_effect_key(&self, run: RunId, freed: LateToolResult) -> Result<bool, StoreError>;

    /// Stores a tool result that arrived after its run had ended.
    async fn save_late_tool_result(
        &self,
        run: RunId,
        result: LateToolResult,
    ) -> Result<(), StoreError>;

    async fn late_tool_results(&self, run: RunId) -> Result<Vec<LateToolResult>, StoreError>;

    /// Reads the events of all journals after a global sequence number, in commit order.
    async fn read_all_journals(
        &self,
        after: GlobalSeq,
        limit: usize,
    ) -> Result<GlobalJournalPage, StoreError>;

    /// Returns the runs whose journals have grown since a global sequence number, without the
    /// events.
    async fn changed_runs_since(
        &self,
        after: GlobalSeq,
        limit: usize,
    ) -> Result<ChangedRuns, StoreError>;

    /// Returns the global sequence number of the store's last event.
    async fn last_global_seq(&self) -> Result<GlobalSeq, StoreError>;

    /// Returns the outbox messages for this endpoint that are due for delivery, oldest first.
    async fn due_outbox_messages(
        &self,
        endpoint: &str,
        limit: usize,
    ) -> Result<Vec<DueOutboxMessage>, StoreError>;

    /// Marks an outbox message as delivered, or schedules another attempt after the given delay.
    async fn record_outbox_attempt(
        &self,
        id: u64,
        retry_delay: Option<Millis>,
    ) -> Result<(), StoreError>;

    /// Blocks requests to a model provider (`account` is its name) for the given duration.
    async fn block_provider(&self, account: &str, duration: Millis) -> Result<(), StoreError>;

    /// Ends the block of requests to a model provider (`account` is its name). Does nothing if they
    /// are not blocked.
    async fn unblock_provider(&self, account: &str) -> Result<(), StoreError>;

    /// Returns the time until which requests to a model provider (`account` is its name) are
    /// blocked. `None` means that they are not blocked.
    async fn provider_blocked_until(&self, account: &str) -> Result<Option<Timestamp>, StoreError>;

    /// Returns the newest checkpoint (saved state) of a run that was computed by code with this
    /// hash.
    async fn newest_checkpoint(
        &self,
        run: RunId,
        fold_hash: &str,
    ) -> Result<Option<RunCheckpoint>, StoreError>;

    /// Returns the current time of the store's clock.
    async fn now(&self) -> Result<Timestamp, StoreError>;
}

/// Outcome of a request to delete the runs of a tree. Unless they are deleted, nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeleteRunsOutcome {
    Deleted(DeletedRuns),
    NotFound,
    /// This run of the tree has not ended.
    Open(RunId),
    /// This sandbox of a run of the tree still exists.
    HasSandbox(SandboxId),
    /// The external inbox of this run has not been notified of the run's end.
    Undelivered(RunId),
}

/// Runs that were deleted, and what else was deleted or kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeletedRuns {
    /// Deleted runs, by id.
    pub runs: Vec<RunId>,
    /// Number of deleted notes that the runs wrote.
    pub notes: u64,
    /// Number of retries and forks of the root, which are kept.
    pub continued_by: u64,
}

/// A timer whose due time has passed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueTimer {
    pub timer: TimerId,
    /// Run that is notified when the timer fires.
    pub run: RunId,
    /// Purpose of the timer, which determines what happens when it fires.
    pub kind: TimerKind,
    /// Time at which the timer became due.
    pub due: Timestamp,
    /// Whether the run has ended, so that the timer has no effect.
    pub run_ended: bool,
    /// Current row of the timer's gate. `None` if the timer belongs to no gate or the gate is
    /// closed.
    pub open_gate: Option<Box<GateRow>>,
}

/// Numbers of repaired rows by kind. Any number above 0 is evidence of a bug.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepairedRowCounts {
    /// Number of ready runs that were missing from the ready queue.
    pub ready_without_row: u64,
    /// Number of runs in the ready queue that were not ready.
    pub row_without_ready: u64,
    /// Number of parked runs that nothing could wake.
    pub parked_without_waker: u64,
    /// Number of lanes that were held by a run that had ended.
    pub lane_stuck: u64,
    /// Number of open gates of runs that had ended.
    pub gate_of_ended: u64,
    /// Number of slots (permits to run a sandbox) held without a running or starting sandbox.
    pub slot_leaked: u64,
}

impl RepairedRowCounts {
    /// Returns whether no row had to be repaired.
    pub fn is_all_zero(self) -> bool {
        self == Self::default()
    }
}

/// Filter for token usage and cost.
#[derive(Debug, Clone, Copy)]
pub struct UsageQuery {
    /// Restricts the usage to model requests at this time or later.
    pub since: Timestamp,
    /// Maximum number of sums, the newest days first.
    pub limit: usize,
}

/// Token usage and cost of one agent with one model on one day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageSum {
    /// Start of the day, in UTC.
    pub day: Timestamp,
    pub agent: AgentName,
    /// Name of the model that was used.
    pub model: String,
    /// Number of requests to the model.
    pub calls: u64,
    /// Tokens used by the requests.
    pub usage: Usage,
    /// Total cost of the requests, without those whose cost is unknown.
    pub cost: MicroUsd,
    /// Number of requests whose cost is unknown.
    pub unpriced: u64,
}

/// Number of microseconds of a day.
pub const DAY_MICROS: i64 = 24 * 60 * 60 * 1_000_000;

/// State of a lane, in which runs are executed one at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneRow {
    pub lane: LaneKey,
    /// Run that holds the lane. `None` means that the lane is free.
    pub holder: Option<RunId>,
    /// Number of runs in the lane, including the run that holds the lane.
    pub depth: u32,
    /// Whether the lane is paused, so that no run of it starts.
    pub paused: bool,
}

impl LaneRow {
    /// Returns the state of a lane that no run has entered and nobody has paused.
    pub const fn empty(lane: LaneKey) -> Self {
        Self { lane, holder: None, depth: 0, paused: false }
    }

    /// Returns whether a run holds the lane.
    pub const fn is_busy(&self) -> bool {
        self.holder.is_some()
    }

    /// Returns the number of runs that wait for the lane, without the run that holds it.
    pub fn waiting_run_count(&self) -> u32 {
        self.depth.saturating_sub(u32::from(self.is_busy()))
    }
}

/// Number of runs in an inbox by status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxRunCounts {
    pub inbox: InboxName,
    /// Number of runs that no worker has claimed yet.
    pub pending: u64,
    /// Number of runs that a worker drives or that are ready to continue.
    pub running: u64,
    /// Number of runs that wait, are blocked or are paused.
    pub waiting: u64,
    /// Number of failed runs that no later run retries.
    pub failed: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerRow {
    pub worker: WorkerId,
    /// Machine the worker runs on.
    pub host: String,
    /// Version of the program that the worker runs.
    pub build: String,
    /// Inboxes from which the worker claims runs.
    pub inboxes: Vec<InboxName>,
    /// Task types that the worker claims. Empty means all types.
    pub types: Vec<String>,
    /// Whether the worker is live, draining or dead.
    pub liveness: WorkerLiveness,
    /// Time of the worker's last heartbeat.
    pub heartbeat_at: Timestamp,
    /// Time without a heartbeat after which the worker counts as dead.
    pub ttl: Millis,
    /// Number of runs that the worker has currently claimed.
    pub runs: u64,
}

/// Sequence number of an event over all journals of a store, in commit order. It never
/// decreases, even after events have been deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GlobalSeq(pub u64);

/// Page of the events of all journals, in commit order.
#[derive(Debug, Clone, Default)]
pub struct GlobalJournalPage {
    /// Journal entries with their global sequence numbers.
    pub entries: Vec<(GlobalSeq, JournalEntry)>,
}

/// Runs whose journals have grown since a global sequence number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangedRuns {
    /// Runs whose journals have grown, each once, with the sequence number of the last event that
    /// was read from its journal.
    pub runs: Vec<(RunId, Seq)>,
    /// Global sequence number up to which the journals were read.
    pub end: GlobalSeq,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueOutboxMessage {
    pub id: u64,
    /// Run that sent the message.
    pub run: RunId,
    /// Destination and content of the message.
    pub row: OutboxRow,
    /// Number of delivery attempts so far.
    pub attempts: u32,
}
