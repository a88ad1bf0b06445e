//! Opens runs, for a caller's request or for events of another run. A request opens all its
//! runs or none.

use std::sync::Arc;

use longhaul_core::change::{LaneEntryPolicy, NewRun, TimerKind};
use longhaul_core::id::{Epoch, LaneKey, RunId, Seq, TimerId};
use longhaul_core::policy::budget::BudgetAccount;
use longhaul_core::port::store::{
    AppendRefusalReason, CreateRunsOutcome, CreateRunsRequest, IdempotencyRecord, StoreError,
};
use longhaul_core::task::{EarliestStart, OPEN_DESCENDANTS_MAX};
use longhaul_core::time::Millis;
use longhaul_core::usage::{MicroUsd, Usage};
use longhaul_core::wait::WaitKind;

use crate::mem_store::lane::LaneLimit;
use crate::mem_store::rows::{Head, IdempotentOpen, RunTotals, State, Timer};
use crate::mem_store::tx::{ChangeResult, JournalAppend, Rollback, Tx, refuse};

/// How a run is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunOrigin {
    /// Independently: the run takes its own lane.
    Run,
    /// As the next step of a chain: the run uses the lane of its root.
    Step,
}

impl Tx<'_> {
    /// Opens all runs of a request, or none.
    pub(crate) fn open(
        &mut self,
        request: CreateRunsRequest,
    ) -> Result<CreateRunsOutcome, Rollback<CreateRunsOutcome>> {
        // The idempotency key is checked first: a repeated request gets the first result, even
        // if its lane is full now.
        if let Some(before) =
            request.idempotency.as_ref().and_then(|key| self.earlier_response(key))
        {
            return Ok(before);
        }
        let runs: Vec<RunId> = request.runs.iter().map(|run| run.id).collect();
        for blob in request.blobs {
            self.tables.definitions.insert(blob.hash(), blob.content.clone());
            let hash = self.put_blob(blob.content);
            for run in &runs {
                self.tables.blob_refs.insert((*run, hash), ());
            }
        }
        for run in request.runs {
            self.open_run(run, RunOrigin::Run).map_err(map_refusal)?;
        }
        if let Some(key) = request.idempotency {
            self.save_key(key, runs.clone());
        }
        Ok(CreateRunsOutcome::Created(runs))
    }

    fn save_key(&mut self, key: IdempotencyRecord, runs: Vec<RunId>) {
        let until = key.ttl.map(|ttl| self.now.plus(ttl));
        let row = IdempotentOpen { body: key.body_hash, runs, until };
        self.tables.idempotency_keys.insert((key.principal, key.key), row);
    }

    /// Saves the idempotency key of a task that is added to this run as a message.
    pub(crate) fn save_idempotency_key_of_added_task(
        &mut self,
        run: RunId,
        key: IdempotencyRecord,
    ) -> ChangeResult {
        if self.earlier_response(&key).is_some() {
            return refuse(AppendRefusalReason::SubmitKeyUsed);
        }
        self.save_key(key, vec![run]);
        Ok(())
    }

    fn earlier_response(&self, key: &IdempotencyRecord) -> Option<CreateRunsOutcome> {
        let table_key = (key.principal.clone(), key.key.clone());
        let existing = self
            .tables
            .idempotency_keys
            .get(&table_key)
            .filter(|existing| existing.until.is_none_or(|until| until > self.now))?;
        Some(if existing.body == key.body_hash {
            CreateRunsOutcome::Existing(existing.runs.clone())
        } else {
            CreateRunsOutcome::KeyReused
        })
    }

    /// Opens one run with the first events of its journal.
    pub(crate) fn open_run(&mut self, new: NewRun, origin: RunOrigin) -> ChangeResult {
        let NewRun { id, task, events, copied_journal, steers, lane_depth_max, lane_entry, caps } =
            new;
        if self.tables.heads.contains(&id) {
            return Err(Rollback::Error(duplicate_run(id)));
        }
        if task.root != id && origin == RunOrigin::Run {
            let open = self.open_runs_of_tree(task.root);
            let open_below = open - usize::from(!self.is_ended(task.root));
            if open_below >= OPEN_DESCENDANTS_MAX {
                return refuse(AppendRefusalReason::TreeFull);
            }
        }
        let start = task.start;
        // A retry or a fork uses the account of the run that it goes on from.
        if task.root == id && task.earlier_account().is_none() {
            let account = BudgetAccount {
                cap_micro_usd: task.policy.budget.micro_usd,
                cap_tokens: task.policy.budget.tokens,
                ..BudgetAccount::default()
            };
            self.tables.accounts.insert(id, account);
        }
        if let Some(position) = &task.chain {
            self.tables.newest_of_chain.insert(position.first_run, id);
        }
        let lane = task.lane.clone().filter(|_| origin == RunOrigin::Run);
        let collect_window = match lane_entry {
            LaneEntryPolicy::IfNoneWaits { window } => Some(window),
            LaneEntryPolicy::Enqueue | LaneEntryPolicy::IfEmpty | LaneEntryPolicy::Interrupt => {
                None
            }
        };
        let head = Head { collect_window, ..self.new_head(task, lane) };
        self.tables.heads.insert(id, head);
        let (first, others) = events.split_at(1.min(events.len()));
        self.append_events(&JournalAppend { run: id, epoch: Epoch(0), events: first })?;
        if let Some(copied) = copied_journal {
            self.copy_journal(copied, id)?;
        }
        self.append_events(&JournalAppend { run: id, epoch: Epoch(0), events: others })?;
        for steer in steers {
            let row_id = self.tables.next_row_id();
            self.tables.steers.insert((id, row_id), steer);
        }
        match start {
            EarliestStart::Now => {
                self.check_lane_entry(id, lane_entry)?;
                let limit = if lane_entry == LaneEntryPolicy::Interrupt {
                    self.set_timers_to_cancel_runs_in_lane(id);
                    LaneLimit::None
                } else {
                    LaneLimit::Depth(lane_depth_max)
                };
                self.enter_lane(id, limit)?;
            }
            EarliestStart::At(due) => {
                let timer = Timer { run: id, due, kind: TimerKind::Start };
                self.arm(TimerId::derive(id.bits(), "start", self.now), timer);
            }
            EarliestStart::AfterBatch => {}
        }
        self.count_new_run_in_caps(&caps)
    }

    fn new_head(&self, task: longhaul_core::task::TaskSpec, lane: Option<LaneKey>) -> Head {
        let reason = match task.start {
            // This reason is never visible: the run enters its lane or the queue before the
            // commit.
            EarliestStart::Now => "start",
            EarliestStart::At(_) => WaitKind::StartAt.code(),
            EarliestStart::AfterBatch => WaitKind::Batch.code(),
        };
        Head {
            task: Arc::new(task),
            state: State::Parked { reason, blocked: false },
            epoch: Epoch(0),
            last_seq: Seq::START,
            format: 0,
            lane,
            lane_position: None,
            collect_window: None,
            totals: RunTotals {
                turns: 0,
                usage: Usage::default(),
                cost: Some(MicroUsd::ZERO),
                active: Millis::ZERO,
            },
            progress: None,
            created_at: self.now,
            started_at: None,
            finished_at: None,
        }
    }
}

fn map_refusal(rollback: Rollback<AppendRefusalReason>) -> Rollback<CreateRunsOutcome> {
    match rollback {
        Rollback::Answer(AppendRefusalReason::LaneFull(lane)) => {
            Rollback::Answer(CreateRunsOutcome::LaneFull(lane))
        }
        Rollback::Answer(AppendRefusalReason::LaneBusy(busy)) => {
            Rollback::Answer(CreateRunsOutcome::LaneBusy(busy))
        }
        Rollback::Answer(AppendRefusalReason::OverCap(refusal)) => {
            Rollback::Answer(CreateRunsOutcome::OverCap(refusal))
        }
        // Opening a run can be refused only by its lane or by a spend cap.
        Rollback::Answer(other) => Rollback::Error(StoreError::Closed {
            location: "memory".to_owned(),
            reason: format!("opening a run was refused by {other:?}"),
        }),
        Rollback::Error(error) => Rollback::Error(error),
    }
}

fn duplicate_run(run: RunId) -> StoreError {
    StoreError::Database {
        location: "memory".to_owned(),
        source: format!("{run} already exists").into(),
    }
}
