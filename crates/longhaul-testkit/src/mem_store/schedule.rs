//! Schedules and their firings.

use async_trait::async_trait;

use longhaul_core::id::ScheduleName;
use longhaul_core::port::schedules::{
    NewSchedule, ScheduleFiring, ScheduleFiringAction, ScheduleFiringOutcome, ScheduleStore,
    ScheduleUpdate,
};
use longhaul_core::port::store::{CreateRunsOutcome, StoreError};
use longhaul_core::schedule::ScheduleRow;
use longhaul_core::time::Timestamp;

use crate::mem_store::store::MemStore;
use crate::mem_store::tx::{Rollback, Tx};

#[async_trait]
impl ScheduleStore for MemStore {
    async fn create_schedule(&self, new: NewSchedule) -> Result<bool, StoreError> {
        self.write_tx(|tx| Ok(tx.create_schedule(new)))
    }

    async fn update_schedule(&self, update: ScheduleUpdate) -> Result<bool, StoreError> {
        self.write_tx(|tx| {
            let row = tx.tables.schedules.get(&update.name).cloned();
            let Some(row) = row.filter(|row| row.due == update.due) else {
                return Ok(false);
            };
            let (spec, due) = (update.spec, update.next_due);
            tx.tables
                .schedules
                .insert(update.name, ScheduleRow { spec, due, last_error: None, ..row });
            Ok(true)
        })
    }

    async fn delete_schedule(&self, name: &ScheduleName) -> Result<bool, StoreError> {
        self.write_tx(|tx| Ok(tx.tables.schedules.remove(name).is_some()))
    }

    async fn find_schedule(&self, name: &ScheduleName) -> Result<Option<ScheduleRow>, StoreError> {
        Ok(self.read_tx(|tx| tx.tables.schedules.get(name).cloned()))
    }

    async fn list_schedules(&self, limit: usize) -> Result<Vec<ScheduleRow>, StoreError> {
        Ok(self.read_tx(|tx| {
            tx.tables.schedules.iter().take(limit).map(|(_, row)| row.clone()).collect()
        }))
    }

    async fn due_schedules(&self, limit: usize) -> Result<Vec<ScheduleRow>, StoreError> {
        Ok(self.read_tx(|tx| tx.due_schedules(limit)))
    }

    async fn next_schedule_due(&self) -> Result<Option<Timestamp>, StoreError> {
        Ok(self.read_tx(|tx| tx.tables.schedules.iter().filter_map(|(_, row)| row.due).min()))
    }

    async fn fire_schedule(
        &self,
        firing: ScheduleFiring,
    ) -> Result<ScheduleFiringOutcome, StoreError> {
        self.write_tx(|tx| tx.fire_schedule(firing))
    }
}

impl Tx<'_> {
    fn create_schedule(&mut self, new: NewSchedule) -> bool {
        let is_new = !self.tables.schedules.contains(&new.name);
        if is_new {
            let row = ScheduleRow {
                name: new.name.clone(),
                spec: new.spec,
                due: Some(new.due),
                last_run: None,
                last_fired_at: None,
                last_error: None,
            };
            self.tables.schedules.insert(new.name, row);
        }
        is_new
    }

    fn due_schedules(&self, limit: usize) -> Vec<ScheduleRow> {
        let rows = self.tables.schedules.iter().map(|(_, row)| row);
        let due = rows.filter(|row| row.due.is_some_and(|due| due <= self.now));
        let mut due: Vec<ScheduleRow> = due.cloned().collect();
        due.sort_by_key(|row| row.due);
        due.truncate(limit);
        due
    }

    fn fire_schedule(
        &mut self,
        firing: ScheduleFiring,
    ) -> Result<ScheduleFiringOutcome, Rollback<ScheduleFiringOutcome>> {
        let name = firing.name;
        if self.tables.schedules.get(&name).is_none_or(|row| row.due != firing.due) {
            return Ok(ScheduleFiringOutcome::Outdated);
        }
        self.tables.schedules.update(&name, |row| row.due = firing.next_due);
        let request = match firing.action {
            ScheduleFiringAction::Create(request) => request,
            ScheduleFiringAction::Skip(reason) => {
                self.tables.schedules.update(&name, |row| row.last_error = Some(reason));
                return Ok(ScheduleFiringOutcome::Skipped);
            }
        };
        let created = match self.open(*request) {
            Ok(created) | Err(Rollback::Answer(created)) => created,
            Err(Rollback::Error(error)) => return Err(Rollback::Error(error)),
        };
        let run = match created {
            CreateRunsOutcome::Created(runs) => runs.first().copied(),
            CreateRunsOutcome::LaneFull(lane) => {
                return Err(Rollback::Answer(ScheduleFiringOutcome::LaneFull(lane)));
            }
            CreateRunsOutcome::Existing(runs) => match runs.first() {
                Some(run) => return Err(Rollback::Answer(ScheduleFiringOutcome::Existing(*run))),
                None => None,
            },
            CreateRunsOutcome::KeyReused => {
                return Err(Rollback::Answer(ScheduleFiringOutcome::KeyReused));
            }
            CreateRunsOutcome::OverCap(refusal) => {
                return Err(Rollback::Answer(ScheduleFiringOutcome::OverCap(refusal)));
            }
            CreateRunsOutcome::LaneBusy(_) => None,
        };
        let Some(run) = run else {
            return Err(Rollback::Error(StoreError::Closed {
                location: "memory".to_owned(),
                reason: format!("the firing of the schedule `{name}` created no run"),
            }));
        };
        let now = self.now;
        self.tables.schedules.update(&name, |row| {
            row.last_run = Some(run);
            row.last_fired_at = Some(now);
            row.last_error = None;
        });
        Ok(ScheduleFiringOutcome::Created(run))
    }
}
