//! Messages that wait for a run. Each is settled once.

use longhaul_core::change::{STEERS_MAX, SteerRow, SteerStatus, SteerUpdate};
use longhaul_core::id::RunId;
use longhaul_core::port::store::AppendRefusalReason;

use crate::mem_store::rows::Tables;
use crate::mem_store::tx::{ChangeResult, Tx, refuse};

impl Tx<'_> {
    /// Queues a message.
    pub(crate) fn queue_steer(&mut self, run: RunId, steer: SteerRow) -> ChangeResult {
        let rows = self.tables.steers_of(run);
        if rows.filter(|(_, row)| is_queued(row)).count() >= STEERS_MAX {
            return refuse(AppendRefusalReason::SteersFull);
        }
        let row_id = self.tables.next_row_id();
        self.tables.steers.insert((run, row_id), steer);
        Ok(())
    }

    /// Updates or settles a queued message.
    pub(crate) fn update_steer(&mut self, run: RunId, to: &SteerUpdate) -> ChangeResult {
        let rows = self.tables.steers_of(run);
        let mut waiting = rows.filter(|(_, row)| row.steer == to.steer && is_queued(row));
        let found = waiting.next().map(|(key, _)| *key);
        drop(waiting);
        let Some(key) = found else {
            return refuse(AppendRefusalReason::SteerSettled);
        };
        self.tables.steers.update(&key, |row| {
            if let Some((text, delivery)) = &to.edit {
                row.text.clone_from(text);
                row.delivery = *delivery;
            }
            row.status = to.status.clone();
        });
        Ok(())
    }
}

impl Tables {
    /// Returns the messages of a run, in order of arrival.
    pub(crate) fn steers_of(&self, run: RunId) -> impl Iterator<Item = (&(RunId, u64), &SteerRow)> {
        self.steers.range((run, 0)..=(run, u64::MAX))
    }
}

fn is_queued(row: &SteerRow) -> bool {
    row.status == SteerStatus::Queued
}
