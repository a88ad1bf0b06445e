//! Schedules, which start agents at certain times.

use std::sync::Arc;
use std::time::Duration;

use longhaul_api::schedule::{NewScheduleBody, ScheduleView};
use longhaul_core::schedule::{CatchUp, Overlap};
use longhaul_core::time::Millis;
use serde::Serialize;

use crate::error::{Error, SerializeError, serialize_or_record_error};
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
#[derive(Debug, Clone)]
pub struct Schedule {
    body: NewScheduleBody,
    serialize_error: Option<SerializeError>,
}

impl Schedule {
    /// Creates a schedule that starts an agent whenever the cron pattern matches. The pattern has
    /// five fields, or six with seconds first.
    pub fn cron(
        name: impl Into<String>,
        pattern: impl Into<String>,
        agent: impl Into<String>,
    ) -> Self {
        let body =
            NewScheduleBody { cron: Some(pattern.into()), ..NewScheduleBody::new(name, agent) };
        Self { body, serialize_error: None }
    }

    /// Creates a schedule that starts an agent at a fixed interval of at least one second.
    pub fn every(name: impl Into<String>, interval: Duration, agent: impl Into<String>) -> Self {
        let body = NewScheduleBody {
            every_ms: Some(Millis::from(interval).0),
            ..NewScheduleBody::new(name, agent)
        };
        Self { body, serialize_error: None }
    }

    /// Sets the time zone of the cron pattern, such as `Europe/Berlin`. Default: `UTC`.
    #[must_use]
    pub fn tz(mut self, time_zone_name: impl Into<String>) -> Self {
        self.body.tz = Some(time_zone_name.into());
        self
    }

    /// Sets the input of the runs: a text, or any value that serializes to JSON.
    #[must_use]
    pub fn input(mut self, input: impl Serialize) -> Self {
        let value_name = "the input of the schedule";
        self.body.input =
            Some(serialize_or_record_error(value_name, &input, &mut self.serialize_error));
        self
    }

    /// Makes each firing send an event of this kind to the agent, such as `idle_tick` (the agent
    /// has nothing else to do).
    #[must_use]
    pub fn event(mut self, event_kind: impl Into<String>) -> Self {
        self.body.event = Some(event_kind.into());
        self
    }

    /// Sets the lane of the runs. Runs of one lane execute one at a time. Default: the lane of the
    /// agent.
    #[must_use]
    pub fn lane(mut self, lane: impl Into<String>) -> Self {
        self.body.lane = Some(lane.into());
        self
    }

    /// Sets the conversation thread of the runs.
    #[must_use]
    pub fn thread(mut self, conversation: impl Into<String>) -> Self {
        self.body.thread = Some(conversation.into());
        self
    }

    /// Sets the resource: the person or thing that the conversation is about.
    #[must_use]
    pub fn resource(mut self, resource_key: impl Into<String>) -> Self {
        self.body.resource = Some(resource_key.into());
        self
    }

    /// Sets what happens to firings whose time passed while no worker was running. Default:
    /// [`CatchUp::Skip`].
    #[must_use]
    pub fn catch_up(mut self, policy: CatchUp) -> Self {
        self.body.catch_up = policy;
        self
    }

    /// Sets what happens when the schedule fires while its last run has not ended. Default:
    /// [`Overlap::Skip`].
    #[must_use]
    pub fn overlap(mut self, policy: Overlap) -> Self {
        self.body.overlap = policy;
        self
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
        if let Some(error) = schedule.serialize_error {
            return Err(error.into());
        }
        Ok(self.state.runtime.longhaul.create_schedule(schedule.body, None).await?)
    }

    /// Returns all schedules, ordered by name, with the next firing and the last run.
    ///
    /// # Errors
    /// The store failed.
    pub async fn list(&self) -> Result<Vec<ScheduleView>, Error> {
        Ok(self.state.runtime.longhaul.schedules().await?)
    }

    /// Deletes a schedule and returns it. Its runs are kept.
    ///
    /// # Errors
    /// There is no such schedule, or the store failed.
    pub async fn remove(&self, schedule_name: &str) -> Result<ScheduleView, Error> {
        Ok(self.state.runtime.longhaul.delete_schedule(schedule_name).await?)
    }

    /// Starts a run of a schedule now. The next firing stays as it is.
    ///
    /// # Errors
    /// There is no such schedule, the lane is full, or the store failed.
    pub async fn run(&self, schedule_name: &str) -> Result<RunHandle, Error> {
        let run = self.state.runtime.longhaul.run_schedule(schedule_name, None, None).await?;
        Ok(RunHandle::new(Arc::clone(self.state), run.id))
    }
}
