//! Seats of sandboxes and the queue for them.
//!
//! Never: more seats than the provider has, or a wake for a run that has ended.

use std::cmp::Reverse;

use longhaul_core::change::{SandboxSlot, TimerKind};
use longhaul_core::id::{RunId, SandboxId, TimerId};
use longhaul_core::port::store::Refused;

use crate::mem_store::rows::{SlotWait, Timer};
use crate::mem_store::tx::{ChangeResult, Tx, refuse};

impl Tx<'_> {
    /// A sandbox takes a seat, and its run waits for none any more.
    pub(crate) fn acquire_slot(&mut self, run: RunId, seat: SandboxSlot) -> ChangeResult {
        if self.tables.slots.contains(&seat.sandbox) {
            return Ok(());
        }
        let taken = self.tables.slots.iter();
        let taken = taken.filter(|(_, provider)| **provider == seat.provider).count();
        if taken >= seat.capacity as usize {
            return refuse(Refused::NoSlot);
        }
        self.tables.slot_waits.remove(&(seat.provider.clone(), run));
        self.tables.slots.insert(seat.sandbox, seat.provider);
        Ok(())
    }

    /// A seat becomes free, and the first who waits for one is told by a timer.
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
        let what = TimerKind::Wake;
        self.arm(timer, Timer { run, due, kind: what });
    }

    /// Whoever has ended is passed over: the seat would be told to nobody.
    fn next_slot_waiter(&self, provider: &str) -> Option<RunId> {
        let waits = self.tables.slot_waits.iter();
        let waits = waits.filter(|((at, run), _)| at == provider && !self.is_ended(*run));
        waits
            .min_by_key(|((_, run), wait)| (Reverse(wait.priority), wait.since, *run))
            .map(|((_, run), _)| *run)
    }

    /// A run queues for a seat; who queues already keeps its place.
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
