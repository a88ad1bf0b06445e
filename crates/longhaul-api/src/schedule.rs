//! Schedules in requests and responses.

use longhaul_core::id::RunId;
use longhaul_core::raw::RawJson;
use longhaul_core::schedule::{CatchUp, Overlap, ScheduleRow, ScheduleTiming};
use longhaul_core::status::Status;
use longhaul_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A new schedule: either `cron` or `every_ms`, either `agent` or `chain`, and either `input` or
/// `event` or both.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewSchedule)]
pub struct NewScheduleBody {
    /// Name of the schedule: letters, digits, `_`, `-` and `.`.
    #[schema(min_length = 1, max_length = 64)]
    pub name: String,
    /// Cron pattern of five fields, or six with seconds first, such as `0 9 * * MON-FRI`.
    pub cron: Option<String>,
    /// Time zone of the cron pattern, such as `Europe/Berlin`. Default: `UTC`.
    pub tz: Option<String>,
    /// Fixed interval between two firings in milliseconds, instead of `cron`.
    #[schema(minimum = 1000)]
    pub every_ms: Option<u64>,
    /// Name of the agent that the schedule starts. Each run uses the agent's newest version.
    pub agent: Option<String>,
    /// Input of the runs: a text or any JSON.
    pub input: Option<RawJson>,
    /// Kind of the event that the agent receives at each firing, such as `idle_tick` (the agent has
    /// nothing else to do). `None` means an ordinary task.
    pub event: Option<String>,
    /// Lane of the runs. Runs of one lane execute one at a time. Default: the lane of the agent.
    pub lane: Option<String>,
    /// Thread (conversation) of the runs.
    pub thread: Option<String>,
    /// Resource: the person or thing that the conversation is about.
    pub resource: Option<String>,
    /// What happens to firings whose time passed while no worker was running. Default: `skip`.
    #[serde(default)]
    pub catch_up: CatchUp,
    /// What happens when the schedule fires while its last run has not ended. Default: `skip`.
    #[serde(default)]
    pub overlap: Overlap,
    /// Name of the chain that the schedule starts, instead of `agent`.
    pub chain: Option<String>,
}

impl NewScheduleBody {
    /// Creates a schedule for an agent, without a time, an input and an event. The caller sets
    /// them.
    pub fn new(schedule_name: impl Into<String>, agent_name: impl Into<String>) -> Self {
        let (name, agent) = (schedule_name.into(), Some(agent_name.into()));
        Self { name, agent, ..Self::default() }
    }
}

/// Changes of a schedule. A missing field is not changed. `cron` replaces `every_ms` and the other
/// way round, and `agent` replaces `chain` and the other way round.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ScheduleChange)]
pub struct ScheduleChangeBody {
    /// Cron pattern, such as `0 9 * * MON-FRI`.
    pub cron: Option<String>,
    /// Time zone of the cron pattern, such as `Europe/Berlin`.
    pub tz: Option<String>,
    /// Fixed interval between two firings in milliseconds.
    #[schema(minimum = 1000)]
    pub every_ms: Option<u64>,
    /// Name of the agent that the schedule starts.
    pub agent: Option<String>,
    /// Name of the chain that the schedule starts.
    pub chain: Option<String>,
    /// Input of the runs: a text or any JSON.
    pub input: Option<RawJson>,
    /// Kind of the event that the agent receives at each firing.
    pub event: Option<String>,
    /// Lane of the runs.
    pub lane: Option<String>,
    /// What happens to firings whose time passed while no worker was running.
    pub catch_up: Option<CatchUp>,
    /// What happens when the schedule fires while its last run has not ended.
    pub overlap: Option<Overlap>,
}

impl ScheduleChangeBody {
    /// Returns the definition of the schedule `old` with these changes.
    pub fn apply_to(self, old: ScheduleView) -> NewScheduleBody {
        let (has_interval, has_cron) = (self.every_ms.is_some(), self.cron.is_some());
        let has_agent = self.agent.is_some();
        let chain = self.chain.or(old.chain.filter(|_| !has_agent));
        NewScheduleBody {
            name: old.name,
            cron: self.cron.or(old.cron.filter(|_| !has_interval)),
            tz: self.tz.or(old.tz.filter(|_| !has_interval)),
            every_ms: self.every_ms.or(old.every_ms.filter(|_| !has_cron)),
            agent: self.agent.or(Some(old.agent).filter(|_| chain.is_none())),
            input: self.input.or(Some(old.input)),
            event: self.event.or(old.event),
            lane: self.lane.or(old.lane),
            thread: old.thread,
            resource: old.resource,
            catch_up: self.catch_up.unwrap_or(old.catch_up),
            overlap: self.overlap.unwrap_or(old.overlap),
            chain,
        }
    }
}

/// A schedule with its next and its last firing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Schedule)]
pub struct ScheduleView {
    /// Name of the schedule.
    pub name: String,
    /// Cron pattern. `None` if the schedule fires at a fixed interval.
    pub cron: Option<String>,
    /// Time zone of the cron pattern. `None` if the schedule fires at a fixed interval.
    pub tz: Option<String>,
    /// Fixed interval between two firings in milliseconds. `None` if the schedule has a cron
    /// pattern.
    pub every_ms: Option<u64>,
    /// Name of the agent that the schedule starts, or of the first agent of its chain.
    pub agent: String,
    /// Name of the chain that the schedule starts. `None` means that it starts the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<String>,
    /// Input of the runs.
    pub input: RawJson,
    /// Kind of the event that the agent receives at each firing. `None` means an ordinary task.
    pub event: Option<String>,
    /// Lane of the runs. Runs of one lane execute one at a time. `None` means the lane of the
    /// agent.
    pub lane: Option<String>,
    /// Thread (conversation) of the runs.
    pub thread: Option<String>,
    /// Resource: the person or thing that the conversation of the runs is about.
    pub resource: Option<String>,
    /// What happens to firings whose time passed while no worker was running.
    pub catch_up: CatchUp,
    /// What happens when the schedule fires while its last run has not ended.
    pub overlap: Overlap,
    /// Whether the schedule is paused: it does not fire.
    #[serde(default)]
    pub paused: bool,
    /// Time of the next firing. `None` means that the schedule is paused or never fires again.
    pub next_at: Option<Timestamp>,
    /// Id of the run that the last firing started. `None` means that no firing has started a run.
    pub last_run: Option<RunId>,
    /// Status of the run in `last_run`. `None` if there was no run yet, or if it was deleted.
    pub last_status: Option<Status>,
    /// Time at which a firing last started a run. `None` means that no firing has started a run.
    pub last_fired_at: Option<Timestamp>,
    /// Reason why the last firing started no run. `None` if it started one.
    pub last_error: Option<String>,
}

impl ScheduleView {
    /// Builds the view of a schedule from its row in the store and the status of its last run.
    pub fn new(row: &ScheduleRow, last_status: Option<Status>) -> Self {
        let spec = &row.spec;
        let (cron, tz, every_ms) = match &spec.timing {
            ScheduleTiming::Cron { cron, tz } => (Some(cron.clone()), Some(tz.clone()), None),
            ScheduleTiming::Every(interval) => (None, None, Some(interval.0)),
        };
        Self {
            name: row.name.to_string(),
            cron,
            tz,
            every_ms,
            agent: spec.agent.to_string(),
            chain: spec.chain.clone(),
            input: spec.input.clone(),
            event: spec.event.clone(),
            lane: spec.lane.as_ref().map(ToString::to_string),
            thread: spec.thread.as_ref().map(ToString::to_string),
            resource: spec.resource.as_ref().map(ToString::to_string),
            catch_up: spec.catch_up,
            overlap: spec.overlap,
            paused: spec.paused,
            next_at: row.due,
            last_run: row.last_run,
            last_status,
            last_fired_at: row.last_fired_at,
            last_error: row.last_error.clone(),
        }
    }
}
