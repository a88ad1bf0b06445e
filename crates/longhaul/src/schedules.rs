//! Schedules, which start agents at certain times.

use std::sync::Arc;
use std::time::Duration;

use longhaul_api::schedule::{NewScheduleBody, ScheduleView};
use longhaul_core::schedule::{CatchUp, Overlap};
use longhaul_core::time::Millis;
use serde::Serialize;

use crate::error::{Draft, Error, to_json};
use crate::run::RunHandle;
use crate::runtime_state::RuntimeState;

/// A schedule that is not stored yet. Invalid values are reported by [`Schedules::add`].
///
/// ```
/// use longhaul::{CatchUp, Schedule};
/// use std::time::Duration;
///
/// let digest = Schedule::cron("digest", "0 9 * * MON-FRI", "writer")
///     .tz("Europe/Berlin")
///     .input("Sum up the news.")
///     .catch_up(CatchUp::Once);
/// let idle = Schedule::every("smith-idle", Duration::from_secs(30), "smith").event("idle_tick");
/// ```
#[must_use = "a schedule has no effect until it is added to a runtime"]
#[derive(Debug, Clone)]
pub struct Schedule(Draft<NewScheduleBody>);

impl Schedule {
    /// Creates a schedule that starts an agent whenever the cron pattern matches. The pattern has
    /// five fields, or six with seconds first.
    pub fn cron(
        name: impl Into<String>,
        pattern: impl Into<String>,
        agent: impl Into<String>,
    ) -> Self {
        let cron = Some(pattern.into());
        Self(Draft(Ok(NewScheduleBody { cron, ..NewScheduleBody::new(name, agent) })))
    }

    /// Creates a schedule that starts an agent at a fixed interval of at least one second.
    pub fn every(name: impl Into<String>, interval: Duration, agent: impl Into<String>) -> Self {
        let every_ms = Some(Millis::from(interval).0);
        Self(Draft(Ok(NewScheduleBody { every_ms, ..NewScheduleBody::new(name, agent) })))
    }

    /// Sets the time zone of the cron pattern, such as `Europe/Berlin`. Default: `UTC`.
    pub fn tz(self, time_zone_name: impl Into<String>) -> Self {
        Self(self.0.with(|body| body.tz = Some(time_zone_name.into())))
    }

    /// Sets the input of the runs: a text, or any value that serializes to JSON.
    pub fn input(self, input: impl Serialize) -> Self {
        let input = to_json("the input of the schedule", &input);
        Self(self.0.set(input, |body, json| body.input = Some(json)))
    }

    /// Makes each firing send an event of this kind to the agent, such as `idle_tick` (the agent
    /// has nothing else to do).
    pub fn event(self, event_kind: impl Into<String>) -> Self {
        Self(self.0.with(|body| body.event = Some(event_kind.into())))
    }

    /// Sets the lane of the runs. Runs of one lane execute one at a time. Default: the lane of the
    /// agent.
    pub fn lane(self, lane: impl Into<String>) -> Self {
        Self(self.0.with(|body| body.lane = Some(lane.into())))
    }

    /// Sets the conversation thread of the runs.
    pub fn thread(self, conversation: impl Into<String>) -> Self {
        Self(self.0.with(|body| body.thread = Some(conversation.into())))
    }

    /// Sets the resource: the person or thing that the conversation is about.
    pub fn resource(self, resource_key: impl Into<String>) -> Self {
        Self(self.0.with(|body| body.resource = Some(resource_key.into())))
    }

    /// Sets what happens to firings whose time passed while no worker was running. Default:
    /// [`CatchUp::Skip`].
    pub fn catch_up(self, policy: CatchUp) -> Self {
        Self(self.0.with(|body| body.catch_up = policy))
    }

    /// Sets what happens when the schedule fires while its last run has not ended. Default:
    /// [`Overlap::Skip`].
    pub fn overlap(self, policy: Overlap) -> Self {
        Self(self.0.with(|body| body.overlap = policy))
    }
}

/// Access to the schedules of a runtime. Created by
/// [`Runtime::schedules`](crate::Runtime::schedules).
///
/// ```no_run
/// # async fn example(runtime: longhaul::Runtime) -> Result<(), longhaul::Error> {
/// use longhaul::Schedule;
///
/// let digest = Schedule::cron("digest", "0 9 * * *", "writer").input("Sum up the news.");
/// runtime.schedules().add(digest).await?;
/// for schedule in runtime.schedules().list().await? {
///     println!("{}: {:?}", schedule.name, schedule.next_at);
/// }
/// runtime.schedules().run("digest").await?.wait().await?;
/// runtime.schedules().remove("digest").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Schedules<'a> {
    pub(crate) state: &'a Arc<RuntimeState>,
}

impl Schedules<'_> {
    /// Stores a schedule. It fires while a worker of any process that uses this store is running.
    /// Each firing is handled by one worker only.
    ///
    /// # Errors
    /// A schedule with this name exists; the pattern, the time zone or the interval is invalid; the
    /// agent is unknown; a name is invalid; or the store failed.
    pub async fn add(&self, schedule: Schedule) -> Result<ScheduleView, Error> {
        Ok(self.state.longhaul.create_schedule(schedule.0.build()?, None).await?)
    }

    /// Returns all schedules, ordered by name, with the next firing and the last run.
    ///
    /// # Errors
    /// The store failed.
    pub async fn list(&self) -> Result<Vec<ScheduleView>, Error> {
        Ok(self.state.longhaul.schedules().await?)
    }

    /// Deletes a schedule and returns it. Its runs are kept.
    ///
    /// # Errors
    /// There is no such schedule, or the store failed.
    pub async fn remove(&self, schedule_name: &str) -> Result<ScheduleView, Error> {
        Ok(self.state.longhaul.delete_schedule(schedule_name).await?)
    }

    /// Starts a run of a schedule now. The next firing stays as it is.
    ///
    /// # Errors
    /// There is no such schedule, the lane is full, or the store failed.
    pub async fn run(&self, schedule_name: &str) -> Result<RunHandle, Error> {
        let run = self.state.longhaul.run_schedule(schedule_name, None, None).await?;
        Ok(RunHandle::new(Arc::clone(self.state), run.id))
    }
}
