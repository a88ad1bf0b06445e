//! Runs come to be: by a caller's request, or by another run's facts.
//!
//! Never: a part of a request.

use std::sync::Arc;

use longhaul_core::change::{NewRun, TimerKind};
use longhaul_core::id::{Epoch, LaneKey, RunId, Seq, TimerId};
use longhaul_core::port::shelves::Account;
use longhaul_core::port::store::{Idempotency, OpenAsk, Opened, Refused, StoreError};
use longhaul_core::task::Start;
use longhaul_core::time::Millis;
use longhaul_core::usage::{Micros, Usage};

use crate::mem_store::lane::Bound;
use crate::mem_store::rows::{Head, Remembered, State, Sums, Timer};
use crate::mem_store::tx::{Changed, Growth, Tx, Undo};

/// How a run comes to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opening {
    /// By itself: it takes its own lane.
    Run,
    /// As a chain's next step: it lives in its root's lane.
    Step,
}

impl Tx<'_> {
    /// Opens runs: all of them or none.
    pub(crate) fn open(&mut self, ask: OpenAsk) -> Result<Opened, Undo<Opened>> {
        // The key comes first: a request that was carried out is answered as it
        // was then, however full its lane is by now.
        if let Some(before) = ask.idempotency.as_ref().and_then(|key| self.before(key)) {
            return Ok(before);
        }
        let runs: Vec<RunId> = ask.runs.iter().map(|run| run.id).collect();
        for blob in ask.blobs {
            self.tables
                .definitions
                .put(blob.hash(), blob.content.clone());
            let hash = self.keep_content(blob.content);
            for run in &runs {
                self.tables.blob_refs.put((*run, hash), ());
            }
        }
        for run in ask.runs {
            self.open_run(run, Opening::Run).map_err(say_opened)?;
        }
        if let Some(key) = ask.idempotency {
            let remembered = Remembered {
                body: key.body,
                runs: runs.clone(),
                until: self.now.plus(key.keep),
            };
            self.tables.keys.put((key.principal, key.key), remembered);
        }
        Ok(Opened::New(runs))
    }

    fn before(&self, key: &Idempotency) -> Option<Opened> {
        let place = (key.principal.clone(), key.key.clone());
        let known = self
            .tables
            .keys
            .get(&place)
            .filter(|known| known.until > self.now)?;
        Some(if known.body == key.body {
            Opened::Before(known.runs.clone())
        } else {
            Opened::KeyReused
        })
    }

    /// One run with the first facts of its journal.
    pub(crate) fn open_run(&mut self, new: NewRun, how: Opening) -> Changed {
        let NewRun {
            id,
            task,
            events,
            lane_depth_max,
        } = new;
        if self.tables.heads.has(&id) {
            return Err(Undo::Fault(exists_already(id)));
        }
        let start = task.start;
        if task.root == id {
            let account = Account {
                cap_micros: task.policy.budget.micros,
                cap_tokens: task.policy.budget.tokens,
                ..Account::default()
            };
            self.tables.accounts.put(id, account);
        }
        let lane = task.lane.clone().filter(|_| how == Opening::Run);
        self.tables.heads.put(id, self.newborn(task, lane));
        let growth = Growth {
            run: id,
            epoch: Epoch(0),
            events: &events,
        };
        self.grow(&growth)?;
        match start {
            Start::Now => self.enter_lane(id, Bound::Depth(lane_depth_max)),
            Start::At(due) => {
                let timer = Timer {
                    run: id,
                    due,
                    what: TimerKind::Start,
                };
                self.arm(TimerId::derive(id.bits(), "start", self.now), timer);
                Ok(())
            }
            Start::AfterBatch => Ok(()),
        }
    }

    fn newborn(&self, task: longhaul_core::task::TaskSpec, lane: Option<LaneKey>) -> Head {
        let reason = match task.start {
            // Nobody sees this word: the run enters lane or queue before the commit.
            Start::Now => "start",
            Start::At(_) => "start_at",
            Start::AfterBatch => "batch",
        };
        Head {
            task: Arc::new(task),
            state: State::Parked {
                reason,
                blocked: false,
            },
            epoch: Epoch(0),
            last: Seq::START,
            format: 0,
            lane,
            place: None,
            sums: Sums {
                turns: 0,
                usage: Usage::default(),
                cost: Some(Micros::ZERO),
                active: Millis::ZERO,
            },
            created_at: self.now,
            started_at: None,
            finished_at: None,
        }
    }
}

fn say_opened(undo: Undo<Refused>) -> Undo<Opened> {
    match undo {
        Undo::Say(Refused::LaneFull(lane)) => Undo::Say(Opened::LaneFull(lane)),
        // Opening a run asks one row only, the lane's.
        Undo::Say(other) => Undo::Fault(StoreError::Closed {
            at: "memory".to_owned(),
            why: format!("opening a run was refused by {other:?}"),
        }),
        Undo::Fault(fault) => Undo::Fault(fault),
    }
}

fn exists_already(run: RunId) -> StoreError {
    StoreError::Database {
        at: "memory".to_owned(),
        source: format!("{run} exists already").into(),
    }
}
