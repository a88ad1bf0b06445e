//! Sandbox slots and the queue for them.
//!
//! Invariant: a provider never has more slots in use than it offers, and ended runs are not
//! woken.

use std::cmp::Reverse;

use longhaul_core::change::{
    SandboxFilter, SandboxRow, SandboxSlot, SandboxState, SlotQueueLength, TimerKind,
};
use longhaul_core::id::{RunId, SandboxId, TimerId};
use longhaul_core::port::store::AppendRefusalReason;

use crate::mem_store::rows::{SlotWait, Tables, Timer};
use crate::mem_store::tx::{ChangeResult, Tx, refuse};

impl Tx<'_> {
    /// Acquires a slot for a sandbox and removes its run from the queue.
    pub(crate) fn acquire_slot(&mut self, run: RunId, slot: SandboxSlot) -> ChangeResult {
        if self.tables.slots.contains(&slot.sandbox) {
            return Ok(());
        }
        let used = self.tables.slots.iter();
        let used = used.filter(|(_, provider)| **provider == slot.provider).count();
        if used >= slot.capacity as usize {
            return refuse(AppendRefusalReason::NoSlot);
        }
        self.tables.slot_waits.remove(&(slot.provider.clone(), run));
        self.tables.slots.insert(slot.sandbox, slot.provider);
        Ok(())
    }

    /// Releases a slot and arms a timer that wakes the first waiting run.
    pub(crate) fn release_slot(&mut self, sandbox: SandboxId) {
        let Some(provider) = self.tables.slots.remove(&sandbox) else {
            return;
        };
        let Some(run) = self.next_slot_waiter(&provider) else {
            return;
        };
        self.tables.slot_waits.remove(&(provider, run));
        let timer = TimerId::derive(run.bits(), &format!("slot:{sandbox}"), self.now);
        let due = self.now;
        let kind = TimerKind::Wake;
        self.arm(timer, Timer { run, due, kind });
    }

    /// Returns the first waiting run. Ended runs are skipped, because nobody would use the
    /// slot.
    fn next_slot_waiter(&self, provider: &str) -> Option<RunId> {
        let waits = self.tables.slot_waits.iter();
        let waits = waits.filter(|((at, run), _)| at == provider && !self.is_ended(*run));
        waits
            .min_by_key(|((_, run), wait)| (Reverse(wait.priority), wait.since, *run))
            .map(|((_, run), _)| *run)
    }

    /// Wakes runs for free slots.
    pub(crate) fn wake_runs_for_free_slots(
        &mut self,
        provider: &str,
        _capacity: u32,
    ) -> SlotQueueLength {
        let waits = self.tables.slot_waits.iter();
        let waiting = waits.filter(|((at, _), _)| at == provider).count();
        SlotQueueLength { waiting: u32::try_from(waiting).unwrap_or(u32::MAX), woken: 0 }
    }

    /// Returns the position of a run in the queue.
    pub(crate) fn slot_queue_position(&self, run: RunId) -> Option<u32> {
        self.tables.slot_waits.iter().any(|((_, at), _)| *at == run).then_some(1)
    }

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

    /// Adds a run to the queue for a slot. A run that is queued already keeps its position.
    pub(crate) fn queue_for_slot(&mut self, run: RunId, provider: String) {
        let key = (provider, run);
        let Some(head) = self.tables.heads.get(&run) else {
            return;
        };
        if !self.tables.slot_waits.contains(&key) {
            let wait = SlotWait { priority: head.task.priority, since: self.now };
            self.tables.slot_waits.insert(key, wait);
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
}
