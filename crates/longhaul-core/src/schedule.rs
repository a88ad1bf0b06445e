//! Schedules: at which times an agent is started, and with which task.
//!
//! Nothing here computes a time; the engine does.

use serde::{Deserialize, Serialize};

use crate::id::{AgentName, LaneKey, ResourceKey, RunId, ScheduleName, ThreadKey};
use crate::raw::RawJson;
use crate::text_macros::string_enum;
use crate::time::{Millis, Timestamp};

/// Maximum number of schedules in a store.
pub const SCHEDULES_MAX: usize = 1_000;

/// Times at which a schedule fires.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleTiming {
    /// Fires at the times that match a cron pattern.
    Cron {
        /// Cron pattern of five fields, or six with seconds first, such as `0 9 * * MON-FRI`.
        cron: String,
        /// IANA name of the time zone of the pattern, such as `Europe/Berlin`.
        tz: String,
    },
    /// Fires at a fixed interval.
    Every(Millis),
}

string_enum! {
    /// What happens to firings whose time passed while no worker was running.
    #[derive(Default)]
    pub enum CatchUp {
        /// Missed firings start no run.
        #[default]
        Skip = "skip",
        /// All missed firings together start one run.
        Once = "once",
        /// Each missed firing starts a run, up to a maximum number of the newest ones that the
        /// engine sets.
        All = "all",
    }
}

string_enum! {
    /// What happens when a schedule fires while the run of its last firing has not ended.
    #[derive(Default)]
    pub enum Overlap {
        /// The firing starts no run while the last run has not ended.
        #[default]
        Skip = "skip",
        /// The new run waits until the last one has ended.
        Queue = "queue",
        /// The new run starts even if the last one has not ended.
        Allow = "allow",
    }
}

/// Definition of a schedule.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScheduleSpec {
    /// Times at which the schedule fires.
    pub timing: ScheduleTiming,
    /// Agent whose newest version executes the runs.
    pub agent: AgentName,
    /// Chain whose newest version executes the runs. `agent` is then the agent of the chain's first
    /// step when the schedule was created. `None` means that the agent executes them.
    pub chain: Option<String>,
    /// Input of the runs: a text or any JSON.
    pub input: RawJson,
    /// Kind of the event that each firing sends to the agent. `None` means that each firing submits
    /// an ordinary task.
    pub event: Option<String>,
    /// Lane of the runs. `None` means the lane of the agent.
    pub lane: Option<LaneKey>,
    /// Thread (conversation) of the runs. `None` means that they have no thread.
    pub thread: Option<ThreadKey>,
    /// Resource: the person or thing that the conversation is about. `None` if there is none.
    pub resource: Option<ResourceKey>,
    /// What happens to firings whose time passed while no worker was running.
    #[serde(default)]
    pub catch_up: CatchUp,
    /// What happens when the schedule fires while its last run has not ended.
    #[serde(default)]
    pub overlap: Overlap,
    /// Principal that created the schedule, or that changed it last. `None` if it is not recorded.
    pub created_by: Option<String>,
    /// Principals that created or changed the schedule before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier_authors: Vec<String>,
    /// Whether somebody has paused the schedule: it does not fire.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ScheduleRow {
    pub name: ScheduleName,
    /// Definition of the schedule.
    pub spec: ScheduleSpec,
    /// Time of the next firing. `None` means that the schedule is paused or never fires again.
    pub due: Option<Timestamp>,
    /// Newest run that a firing started. `None` if no firing has started one.
    pub last_run: Option<RunId>,
    /// Time at which a firing last started a run. `None` if none has.
    pub last_fired_at: Option<Timestamp>,
    /// Reason why the last firing started no run. `None` if it started one.
    pub last_error: Option<String>,
}
