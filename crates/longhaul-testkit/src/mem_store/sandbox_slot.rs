//! Sandboxes, their slots and the queue for them. A woken run stays in the queue until it acquires
//! a slot.
//!
//! Invariant: a provider never has more slots in use or kept for woken runs than it offers, and
//! ended runs are not in the queue.

use std::cmp::Reverse;

use longhaul_core::change::{
    RunSchedulingUpdate, SandboxFilter, SandboxRow, SandboxSlot, SandboxState, SlotQueueLength,
    TimerKind,
};
use longhaul_core::id::{AgentName, RunId, SandboxId, TimerId};
use longhaul_core::port::store::AppendRefusalReason;
use longhaul_core::wait::WaitKind;

use crate::mem_store::rows::{SlotWait, Tables, Timer};
use crate::mem_store::tx::{ChangeResult, Tx, refuse};

impl Tx<'_> {
    /// Replaces the row of a sandbox in the state `from` whose owner has ended, and releases its
    /// slot if its new state needs none.
    pub(crate) fn update_sandbox_of_ended_run(
        &mut self,
        row: SandboxRow,
        from: SandboxState,
    ) -> bool {
        let stored = self.tables.sandboxes.get(&row.event.sandbox);
        let matches = |stored: &SandboxRow| stored.owner == row.owner && stored.state == from;
        if !stored.is_some_and(matches) || !self.is_ended(row.owner) {
            return false;
        }
        if !row.state.holds_slot() {
            self.release_slot(row.event.sandbox);
        }
        self.set_sandbox(row);
        true
    }

    /// Acquires a slot for a sandbox and removes its run from the queue.
    pub(crate) fn acquire_slot(&mut self, run: RunId, slot: SandboxSlot) -> ChangeResult {
        if !self.tables.slots.contains(&slot.sandbox) {
            let kept = self.tables.woken_runs(&slot.provider).filter(|woken| *woken != run);
            if self.tables.slots_in_use(&slot.provider) + kept.count() >= slot.capacity as usize {
                return refuse(AppendRefusalReason::NoSlot);
            }
            let wait = self.tables.slot_waits.get(&run);
            if wait.is_some_and(|wait| wait.provider == slot.provider) {
                self.tables.slot_waits.remove(&run);
            }
            self.tables.slots.insert(slot.sandbox, slot.provider);
        }
        self.leave_slot_queue(run);
        Ok(())
    }

    /// Releases a slot and wakes the first waiting run.
    pub(crate) fn release_slot(&mut self, sandbox: SandboxId) {
        if let Some(provider) = self.tables.slots.remove(&sandbox) {
            self.wake_next_slot_waiter(&provider);
        }
    }

    /// Adds a run to the queue for a slot. A run that is queued already keeps its position.
    pub(crate) fn queue_for_slot(&mut self, run: RunId, provider: String) {
        if self.tables.slot_waits.get(&run).is_some_and(|wait| wait.provider == provider) {
            return;
        }
        self.leave_slot_queue(run);
        let head = self.tables.heads.get(&run).filter(|head| !head.state.is_ended());
        if let Some(task) = head.map(|head| &head.task) {
            let (priority, agent) = (task.priority, task.agent.clone());
            let wait = SlotWait { provider, woken: false, priority, since: self.now, agent };
            self.tables.slot_waits.insert(run, wait);
        }
    }

    /// Updates the queue when the state of a run changes. A woken run that waits again wakes the
    /// run behind it.
    pub(crate) fn update_slot_queue(&mut self, run: RunId, update: &RunSchedulingUpdate) {
        match update {
            RunSchedulingUpdate::Release => {}
            RunSchedulingUpdate::Park { reason, .. } if *reason == WaitKind::SandboxSlot.code() => {
                let wait = self.tables.slot_waits.get(&run).filter(|wait| wait.woken);
                let Some(provider) = wait.map(|wait| wait.provider.clone()) else {
                    return;
                };
                self.tables.slot_waits.update(&run, |wait| wait.woken = false);
                let waiting = self.tables.slot_waiters(&provider).into_iter();
                if let Some(next) = waiting.skip_while(|waiting| *waiting != run).nth(1) {
                    self.wake_slot_waiter(next);
                }
            }
            RunSchedulingUpdate::Park { .. }
            | RunSchedulingUpdate::Pause
            | RunSchedulingUpdate::End { .. } => self.leave_slot_queue(run),
        }
    }

    fn leave_slot_queue(&mut self, run: RunId) {
        let left = self.tables.slot_waits.remove(&run).filter(|wait| wait.woken);
        if let Some(wait) = left {
            self.wake_next_slot_waiter(&wait.provider);
        }
    }

    fn wake_next_slot_waiter(&mut self, provider: &str) {
        if let Some(next) = self.tables.slot_waiters(provider).first() {
            self.wake_slot_waiter(*next);
        }
    }

    /// Keeps a slot for a run, and arms a timer that wakes the run.
    fn wake_slot_waiter(&mut self, run: RunId) {
        self.tables.slot_waits.update(&run, |wait| wait.woken = true);
        let timer = TimerId::derive(run.bits(), "slot", self.now);
        self.arm(timer, Timer { run, due: self.now, kind: TimerKind::Wake });
    }

    /// Wakes waiting runs as long as a slot is free. Returns the remaining queue.
    pub(crate) fn wake_runs_for_free_slots(
        &mut self,
        provider: &str,
        capacity: u32,
    ) -> SlotQueueLength {
        loop {
            let waiting = self.tables.slot_waiters(provider).len();
            let woken = self.tables.woken_runs(provider).count();
            let is_free = self.tables.slots_in_use(provider) + woken < capacity as usize;
            if !is_free || waiting == 0 {
                let [waiting, woken] = [waiting, woken].map(|count| count as u32);
                return SlotQueueLength { waiting, woken };
            }
            self.wake_next_slot_waiter(provider);
        }
    }
}

impl Tables {
    /// Lists sandboxes that match a filter, by id.
    pub(crate) fn sandboxes(&self, filter: &SandboxFilter) -> Vec<SandboxRow> {
        let rows = self.sandboxes.iter().filter(|(id, _)| Some(**id) > filter.after);
        let rows = rows.map(|(_, row)| row);
        rows.filter(|row| filter.owner.is_none_or(|owner| row.owner == owner))
            .filter(|row| filter.with_gone || !row.state.is_gone())
            .take(filter.limit)
            .cloned()
            .collect()
    }

    /// Returns the position of a run in the queue of its provider, from 1.
    pub(crate) fn slot_queue_position(&self, run: RunId) -> Option<u32> {
        let wait = self.slot_waits.get(&run)?;
        let mut queue = self.slot_queue(&wait.provider, true).into_iter();
        queue.position(|queued| queued == run).map(|index| index as u32 + 1)
    }

    fn slots_in_use(&self, provider: &str) -> usize {
        self.slots.iter().filter(|(_, at)| *at == provider).count()
    }

    fn woken_runs(&self, provider: &str) -> impl Iterator<Item = RunId> {
        let waits = self.slot_waits.iter();
        waits.filter(move |(_, wait)| wait.woken && wait.provider == provider).map(|(run, _)| *run)
    }

    fn slot_waiters(&self, provider: &str) -> Vec<RunId> {
        self.slot_queue(provider, false)
    }

    /// Returns the queue of a provider: woken runs, the highest priority, the agent that occupies
    /// the fewest slots, the longest wait.
    fn slot_queue(&self, provider: &str, with_woken: bool) -> Vec<RunId> {
        let waits = self.slot_waits.iter().filter(|(_, wait)| wait.provider == provider);
        let mut queue: Vec<_> = waits.filter(|(_, wait)| with_woken || !wait.woken).collect();
        queue.sort_by_key(|(run, wait)| {
            let occupied = self.slots_of_agent(provider, &wait.agent);
            (Reverse(wait.woken), Reverse(wait.priority), occupied, wait.since, **run)
        });
        queue.into_iter().map(|(run, _)| *run).collect()
    }

    fn slots_of_agent(&self, provider: &str, agent: &AgentName) -> usize {
        let slots = self.slots.iter().filter(|(_, at)| *at == provider);
        let owners = slots.filter_map(|(sandbox, _)| Some(self.sandboxes.get(sandbox)?.owner));
        owners
            .chain(self.woken_runs(provider))
            .filter(|run| self.heads.get(run).is_some_and(|head| head.task.agent == *agent))
            .count()
    }
}
