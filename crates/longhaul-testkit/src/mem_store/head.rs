//! Heads: where a run stands, and its place in the queue, which follows from it.
//!
//! Never: a ready head without its place, or a place without a ready head.

use longhaul_core::change::HeadMove;
use longhaul_core::event::{Event, Wakes};
use longhaul_core::id::RunId;
use longhaul_core::port::store::RunRow;
use longhaul_core::status::Status;

use crate::mem_store::rows::{Head, ReadyKey, State};
use crate::mem_store::tx::Tx;

/// A run's place in its queue.
pub(crate) fn ready_key(run: RunId, head: &Head) -> ReadyKey {
    let rank = -i64::from(head.task.priority);
    (head.task.inbox.clone(), rank, 0, run)
}

impl Tx<'_> {
    /// Moves a head, and its place in the queue with it.
    pub(crate) fn move_to(&mut self, run: RunId, state: State) {
        let Some(head) = self.tables.heads.get(&run) else {
            return;
        };
        let key = ready_key(run, head);
        match (&head.state, &state) {
            (State::Ready, State::Ready) => {}
            (State::Ready, _) => _ = self.tables.ready.take(&key),
            (_, State::Ready) => self.tables.ready.put(key, ()),
            (_, _) => {}
        }
        self.tables.heads.change(&run, |head| head.state = state);
    }

    /// Carries out what the author of a batch decided about the head.
    pub(crate) fn set_head(&mut self, run: RunId, to: HeadMove) {
        match to {
            HeadMove::Park {
                reason,
                blocked,
                release_lane,
            } => {
                self.move_to(run, State::Parked { reason, blocked });
                if release_lane {
                    self.leave_lane(run);
                }
            }
            HeadMove::Pause => self.move_to(run, State::Paused),
            HeadMove::Release => self.move_to(run, State::Ready),
            HeadMove::End {
                status,
                code,
                frees_lane,
            } => {
                self.move_to(run, State::Ended { status, code });
                let now = self.now;
                let heads = &mut self.tables.heads;
                heads.change(&run, |head| head.finished_at = Some(now));
                let root = heads.get(&run).map(|head| head.task.root);
                if let Some(root) = root.filter(|_| frees_lane) {
                    self.leave_lane(root);
                }
            }
        }
    }

    /// What an outsider's facts do to a run that rests.
    pub(crate) fn hear(&mut self, run: RunId, events: &[Event]) {
        let wakes = |wanted| {
            events
                .iter()
                .any(|event| event.from_outside() == Some(wanted))
        };
        let rested = wakes(Wakes::Rested);
        let parked = rested || wakes(Wakes::Parked);
        let is_woken = match self.tables.heads.get(&run).map(|head| &head.state) {
            Some(State::Parked { .. }) => parked,
            Some(State::Paused) => rested,
            Some(State::Ready | State::Leased(_) | State::LaneWait | State::Ended { .. })
            | None => false,
        };
        if is_woken {
            self.wake(run);
        }
    }
}

impl Head {
    /// The run as lists show it.
    pub(crate) fn row(&self, id: RunId) -> RunRow {
        let (status, reason, code) = self.standing();
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
            submitter: task.submitter.clone(),
            epoch: self.epoch,
            worker: match self.state {
                State::Leased(worker) => Some(worker),
                State::Ready
                | State::Parked { .. }
                | State::LaneWait
                | State::Paused
                | State::Ended { .. } => None,
            },
            last: self.last,
            turns: self.sums.turns,
            usage: self.sums.usage,
            cost: self.sums.cost,
            active: self.sums.active,
            created_at: self.created_at,
            started_at: self.started_at,
            finished_at: self.finished_at,
        }
    }

    fn standing(&self) -> (Status, Option<&'static str>, Option<String>) {
        let unless_new = |status| match self.epoch.0 {
            0 => Status::Pending,
            _ => status,
        };
        match &self.state {
            State::Ready => (unless_new(Status::Running), Some("worker"), None),
            State::Leased(_) => (Status::Running, None, None),
            State::Parked { reason, blocked } => {
                let rests = if *blocked {
                    Status::Blocked
                } else {
                    Status::Waiting
                };
                (unless_new(rests), Some(reason), None)
            }
            State::LaneWait => (unless_new(Status::Waiting), Some("lane"), None),
            State::Paused => (Status::Paused, None, None),
            State::Ended { status, code } => (*status, None, code.clone()),
        }
    }
}
