//! Seats of sandboxes and the queue for them.
//!
//! Never: more seats than the provider has, or a wake for a run that has ended.

use std::cmp::Reverse;

use longhaul_core::change::{Seat, TimerKind};
use longhaul_core::id::{RunId, SandboxId, TimerId};
use longhaul_core::port::store::Refused;

use crate::mem_store::rows::{SeatWait, Timer};
use crate::mem_store::tx::{Changed, Tx, refuse};

impl Tx<'_> {
    /// A sandbox takes a seat, and its run waits for none any more.
    pub(crate) fn take_seat(&mut self, run: RunId, seat: Seat) -> Changed {
        if self.tables.seats.has(&seat.sandbox) {
            return Ok(());
        }
        let taken = self.tables.seats.iter();
        let taken = taken
            .filter(|(_, provider)| **provider == seat.provider)
            .count();
        if taken >= seat.seats as usize {
            return refuse(Refused::NoSeat);
        }
        self.tables.seat_waits.take(&(seat.provider.clone(), run));
        self.tables.seats.put(seat.sandbox, seat.provider);
        Ok(())
    }

    /// A seat becomes free, and the first who waits for one is told by a timer.
    pub(crate) fn free_seat(&mut self, sandbox: SandboxId) {
        let Some(provider) = self.tables.seats.take(&sandbox) else {
            return;
        };
        let Some(run) = self.next_for_seat(&provider) else {
            return;
        };
        self.tables.seat_waits.take(&(provider, run));
        let timer = TimerId::derive(run.bits(), &format!("seat:{sandbox}"), self.now);
        let due = self.now;
        let what = TimerKind::Wake;
        self.arm(timer, Timer { run, due, what });
    }

    /// Whoever has ended is passed over: the seat would be told to nobody.
    fn next_for_seat(&self, provider: &str) -> Option<RunId> {
        let waits = self.tables.seat_waits.iter();
        let waits = waits.filter(|((at, run), _)| at == provider && !self.is_ended(*run));
        waits
            .min_by_key(|((_, run), wait)| (Reverse(wait.priority), wait.since, *run))
            .map(|((_, run), _)| *run)
    }

    /// A run queues for a seat; who queues already keeps its place.
    pub(crate) fn queue_seat(&mut self, run: RunId, provider: String) {
        let key = (provider, run);
        let Some(head) = self.tables.heads.get(&run) else {
            return;
        };
        if !self.tables.seat_waits.has(&key) {
            let wait = SeatWait {
                priority: head.task.priority,
                since: self.now,
            };
            self.tables.seat_waits.put(key, wait);
        }
    }
}
