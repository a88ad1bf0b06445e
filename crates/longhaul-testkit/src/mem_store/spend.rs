//! Counts of spend caps, and runs that wait until the amounts that they need fit.
//!
//! Invariant: a hold never makes the sum of spent, lost and held amounts exceed the limit.

use std::cmp::Reverse;

use longhaul_core::id::{RunId, TimerId};
use longhaul_core::policy::spend_cap::{
    CAP_SWEEP_WAKES_MAX, CAP_WAKES_MAX, CapCounterKey, CapCounterRow, CapLimitChange,
    CapReservation, CapSettlement, CapWaitRow, SPEND_ROWS_MAX,
};
use longhaul_core::port::store::AppendRefusalReason;
use longhaul_core::wait::WaitKind;

use crate::mem_store::rows::SpendWait;
use crate::mem_store::tx::{ChangeResult, Tx, refuse};

impl Tx<'_> {
    /// Holds amounts within spend caps.
    pub(crate) fn reserve_in_spend_caps(
        &mut self,
        run: RunId,
        reservations: Vec<CapReservation>,
    ) -> ChangeResult {
        for reservation in reservations {
            let start = reservation.hold.key.window_start;
            if self.now < start || self.now >= reservation.window_end {
                return refuse(AppendRefusalReason::CapWindowPassed);
            }
            let row = self.spend_row(&reservation);
            if reservation.hold.amount > row.remaining_amount() {
                return refuse(AppendRefusalReason::OverCap(Box::new(row.refusal())));
            }
            let held = row.held.saturating_add(reservation.hold.amount);
            self.save_spend_row(CapCounterRow { held, ..row });
        }
        self.tables.spend_waits.remove(&run);
        Ok(())
    }

    /// Counts a new run in the spend caps that refuse tasks.
    pub(crate) fn count_new_run_in_caps(
        &mut self,
        reservations: &[CapReservation],
    ) -> ChangeResult {
        for reservation in reservations {
            let row = self.spend_row(reservation);
            let amount = reservation.hold.amount;
            if amount > row.remaining_amount()
                || row.remaining_amount() == 0
                || self.count_spend_waits(&row.key) > 0
            {
                return refuse(AppendRefusalReason::OverCap(Box::new(row.refusal())));
            }
            let spent = row.spent.saturating_add(amount);
            let stored = self.tables.spend.get(&row.key);
            let limit = stored.map_or(row.limit, |stored| stored.limit);
            self.save_spend_row(CapCounterRow { spent, limit, ..row });
        }
        Ok(())
    }

    /// Settles held amounts and wakes runs whose amounts now fit.
    pub(crate) fn settle_spend_caps(&mut self, settlements: Vec<CapSettlement>) {
        for settlement in settlements {
            let Some(row) = self.tables.spend.get(&settlement.key).cloned() else {
                continue;
            };
            let row = CapCounterRow {
                held: row.held.saturating_sub(settlement.held),
                spent: row.spent.saturating_add(settlement.spent),
                lost: row.lost.saturating_add(settlement.lost),
                ..row
            };
            self.save_spend_row(row.clone());
            self.wake_spend_waits(&row, CAP_WAKES_MAX);
        }
    }

    /// Queues a run at a spend cap, or wakes it if its amount fits by now.
    pub(crate) fn wait_at_cap(&mut self, run: RunId, row: CapWaitRow) {
        let count = self.spend_row(&row.reservation);
        if row.reservation.hold.amount <= count.remaining_amount() {
            return self.make_timer_due(row.timer);
        }
        if self.tables.spend.get(&count.key).is_none() {
            self.save_spend_row(count);
        }
        let since = self.now;
        self.tables.spend_waits.insert(run, SpendWait { row, since });
    }

    /// Changes the limit of a spend cap in one window, and wakes runs whose amounts now fit.
    pub(crate) fn set_cap_limit(&mut self, change: CapLimitChange) {
        let CapLimitChange { cap, subject, period, limit } = change;
        let rows = match subject {
            Some(subject) => {
                let key = CapCounterKey { cap, subject, window_start: period.start };
                let row = self.tables.spend.get(&key).cloned();
                let row = row.unwrap_or_else(|| CapCounterRow::new(key, period.end, 0));
                let limit = row.raised_limit.unwrap_or_default().max(limit);
                vec![CapCounterRow { raised_limit: Some(limit), ..row }]
            }
            None => {
                let rows = self.tables.spend.iter().filter(|(key, row)| {
                    key.cap == cap && key.window_start == period.start && row.limit != limit
                });
                rows.map(|(_, row)| CapCounterRow { limit, ..row.clone() }).collect()
            }
        };
        for row in rows {
            self.save_spend_row(row.clone());
            self.wake_spend_waits(&row, CAP_WAKES_MAX);
        }
    }

    /// Wakes the runs of all caps and subjects whose amounts fit into what is left.
    pub(crate) fn wake_runs_waiting_at_caps(&mut self) {
        let open = self.tables.spend.iter().filter(|(_, row)| row.window_end > self.now);
        let rows: Vec<CapCounterRow> = open.map(|(_, row)| row.clone()).collect();
        for row in rows {
            self.wake_spend_waits(&row, CAP_SWEEP_WAKES_MAX);
        }
    }

    /// Lists the counts whose window contains the current time.
    pub(crate) fn cap_counter_rows(&self) -> Vec<CapCounterRow> {
        let rows = self
            .tables
            .spend
            .iter()
            .filter(|(key, row)| row.window_end > self.now && key.window_start <= self.now);
        let rows = rows.map(|(key, row)| CapCounterRow {
            waiting: self.count_spend_waits(key),
            ..row.clone()
        });
        let mut rows: Vec<CapCounterRow> = rows.collect();
        rows.sort_by_key(|row| Reverse((row.waiting, row.spent + row.lost + row.held)));
        rows.truncate(SPEND_ROWS_MAX);
        rows
    }

    fn spend_row(&self, reservation: &CapReservation) -> CapCounterRow {
        let CapReservation { hold, window_end, limit } = reservation;
        let row = self.tables.spend.get(&hold.key).cloned();
        let row = row.unwrap_or_else(|| CapCounterRow::new(hold.key.clone(), *window_end, *limit));
        CapCounterRow { limit: *limit, ..row }
    }

    fn save_spend_row(&mut self, row: CapCounterRow) {
        self.tables.spend.insert(row.key.clone(), row);
    }

    fn count_spend_waits(&self, key: &CapCounterKey) -> u64 {
        let waits = self.tables.spend_waits.iter();
        waits
            .filter(|(run, wait)| wait.row.reservation.hold.key == *key && self.waits_at_cap(**run))
            .count() as u64
    }

    fn waits_at_cap(&self, run: RunId) -> bool {
        let head = self.tables.heads.get(&run);
        head.is_some_and(|head| head.state.is_parked_for(WaitKind::Cap))
    }

    fn wake_spend_waits(&mut self, row: &CapCounterRow, max: usize) {
        let mut remaining = row.remaining_amount();
        let waits = self.tables.spend_waits.iter().filter(|(run, wait)| {
            wait.row.reservation.hold.key == row.key
                && wait.row.reservation.hold.amount <= remaining
                && self.waits_at_cap(**run)
        });
        let mut waits: Vec<(RunId, SpendWait)> =
            waits.map(|(run, wait)| (*run, wait.clone())).collect();
        waits.sort_by_key(|(run, wait)| (wait.since, *run));
        for (run, wait) in waits.into_iter().take(max) {
            if wait.row.reservation.hold.amount > remaining {
                continue;
            }
            remaining -= wait.row.reservation.hold.amount;
            self.make_timer_due(wait.row.timer);
            self.tables.spend_waits.remove(&run);
        }
    }

    fn make_timer_due(&mut self, id: TimerId) {
        if let Some(timer) = self.tables.timers.get(&id).cloned() {
            let due = self.now;
            self.arm(id, crate::mem_store::rows::Timer { due, ..timer });
        }
    }
}
