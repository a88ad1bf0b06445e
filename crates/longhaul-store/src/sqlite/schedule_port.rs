//! Implements the trait `ScheduleStore`: schedules and their firings.

use async_trait::async_trait;
use longhaul_core::id::ScheduleName;
use longhaul_core::port::schedules::{
    NewSchedule, ScheduleFiring, ScheduleFiringOutcome, ScheduleStore, ScheduleUpdate,
};
use longhaul_core::port::store::StoreError;
use longhaul_core::schedule::ScheduleRow;
use longhaul_core::time::Timestamp;

use crate::sqlite::command::CommandOutcome;
use crate::sqlite::handle::SqliteStore;
use crate::sqlite::schedule;

#[async_trait]
impl ScheduleStore for SqliteStore {
    async fn create_schedule(&self, new: NewSchedule) -> Result<bool, StoreError> {
        // Watchers are notified, so that the worker learns of the new due time.
        self.run_command(move |tx| {
            Ok(CommandOutcome::Changed(schedule::create_schedule(tx, &new)?))
        })
        .await
    }

    async fn update_schedule(&self, update: ScheduleUpdate) -> Result<bool, StoreError> {
        self.run_command(move |tx| {
            Ok(CommandOutcome::Changed(schedule::update_schedule(tx, &update)?))
        })
        .await
    }

    async fn delete_schedule(&self, name: &ScheduleName) -> Result<bool, StoreError> {
        let name = name.clone();
        self.run_command_without_notifying_watchers(move |tx| schedule::delete_schedule(tx, &name))
            .await
    }

    async fn find_schedule(&self, name: &ScheduleName) -> Result<Option<ScheduleRow>, StoreError> {
        let name = name.clone();
        self.query_requiring_current_schema(move |tx| schedule::find_schedule(tx, &name)).await
    }

    async fn list_schedules(&self, limit: usize) -> Result<Vec<ScheduleRow>, StoreError> {
        self.query_requiring_current_schema(move |tx| schedule::list_schedules(tx, limit)).await
    }

    async fn due_schedules(&self, limit: usize) -> Result<Vec<ScheduleRow>, StoreError> {
        self.require_driver_process("fire schedules")?;
        self.run_query(move |tx| schedule::due_schedules(tx, limit)).await
    }

    async fn next_schedule_due(&self) -> Result<Option<Timestamp>, StoreError> {
        self.run_query(schedule::next_schedule_due).await
    }

    async fn fire_schedule(
        &self,
        firing: ScheduleFiring,
    ) -> Result<ScheduleFiringOutcome, StoreError> {
        self.run_command(move |tx| schedule::fire_schedule(tx, &firing)).await
    }
}
