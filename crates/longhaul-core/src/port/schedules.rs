//! The schedule store port: schedules and their firings. Each method is one transaction.
//!
//! A store computes no times: the caller passes in the time of the next firing.

use async_trait::async_trait;

use crate::id::{LaneKey, RunId, ScheduleName};
use crate::policy::spend_cap::CapRefusal;
use crate::port::store::{CreateRunsRequest, StoreError};
use crate::schedule::{ScheduleRow, ScheduleSpec};
use crate::time::Timestamp;

#[async_trait]
pub trait ScheduleStore: Send + Sync + std::fmt::Debug {
    /// Stores a new schedule. Returns `false` if there is a schedule with this name, which is then
    /// not changed.
    async fn create_schedule(&self, schedule: NewSchedule) -> Result<bool, StoreError>;

    /// Replaces the definition and the due time of a schedule. Returns `false` if there is no such
    /// schedule or its due time has changed since the caller read it; then nothing is changed.
    async fn update_schedule(&self, update: ScheduleUpdate) -> Result<bool, StoreError>;

    /// Deletes a schedule. Returns `false` if there is no such schedule.
    async fn delete_schedule(&self, name: &ScheduleName) -> Result<bool, StoreError>;

    /// Returns a schedule. `None` means that there is no such schedule.
    async fn find_schedule(&self, name: &ScheduleName) -> Result<Option<ScheduleRow>, StoreError>;

    /// Lists at most `limit` schedules, ordered by their names.
    async fn list_schedules(&self, limit: usize) -> Result<Vec<ScheduleRow>, StoreError>;

    /// Returns at most `limit` schedules that are due by the store's clock, the longest overdue
    /// first.
    async fn due_schedules(&self, limit: usize) -> Result<Vec<ScheduleRow>, StoreError>;

    /// Returns the time of the next firing of any schedule. `None` means that none will fire.
    async fn next_schedule_due(&self) -> Result<Option<Timestamp>, StoreError>;

    /// Records a firing and creates its run, together or not at all. Of concurrent firings with the
    /// same due time, one succeeds.
    async fn fire_schedule(
        &self,
        firing: ScheduleFiring,
    ) -> Result<ScheduleFiringOutcome, StoreError>;
}

/// A schedule to be stored.
#[derive(Debug, Clone, PartialEq)]
pub struct NewSchedule {
    pub name: ScheduleName,
    /// Definition of the schedule.
    pub spec: ScheduleSpec,
    /// Time at which the schedule fires first.
    pub due: Timestamp,
}

/// A new definition of a stored schedule.
#[derive(Debug, Clone, PartialEq)]
pub struct ScheduleUpdate {
    pub name: ScheduleName,
    /// Due time of the schedule when the caller read it.
    pub due: Option<Timestamp>,
    /// New definition of the schedule.
    pub spec: ScheduleSpec,
    /// New due time. `None` means that the schedule is paused.
    pub next_due: Option<Timestamp>,
}

#[derive(Debug, Clone)]
pub struct ScheduleFiring {
    pub name: ScheduleName,
    /// Due time of the schedule when the caller read it. If the due time has changed since, nothing
    /// is written. `None` means that the schedule had no due time.
    pub due: Option<Timestamp>,
    /// Next due time of the schedule. `None` means that the schedule never fires again.
    pub next_due: Option<Timestamp>,
    /// What the firing does besides moving the due time: create a run, or skip.
    pub action: ScheduleFiringAction,
}

/// What a firing of a schedule does besides moving the due time.
#[derive(Debug, Clone)]
pub enum ScheduleFiringAction {
    /// Creates the run of this request. Only a firing that a person triggers may have an
    /// idempotency key. For other firings, the due time of the schedule prevents a second run.
    Create(Box<CreateRunsRequest>),
    /// Creates no run, for this reason, which is recorded in the schedule.
    Skip(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScheduleFiringOutcome {
    Created(RunId),
    /// An earlier firing with the same idempotency key created this run. Nothing was changed.
    Existing(RunId),
    /// The idempotency key was already used for a different request. Nothing was changed.
    KeyReused,
    /// The firing was recorded without a run.
    Skipped,
    /// The schedule does not exist or has another due time: another process has fired or replaced
    /// it. Nothing was changed.
    Outdated,
    /// The lane of the run contains the maximum number of runs. Nothing was changed.
    LaneFull(LaneKey),
    /// A spend cap that refuses tasks is reached. Nothing was changed.
    OverCap(Box<CapRefusal>),
}
