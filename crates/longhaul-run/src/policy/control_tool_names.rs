//! Names of the control tools. These tools are never executed: the state machine turns their calls
//! into gates and timers.

use longhaul_core::id::{CallId, RunId, TimerId};
use longhaul_core::time::Timestamp;

/// Name of the control tool that asks a person a question.
pub(crate) const ASK_HUMAN: &str = "ask_human";
/// Name of the control tool that reports that the agent is blocked.
pub(crate) const REPORT_BLOCKED: &str = "report_blocked";
/// Name of the control tool that reports the agent's progress.
pub(crate) const REPORT_PROGRESS: &str = "report_progress";
/// Name of the control tool that waits for a time, a child run or a signal (an outside event).
pub(crate) const WAIT: &str = "wait";
/// Name of the control tool that starts a child run.
pub const RUN_AGENT: &str = "run_agent";
/// Name of the control tool that ends the run with an answer.
pub(crate) const FINISH: &str = "finish";

/// Returns the id of the timer after which the tool of a pending call is polled for the result.
/// `poll` is the number of this poll of the call, from 1.
pub(crate) fn poll_timer_id(run: RunId, call: CallId, poll: u32) -> TimerId {
    TimerId::derive(run.bits(), &format!("poll:{call}:{poll}"), Timestamp::default())
}

/// Returns the id of the timer that ends a `wait` call. The id is derived from the call, so
/// replaying the journal gives the same id without an event that contains it.
pub(crate) fn wait_timer_id(run: RunId, call: CallId) -> TimerId {
    TimerId::derive(run.bits(), &format!("wait:{call}"), Timestamp::default())
}
