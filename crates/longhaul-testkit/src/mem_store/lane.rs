//! Lanes: their members, and the run whose turn it is.
//!
//! Invariant: at most one run of a lane can run at a time.

use longhaul_core::id::{LaneKey, RunId};
use longhaul_core::port::store::RefusalReason;

use crate::mem_store::rows::State;
use crate::mem_store::tx::{BrokenRule, ChangeResult, Tx, refuse};

/// Whether a lane may reject a run.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LaneLimit {
    /// Maximum number of runs in the lane, including this one.
    Depth(u32),
    /// No limit: a run that was admitted once is admitted again.
    None,
}

impl Tx<'_> {
    /// Adds a run to its lane, or to the ready queue if it has none.
    pub(crate) fn enter_lane(&mut self, run: RunId, bound: LaneLimit) -> ChangeResult {
        let lane = self.tables.heads.get(&run).and_then(|head| head.lane.clone());
        let Some(key) = lane else {
            self.set_state(run, State::Ready);
            return Ok(());
        };
        let mut lane = self.tables.lanes.get(&key).cloned().unwrap_or_default();
        if let LaneLimit::Depth(max) = bound
            && lane.depth >= max
        {
            return refuse(RefusalReason::LaneFull(key));
        }
        let position = lane.next_position;
        lane.next_position += 1;
        lane.depth += 1;
        let is_free = lane.head.is_none();
        if is_free {
            lane.head = Some(run);
        }
        self.tables.lanes.insert(key.clone(), lane);
        self.tables.lane_members.insert((key, position), run);
        self.tables.heads.update(&run, |head| head.lane_position = Some(position));
        self.set_state(run, if is_free { State::Ready } else { State::LaneWait });
        Ok(())
    }

    /// Makes an idle run ready. A run with a lane waits there for its turn.
    pub(crate) fn wake(&mut self, run: RunId) {
        let Some(head) = self.tables.heads.get(&run) else {
            return;
        };
        let Some(lane) = head.lane.clone() else {
            return self.set_state(run, State::Ready);
        };
        if head.lane_position.is_none() {
            // Without a limit nothing is refused.
            _ = self.enter_lane(run, LaneLimit::None);
            return;
        }
        let holder = self.tables.lanes.get(&lane).and_then(|lane| lane.head);
        let is_turn = holder == Some(run);
        self.set_state(run, if is_turn { State::Ready } else { State::LaneWait });
    }

    /// Removes a run from its lane. If it held the lane, the next run becomes ready.
    pub(crate) fn leave_lane(&mut self, run: RunId) {
        let head = self.tables.heads.get(&run);
        let Some((key, position)) = head.and_then(|head| head.lane.clone().zip(head.lane_position))
        else {
            return;
        };
        self.tables.heads.update(&run, |head| head.lane_position = None);
        self.tables.lane_members.remove(&(key.clone(), position));
        let mut held = false;
        self.tables.lanes.update(&key, |lane| {
            lane.depth = lane.depth.saturating_sub(1);
            held = lane.head == Some(run);
        });
        if held {
            self.promote(&key);
        }
    }

    /// Gives the lane to its first run that has not ended.
    pub(crate) fn promote(&mut self, key: &LaneKey) {
        let everybody = (key.clone(), 0)..=(key.clone(), u64::MAX);
        let members = self.tables.lane_members.range(everybody).map(|(_, run)| *run);
        let open: Vec<RunId> = members.filter(|run| !self.is_ended(*run)).take(2).collect();
        let next = open.first().copied();
        self.tables.lanes.update(key, |lane| lane.head = next);
        let goes = match self.broken_rule {
            Some(BrokenRule::LanePromotion) => 2,
            Some(BrokenRule::Fence | BrokenRule::Park | BrokenRule::Driver) | None => 1,
        };
        for run in open.into_iter().take(goes) {
            let state = self.tables.heads.get(&run).map(|head| &head.state);
            if state == Some(&State::LaneWait) {
                self.set_state(run, State::Ready);
            }
        }
    }

    /// Returns whether a run has ended or does not exist.
    pub(crate) fn is_ended(&self, run: RunId) -> bool {
        self.tables.heads.get(&run).is_none_or(|head| head.state.is_ended())
    }
}
