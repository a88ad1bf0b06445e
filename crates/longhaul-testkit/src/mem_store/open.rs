//! Runs come to be: by a caller's request, or by another run's facts.
//!
//! Never: a part of a request.

use std::sync::Arc;

use longhaul_core::change::{NewRun, TimerKind};
use longhaul_core::id::{Epoch, LaneKey, RunId, Seq, TimerId};
use longhaul_core::port::records::BudgetAccount;
use longhaul_core::port::store::{Idempotency, OpenOutcome, OpenRequest, Refused, StoreError};
use longhaul_core::task::Start;
use longhaul_core::time::Millis;
use longhaul_core::usage::{MicroUsd, Usage};

use crate::mem_store::lane::LaneLimit;
use crate::mem_store::rows::{Head, IdempotentOpen, RunTotals, State, Timer};
use crate::mem_store::tx::{ChangeResult, JournalAppend, Rollback, Tx};

/// How a run comes to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunOrigin {
    /// By itself: it takes its own lane.
    Run,
    /// As a chain's next step: it lives in its root's lane.
    Step,
}

impl Tx<'_> {
    /// Opens runs: all of them or none.
    pub(crate) fn open(&mut self, ask: OpenRequest) -> Result<OpenOutcome, Rollback<OpenOutcome>> {
        // The key comes first: a request that was carried out is answered as it
        // was then, however full its lane is by now.
        if let Some(before) = ask.idempotency.as_ref().and_then(|key| self.earlier_response(key)) {
            return Ok(before);
        }
        let runs: Vec<RunId> = ask.runs.iter().map(|run| run.id).collect();
        for blob in ask.blobs {
            self.tables.definitions.insert(blob.hash(), blob.content.clone());
            let hash = self.put_blob(blob.content);
            for run in &runs {
                self.tables.blob_refs.insert((*run, hash), ());
            }
        }
        for run in ask.runs {
            self.open_run(run, RunOrigin::Run).map_err(map_refusal)?;
        }
        if let Some(key) = ask.idempotency {
            let remembered = IdempotentOpen {
                body: key.body_hash,
                runs: runs.clone(),
                until: self.now.plus(key.ttl),
            };
            self.tables.idempotency_keys.insert((key.principal, key.key), remembered);
        }
        Ok(OpenOutcome::Created(runs))
    }

    fn earlier_response(&self, key: &Idempotency) -> Option<OpenOutcome> {
        let place = (key.principal.clone(), key.key.clone());
        let known =
            self.tables.idempotency_keys.get(&place).filter(|known| known.until > self.now)?;
        Some(if known.body == key.body_hash {
            OpenOutcome::Existing(known.runs.clone())
        } else {
            OpenOutcome::KeyReused
        })
    }

    /// One run with the first facts of its journal.
    pub(crate) fn open_run(&mut self, new: NewRun, how: RunOrigin) -> ChangeResult {
        let NewRun { id, task, events, lane_depth_max } = new;
        if self.tables.heads.contains(&id) {
            return Err(Rollback::Error(duplicate_run(id)));
        }
        let start = task.start;
        if task.root == id {
            let account = BudgetAccount {
                cap_micro_usd: task.policy.budget.micro_usd,
                cap_tokens: task.policy.budget.tokens,
                ..BudgetAccount::default()
            };
            self.tables.accounts.insert(id, account);
        }
        let lane = task.lane.clone().filter(|_| how == RunOrigin::Run);
        self.tables.heads.insert(id, self.new_head(task, lane));
        let growth = JournalAppend { run: id, epoch: Epoch(0), events: &events };
        self.append_events(&growth)?;
        match start {
            Start::Now => self.enter_lane(id, LaneLimit::Depth(lane_depth_max)),
            Start::At(due) => {
                let timer = Timer { run: id, due, kind: TimerKind::Start };
                self.arm(TimerId::derive(id.bits(), "start", self.now), timer);
                Ok(())
            }
            Start::AfterBatch => Ok(()),
        }
    }

    fn new_head(&self, task: longhaul_core::task::TaskSpec, lane: Option<LaneKey>) -> Head {
        let reason = match task.start {
            // Nobody sees this word: the run enters lane or queue before the commit.
            Start::Now => "start",
            Start::At(_) => "start_at",
            Start::AfterBatch => "batch",
        };
        Head {
            task: Arc::new(task),
            state: State::Parked { reason, blocked: false },
            epoch: Epoch(0),
            last_seq: Seq::START,
            format: 0,
            lane,
            lane_position: None,
            totals: RunTotals {
                turns: 0,
                usage: Usage::default(),
                cost: Some(MicroUsd::ZERO),
                active: Millis::ZERO,
            },
            created_at: self.now,
            started_at: None,
            finished_at: None,
        }
    }
}

fn map_refusal(undo: Rollback<Refused>) -> Rollback<OpenOutcome> {
    match undo {
        Rollback::Answer(Refused::LaneFull(lane)) => Rollback::Answer(OpenOutcome::LaneFull(lane)),
        // Opening a run asks one row only, the lane's.
        Rollback::Answer(other) => Rollback::Error(StoreError::Closed {
            at: "memory".to_owned(),
            why: format!("opening a run was refused by {other:?}"),
        }),
        Rollback::Error(fault) => Rollback::Error(fault),
    }
}

fn duplicate_run(run: RunId) -> StoreError {
    StoreError::Database { at: "memory".to_owned(), source: format!("{run} exists already").into() }
}
