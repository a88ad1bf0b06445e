//! Heads: the state of each run, and its position in the ready queue.
//!
//! Invariant: a run is in the queue if and only if its state is ready.

use longhaul_core::change::RunSchedulingUpdate;
use longhaul_core::event::{Event, RunsToWake};
use longhaul_core::id::RunId;
use longhaul_core::port::queue::QueuePosition;
use longhaul_core::port::store::RunRow;
use longhaul_core::status::{HeadState, Status};

use crate::mem_store::rows::{Head, ReadyKey, State};
use crate::mem_store::tx::{BrokenRule, Tx};

/// Returns the key of a run in the ready queue.
pub(crate) fn ready_key(run: RunId, head: &Head) -> ReadyKey {
    let rank = -i64::from(head.task.priority);
    (head.task.inbox.clone(), QueuePosition { rank, sort_key: 0, run })
}

impl Tx<'_> {
    /// Sets the state of a run, and updates the queue.
    pub(crate) fn set_state(&mut self, run: RunId, state: State) {
        let Some(head) = self.tables.heads.get(&run) else {
            return;
        };
        let key = ready_key(run, head);
        match (&head.state, &state) {
            (State::Ready, State::Ready) => {}
            (State::Ready, _) => _ = self.tables.ready.remove(&key),
            (_, State::Ready) => self.tables.ready.insert(key, ()),
            (_, _) => {}
        }
        self.tables.heads.update(&run, |head| head.state = state);
    }

    /// Applies the head update of a batch.
    pub(crate) fn set_head(&mut self, run: RunId, to: RunSchedulingUpdate) {
        match to {
            RunSchedulingUpdate::Park { reason, blocked, release_lane } => {
                self.set_state(run, State::Parked { reason, blocked });
                if release_lane {
                    self.leave_lane(run);
                }
            }
            RunSchedulingUpdate::Pause => self.set_state(run, State::Paused),
            RunSchedulingUpdate::Release => self.set_state(run, State::Ready),
            RunSchedulingUpdate::End { status, code, releases_lane } => {
                self.set_state(run, State::Ended { status, code });
                let now = self.now;
                let heads = &mut self.tables.heads;
                heads.update(&run, |head| head.finished_at = Some(now));
                let root = heads.get(&run).map(|head| head.task.root);
                let is_broken = self.broken_rule == Some(BrokenRule::ChainLane);
                let root = root.filter(|root| {
                    is_broken || releases_lane && self.open_runs_of_tree(*root) == 0
                });
                if let Some(root) = root {
                    self.leave_lane(root);
                }
            }
        }
    }

    /// Returns the number of open runs of a tree.
    pub(crate) fn open_runs_of_tree(&self, root: RunId) -> usize {
        let heads = self.tables.heads.iter().map(|(_, head)| head);
        heads.filter(|head| head.task.root == root && !head.state.is_ended()).count()
    }

    /// Wakes an idle run if the events of an outsider do so.
    pub(crate) fn wake_by_events(&mut self, run: RunId, events: &[Event]) {
        let wakes = |target| {
            events.iter().any(|event| event.runs_woken_by_outside_append() == Some(target))
        };
        let wakes_paused = wakes(RunsToWake::ParkedOrPaused);
        let wakes_parked = wakes_paused || wakes(RunsToWake::Parked);
        let is_woken = match self.tables.heads.get(&run).map(|head| &head.state) {
            Some(State::Parked { .. }) => wakes_parked,
            Some(State::Paused) => wakes_paused,
            Some(State::Ready | State::Leased(_) | State::LaneWait | State::Ended { .. })
            | None => false,
        };
        if is_woken {
            self.wake(run);
        }
    }
}

impl Head {
    /// Returns the row of the run for lists.
    pub(crate) fn row(&self, id: RunId) -> RunRow {
        let (status, reason, code) = self.status_columns();
        let task = &self.task;
        RunRow {
            id,
            agent: task.agent.clone(),
            definition: task.definition,
            status,
            reason: reason.map(str::to_owned),
            code,
            inbox: task.inbox.clone(),
            lane: task.lane.clone(),
            thread: task.thread.clone(),
            resource: task.resource.clone(),
            kind: task.kind.clone(),
            priority: task.priority,
            parent: task.parent,
            root: task.root,
            chain: None,
            submitter: task.submitter.clone(),
            title: task.title(),
            tags: task.tags.clone(),
            progress: self.progress.clone(),
            epoch: self.epoch,
            worker: match self.state {
                State::Leased(worker) => Some(worker),
                State::Ready
                | State::Parked { .. }
                | State::LaneWait
                | State::Paused
                | State::Ended { .. } => None,
            },
            last_seq: self.last_seq,
            turns: self.totals.turns,
            usage: self.totals.usage,
            cost: self.totals.cost,
            active: self.totals.active,
            created_at: self.created_at,
            started_at: self.started_at,
            finished_at: self.finished_at,
        }
    }

    fn status_columns(&self) -> (Status, Option<&'static str>, Option<String>) {
        let mut code = None;
        let state = match &self.state {
            State::Ready => HeadState::Ready,
            State::Leased(_) => HeadState::Leased,
            State::Parked { reason, blocked } => {
                HeadState::Parked { reason: Some(reason), blocked: *blocked }
            }
            State::LaneWait => HeadState::LaneWait,
            State::Paused => HeadState::Paused,
            State::Ended { status, code: error_code } => {
                code.clone_from(error_code);
                HeadState::Ended(*status)
            }
        };
        let (status, reason) = state.status_and_reason(self.epoch.0 == 0);
        (status, reason, code)
    }
}
