//! Lanes: their members, and the run whose turn it is.
//!
//! Invariant: at most one run of a lane can run at a time.

use longhaul_core::change::{LaneEntryPolicy, TimerKind};
use longhaul_core::id::{LaneKey, RunId, TimerId};
use longhaul_core::port::store::{AppendRefusalReason, BusyLane};
use longhaul_core::time::Timestamp;
use longhaul_core::wait::WaitKind;

use crate::mem_store::rows::{State, Timer};
use crate::mem_store::tx::{BrokenRule, ChangeResult, Tx, refuse};

/// Whether a lane may reject a run.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LaneLimit {
    /// Maximum number of runs in the lane, including this one.
    Depth(u32),
    /// No limit: the run was admitted before, or interrupts the runs in the lane.
    None,
}

impl Tx<'_> {
    /// Adds a run to its lane, or to the ready queue if it has none.
    pub(crate) fn enter_lane(&mut self, run: RunId, limit: LaneLimit) -> ChangeResult {
        let lane = self.tables.heads.get(&run).and_then(|head| head.lane.clone());
        let Some(key) = lane else {
            self.set_state(run, State::Ready);
            return Ok(());
        };
        let mut lane = self.tables.lanes.get(&key).cloned().unwrap_or_default();
        if let LaneLimit::Depth(max) = limit
            && lane.depth >= max
        {
            return refuse(AppendRefusalReason::LaneFull(key));
        }
        let position = lane.next_position;
        lane.next_position += 1;
        lane.depth += 1;
        let is_free = lane.holder.is_none() && !lane.paused;
        if is_free {
            lane.holder = Some(run);
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
        let holder = self.tables.lanes.get(&lane).and_then(|lane| lane.holder);
        let is_holder = holder == Some(run);
        self.set_state(run, if is_holder { State::Ready } else { State::LaneWait });
    }

    /// Removes a run from its lane. If the run held the lane, the next run becomes ready.
    pub(crate) fn leave_lane(&mut self, run: RunId) {
        let head = self.tables.heads.get(&run);
        let Some((key, position)) = head.and_then(|head| head.lane.clone().zip(head.lane_position))
        else {
            return;
        };
        self.tables.heads.update(&run, |head| head.lane_position = None);
        self.tables.lane_members.remove(&(key.clone(), position));
        let mut was_holder = false;
        self.tables.lanes.update(&key, |lane| {
            lane.depth = lane.depth.saturating_sub(1);
            was_holder = lane.holder == Some(run);
        });
        if was_holder {
            self.promote(&key);
        }
    }

    /// Pauses or resumes a lane. The holder of a paused lane continues if a worker has claimed it
    /// before, and otherwise waits again. A run that is paused itself stays paused.
    pub(crate) fn set_lane_paused(&mut self, key: &LaneKey, paused: bool) {
        let mut lane = self.tables.lanes.get(key).cloned().unwrap_or_default();
        lane.paused = paused;
        let unclaimed = lane.holder.filter(|run| {
            self.tables.heads.get(run).is_some_and(|head| {
                let is_idle =
                    matches!(head.state, State::Ready | State::Parked { .. } | State::Paused);
                head.epoch.0 == 0 && is_idle
            })
        });
        if let (true, Some(run)) = (paused, unclaimed) {
            if self.tables.heads.get(&run).is_some_and(|head| head.state != State::Paused) {
                self.disarm_start(run);
                self.set_state(run, State::LaneWait);
            }
            lane.holder = None;
        }
        let is_free = lane.holder.is_none();
        self.tables.lanes.insert(key.clone(), lane);
        if is_free {
            self.promote(key);
        }
    }

    /// Gives the lane to its first run that has not ended, or to nobody if the lane is paused.
    pub(crate) fn promote(&mut self, key: &LaneKey) {
        if self.tables.lanes.get(key).is_some_and(|lane| lane.paused) {
            self.tables.lanes.update(key, |lane| lane.holder = None);
            return;
        }
        let range = (key.clone(), 0)..=(key.clone(), u64::MAX);
        let members = self.tables.lane_members.range(range).map(|(_, run)| *run);
        let open: Vec<RunId> = members.filter(|run| !self.is_ended(*run)).take(2).collect();
        let next = open.first().copied();
        self.tables.lanes.update(key, |lane| lane.holder = next);
        let start_count = match self.broken_rule {
            Some(BrokenRule::LanePromotion) => 2,
            Some(
                BrokenRule::Fence
                | BrokenRule::Park
                | BrokenRule::Driver
                | BrokenRule::ChainLane
                | BrokenRule::SandboxSlot,
            )
            | None => 1,
        };
        for run in open.into_iter().take(start_count) {
            let state = self.tables.heads.get(&run).map(|head| &head.state);
            if state == Some(&State::LaneWait) {
                self.start_after_window(run);
            }
        }
    }

    /// Makes a run ready, unless it collects messages and the last one is too recent. The last
    /// event of such a run is its last message.
    fn start_after_window(&mut self, run: RunId) {
        self.disarm_start(run);
        let head = self.tables.heads.get(&run).filter(|head| head.epoch.0 == 0);
        let due = head.and_then(|head| {
            let window = head.collect_window?;
            let last = self.tables.journal.get(&(run, head.last_seq))?;
            let due = last.at.min(self.now).plus(window);
            Some((due, window)).filter(|(due, _)| *due > self.now)
        });
        match due {
            None => self.set_state(run, State::Ready),
            Some((due, window)) => {
                self.set_state(
                    run,
                    State::Parked { reason: WaitKind::Collect.code(), blocked: false },
                );
                let timer = Timer { run, due, kind: TimerKind::Delay(window) };
                self.arm(TimerId::derive(run.bits(), WaitKind::Collect.code(), due), timer);
            }
        }
    }

    /// Starts the collect window of a run anew, if the run is parked until its window has passed.
    pub(crate) fn restart_message_collect_window(&mut self, run: RunId) {
        let state = self.tables.heads.get(&run).map(|head| &head.state);
        if state.is_some_and(|state| state.is_parked_for(WaitKind::Collect)) {
            self.start_after_window(run);
        }
    }

    /// Refuses a run whose lane contains runs that it must not queue behind.
    pub(crate) fn check_lane_entry(&self, run: RunId, entry: LaneEntryPolicy) -> ChangeResult {
        let lane = self.tables.heads.get(&run).and_then(|head| head.lane.clone());
        let Some(key) = lane else {
            return Ok(());
        };
        let Some(last) = self.lane_runs(&key).last().copied() else {
            return Ok(());
        };
        let is_refused = match entry {
            LaneEntryPolicy::Enqueue | LaneEntryPolicy::Interrupt => false,
            LaneEntryPolicy::IfEmpty => true,
            LaneEntryPolicy::IfNoneWaits { .. } => {
                self.tables.heads.get(&last).is_some_and(|head| head.epoch.0 == 0)
            }
        };
        if !is_refused {
            return Ok(());
        }
        let holder = self.tables.lanes.get(&key).and_then(|lane| lane.holder);
        refuse(AppendRefusalReason::LaneBusy(BusyLane { lane: key, holder, last }))
    }

    /// Arms a timer for every run in the lane of `newer` that cancels it.
    pub(crate) fn set_timers_to_cancel_runs_in_lane(&mut self, newer: RunId) {
        let lane = self.tables.heads.get(&newer).and_then(|head| head.lane.clone());
        let Some(key) = lane else {
            return;
        };
        for run in self.lane_runs(&key).into_iter().rev() {
            let head = self.tables.heads.get(&run);
            let chain = head.and_then(|head| Some(head.task.chain.as_ref()?.first_run));
            let newest = chain.and_then(|first| self.tables.newest_of_chain.get(&first));
            let run = newest.copied().unwrap_or(run);
            let timer = TimerId::derive(run.bits(), "interrupt", Timestamp::from_micros(0));
            if !self.tables.timers.contains(&timer) {
                let kind = TimerKind::LaneInterrupted(newer);
                self.arm(timer, Timer { run, due: self.now, kind });
            } else if self.tables.heads.get(&run).is_some_and(|head| head.epoch.0 == 0) {
                // This run has not moved since it was interrupted, so the runs before it were, too.
                return;
            }
        }
    }

    /// Returns the runs in a lane, in order.
    fn lane_runs(&self, key: &LaneKey) -> Vec<RunId> {
        let range = (key.clone(), 0)..=(key.clone(), u64::MAX);
        self.tables.lane_members.range(range).map(|(_, run)| *run).collect()
    }

    /// Returns whether a run has ended or does not exist.
    pub(crate) fn is_ended(&self, run: RunId) -> bool {
        self.tables.heads.get(&run).is_none_or(|head| head.state.is_ended())
    }
}
