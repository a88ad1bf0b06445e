//! Sandbox slots and the queue for them.
//!
//! Invariant: a provider never has more slots in use than it offers, and ended runs are not
//! woken.

use std::cmp::Reverse;

use longhaul_core::change::{SandboxSlot, TimerKind};
use longhaul_core::id::{RunId, SandboxId, TimerId};
use longhaul_core::port::store::AppendRefusalReason;

use crate::mem_store::rows::{SlotWait, Timer};
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
