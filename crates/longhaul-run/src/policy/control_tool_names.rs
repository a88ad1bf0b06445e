//! The tools that never execute: the heart turns them into gates and timers.
//!
//! Never: a tool that touches the world.

use longhaul_core::id::{CallId, RunId, TimerId};
use longhaul_core::time::Timestamp;

/// Asks a person.
pub(crate) const ASK_HUMAN: &str = "ask_human";
/// Says that the agent can't go on.
pub(crate) const REPORT_BLOCKED: &str = "report_blocked";
/// Says how far the agent is.
pub(crate) const REPORT_PROGRESS: &str = "report_progress";
/// Waits for a time or a signal.
pub(crate) const WAIT: &str = "wait";
/// Ends the run with an answer.
pub(crate) const FINISH: &str = "finish";

/// The timer of a call that waits. It follows from the call, so that the fold
/// knows it without being told.
pub(crate) fn wait_timer(run: RunId, call: CallId) -> TimerId {
    TimerId::derive(run.bits(), &format!("wait:{call}"), Timestamp::default())
}
