//! Timers: armed, due, and consumed once. A timer does not wake a run itself: the event that
//! reports it does, and consumes the timer in the same batch.

use longhaul_core::chain::AUTO_APPROVE_DELAY;
use longhaul_core::change::{TimerDueTime, TimerKind, TimerUpdate};
use longhaul_core::id::{GateId, RunId, TimerId};
use longhaul_core::policy::gate::{GateRow, GateStatus};
use longhaul_core::port::records::{DueTimer, OUTBOX_DELAY_MAX};
use longhaul_core::port::store::AppendRefusalReason;

use crate::mem_store::rows::Timer;
use crate::mem_store::tx::{ChangeResult, Tx, refuse};

impl Tx<'_> {
    /// Arms or consumes a timer.
    pub(crate) fn set_timer(&mut self, to: TimerUpdate) -> ChangeResult {
        match to {
            TimerUpdate::Arm { timer, run, due, kind } => {
                let due = match due {
                    TimerDueTime::Now => self.now,
                    TimerDueTime::After(delay) => self.now.plus(delay),
                    TimerDueTime::At(at) => at,
                };
                self.arm(timer, Timer { run, due, kind });
            }
            TimerUpdate::Consume(timer) => {
                let Some(consumed) = self.tables.timers.remove(&timer) else {
                    return refuse(AppendRefusalReason::TimerConsumed);
                };
                self.tables.due.remove(&(consumed.due, timer));
            }
            TimerUpdate::Cancel(timer) => {
                if let Some(cancelled) = self.tables.timers.remove(&timer) {
                    self.tables.due.remove(&(cancelled.due, timer));
                }
            }
            TimerUpdate::StopAutoApproval(run) => {
                self.disarm(run, |kind| matches!(kind, TimerKind::GateAutoApprove(_)));
                let gates = self.tables.gates.iter().filter(|(_, gate)| gate.run == run);
                let open = gates.filter(|(_, gate)| gate.status == GateStatus::Open);
                let open: Vec<GateId> = open.map(|(id, _)| *id).collect();
                for gate in open {
                    self.tables.gates.update(&gate, |gate| gate.spec.auto_approve = None);
                }
            }
        }
        Ok(())
    }

    /// Arms a timer and replaces the one with the same id.
    pub(crate) fn arm(&mut self, id: TimerId, timer: Timer) {
        if let Some(before) = self.tables.timers.remove(&id) {
            self.tables.due.remove(&(before.due, id));
        }
        self.tables.due.insert((timer.due, id), ());
        self.tables.timers.insert(id, timer);
    }

    /// Moves each timer that is due later than its own delay from now, and returns their number.
    pub(crate) fn move_delays_set_by_later_clock(&mut self) -> usize {
        let now = self.now;
        let timers = self.tables.timers.iter().filter_map(|(id, timer)| {
            let delay = if let TimerKind::Delay(delay) = timer.kind {
                delay
            } else {
                matches!(timer.kind, TimerKind::GateAutoApprove(_)).then_some(AUTO_APPROVE_DELAY)?
            };
            let due = now.plus(delay);
            (timer.due > due).then(|| (*id, Timer { due, ..timer.clone() }))
        });
        let moved: Vec<_> = timers.collect();
        let latest_attempt = now.plus(OUTBOX_DELAY_MAX);
        let attempts = self.tables.outbox.iter();
        let late = attempts.filter(|(_, entry)| entry.next_at > latest_attempt);
        let late: Vec<u64> = late.map(|(id, _)| *id).collect();
        for id in &late {
            self.tables.outbox.update(id, |entry| entry.next_at = now);
        }
        let count = moved.len() + late.len();
        moved.into_iter().for_each(|(id, timer)| self.arm(id, timer));
        count
    }

    /// Removes the timers that start a run which nobody has claimed yet. The delays of a run that was
    /// claimed are its own.
    pub(crate) fn disarm_start(&mut self, run: RunId) {
        if self.tables.heads.get(&run).is_some_and(|head| head.epoch.0 == 0) {
            self.disarm(run, |kind| matches!(kind, TimerKind::Start | TimerKind::Delay(_)));
        }
    }

    fn disarm(&mut self, run: RunId, is_removed: impl Fn(&TimerKind) -> bool) {
        let timers = self.tables.timers.iter();
        let timers = timers.filter(|(_, timer)| timer.run == run && is_removed(&timer.kind));
        let found: Vec<_> = timers.map(|(id, timer)| (*id, timer.due)).collect();
        for (id, due) in found {
            self.tables.timers.remove(&id);
            self.tables.due.remove(&(due, id));
        }
    }

    /// Returns the due timers, longest due first.
    pub(crate) fn due_timers(&self, limit: usize) -> Vec<DueTimer> {
        let due_keys = self.tables.due.iter().map(|(key, ())| key);
        let due_keys = due_keys.take_while(|(due, _)| *due <= self.now).take(limit);
        due_keys
            .filter_map(|(due, id)| {
                let timer = self.tables.timers.get(id)?;
                Some(DueTimer {
                    timer: *id,
                    run: timer.run,
                    kind: timer.kind.clone(),
                    due: *due,
                    run_ended: self.is_ended(timer.run),
                    open_gate: self.open_gate_of_timer(&timer.kind),
                })
            })
            .collect()
    }

    /// Returns the row of the timer's gate, if the gate is still open.
    fn open_gate_of_timer(&self, kind: &TimerKind) -> Option<Box<GateRow>> {
        let row = self.tables.gates.get(&kind.gate()?)?;
        (row.status == GateStatus::Open).then(|| Box::new(row.clone()))
    }
}
