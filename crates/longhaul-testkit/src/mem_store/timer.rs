//! Timers: armed, due, spent by whoever tells them first.
//!
//! Never: wakes a run itself. A fact does, and it spends the timer with it.

use longhaul_core::change::{Due, TimerKind, TimerMove};
use longhaul_core::id::TimerId;
use longhaul_core::policy::gate::{GateStatus, OnTimeout};
use longhaul_core::port::shelves::DueTimer;
use longhaul_core::port::store::Refused;

use crate::mem_store::rows::Timer;
use crate::mem_store::tx::{Changed, Tx, refuse};

impl Tx<'_> {
    /// Arms a timer or spends one.
    pub(crate) fn set_timer(&mut self, to: TimerMove) -> Changed {
        match to {
            TimerMove::Arm {
                timer,
                run,
                due,
                what,
            } => {
                let due = match due {
                    Due::Now => self.now,
                    Due::After(span) => self.now.plus(span),
                    Due::At(at) => at,
                };
                self.arm(timer, Timer { run, due, what });
            }
            TimerMove::Spend(timer) => {
                let Some(spent) = self.tables.timers.take(&timer) else {
                    return refuse(Refused::TimerSpent);
                };
                self.tables.due.take(&(spent.due, timer));
            }
        }
        Ok(())
    }

    /// Sets a timer, in place of the one that had its name.
    pub(crate) fn arm(&mut self, id: TimerId, timer: Timer) {
        if let Some(before) = self.tables.timers.take(&id) {
            self.tables.due.take(&(before.due, id));
        }
        self.tables.due.put((timer.due, id), ());
        self.tables.timers.put(id, timer);
    }

    /// Timers that are due, the longest due first.
    pub(crate) fn due(&self, limit: usize) -> Vec<DueTimer> {
        let come = self.tables.due.iter().map(|(key, ())| key);
        let come = come.take_while(|(due, _)| *due <= self.now).take(limit);
        come.filter_map(|(due, id)| {
            let timer = self.tables.timers.get(id)?;
            Some(DueTimer {
                timer: *id,
                run: timer.run,
                what: timer.what.clone(),
                due: *due,
                ended: self.is_ended(timer.run),
                gate: self.silence(&timer.what),
            })
        })
        .collect()
    }

    /// What the silence at a gate means, if it is still open.
    fn silence(&self, what: &TimerKind) -> Option<OnTimeout> {
        let (TimerKind::GateDeadline(gate) | TimerKind::GateRemind(gate)) = what else {
            return None;
        };
        let row = self.tables.gates.get(gate)?;
        (row.status == GateStatus::Open).then_some(row.spec.on_timeout)
    }
}
